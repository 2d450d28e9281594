"""Möbius RNN and GRU in C++ against those of PyTorch operations, in value and gradient."""

import warnings

import pytest
import torch

from hyperbolic import switch
from hyperbolic.kernels.recurrent import mobius_gru, mobius_rnn, passes, plain
from hyperbolic.kernels.recurrent.passes import Gru
from tests.tolerances import tolerance

pytestmark = [
    pytest.mark.skipif(switch.cpp_compiler() is None, reason="needs a C++ compiler"),
    pytest.mark.usefixtures("native_kernels"),
]
F32, F64 = torch.float32, torch.float64
KERNELS = {"rnn": (mobius_rnn, 1), "gru": (mobius_gru, 3)}
KINDS = pytest.mark.parametrize("kind", KERNELS)
DTYPES = pytest.mark.parametrize("dtype", [F32, F64], ids=str)


def arguments(kind, batch, steps=4, d_in=3, hidden=5, streams=1, cells=1, dtype=F64, length=0.4, c=1.7, ended=False):
    """x, lengths, weights, bias and curvature; points of about this length for c = 1."""
    gates = KERNELS[kind][1]

    def points(*size):
        return (length * torch.nn.functional.normalize(torch.randn(*size, dtype=F64), dim=-1) / c**0.5).to(dtype)

    weights = [torch.randn(cells, gates, hidden, d, dtype=dtype) / d**0.5 for d in (d_in, hidden)]
    free = [points(streams, batch, steps, d_in), *weights, points(cells, gates, hidden), torch.tensor(c, dtype=F64)]
    lengths = torch.randint(1, steps + 1, (streams, batch)) if ended else None
    return [t.requires_grad_() for t in free], lengths


def cotangent(states):
    return torch.randn(states.shape, dtype=F64, generator=torch.Generator().manual_seed(1)).to(states.dtype)


def results(kind, free, lengths, phi="identity", margin=0.0):
    """States, and gradients of everything."""
    x, *rest = free
    options = {"margin": margin} if kind == "rnn" else {}
    states = KERNELS[kind][0](x, lengths, *rest, phi, **options)
    return states, *torch.autograd.grad(states, free, cotangent(states))


def assert_same(kind, free, lengths, phi="identity", room=1.0, margin=0.0):
    assert Gru.fits(free[0], lengths, *free[1:], plain.PHI.index(phi), margin)
    actual = results(kind, free, lengths, phi, margin)
    assert all(t.isfinite().all() for t in actual)
    mode = switch.mode()
    switch.use_kernels("plain")
    expected = results(kind, free, lengths, phi, margin)
    switch.use_kernels(mode)
    limit = tolerance(actual[0].dtype, "identity")["rtol"] * room
    sizes = [b.abs().max().item() if b.numel() else 0 for b in expected]
    sizes[-1] = max(sizes)  # terms of the curvature's gradient cancel
    for a, b, size in zip(actual, expected, sizes, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=limit * size)


@KINDS
@DTYPES
@pytest.mark.parametrize("batch", [0, 1, 15, 16, 17, 31, 32, 33, 70])
def test_batches_that_do_not_fill_a_block(kind, dtype, batch):
    assert_same(kind, *arguments(kind, batch, dtype=dtype, ended=True))


@KINDS
@DTYPES
@pytest.mark.parametrize(("d_in", "hidden"), [(1, 1), (5, 5), (7, 12), (33, 13), (40, 65)])
def test_sizes_that_do_not_fill_a_tile(kind, dtype, d_in, hidden):
    assert_same(kind, *arguments(kind, 19, 3, d_in, hidden, dtype=dtype, length=0.2))


@KINDS
@DTYPES
@pytest.mark.parametrize("phi", ["identity", "tanh", "relu", "sigmoid"])
@pytest.mark.parametrize("cells", [2, 4])
@pytest.mark.parametrize("ended", [False, True])
def test_streams_directions_and_nonlinearities(kind, dtype, phi, cells, ended):
    assert_same(kind, *arguments(kind, 18, streams=2, cells=cells, dtype=dtype, ended=ended), phi)


@KINDS
@DTYPES
@pytest.mark.parametrize(("length", "room"), [(1e-20, 1), (1e-6, 1), (0.9, 1), (0.999, 100)])
def test_tiny_and_far_points(kind, dtype, length, room):
    """Gradients through a gap g have relative errors of about eps/g."""
    assert_same(kind, *arguments(kind, 20, 3, dtype=dtype, length=length), room=room)


@KINDS
@DTYPES
def test_threads(kind, dtype):
    """The work of one thread split among several, and the same bits each time for a number of threads."""
    free, lengths = arguments(kind, 75, streams=2, cells=4, dtype=dtype, ended=True)
    alone = results(kind, free, lengths)
    torch.set_num_threads(3)
    shared, again = (results(kind, free, lengths) for _ in range(2))
    assert all(map(torch.equal, shared, again))
    assert torch.equal(alone[0], shared[0])
    for a, b in zip(alone, shared, strict=True):
        torch.testing.assert_close(a, b, **tolerance(dtype, "identity"))


@KINDS
def test_only_what_needs_a_gradient_gets_one(kind):
    free, lengths = arguments(kind, 6)
    states, *expected = results(kind, free, lengths)
    for i, expected_grads in enumerate(expected):
        inputs = [t.clone().detach().requires_grad_(i == j) for j, t in enumerate(free)]
        same = KERNELS[kind][0](inputs[0], lengths, *inputs[1:])
        (grad,) = torch.autograd.grad(same, inputs[i], cotangent(same))
        assert torch.equal(same, states)
        assert torch.equal(grad, expected_grads)
    with torch.no_grad():
        assert torch.equal(KERNELS[kind][0](free[0], lengths, *free[1:]), states)


def far(dtype, weight):
    """Sequences of 20 steps whose matrices drive states to the boundary."""
    free, lengths = arguments("rnn", 6, steps=20, hidden=3, dtype=dtype, ended=True)
    with torch.no_grad():
        for matrix in free[1:3]:
            matrix *= weight
    return free, lengths


@DTYPES
@pytest.mark.parametrize("margin", [1e-5, 1e-3, 0.05])
def test_points_that_are_clipped(dtype, margin):
    assert_same("rnn", *far(dtype, 2.0), phi="tanh", room=100.0, margin=margin)
    free, lengths = far(dtype, 6.0)
    assert_same("rnn", free, lengths, room=100.0, margin=margin)
    longest = (free[-1].sqrt() * results("rnn", free, lengths, margin=margin)[0]).norm(dim=-1).max().item()
    assert longest == pytest.approx(1 - margin, abs=1e-6)


def test_clipped_points_learn_nothing_of_how_far_they_were():
    """So the gradient of an RNN without a nonlinearity does not grow with its matrices, as that of logarithms does."""
    free, lengths = far(F32, 4.0)
    sizes = [results("rnn", free, lengths, margin=margin)[3].norm() for margin in (0.0, 1e-5)]
    assert sizes[1] < 50
    assert sizes[1] < 0.1 * sizes[0]


@KINDS
def test_gradients_that_fade_end_at_zero(kind):
    """From the last of many states, through weights that forget: numbers below the normal ones take long."""
    free, lengths = arguments(kind, 3, steps=80, dtype=F32)
    with torch.no_grad():
        free[1] *= 0.1
        free[2] *= 0.01
    states = KERNELS[kind][0](free[0], lengths, *free[1:])
    (grad,) = torch.autograd.grad(states[:, :, -1].sum(), free[0])
    assert grad[:, :, -1].any()
    assert not grad[grad != 0].abs().lt(torch.finfo(F32).tiny).any()


@pytest.mark.parametrize(
    ("place", "change", "error", "message"),
    [
        (0, lambda x: x[..., :2], ValueError, "mobius_gru takes x"),
        (0, lambda x: x.float(), RuntimeError, "dtype|scalar type"),
        (2, lambda w: w[..., :4], ValueError, "mobius_gru takes x"),
        (3, lambda b: b[..., :4], ValueError, "mobius_gru takes x"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(place, change, error, message):
    free, lengths = arguments("gru", 4)
    free[place] = change(free[place].detach())
    with pytest.raises(error, match=message):
        mobius_gru(free[0], lengths, *free[1:])


def test_which_arguments_it_is_for():
    (x, w_ih, w_hh, bias, c), _ = arguments("gru", 4)
    lengths = torch.ones(1, 4, dtype=torch.int32)
    assert Gru.fits(x, lengths, w_ih, w_hh, bias, c, 1, 0.0)
    assert Gru.fits(x.transpose(1, 2).contiguous().transpose(1, 2), None, w_ih, w_hh, bias, c, 1, 0.0)
    assert not Gru.fits(x, lengths, w_ih, w_hh, bias, c, 4, 0.0)
    assert not Gru.fits(x, lengths[:, :3], w_ih, w_hh, bias, c, 1, 0.0)
    large = torch.empty(1, 3, 700, 700, dtype=F64)
    assert not Gru.fits(
        torch.empty(1, 2, 2, 700, dtype=F64), None, large, large, torch.empty(1, 3, 700, dtype=F64), c, 1, 0.0
    )
    switch.use_kernels("plain")
    assert not Gru.fits(x, lengths, w_ih, w_hh, bias, c, 1, 0.0)


@KINDS
def test_a_recorded_sequence_takes_other_batches(kind):
    """torch.export with a batch and a length that vary, and torch.jit.trace."""

    class Sequence(torch.nn.Module):
        def forward(self, x, lengths, *rest):
            return KERNELS[kind][0](x, lengths, *rest)

    (x, *rest), lengths = arguments(kind, 4, streams=2, cells=4, ended=True)
    (x2, *_), lengths2 = arguments(kind, 7, steps=6, streams=2, cells=4, ended=True)
    batch, steps = torch.export.Dim("batch", max=64), torch.export.Dim("steps", max=64)
    dynamic = ({1: batch, 2: steps}, {1: batch}, *[None] * len(rest))
    program = torch.export.export(
        Sequence(), (x, lengths, *rest), dynamic_shapes={"x": dynamic[0], "lengths": dynamic[1], "rest": dynamic[2:]}
    )
    expected = Sequence()(x2, lengths2, *rest)
    torch.testing.assert_close(program.module()(x2, lengths2, *rest), expected)
    with warnings.catch_warnings():  # of the shapes that Python looks at, whose answers do not depend on the batch
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        traced = torch.jit.trace(lambda *a: KERNELS[kind][0](*a), (x, lengths, *rest), check_trace=False)
    torch.testing.assert_close(traced(x, lengths, *rest), KERNELS[kind][0](x, lengths, *rest))


@KINDS
@pytest.mark.parametrize("recorded", [True, False])
def test_states_are_kept_only_where_gradients_are_recorded(kind, recorded, monkeypatch):
    calls, free = [], arguments(kind, 3)[0]
    monkeypatch.setattr(passes._LIBRARY, "run", lambda *arguments: calls.append(arguments))
    with torch.set_grad_enabled(recorded):
        KERNELS[kind][0](free[0], None, *free[1:])
    assert (calls[0][-1] is not None) is recorded
