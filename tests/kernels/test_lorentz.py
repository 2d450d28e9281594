"""Lorentz kernels: hand-written derivatives against differences, values against the plain references, far points."""

import pytest
import torch

from hyperbolic.kernels import lorentz_rows as kernel
from hyperbolic.layers.lorentz_attention import attention_weights, lorentz_attention
from hyperbolic.layers.multihead import drop_scores
from hyperbolic.manifolds import Lorentz
from tests.tolerances import tolerance

F64 = torch.float64
CURVATURES = (0.3, 1.0, 2.5)
pytestmark = pytest.mark.usefixtures("each_path")


def scalar(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=F64, requires_grad=True)


def points(c, *size, std=0.5, dtype=F64):
    return Lorentz(torch.as_tensor(c).item()).random(*size, std=std, dtype=dtype)


def lifted(s, c):
    return torch.cat([(1 / c + s.square().sum(-1, keepdim=True)).sqrt(), s], -1)


def normalised(z, scale, c, offset):
    t = (scale * torch.sigmoid(z[..., :1]) + offset) / c.sqrt()
    return lifted((t.square() - 1 / c).sqrt() / z[..., 1:].norm(dim=-1, keepdim=True) * z[..., 1:], c)


def centroid(mean, c):
    square = mean[..., :1].square() - mean[..., 1:].square().sum(-1, keepdim=True)
    return mean / (c * square).sqrt()


def attention(q, k, v, temperature, c, mask=None, causal=False):
    pairs = (q.unsqueeze(-2) * k.unsqueeze(-3) * torch.tensor([-1.0] + [1.0] * (q.shape[-1] - 1)).to(q)).sum(-1)
    mask = torch.ones(pairs.shape[-2:], dtype=torch.bool).tril() if causal else mask
    score = (2 / c + 2 * pairs) / temperature
    weights = torch.softmax(score if mask is None else score.masked_fill(~mask, -torch.inf), -1)
    return centroid((weights.unsqueeze(-1) * v.unsqueeze(-3)).sum(-2), c)


def off_sheet(x: torch.Tensor, c: float) -> float:
    """Largest relative error of the time coordinate."""
    exact = (1 / c + x[..., 1:].double().square().sum(-1)).sqrt()
    return float(((x[..., 0].double() - exact) / exact).abs().max()) if x.numel() else 0.0


@pytest.mark.parametrize("c", CURVATURES)
def test_derivatives(c):
    """In the input, the scale and the curvature, where the space part is long, short and zero."""
    c, scale = scalar(c), scalar(3.0)
    z = torch.randn(2, 3, 8, dtype=F64, requires_grad=True)
    checks = {
        "normalise": (lambda z, s, c: kernel.normalise(z, s, c, 1.2), (z, scale, c)),
        "normalise, heads": (lambda z, s, c: kernel.normalise(z, s, c, 1.1, 2), (z, scale, c)),
        "time": (lambda z, c: kernel.set_time(z, c), (z, c)),
        "time, heads": (lambda z, c: kernel.set_time(z, c, 2), (z, c)),
        "lift": (kernel.lift, (z, c)),
        "lift, heads": (lambda z, c: kernel.lift(z, c, 2), (z, c)),
        "mean": (lambda z, c: kernel.normalised_mean(kernel.lift(z, c).mean(-2), c), (z, c)),
        "dual": (kernel.dual, (z, scale)),
    }
    for name, (function, inputs) in checks.items():
        assert torch.autograd.gradcheck(function, inputs), name


@pytest.mark.parametrize("c", CURVATURES)
def test_values_and_gradients_are_those_of_the_formulas(c):
    c, scale = scalar(c), scalar(3.0)
    z = torch.randn(2, 3, 8, dtype=F64, requires_grad=True)
    x = points(c, 4, 5, 7).requires_grad_()
    pairs = [
        (kernel.normalise(z, scale, c, 1.2), normalised(z, scale, c, 1.2), (z, scale, c)),
        (kernel.lift(z, c), lifted(z, c), (z, c)),
        (kernel.lift(z, c, 2), lifted(z.flatten(-2), c), (z, c)),
        (kernel.set_time(z, c), lifted(z[..., 1:], c), (z, c)),
        (kernel.normalised_mean(x.mean(-2), c), centroid(x.mean(-2), c), (x, c)),
    ]
    for fast, plain, inputs in pairs:
        torch.testing.assert_close(fast, plain, **tolerance(F64, "identity"))
        grad = torch.randn_like(fast)
        for a, b in zip(*(torch.autograd.grad(y, inputs, grad) for y in (fast, plain)), strict=True):
            torch.testing.assert_close(a, b, **tolerance(F64, "identity"))


@pytest.mark.parametrize("length", [5, 80])
@pytest.mark.parametrize("c", CURVATURES)
def test_attention_is_its_formula(c, length):
    """Both paths: two matrix products (short), the fused attention (long); plain, causal, masked, crossed."""
    c, s = scalar(c), scalar(1.7)
    q, k, v = (points(c, 2, 3, length, 4).requires_grad_() for _ in range(3))
    few = points(c, 2, 3, 2, 4).requires_grad_()
    mask = torch.rand(2, 1, 1, length) < 0.6
    mask[..., 0] = True
    for query, options in ((q, {}), (q, {"causal": True}), (q, {"mask": mask}), (few, {"mask": mask})):
        inputs = (query, k, v, s)
        fast = lorentz_attention(*inputs, c, **options)
        plain = attention(*inputs, c, **options)
        assert off_sheet(fast.detach(), c.item()) < 1e-14
        torch.testing.assert_close(fast, plain, **tolerance(F64, "identity"))
        grad = torch.randn_like(fast)
        for a, b in zip(*(torch.autograd.grad(y, (*inputs, c), grad) for y in (fast, plain)), strict=True):
            torch.testing.assert_close(a, b, **tolerance(F64, "identity"))


def test_attention_pair_by_pair():
    """Eq. 5 with loops: squared distances, exponentials, the centroid."""
    c, s = 2.5, 1.3
    space = Lorentz(c)
    q, k, v = (points(c, 4, 3) for _ in range(3))
    actual = lorentz_attention(q, k, v, torch.tensor(s, dtype=F64), space.c)
    metric = torch.diag(torch.tensor([-1.0, 1, 1, 1], dtype=F64))
    for i in range(4):
        distances = torch.stack([-2 / c - 2 * (q[i] @ metric @ k[j]) for j in range(4)])
        weights = torch.exp(-distances / s) / torch.exp(-distances / s).sum()
        total = sum(weights[j] * v[j] for j in range(4))
        expected = total / (c**0.5 * (-(total @ metric @ total)).sqrt())
        torch.testing.assert_close(actual[i], expected, **tolerance(F64, "identity"))
        torch.testing.assert_close(actual[i], space.centroid(v, weights), **tolerance(F64, "identity"))
        row = attention_weights(q, k, torch.tensor(s, dtype=F64))[i]
        torch.testing.assert_close(row, weights, **tolerance(F64, "identity"))


@pytest.mark.parametrize("n", [5, 70])  # by two products, and fused
def test_causal_attention_minds_its_mask(n):
    space, two = Lorentz(0.6), torch.tensor(2.0, dtype=F64)
    q, k, v = (space.random(2, n, 3, dtype=F64) for _ in range(3))
    mask = torch.rand(2, 1, n) < 0.7
    mask[..., 0] = True
    expected = lorentz_attention(q, k, v, two, space.c, mask & torch.ones(n, n, dtype=torch.bool).tril())
    torch.testing.assert_close(lorentz_attention(q, k, v, two, space.c, mask, causal=True), expected)


def test_attention_dropout_leaves_weighted_means():
    space = Lorentz(2.0)
    q, v = points(2.0, 50, 3), points(2.0, 4, 3)
    out = lorentz_attention(q, v, v, torch.tensor(5.0), space.c, dropout=0.5)
    assert off_sheet(out, 2.0) < 1e-14
    assert (out - lorentz_attention(q, v, v, torch.tensor(5.0), space.c)).abs().max() > 0.01
    everything = lorentz_attention(q, v[:1], v[:1], torch.tensor(5.0), space.c, dropout=0.9)
    torch.testing.assert_close(everything, v[:1].expand(50, -1))  # a row that loses all its weights keeps them


def test_attention_dropout_leaves_out_weights_by_chance():
    space, two = Lorentz(0.6), torch.tensor(0.5, dtype=F64)
    q, k, v = (space.random(2, 3, 40, 6, std=0.5, dtype=F64).requires_grad_() for _ in range(3))
    torch.manual_seed(1)
    out = lorentz_attention(q, k, v, two, space.c, dropout=0.95)
    torch.manual_seed(1)
    kept = drop_scores(torch.zeros(2, 3, 40, 40, dtype=F64), 0.95) == 0
    weights = attention_weights(q, k, two)
    weights = torch.where(kept, weights, 1e-4 * weights)
    mean = weights @ v / weights.sum(-1, keepdim=True)
    torch.testing.assert_close(out, kernel.normalised_mean(mean, space.c), **tolerance(F64, "identity"))


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.95, 1.0])
def test_scores_are_lowered_by_chance_each_for_itself(p):
    torch.manual_seed(2)
    lowered = drop_scores(torch.zeros(1001, 1003), p) != 0  # four share a number, and 4 does not divide 1001 x 1003
    flat = lowered.flatten().double() - p
    assert abs(flat.mean()) < 4 * (p * (1 - p) / lowered.numel()) ** 0.5 + 2**-16
    for apart in (1, 2, 3, 4):
        assert abs((flat[apart:] * flat[:-apart]).mean()) < 4 * p * (1 - p) / lowered.numel() ** 0.5 + 2**-30


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_rows_that_lose_the_weights_that_count_keep_them(dtype):
    """Weights of 1 and 1e-35: without the first, the centroid's gradient would be beyond all numbers."""
    scores = torch.tensor([0.0, -80.0], dtype=dtype).repeat(64, 1)
    torch.testing.assert_close(drop_scores(scores, 0.5).softmax(-1), scores.softmax(-1))
    q, k = points(1.0, 64, 3, dtype=dtype), 40 * points(1.0, 2, 3, dtype=dtype)
    q, k, v = (x.requires_grad_() for x in (q, Lorentz(1.0).projx(k), points(1.0, 2, 3, dtype=dtype)))
    lorentz_attention(q, k, v, torch.tensor(0.5, dtype=dtype), torch.tensor(1.0, dtype=dtype), dropout=0.5).sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_zero_space_part_gives_the_origin(dtype):
    c = torch.tensor(2.5, dtype=F64)
    for tiny in (0.0, 1e-30, 1e-9, 1e-6, 1e-3):
        z = torch.tensor([[0.3, tiny, 0.0, -tiny]], dtype=dtype, requires_grad=True)
        y = kernel.normalise(z, torch.tensor(2.0), c)
        y.sum().backward()
        assert off_sheet(y.detach(), 2.5) < 1e-6
        assert torch.isfinite(z.grad).all()
        if tiny == 0:
            assert y.tolist() == [[pytest.approx(2.5**-0.5), 0, 0, 0]]
            assert (z.grad[0, 1:] > 0).all()


@pytest.mark.parametrize("radius", [0.0, 1e-6, 1.0, 6.0, 12.0])
@pytest.mark.parametrize("c", CURVATURES)
def test_float32_is_finite_up_to_the_stated_radius(c, radius):
    space = Lorentz(c)
    direction = torch.nn.functional.normalize(torch.randn(2, 2, 9, 5), dim=-1)
    x = space.expmap0(direction * radius / c**0.5).requires_grad_()
    for y in (
        kernel.normalise(x, torch.tensor(8e4), space.c),
        kernel.set_time(x, space.c),
        kernel.lift(x[..., 1:], space.c, 2),
        lorentz_attention(x, x, x, torch.tensor(2.0), space.c),
        lorentz_attention(x, x, x.flip(-2), torch.tensor(2.0), space.c, causal=True),
    ):
        assert off_sheet(y.detach(), c) < 1e-6
        (grad,) = torch.autograd.grad(y.sum(), x)
        assert torch.isfinite(grad).all()


@pytest.mark.parametrize("batch", [0, 1])
def test_small_batches_and_strides(batch):
    space, temperature = Lorentz(2.0), torch.tensor(2.0)
    x = points(2.0, 6, 3, batch, 4).permute(2, 1, 0, 3).requires_grad_()
    assert batch == 0 or not x.is_contiguous()
    solid = x.detach().contiguous().requires_grad_()
    calls = [
        lambda t: kernel.lift(t[..., 1:], space.c, 2),
        lambda t: lorentz_attention(t, t, t, temperature, space.c, causal=True),
        lambda t: kernel.normalised_mean(t.mean(-2), space.c),
    ]
    for call in calls:
        outs = [call(t) for t in (x, solid)]
        torch.testing.assert_close(*outs)
        weights = torch.randn_like(outs[0])
        grad = weights.transpose(0, -1).contiguous().transpose(0, -1)  # the gradient too
        torch.testing.assert_close(*(torch.autograd.grad(y, t, grad)[0] for y, t in zip(outs, (x, solid), strict=True)))


def test_normalise_takes_a_strided_gradient():
    c = torch.tensor(2.0, dtype=F64)
    z = torch.randn(5, 8, dtype=F64, requires_grad=True)
    grad = torch.randn(8, 5, dtype=F64).T
    for call in (
        lambda: kernel.normalise(z, torch.tensor(2.0), c, 1.1, 2),
        lambda: kernel.set_time(z, c, 2),
    ):
        a, b = (torch.autograd.grad(call(), z, g)[0] for g in (grad, grad.contiguous()))
        torch.testing.assert_close(a, b)


@pytest.mark.usefixtures("each_path")
def test_heads_that_do_not_divide_the_coordinates_are_refused():
    scale, c = torch.tensor(2.0), torch.tensor(1.0)
    with pytest.raises(RuntimeError):
        kernel.normalised_linear(torch.randn(4, 5), torch.randn(7, 5), None, scale, c, 1.1, 2)
