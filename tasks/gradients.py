"""Several processes that train as one: the same weights and random numbers at first, the same gradients in a step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import torch
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor, distributed, nn

NONE, DENSE = -1, -2  # kinds of gradients; those of a sparse one are the number of its rows


class MeanGradients(DDPStrategy):
    """Lightning's strategy for several processes ("ddp"), with the mean of the gradients taken here, after the backward
    pass, and not by PyTorch's `DistributedDataParallel`, which cannot do without the gradient of any parameter, takes
    sparse ones from `torch.nn.Embedding` alone, and sends the buffers, as a table of word vectors, in every step.

    Gradients are sent when all are there, not while the backward pass still makes others.
    """

    is_blocked = False  # while batches are added up to one step

    def setup_environment(self) -> None:
        state = torch.get_rng_state()
        super().setup_environment()  # which seeds again, as if the model had drawn no weights
        torch.set_rng_state(state)

    def configure_ddp(self) -> None:
        assert self.model is not None
        for parameter in self.model.parameters():
            distributed.broadcast(parameter.detach(), 0)

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        self.is_blocked = True
        try:
            yield
        finally:
            self.is_blocked = False

    def post_backward(self, closure_loss: Tensor) -> None:
        if not self.is_blocked:
            assert self.model is not None
            average_gradients(self.model)


def average_gradients(module: nn.Module) -> None:
    """Gives every parameter the mean of its gradients in all processes; one that a process does not have counts as 0.

    A parameter without a gradient in any process stays without one. Dense gradients are sent as one tensor of each
    dtype. Parameters of modules with the attribute `sparse` may have sparse ones, of rows (axis 0); their mean has the
    rows of all processes.
    """
    of_sparse = (m.parameters(recurse=False) for m in module.modules() if getattr(m, "sparse", False))
    tables = dict.fromkeys(p for p in chain.from_iterable(of_sparse) if p.requires_grad)
    _average([p for p in module.parameters() if p.requires_grad and p not in tables])
    if tables:
        _average_tables(list(tables))


def _average(parameters: Sequence[nn.Parameter]) -> None:
    """Of dense gradients."""
    for dtype in dict.fromkeys(p.dtype for p in parameters):
        params = [p for p in parameters if p.dtype == dtype]
        has_gradient = torch.tensor([p.grad is not None for p in params], dtype=dtype, device=params[0].device)
        mean = torch.cat([*(_dense(p).reshape(-1) for p in params), has_gradient])
        distributed.all_reduce(mean)
        mean /= distributed.get_world_size()
        *parts, shares = mean.split([*(p.numel() for p in params), len(params)])
        for p, part, share in zip(params, parts, shares, strict=True):
            if p.grad is not None or share:  # the share itself is looked at in need alone: it waits for a GPU
                p.grad = part.view(p.shape)


def _average_tables(tables: Sequence[nn.Parameter]) -> None:
    for p in tables:
        if p.grad is not None and p.grad.is_sparse:
            p.grad = p.grad.coalesce()
    kinds = torch.tensor([[_kind(p.grad) for p in tables]], device=tables[0].device)
    by_process = gather_rows(kinds, [1] * distributed.get_world_size()).T.tolist()
    _average([p for p, kinds_of_p in zip(tables, by_process, strict=True) if DENSE in kinds_of_p])
    for p, kinds_of_p in zip(tables, by_process, strict=True):
        if DENSE not in kinds_of_p and max(kinds_of_p) > NONE:
            p.grad = _mean_of_rows(p, [max(0, rows) for rows in kinds_of_p])


def gather_rows(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """The rows of all processes, one process after the other: x (N, ...), of which process k has sizes[k] rows."""
    padded = x.new_zeros(max(sizes), *x.shape[1:])
    padded[: len(x)] = x
    parts = [torch.empty_like(padded) for _ in sizes]
    distributed.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def _kind(grad: Tensor | None) -> int:
    if grad is None:
        return NONE
    return grad._nnz() if grad.is_sparse else DENSE


def _dense(p: nn.Parameter) -> Tensor:
    if p.grad is None:
        return torch.zeros(p.shape, dtype=p.dtype, device=p.device)
    return p.grad.to_dense().as_subclass(Tensor)


def _mean_of_rows(p: nn.Parameter, sizes: Sequence[int]) -> Tensor:
    """The mean of sparse gradients, of which process k has sizes[k] rows."""
    grad = p.grad
    if grad is None:
        rows, values = torch.empty(0, dtype=torch.long, device=p.device), _dense(p)[:0]
    else:
        rows, values = grad.indices()[0], grad.values()
    rows, values = gather_rows(rows, sizes), gather_rows(values, sizes)
    return torch.sparse_coo_tensor(rows.unsqueeze(0), values / len(sizes), p.shape, check_invariants=False)
