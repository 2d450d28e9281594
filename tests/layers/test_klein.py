"""The Klein family: Einstein's operations by their own formulas, Möbius layers through the isometry, Hype-HAN's parts."""

import inspect

import pytest
import torch
from torch import nn

from hyperbolic.layers import klein, mobius
from hyperbolic.layers.guard import validate_points
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall, charts
from hyperbolic.optim import RiemannianAdam
from tests.layers.filled import filled

F64 = torch.float64
CURVATURES = (0.3, 1.0, 2.5)
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def to_ball(x, c):
    return x / (1 + (1 - c * x.square().sum(-1, keepdim=True)).sqrt())


def to_disk(x, c):
    return 2 * x / (1 + c * x.square().sum(-1, keepdim=True))


@pytest.mark.parametrize("c", CURVATURES)
def test_conversions(c):
    """Hype-HAN, Eq. 2-4, and their inverses, as formulas of any c."""
    k = Klein(c).random(6, 3, dtype=F64)
    gamma = 1 / (1 - c * k.square().sum(-1, keepdim=True)).sqrt()
    sheet = torch.cat([gamma / c**0.5, gamma * k], -1)
    ball = sheet[..., 1:] / (1 + c**0.5 * sheet[..., :1])
    for results, expected in (
        (charts.klein_to_lorentz(k, c), sheet),
        (charts.klein_to_poincare(k, c), ball),
        (charts.lorentz_to_klein(sheet, c), k),
        (charts.lorentz_to_poincare(sheet, c), ball),
        (charts.poincare_to_klein(ball, c), k),
        (charts.poincare_to_lorentz(ball, c), sheet),
    ):
        torch.testing.assert_close(results, expected, **CLOSE)
    distances = [m.dist(x[:1], x[1:]) for m, x in ((Klein(c), k), (Lorentz(c), sheet), (PoincareBall(c), ball))]
    torch.testing.assert_close(distances[0], distances[1], **CLOSE)
    torch.testing.assert_close(distances[0], distances[2], **CLOSE)


def einstein_sum(u, v, c):
    """Ungar 2008: ``(u + v/gamma_u + c gamma_u/(1 + gamma_u) <u, v> u) / (1 + c <u, v>)``."""
    uv = (u * v).sum(-1, keepdim=True)
    gamma = 1 / (1 - c * u.square().sum(-1, keepdim=True)).sqrt()
    return (u + v / gamma + c * gamma / (1 + gamma) * uv * u) / (1 + c * uv)


@pytest.mark.parametrize("c", CURVATURES)
def test_linear_is_einsteins_product_and_sum(c):
    disk = Klein(c)
    layer = filled(klein.Linear(disk, 3, 4), 0.3)
    x = disk.random(6, 3, std=0.7, dtype=F64)
    wx, norm = x @ layer.inner.weight.T, x.norm(dim=-1, keepdim=True)
    length = wx.norm(dim=-1, keepdim=True)
    product = torch.tanh(length / norm * torch.atanh(c**0.5 * norm)) * wx / (c**0.5 * length)
    expected = einstein_sum(product, to_disk(layer.inner.bias, c), c)
    torch.testing.assert_close(layer(x), expected, **CLOSE)
    assert (layer(x) - einstein_sum(to_disk(layer.inner.bias, c), product, c)).abs().max() > 1e-3


@pytest.mark.parametrize("c", CURVATURES)
def test_centroid_is_the_einstein_midpoint(c):
    disk, w = Klein(c), torch.rand(2, 5, dtype=F64)
    x = disk.random(2, 5, 3, dtype=F64)
    gamma = w / (1 - c * x.square().sum(-1)).sqrt()
    expected = (gamma.unsqueeze(-1) * x).sum(-2) / gamma.sum(-1, keepdim=True)
    torch.testing.assert_close(klein.Centroid(disk)(x, w), expected, **CLOSE)


LAYERS = {
    "Linear": (((3, 4), {}), "x"),
    "Activation": ((("tanh",), {}), "x"),
    "Concat": ((((3, 2), 4), {"n_features": 2}), "xyf"),
    "RNNCell": (((3, 2), {"nonlinearity": "tanh"}), "xy"),
    "GRUCell": (((3, 2), {}), "xy"),
    "RNN": (((3, 4), {"bidirectional": True}), "xl"),
    "GRU": (((3, 4), {}), "xl"),
    "Attention": (((3,), {"n_positions": 5}), "xp"),
    "ContextAttention": (((3,), {}), "x"),
    "Residual": (((2, 3), {"activation": "relu"}), "yx"),
    "FeedForward": (((3, 4), {}), "x"),
    "PositionEncoding": (((3, 5), {}), "x"),
    "Norm": (((3,), {}), "x"),
    "Logits": (((3, 4), {}), "x"),
}


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_the_mobius_layer_through_the_isometry(name, c):
    (sizes, options), arguments = LAYERS[name]
    ours = filled(getattr(klein, name)(Klein(c), *sizes, **options), 0.3)
    other = getattr(mobius, name)(PoincareBall(c), *sizes, **options).double()
    state = {k.removeprefix("inner.").replace("key.inner", "key"): v for k, v in ours.state_dict().items()}
    if name == "ContextAttention":
        state["context"] = to_ball(state["context"], c)
    other.load_state_dict(state)
    points_out = {"Logits": 0, "RNN": 2, "GRU": 2}.get(name, 1)
    x, y = (PoincareBall(c).random(2, 5, d, std=0.3, dtype=F64) for d in (3, 2))
    rest = {"l": torch.tensor([2, 5]), "p": torch.randint(0, 5, (2, 5)), "f": torch.rand(2, 5, 2, dtype=F64)}
    results = []
    for layer, disk in ((ours, True), (other, False)):
        points = {"x": x.clone().requires_grad_(), "y": y.clone().requires_grad_()}
        moved = {k: to_disk(v, c) if disk else v for k, v in points.items()}
        named = {"features": rest["f"]} if "f" in arguments else {}
        out = layer(*({**moved, **rest}[a] for a in arguments if a != "f"), **named)
        out = out if isinstance(out, tuple) else (out,)
        out = [to_ball(t, c) if disk and i < points_out else t for i, t in enumerate(out)]
        sum((t * torch.arange(1.0, t.numel() + 1, dtype=F64).view_as(t)).sum() for t in out).backward()
        results.append(out + [points[a].grad for a in arguments if a in points])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def test_embedding_and_dropout():
    disk = Klein(2.0)
    table = filled(klein.Embedding(disk, 6, 3), 0.3)
    index = torch.tensor([[0, 5], [2, 2]])
    torch.testing.assert_close(table(index), to_disk(table.inner.weight[index], 2.0), **CLOSE)
    fresh = klein.Embedding(disk, 6, 3, padding_idx=1)
    assert not fresh(torch.tensor(1)).any()
    layer, u = klein.Dropout(disk, 0.25), 1 + torch.rand(2000, 3, dtype=F64)
    dropped = disk.logmap0(layer(disk.expmap0(u)))
    remaining = dropped.abs() > 1e-12
    assert remaining.double().mean().item() == pytest.approx(0.75, abs=0.03)
    torch.testing.assert_close(dropped[remaining], u[remaining] / 0.75, rtol=1e-6, atol=0)
    x = disk.expmap0(u)
    assert torch.equal(layer.eval()(x), x)


def test_the_sequence_is_converted_once(monkeypatch):
    calls = []

    def counted(x, c):
        calls.append(x.shape)
        return charts.klein_to_poincare(x, c)

    monkeypatch.setattr(klein, "klein_to_poincare", counted)
    disk = Klein(2.0)
    klein.GRU(disk, 3, 4, bidirectional=True)(disk.random(2, 7, 3))
    klein.FeedForward(disk, 3, 8)(disk.random(2, 3))
    assert calls == [(2, 7, 3), (2, 3)]


def test_one_learned_curvature():
    """The disk and the ball inside share c: its gradient is that of a difference quotient, and both move."""
    disk = Klein(1.3, learn_c=True)
    layer = filled(klein.GRU(disk, 3, 4), 0.3)
    u = 0.5 * torch.randn(2, 4, 3, dtype=F64)

    def loss() -> torch.Tensor:
        return disk.logmap0(layer(disk.expmap0(u))[1]).square().sum()

    value = disk.free_c.detach().clone()
    (results,) = torch.autograd.grad(loss(), disk.free_c)
    step = 1e-5
    sides = []
    with torch.no_grad():
        for sign in (1, -1):
            disk.free_c.copy_(value + sign * step)
            sides.append(loss())
        disk.free_c.copy_(value)
    torch.testing.assert_close(results, (sides[0] - sides[1]) / (2 * step), rtol=1e-6, atol=0)
    assert len([p for p in layer.parameters() if p is disk.free_c]) == 1
    optimizer = RiemannianAdam(layer.parameters(), lr=0.1)
    loss().backward()
    optimizer.step()
    assert disk.c.item() != pytest.approx(1.3, abs=1e-3)
    assert layer.inner.manifold.c.item() == disk.c.item()


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("name", [n for n in LAYERS if n != "Logits"])
def test_points_at_the_origin_and_at_the_edge(name, dtype):
    (sizes, options), arguments = LAYERS[name]
    disk = Klein(2.0)
    layer = getattr(klein, name)(disk, *sizes, **options).to(dtype)
    for far in (0.0, 50.0):
        x, y = (disk.expmap0(far * torch.randn(2, 5, d, dtype=dtype)).requires_grad_() for d in (3, 2))
        values = {"x": x, "y": y, "l": torch.tensor([2, 5]), "p": torch.randint(0, 5, (2, 5))}
        named = {"features": torch.rand(2, 5, 2, dtype=dtype)} if "f" in arguments else {}
        out = layer(*(values[a] for a in arguments if a != "f"), **named)
        out = out[0] if isinstance(out, tuple) else out
        assert out.dtype == dtype
        assert disk.check_point_on_manifold(out.detach())
        out.sum().backward()
        assert torch.isfinite(x.grad).all()
        assert all(torch.isfinite(p.grad).all() for p in layer.parameters() if p.grad is not None)


def test_signatures_and_bad_input():
    for name in set(klein.__all__) & set(mobius.__all__):
        ours, other = (list(inspect.signature(getattr(f, name)).parameters) for f in (klein, mobius))
        own = ("variant", "gain", "weight_dropout", "tangent_bias", "margin")  # the Möbius family's
        other = [option for option in other if option not in own]
        assert ours[: len(other)] == other, name
    disk = Klein(2.0)
    with pytest.raises(ValueError, match=r"klein\.Linear.*Klein.*3 coordinates.*\(4, 5\)"):
        klein.Linear(disk, 3, 2)(torch.zeros(4, 5))
    with pytest.raises(ValueError, match=r"klein\.GRUCell"):
        klein.GRUCell(disk, 3, 2)(torch.zeros(4, 3), torch.zeros(4, 3))
    model = nn.Sequential(klein.Linear(disk, 3, 3))
    validate_points(model)
    with pytest.raises(ValueError, match=r"0 \(klein\.Linear\).*not on Klein"):
        model(torch.ones(4, 3))
