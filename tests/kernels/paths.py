"""Results of a kernel on PyTorch operations and on C++ passes, for tests that compare them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from hyperbolic import switch


@contextmanager
def path(mode: str, threads: int = 1) -> Iterator[None]:
    """Kernels of this mode of the switch, on so many threads."""
    before = switch.mode()
    switch.use_kernels(mode)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(1)
        switch.use_kernels(before)


def results(mode: str, function: Callable[..., Tensor], leaves: list[Tensor], threads: int = 1) -> list[Tensor]:
    """The value of the function and the gradients of the sum of its squares."""
    with path(mode, threads):
        fresh = [leaf.detach().clone().requires_grad_() for leaf in leaves]
        value = function(*fresh)
        return [value.detach(), *torch.autograd.grad(value.square().sum(), fresh)]


def assert_paths_agree(function: Callable[..., Tensor], leaves: list[Tensor], relative: float) -> None:
    """Values and gradients of both, on one thread and on two, to a part of the largest entry of each; the gradients of
    scalars, which may cancel, to that part of the sum that is differentiated if it is larger."""
    expected = results("plain", function, leaves)
    total = expected[0].double().square().sum().item()
    for threads in (1, 2):
        for actual, plain in zip(results("fast", function, leaves, threads), expected, strict=True):
            assert torch.isfinite(actual).all()
            assert actual.dtype is plain.dtype
            size = plain.abs().max().item() if plain.numel() else 0.0
            size = max(size, total) if plain.dim() == 0 else size
            torch.testing.assert_close(actual, plain, rtol=0, atol=relative * size)
