"""Batch norm over the whole batch, also where several processes share it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar

import torch
from torch import Tensor, distributed, nn

from hyperbolic.typing import Context, Function

_counts = ContextVar("_counts", default=True)


@contextlib.contextmanager
def uncounted_rows() -> Iterator[None]:
    """Within it the rows of this process stand in for none: they are normalised, and no statistics know them."""
    token = _counts.set(False)
    try:
        yield
    finally:
        _counts.reset(token)


class _Sum(Function[Tensor]):
    """The sum of a tensor over all processes."""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> Tensor:
        return _Sum.apply(grad)


def normalise(norm: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Batch norm of x (B, C, ...), in training over the rows of all processes, those within `uncounted_rows`
    left out.

    A batch of one row or none has no statistics of its own: in training it is normalised with the running ones, as in
    evaluation, and leaves them as they are. A process may have no rows of a batch. Statistics are taken in the dtype of
    the running ones. PyTorch's `SyncBatchNorm` takes the rows of all processes on GPUs alone.
    """
    if norm.training and distributed.is_available() and distributed.is_initialized():
        return _over_processes(norm, x)
    if norm.training and len(x) <= 1:
        return _with_running(norm, x)
    result: Tensor = norm(x)
    return result


def _with_running(norm: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    return nn.functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)


def _over_processes(norm: nn.BatchNorm1d | nn.BatchNorm2d, x: Tensor) -> Tensor:
    running_mean, running_var, batches = norm.buffers()
    given, x = x.dtype, x.to(running_mean.dtype)
    axes, shape = [0, *range(2, x.dim())], (1, -1, *[1] * (x.dim() - 2))
    counts = float(_counts.get())
    sums = _Sum.apply(counts * torch.cat([x.sum(axes), x.new_tensor([float(len(x))])]))
    if (rows := float(sums[-1].detach())) <= 1:
        return _with_running(norm, x).to(given)
    count = rows * math.prod(x.shape[2:])
    mean = sums[:-1] / count
    centred = x - mean.view(shape)
    variance = _Sum.apply(counts * centred.square().sum(axes)) / count
    with torch.no_grad():
        assert norm.momentum is not None  # None: the mean over all batches, which nobody asks for
        running_mean.lerp_(mean, norm.momentum)
        running_var.lerp_(variance * count / (count - 1), norm.momentum)
        batches.add_(1)
    scale = norm.weight * (variance + norm.eps).rsqrt()
    return (centred * scale.view(shape) + norm.bias.view(shape)).to(given)
