"""HyboNet's linear layer: its variants written out, boosts and rotations, the stated radius, other curvatures."""

import math

import pytest
import torch
from torch import nn

from hyperbolic.layers import lorentz
from hyperbolic.layers.lorentz_linear import VARIANTS
from hyperbolic.manifolds import Lorentz
from tests.layers.lorentz_formulas import CLOSE, CURVATURES, F64, normalised, points, spread


def boost(velocity: torch.Tensor) -> torch.Tensor:
    square = velocity @ velocity
    gamma = (1 - square).rsqrt()
    space = torch.eye(len(velocity), dtype=F64) + gamma**2 / (1 + gamma) * torch.outer(velocity, velocity)
    top = torch.cat([gamma.view(1), -gamma * velocity])
    return torch.cat([top.unsqueeze(0), torch.cat([-gamma * velocity.unsqueeze(-1), space], 1)])


@pytest.mark.parametrize("c", CURVATURES)
def test_linear_covers_boosts_and_rotations(c):
    """Lemma 1; the composition keeps all distances, which no tangent linear layer that is not a rotation does."""
    space = Lorentz(c)
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=F64))[0]
    rotation *= torch.linalg.det(rotation)
    rotation = torch.block_diag(torch.ones(1, 1, dtype=F64), rotation)
    x, y = points(c, 6, 3), points(c, 6, 3)
    for matrix in (boost(torch.tensor([0.5, -0.3, 0.6], dtype=F64)), rotation):
        layer = lorentz.Linear(space, 3, 3, bias=False, normalize=False).double()
        with torch.no_grad():
            layer.weight.copy_(matrix[1:])
        torch.testing.assert_close(layer(x), x @ matrix.T, **CLOSE)
        torch.testing.assert_close(space.dist(layer(x), layer(y)), space.dist(x, y), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("c", CURVATURES)
def test_the_variants_are_their_formulas(c):
    """The paper (Eq. 3, 7, 9) and the three programs, with bias and activation, written out."""
    space = Lorentz(c)
    x = points(c, 5, 3)
    for name in VARIANTS.keys() - {"tangent"}:
        layer = spread(lorentz.Linear(space, 3, 4, activation="tanh", variant=name))
        v, w = layer.weight[0], layer.weight[1:]
        h = torch.tanh(x)
        if name == "paper":  # time from x itself
            expected = normalised(x @ v + layer.bias[0], h @ w.T + layer.bias[1:], layer.log_scale.exp(), c)
        elif name == "kg":  # time before the bias, fixed lambda
            expected = normalised(h @ v, h @ w.T + layer.bias, torch.tensor(2.5), c)
        else:
            expected = normalised(h @ v + layer.bias[0], h @ w.T + layer.bias[1:], layer.log_scale.exp(), c)
        torch.testing.assert_close(layer(x), expected, **CLOSE)
        results, plain = (torch.autograd.grad(y.sin().sum(), layer.parameters()) for y in (layer(x), expected))
        for a, b in zip(results, plain, strict=True):
            torch.testing.assert_close(a, b, **CLOSE)


@pytest.mark.parametrize("c", CURVATURES)
def test_in_the_tangent_space_at_the_origin(c):
    """The baseline of Table 6: ``exp_0(W h(log_0(x)) + b)``, in every layer that is made of linear ones."""
    space = Lorentz(c)
    x, o = points(c, 2, 5, 4), points(c, 2, 5, 3)
    layer = spread(lorentz.Linear(space, 3, 4, activation="tanh", variant="tangent"))
    u = torch.tanh(space.logmap0(o)) @ layer.weight.T + layer.bias
    torch.testing.assert_close(layer(o), space.expmap0(u), **CLOSE)
    heads = spread(lorentz.Linear(space, 3, 2, variant="tangent", heads=3))
    u = (space.logmap0(o) @ heads.weight.T + heads.bias).unflatten(-1, (3, 2))
    torch.testing.assert_close(heads(o), space.expmap0(u), **CLOSE)
    residual = spread(lorentz.Residual(space, 3, 4, variant="tangent"))
    u = space.logmap0(o) @ residual.affine.weight.T + space.logmap0(x)
    torch.testing.assert_close(residual(o, x), space.expmap0(u), **CLOSE)
    positions = spread(lorentz.PositionEncoding(space, 4, 5, variant="tangent"))
    u = space.logmap0(x) @ positions.affine.weight.T + positions.table
    torch.testing.assert_close(positions(x), space.expmap0(u), **CLOSE)
    attention = lorentz.Attention(space, 4, n_positions=5, variant="tangent")
    assert {m.variant for m in attention.modules() if isinstance(m, lorentz.Linear)} == {"tangent"}
    with pytest.raises(ValueError, match="no effect with variant='tangent': scale"):
        lorentz.Linear(space, 3, 4, variant="tangent", scale=2.0)


@pytest.mark.parametrize("c", CURVATURES)
def test_the_curvature_scales_the_result(c):
    """Without sizes of its own, a layer on points scaled by 1/sqrt(c) is the c = 1 layer with the result so scaled."""
    x = points(1.0, 5, 3)
    curved, unit = (spread(lorentz.Linear(Lorentz(value), 3, 4)) for value in (c, 1.0))
    curved.load_state_dict(unit.state_dict())
    with torch.no_grad():
        curved.weight.mul_(c**0.5)
    torch.testing.assert_close(curved(x / c**0.5), unit(x) / c**0.5, **CLOSE)
    lowest = spread(lorentz.Linear(Lorentz(c), 3, 4))
    with torch.no_grad():
        lowest.bias[0] = -1e4
    torch.testing.assert_close(lowest(x)[:, 0], torch.full((5,), 1.1 / c**0.5, dtype=F64))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_without_normalisation_results_stay_inside_the_stated_radius(dtype):
    """A boost takes a far point further: beyond the radius the space part keeps its direction and is cut."""
    space = Lorentz(2.5)
    edge, unit = space.max_radius(dtype), torch.tensor([0.6, 0.8], dtype=dtype)
    x = space.expmap0(torch.tensor([[0.5], [19.0]], dtype=dtype) * unit / 2.5**0.5).requires_grad_()
    layer = lorentz.Linear(space, 2, 2, normalize=False, heads=2).to(dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0, 1, 0], [0, 0, 1], [0, 1e6, 0], [0, 0, 1e6]]))
    out = layer(x)
    distance = space.dist0(out)
    boosted = [math.asinh(1e6 * math.sinh(r)) for r in (0.5, 19.0)]
    expected = [[0.5, boosted[0]], [19.0, min(boosted[1], edge * 2.5**0.5)]]
    torch.testing.assert_close(distance, torch.tensor(expected, dtype=dtype) / 2.5**0.5, rtol=1e-5, atol=0)
    assert (distance <= edge * (1 + 1e-6)).all()
    direction = nn.functional.normalize(out[..., 1:], dim=-1)
    torch.testing.assert_close(direction, unit.expand_as(direction))
    grads = torch.autograd.grad(out.square().mean(), [x, layer.weight])
    assert all(torch.isfinite(grad).all() for grad in grads)


def test_mistakes_are_named():
    space = Lorentz(2.0)
    for options, message in (
        ({"variant": "code"}, "variant: unknown value 'code'; available: paper, kg, gcn, mt"),
        ({"scale": 0.0}, "scale > 0"),
        ({"scale": math.nan}, "scale > 0"),
        ({"offset": math.inf}, "offset > 1"),
        ({"offset": 1.0}, "offset > 1"),
        ({"heads": 0}, "heads >= 1"),
        ({"activation": "gelu"}, "unknown nonlinearity"),
        ({"scale": 2.0, "normalize": False}, "no effect with normalize=False: scale; leave them out"),
        ({"offset": 1.2, "variant": "tangent"}, "no effect with variant='tangent': offset; leave them out"),
        (
            {"learn_scale": False, "bias_in_time": True, "raw_time": True, "normalize": False},
            "normalize=False: learn_scale, bias_in_time, raw_time",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            lorentz.Linear(space, 3, 4, **options)


def test_a_bias_with_fewer_axes_does_not_fix_the_size_of_a_batch():
    """torch.export would keep a batch of another size than the first axis of the bias."""
    layer = lorentz.PositionEncoding(Lorentz(1.0), 8, 16)
    x = layer.manifold.random(3, 5, 8)
    exported = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
    for size in (2, 5):
        points = layer.manifold.random(size, 5, 8)
        torch.testing.assert_close(exported(points), layer(points))


def test_a_layer_without_results_is_an_error():
    with pytest.raises(ValueError, match=r"d_out >= 1, got .*d_out=0"):
        lorentz.Linear(Lorentz(1.0), 4, 0)


def test_under_vmap_a_sum_may_be_larger_than_its_product():
    layer, x = spread(lorentz.Linear(Lorentz(1.3), 3, 4, normalize=False).double()), points(1.3, 5, 3)
    added = points(1.3, 2, 5, 4)
    expected = torch.stack([layer.join(x, a) for a in added])
    torch.testing.assert_close(torch.func.vmap(lambda a: layer.join(x, a))(added), expected)
