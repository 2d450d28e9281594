"""Batch norm against PyTorch's, of one process and of several that share a batch."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from hyperbolic.encoders.relational.batch_norm import normalise, uncounted_rows
from tests.collectives import in_processes
from tests.tolerances import tolerance

SHAPES = [(5, 3), (5, 3, 2, 4)]
F64 = torch.float64


def make(shape: tuple[int, ...]) -> tuple[nn.Module, torch.Tensor]:
    norm = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(shape[1], dtype=F64)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm, 3 + torch.randn(shape, dtype=F64)


@pytest.mark.parametrize("shape", SHAPES)
def test_batches_are_normalised_as_usual(shape):
    norm, x = make(shape)
    expected = copy.deepcopy(norm)(x)
    torch.testing.assert_close(normalise(norm, x), expected, **tolerance(F64, "identity"))
    assert norm.num_batches_tracked == 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sizes", [(3, 2), (1, 4), (2, 2, 1), (0, 5)])
def test_several_processes_normalise_the_whole_batch(shape, sizes):
    norm, x = make(shape)
    alone, whole, mix = copy.deepcopy(norm), x.clone().requires_grad_(), torch.randn_like(x)
    expected = alone(whole)
    (expected * mix).sum().backward()

    def shared(rank: int):
        own, part = copy.deepcopy(norm), x.split(sizes)[rank].clone().requires_grad_()
        y = normalise(own, part)
        (y * mix.split(sizes)[rank]).sum().backward()
        return own, part.grad, y.detach()

    results = in_processes(len(sizes), shared)
    for name, theirs in (("x", whole.grad), ("y", expected.detach())):
        ours = torch.cat([result[1 if name == "x" else 2] for result in results])
        torch.testing.assert_close(ours, theirs, **tolerance(F64, "identity"))
    for name, parameter in alone.named_parameters():
        ours = sum(result[0].get_parameter(name).grad for result in results)
        torch.testing.assert_close(ours, parameter.grad, **tolerance(F64, "identity"))
    for result in results:
        for ours, theirs in zip(result[0].buffers(), alone.buffers(), strict=True):
            torch.testing.assert_close(ours, theirs, **tolerance(F64, "identity"))


@pytest.mark.parametrize("rows", [1, 2])
def test_a_process_that_stands_in_with_anothers_row_counts_for_nothing(rows):
    norm, x = make((rows, 3))
    alone = copy.deepcopy(norm)
    expected = normalise(alone, x)

    def shared(rank: int):
        own = copy.deepcopy(norm)
        with uncounted_rows() if rank else nullcontext():
            return own, normalise(own, x[:1] if rank else x).detach()

    results = in_processes(2, shared)
    torch.testing.assert_close(results[0][1], expected.detach(), **tolerance(F64, "identity"))
    for own, _ in results:
        for ours, theirs in zip(own.buffers(), alone.buffers(), strict=True):
            torch.testing.assert_close(ours, theirs, **tolerance(F64, "identity"))


def test_a_whole_batch_of_one_is_normalised_with_the_running_statistics():
    norm, x = make((1, 3))
    expected = copy.deepcopy(norm).eval()(x)
    (result,) = in_processes(1, lambda rank: normalise(norm, x))
    torch.testing.assert_close(result, expected, **tolerance(F64, "identity"))
    assert norm.num_batches_tracked == 0


@pytest.mark.parametrize("processes", [1, 2])
def test_a_batch_of_no_rows_changes_nothing(processes):
    norm, x = make((0, 3))
    for own in in_processes(processes, lambda rank: _with_gradients(copy.deepcopy(norm), x)):
        assert own.num_batches_tracked == 0
        assert own.weight.grad.abs().sum() == 0
    assert _with_gradients(norm, x).num_batches_tracked == 0


def _with_gradients(norm, x):
    normalise(norm, x).sum().backward()
    return norm


def test_processes_take_half_precision_as_one_does():
    """As autocast hands it on from a convolution: statistics and their count stay in float32."""
    norm, x = torch.nn.BatchNorm1d(3), 3 + torch.randn(1001, 3)
    expected = copy.deepcopy(norm)(x.bfloat16().float())
    first, second = in_processes(2, lambda rank: normalise(copy.deepcopy(norm), x.bfloat16().split([500, 501])[rank]).detach())
    assert first.dtype is torch.bfloat16
    torch.testing.assert_close(torch.cat([first, second]).float(), expected, rtol=0.01, atol=0.01)
