"""Layers that pool points: masks, weights, positions and empty sequences are checked, alike in all families."""

import subprocess
import sys

import pytest
import torch

from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.layers import euclidean
from hyperbolic.layers.guard import check_mask, check_range, check_rows
from hyperbolic.layers.sequence import check_lengths
from hyperbolic.manifolds import Euclidean

F64 = torch.float64
MASK = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
POOLING = ("attention", "context_attention", "centroid")
families = pytest.mark.parametrize("name", GEOMETRIES)


def geometry(name: str, c: float = 2.0):
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=None if manifold == "Euclidean" else c)


def pooling(name: str, kind: str):
    """The layer, and points (3, 4, D) for it."""
    g = geometry(name)
    layer = g.centroid() if kind == "centroid" else getattr(g, kind)(3)
    return layer.double(), g.manifold.random(3, 4, 3, std=0.5, dtype=F64)


def masked_layers(name: str):
    yield from (pooling(name, kind) for kind in POOLING)
    g = geometry(name)
    if "MultiHeadAttention" in g.family.layers:
        yield g.multi_head_attention(4, 2).double(), g.manifold.random(3, 4, 4, std=0.5, dtype=F64)


def first(result):
    return result[0] if isinstance(result, tuple) else result


@families
@pytest.mark.parametrize("dtype", [torch.float64, torch.long, torch.uint8])
def test_a_mask_that_is_not_boolean_is_refused(name, dtype):
    for layer, x in masked_layers(name):
        with pytest.raises(ValueError, match=rf"^\w+\.\w+: the mask must be boolean, .* {dtype} of shape \(3, 4\)"):
            layer(x, mask=MASK.to(dtype))


@families
@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 1), (3, 3), (3, 5), (4, 4), (1, 3, 4), ()])
def test_a_mask_of_another_shape_is_refused(name, shape):
    for layer, x in masked_layers(name):
        with pytest.raises(ValueError, match=r"^\w+\.\w+: the mask must have the shape \(3, 4\), got \(") as caught:
            layer(x, mask=torch.ones(shape, dtype=torch.bool))
        assert str(caught.value).endswith(f"got {shape}")


@families
def test_the_first_row_that_is_hidden_is_named(name):
    mask = torch.cat([MASK[:1], torch.zeros(2, 4, dtype=torch.bool)])
    for layer, x in masked_layers(name):
        with pytest.raises(ValueError, match=r"^\w+\.\w+: the mask of shape \(3, 4\) hides every position of row 1$"):
            layer(x, mask=mask)
        assert torch.isfinite(first(layer(x, mask=MASK))).all()


@families
@pytest.mark.parametrize("kind", POOLING)
def test_rows_of_more_and_of_no_axes(name, kind):
    layer, x = pooling(name, kind)
    mask = MASK.expand(2, 3, 4).clone()
    mask[1, 2] = False
    with pytest.raises(ValueError, match=r"hides every position of row \(1, 2\)"):
        layer(x.expand(2, *x.shape), mask=mask)
    with pytest.raises(ValueError, match=r"shape \(4,\) hides every position of the only row"):
        layer(x[0], mask=mask[1, 2])
    alone = first(layer(x[0][MASK[0]]))
    torch.testing.assert_close(first(layer(x[0], mask=MASK[0])), alone, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(first(layer(x, mask=MASK))[0], alone, rtol=1e-9, atol=1e-12)


@families
@pytest.mark.parametrize("kind", POOLING)
def test_no_points_are_a_mistake_and_no_rows_are_not(name, kind):
    layer, x = pooling(name, kind)
    for options in ({}, {"mask": MASK[:, :0]}):
        with pytest.raises(ValueError, match=r"^\w+\.\w+: takes points .* N > 0, got the shape \(3, 0, [34]\)$"):
            layer(x[:, :0], **options)
    with pytest.raises(ValueError, match=r"^\w+\.\w+: takes points .* got the shape \([34],\)$"):
        layer(x[0, 0])
    for options in ({}, {"mask": MASK[:0]}):
        assert first(layer(x[:0], **options)).shape == (0, x.shape[-1])


@families
def test_weights_of_the_centroid(name):
    layer, x = pooling(name, "centroid")
    weights = torch.rand(3, 4, dtype=F64)
    remaining = layer(x[:1, MASK[0]], weights[:1, MASK[0]])
    torch.testing.assert_close(layer(x, weights, MASK)[:1], remaining, rtol=1e-9, atol=1e-12)
    some = MASK.double()
    some[2] = 0
    for inputs, mask, row in (
        (some, None, 2),
        (torch.zeros(3, 4, dtype=F64), None, 0),
        ((~MASK).double(), MASK, 0),
        (torch.tensor([[1.0, 1, 1, 1], [1, 2, 1, -0.5], [1, 1, 1, 1]], dtype=F64), None, 1),
        (torch.tensor([[1.0, 1, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1]], dtype=F64), MASK, 1),
    ):
        message = rf"^\w+\.Centroid: the weights .* shape \(3, 4\), have a negative number or no positive sum in row {row}$"
        with pytest.raises(ValueError, match=message):
            layer(x, inputs, mask)
    for shape in ((4,), (3, 1), (3, 3), ()):
        with pytest.raises(ValueError, match=r"^\w+\.Centroid: the weights must have the shape \(3, 4\), got"):
            layer(x, torch.ones(shape, dtype=F64))
    with pytest.raises(ValueError, match="no positive sum in the only row"):
        layer(x[0], torch.zeros(4, dtype=F64))


@families
def test_gradients_of_a_masked_centroid_with_weights(name):
    layer, x = pooling(name, "centroid")
    weights = torch.rand(3, 4, dtype=F64, requires_grad=True)
    layer(x.requires_grad_(), weights, MASK).sum().backward()
    for grad in (weights.grad, x.grad.abs().sum(-1)):
        assert not grad[~MASK].any()
        assert torch.isfinite(grad).all()
    assert x.grad[MASK].any()


@families
def test_positions_of_the_attention(name):
    g = geometry(name)
    layer, x = g.attention(3, n_positions=3).double(), g.manifold.random(2, 4, 3, std=0.5, dtype=F64)
    shared = torch.tensor([0, 2, 1, 2])
    torch.testing.assert_close(layer(x, shared), layer(x, shared.expand(2, 4)))
    for positions, message in (
        (torch.tensor([0, 1, 2, 7]), r"positions must lie in 0..2 \(n_positions=3\), got 0..7"),
        (torch.tensor([0, -1, 2, 1]), r"positions must lie in 0..2 \(n_positions=3\), got -1..2"),
        (torch.tensor([1]), r"positions must have the shape \(4,\) or \(2, 4\) of the points, got \(1,\)"),
        (torch.tensor(7), r"positions must have the shape \(4,\) or \(2, 4\) of the points, got \(\)"),
        (torch.zeros(3, 4, dtype=torch.long), r"positions must have the shape .* got \(3, 4\)"),
        (None, "positions are given exactly when"),
    ):
        with pytest.raises(ValueError, match=r"^\w+\.Attention: " + message):
            layer(x, positions)
    with pytest.raises(ValueError, match=r"^\w+\.Attention: positions are given exactly when"):
        g.attention(3).double()(x, shared)


@families
def test_position_encoding_of_no_positions(name):
    g = geometry(name)
    layer, x = g.position_encoding(3, 5).double(), g.manifold.random(2, 4, 3, std=0.5, dtype=F64)
    for positions in (None, torch.zeros(0, dtype=torch.long)):
        with pytest.raises(ValueError, match=r"^\w+\.PositionEncoding: .* N > 0, got the shape \(2, 0, [34]\)"):
            layer(x[:, :0], positions)
    with pytest.raises(ValueError, match=r"^\w+\.PositionEncoding: positions must have the shape .* got \(1,\)"):
        layer(x, torch.tensor([1]))
    for positions in (None, torch.arange(4)):
        assert layer(x[:0], positions).shape == (0, 4, x.shape[-1])


def test_on_a_device_the_checks_assert_without_waiting(monkeypatch):
    """Tensors without data: whatever looks at their values fails."""
    said = []
    monkeypatch.setattr(torch, "_assert_async", lambda right, message: said.append((right, message)))
    layer = euclidean.RNN(Euclidean(), 2, 3)
    mask, index = torch.ones(2, 3, dtype=torch.bool, device="meta"), torch.ones(2, dtype=torch.long, device="meta")
    check_mask(layer, mask, (2, 3))
    check_rows(layer, mask.any(-1), "nothing in {}")
    check_lengths(index, torch.ones(2, 4, 2, device="meta"), layer)
    check_range(None, index, 0, 3, "index must lie in 0..3")
    assert [message for _, message in said] == [
        "euclidean.RNN: the mask of shape (2, 3) hides every position of at least one row",
        "euclidean.RNN: nothing in at least one row",
        "euclidean.RNN: lengths must lie in 1..4: drop empty sequences first",
        "index must lie in 0..3",
    ]
    assert all(right.shape == () and right.dtype is torch.bool for right, _ in said)
    check_mask(layer, mask, (2, 3), hidden_rows=True)
    assert len(said) == 4


_ON_A_GPU = """
import torch
from hyperbolic.geometry import make_geometry
g = make_geometry("lorentz", "Lorentz", "lorentz", c=2.0)
x = g.manifold.origin(2, 3, 4).cuda()
whole, none = torch.ones(2, 3, dtype=torch.bool).cuda(), torch.zeros(2, 3, dtype=torch.bool).cuda()
{}
torch.cuda.synchronize()
"""
_CALLS = [
    ("g.multi_head_attention(4, 2).cuda()(x, mask={})", "whole", "none"),
    ("g.attention(4).cuda()(x, mask={})", "whole", "none"),
    ("g.centroid().cuda()(x, weights={}.float())", "whole", "none"),
    ("g.gru(4, 4).cuda()(x, {}.long().sum(-1))", "whole", "none"),
    ("g.position_encoding(4, 1).cuda()(x, {}.long())", "none", "whole"),
]


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(("call", "good", "bad"), _CALLS)
def test_on_a_gpu_the_checks_assert(call, good, bad):
    """In a process each, as an assertion ends the use of the device."""
    for inputs in (good, bad):
        program = _ON_A_GPU.format(call.format(inputs))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        assert (done.returncode == 0) == (inputs == good), done.stderr
        assert inputs == good or "device-side assert" in done.stderr or "_assert_async" in done.stderr, done.stderr
