"""HyboNet's scores against the paper's formula, its start, the bound of its points, and what it refuses."""

import math

import pytest
import torch

from hyperbolic.encoders.relational.hybonet import HyboNet
from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.optim import RiemannianOptimizer, parameter_groups
from tests.encoders.relational.agreement import WAYS, check_shared, check_sparse_is_dense
from tests.tolerances import tolerance

F32, F64 = torch.float32, torch.float64
N, R, D = 9, 3, 4
H, REL = torch.tensor([0, 3, 8, 3, 5]), torch.tensor([2, 0, 2, 1, 0])
T = torch.tensor([[0, 6, 1], [2, 3, 3], [8, 1, 0], [7, 7, 4], [4, 5, 2]])
SETTINGS = {"sparse": False, "d": D, "counts_time": False, "scale": 2.5, "margin": 8.0, "max_norm": 1.5}
DTYPES = pytest.mark.parametrize("dtype", [F32, F64], ids=str)
CURVATURES = pytest.mark.parametrize("c", [0.3, 1.0, 2.0])


def fresh(name: str = "lorentz", c: float = 0.7, learn_c: bool = False, n: int = N, **settings) -> HyboNet:
    manifold, family = GEOMETRIES[name]
    curved = manifold != "Euclidean"
    geometry = make_geometry(name, manifold, family, c=c if curved else None, learn_c=learn_c and curved)
    return HyboNet(geometry, n, R, **{**SETTINGS, **settings})


def model(dtype=F64, **settings) -> HyboNet:
    """With biases, matrices and points that are not those of the start."""
    scorer = fresh(**settings).to(dtype)
    with torch.no_grad():
        for parameter in (scorer.matrix, scorer.bias, scorer.head_bias, scorer.tail_bias):
            parameter.normal_()
        scorer.entity.weight.copy_(scorer.manifold.random(*scorer.entity.weight[:, 1:].shape, std=0.4, dtype=dtype))
    return scorer


def written_out(scorer, h, r, t):
    """``margin + 2 <f_r(e_h), e_t>_L + b_h + b'_t`` (B, N), with ``f_r`` of Eq. 9; curvature c as a plain number."""
    c = float(scorer.manifold.c.detach())
    heads, tails = (scorer.entity.weight.detach().as_subclass(torch.Tensor).double()[i] for i in (h, t))
    y = torch.einsum("boi,bi->bo", scorer.matrix.detach().double()[r], heads)
    time = (scorer.scale / (1 + torch.exp(-y[:, 0])) + 1.1) / math.sqrt(c)
    space = y[:, 1:] + scorer.bias.detach().double()[r]
    space = space * ((time**2 - 1 / c).sqrt() / space.norm(dim=-1)).unsqueeze(-1)
    products = (space.unsqueeze(1) * tails[..., 1:]).sum(-1) - time.unsqueeze(1) * tails[..., 0]
    biases = scorer.head_bias.detach().double()[h] + scorer.tail_bias.detach().double()[t].squeeze(-1)
    return scorer.margin + 2 * products + biases


@CURVATURES
@DTYPES
@pytest.mark.parametrize("settings", [{}, {"counts_time": True, "scale": 3.5, "margin": 4.0}], ids=str)
def test_scores_are_the_formula(c, dtype, settings):
    scorer = model(dtype, c=c, **settings)
    size = D if settings else D + 1
    assert scorer.entity.weight.shape == (N, size)
    assert scorer.matrix.shape == (R, size, size)
    assert scorer.bias.shape == (R, size - 1)
    scores = scorer(H, REL, T)
    assert scores.dtype is dtype
    torch.testing.assert_close(scores.double(), written_out(scorer, H, REL, T), **tolerance(dtype, "identity"))


@CURVATURES
def test_scores_are_squared_lorentz_distances(c):
    """``-d_L^2 + delta``, and f_r(e_h) is a point."""
    scorer = model(c=c)
    x, _ = scorer.query(H, REL)
    assert scorer.manifold.check_point_on_manifold(x)
    difference = x.unsqueeze(1) - scorer.entity(T)
    square = difference[..., 1:].square().sum(-1) - difference[..., 0].square()
    expected = scorer.margin - 2 / c - square + scorer.head_bias[H] + scorer.tail_bias[T].squeeze(-1)
    torch.testing.assert_close(scorer(H, REL, T), expected, **tolerance(F64, "identity"))


@DTYPES
@pytest.mark.parametrize("learn_c", [False, True])
def test_all_entities_have_the_scores_of_triples(dtype, learn_c):
    scorer = model(dtype, learn_c=learn_c)
    if learn_c:
        with torch.no_grad():
            scorer.manifold.free_c += 0.5  # the time coordinates of the table are those of another c
    candidates, close = torch.arange(N).expand(len(H), -1), tolerance(dtype, "identity")
    one_by_one = scorer(H, REL, candidates)
    torch.testing.assert_close(scorer.tails(H, REL), one_by_one, **close)
    torch.testing.assert_close(scorer.tails(H, REL, 2, 7), one_by_one[:, 2:7], **close)
    of_heads = scorer.of_heads(candidates, REL, T[:, 0])
    torch.testing.assert_close(scorer.heads(REL, T[:, 0]), of_heads, **close)
    torch.testing.assert_close(scorer.heads(REL, T[:, 0], 1, 4), of_heads[:, 1:4], **close)
    torch.testing.assert_close(of_heads[0, 4], scorer(H[:1] * 0 + 4, REL[:1], T[:1, 0])[0], **close)
    with torch.no_grad():
        torch.testing.assert_close(scorer.tails(H, REL), one_by_one, **close)
    check_shared(scorer, H, REL, T[:, 0], dtype)


def test_a_learned_curvature_is_that_of_the_formula_and_gets_its_gradient():
    scorer = model(learn_c=True)
    with torch.no_grad():
        scorer.manifold.free_c += 0.5
        scorer.entity.weight.copy_(scorer.manifold.projx(scorer.entity.weight))
    torch.testing.assert_close(scorer(H, REL, T), written_out(scorer, H, REL, T), **tolerance(F64, "identity"))
    for scores in WAYS.values():
        scorer.zero_grad()
        scores(scorer, H, REL, T).sum().backward()
        results, ends, step = scorer.manifold.free_c.grad.item(), [], 1e-5
        for sign in (1, -1):
            with torch.no_grad():
                scorer.manifold.free_c += sign * step
                ends.append(scores(scorer, H, REL, T).sum().item())
                scorer.manifold.free_c -= sign * step
        assert results == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6)
        assert results != 0


@pytest.mark.parametrize("way", WAYS)
def test_gradients(way):
    scorer = model()
    names = [name for name, _ in scorer.named_parameters()]
    values = [p.detach().as_subclass(torch.Tensor).clone().requires_grad_() for p in scorer.parameters()]

    class Calling(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = scorer

        def forward(self, h, r, t):
            return WAYS[way](self.inner, h, r, t)

    def scores(*inputs):
        state = {f"inner.{name}": value for name, value in zip(names, inputs, strict=True)}
        return torch.func.functional_call(Calling(), state, (H[1:4], REL[1:4], T[1:4]))

    assert torch.autograd.gradcheck(scores, values, fast_mode=True)


@DTYPES
def test_equal_points_and_the_origin_have_finite_gradients(dtype):
    scorer = model(dtype)
    with torch.no_grad():
        scorer.entity.weight[:2].copy_(scorer.manifold.origin(2, D, dtype=dtype))
        scorer.bias.zero_()
    for scores in (scorer(H, REL, H.unsqueeze(-1)), scorer.tails(H, REL)):
        assert scores.isfinite().all()
        scorer.zero_grad()
        scores.sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in scorer.parameters())


@pytest.mark.parametrize("way", WAYS)
def test_sparse_gradients_have_the_same_rows(way):
    grads = check_sparse_is_dense(lambda sparse: model(sparse=sparse), WAYS[way], (H, REL, T))
    for name in ("head_bias", "matrix", "bias"):
        assert grads[name].is_sparse
    assert grads["matrix"].coalesce().indices()[0].tolist() == REL.unique().tolist()
    for name in ("entity.weight", "tail_bias"):
        assert grads[name].is_sparse == (way != "all")


@CURVATURES
def test_points_start_within_a_unit_of_the_origin(c):
    torch.manual_seed(0)
    scorer = fresh(c=c, n=400, d=32, counts_time=True)
    manifold, points = scorer.points()
    assert manifold is scorer.manifold
    assert points.shape == (400, 32)
    assert not points.requires_grad
    assert manifold.check_point_on_manifold(points)
    distances = manifold.dist0(points) * math.sqrt(c)
    assert distances.max() <= 1 + 1e-6
    assert distances.median() > 0.95  # space parts of unit vectors of 32 entries
    assert not any(b.any() for b in (scorer.bias, scorer.head_bias, scorer.tail_bias))
    bound = math.sqrt(6) / 32
    assert 0.99 * bound < scorer.matrix.abs().max() <= bound


@CURVATURES
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("max_norm", [1.5, 0.4, None])
def test_the_optimiser_keeps_the_longest_space_part(c, sparse, max_norm):
    torch.manual_seed(0)
    scorer = fresh(c=c, sparse=sparse, max_norm=max_norm)
    optimizer = RiemannianOptimizer(parameter_groups(scorer), lr=0.4 / math.sqrt(c), lazy=sparse)
    for _ in range(6):
        optimizer.zero_grad()
        scorer(H, REL, T).sum().backward()  # lower scores lie further out
        optimizer.step()
    used = torch.cat([H, T.flatten()]).unique()
    lengths = scorer.entity.weight.detach()[used, 1:].norm(dim=-1) * math.sqrt(c)
    assert scorer.manifold.check_point_on_manifold(scorer.entity.weight.detach())
    if max_norm is None:
        assert lengths.max() > 1.6
    else:
        assert lengths.max() <= max_norm * (1 + 1e-6)
        assert (lengths > 0.999 * max_norm).sum() >= 2


def test_factors_are_space_parts_and_biases():
    scorer = model()
    first, second, third = scorer.factors(H, REL, T[:, 0])
    rows = scorer.entity.weight.detach().as_subclass(torch.Tensor)
    assert torch.equal(first, rows[H, 1:])
    assert torch.equal(second, scorer.bias[REL])
    assert torch.equal(third, rows[T[:, 0], 1:])


@pytest.mark.parametrize("name", [name for name in GEOMETRIES if name != "lorentz"])
def test_another_geometry_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"HyboNet .* not with geometry={name}; choose geometry=lorentz"):
        fresh(name)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"d": 1, "counts_time": True}, "HyboNet: d=1 leaves no dimension of space beside the time"),
        ({"d": 0}, "HyboNet: d=0 leaves no dimension"),
        ({"scale": 0.0}, "HyboNet: scale must be positive, got 0.0"),
        ({"margin": -1.0}, "HyboNet: margin must be positive, got -1.0"),
        ({"max_norm": 0.0}, "HyboNet: max_norm must be positive, got 0.0"),
        ({"n": 0}, "HyboNet: n_entities must be at least 1, got 0"),
    ],
)
def test_mistakes_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        fresh(**changed)


@pytest.mark.usefixtures("each_path")
def test_scores_leave_autocast():
    scorer = model(F32)
    expected = [scorer(H, REL, T), scorer.tails(H, REL), scorer.with_shared(H, REL, T[:, :1], torch.arange(3))]
    with torch.autocast("cpu", torch.bfloat16):
        results = [scorer(H, REL, T), scorer.tails(H, REL), scorer.with_shared(H, REL, T[:, :1], torch.arange(3))]
    for one, other in zip(results, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("each_path")
@pytest.mark.parametrize("wrong", [-1, N])
def test_an_entity_that_is_not_there(wrong):
    scorer, index = model(), torch.tensor([[0, wrong]])
    with pytest.raises(ValueError, match=rf"Embedding: row numbers must lie in 0..{N - 1}"):
        scorer(H[:1], REL[:1], index)
