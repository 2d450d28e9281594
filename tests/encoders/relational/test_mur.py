"""MuRP and MuRE against the paper's formula, in the words of the manifold."""

import pytest
import torch

from hyperbolic.encoders.relational.mur import MuR
from hyperbolic.geometry import GEOMETRIES, make_geometry
from tests.encoders.relational.agreement import WAYS, check_shared, check_sparse_is_dense, geometry
from tests.tolerances import tolerance

F32, F64 = torch.float32, torch.float64
N, R, D = 9, 3, 4
H, REL = torch.tensor([0, 3, 8, 3, 5]), torch.tensor([2, 0, 2, 1, 0])
MODELS = ["euclidean", "poincare", "lorentz", "klein", "poincare_tangent"]
DTYPES = pytest.mark.parametrize("dtype", [F32, F64], ids=str)
T = torch.tensor([[0, 6, 1], [2, 3, 3], [8, 1, 0], [7, 7, 4], [4, 5, 2]])


def model(name: str, dtype=F64, c: float = 0.7, learn_c: bool = False, **settings) -> MuR:
    manifold, family = GEOMETRIES[name]
    curved = manifold != "Euclidean"
    geometry = make_geometry(name, manifold, family, c=c if curved else None, learn_c=learn_c and curved)
    scorer = MuR(geometry, N, R, **{"sparse": False, "d": D, "init_std": 0.4, **settings}).to(dtype)
    for bias in (scorer.head_bias, scorer.tail_bias):
        bias.data.normal_()
    return scorer


def written_out(scorer: MuR, h, r, t):
    """``-d(exp_0(R log_0(h)), exp_t(P_{0->t} log_0(p)))^2 + b_h + b_t``."""
    space, tails = scorer.manifold, scorer.entity(t).double()
    head = space.expmap0(scorer.stretch[r].double() * space.logmap0(scorer.entity(h).double()))
    step = space.logmap0(scorer.translation(r).double()).unsqueeze(1).expand(*t.shape, -1)
    moved = space.expmap(tails, space.transp0(tails, step))
    return scorer.head_bias[h] + scorer.tail_bias[t].squeeze(-1) - space.dist2(head.unsqueeze(1), moved)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("c", "init_std", "dtype"), [(0.3, 0.4, F32), (0.3, 0.4, F64), (2.0, 1e-3, F32), (2.0, 0.4, F64)], ids=str
)
def test_scores_are_the_formula(name, c, init_std, dtype):
    scorer = model(name, dtype, c, init_std=init_std)
    scores = scorer(H, REL, T)
    assert scores.dtype is dtype
    torch.testing.assert_close(scores.double(), written_out(scorer, H, REL, T).double(), **tolerance(dtype, "identity"))


@pytest.mark.parametrize("name", sorted(set(GEOMETRIES) - set(MODELS)))
def test_other_layers_on_a_manifold_change_nothing(name):
    scorer = model(name)
    torch.testing.assert_close(scorer(H, REL, T), written_out(scorer, H, REL, T), **tolerance(F64, "identity"))
    torch.testing.assert_close(scorer.tails(H, REL).gather(1, T), scorer(H, REL, T), **tolerance(F64, "identity"))


def test_in_the_ball_the_sum_is_that_of_moebius():
    scorer = model("poincare")
    ball, e = scorer.manifold, scorer.entity(torch.arange(N))
    head = ball.expmap0(scorer.stretch[REL] * ball.logmap0(e[H]))
    moved = ball.mobius_add(e[T[:, 0]], scorer.translation(REL))
    expected = scorer.head_bias[H, 0] + scorer.tail_bias[T[:, 0], 0] - ball.dist(head, moved) ** 2
    torch.testing.assert_close(scorer(H, REL, T[:, 0]), expected, **tolerance(F64, "identity"))


@pytest.mark.parametrize("name", ["euclidean", "poincare", "lorentz", "klein"])
@DTYPES
def test_all_entities_have_the_scores_of_triples(name, dtype):
    scorer = model(name, dtype)
    candidates, close = torch.arange(N).expand(len(H), -1), tolerance(dtype, "identity")
    one_by_one = scorer(H, REL, candidates)
    torch.testing.assert_close(scorer.tails(H, REL), one_by_one, **close)
    torch.testing.assert_close(scorer.tails(H, REL, 2, 7), one_by_one[:, 2:7], **close)
    torch.testing.assert_close(scorer.tails(H[:2], REL[[2, 2]]), scorer(H[:2], REL[[2, 2]], candidates[:2]), **close)
    of_heads = scorer.of_heads(candidates, REL, T[:, 0])
    torch.testing.assert_close(scorer.heads(REL, T[:, 0]), of_heads, **close)
    torch.testing.assert_close(of_heads[0, 4], scorer(H[:1] * 0 + 4, REL[:1], T[:1, 0])[0], **close)
    with torch.no_grad():
        torch.testing.assert_close(scorer.tails(H, REL), one_by_one, **close)
    check_shared(scorer, H, REL, T[:, 0], dtype)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", ["triples", "all"])
def test_gradients_are_those_of_the_formula(name, way):
    scorer = model(name, learn_c=True)
    candidates = torch.arange(N).expand(len(H), -1)
    scores = scorer(H, REL, candidates) if way == "triples" else scorer.tails(H, REL)
    cotangent = torch.randn_like(scores)
    leaves = dict(scorer.named_parameters())
    grads = [
        torch.autograd.grad((value * cotangent).sum(), list(leaves.values()))
        for value in (scores, written_out(scorer, H, REL, candidates))
    ]
    for key, a, b in zip(leaves, *grads, strict=True):
        if name == "lorentz" and ("entity" in key or "translation" in key) and "free_c" not in key:
            space = scorer.manifold  # gradients on the space
            point = leaves[key].detach()
            a, b = space.egrad2rgrad(point, a), space.egrad2rgrad(point, b)
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("name", ["euclidean", "poincare", "lorentz"])
def test_equal_points_and_origins_have_finite_gradients(name):
    scorer = model(name, F32)
    space = scorer.manifold
    with torch.no_grad():
        scorer.stretch.fill_(1)
        scorer.translation.weight.copy_(space.origin(R, D))
        scorer.entity.weight[:2].copy_(space.origin(2, D))
    h = torch.tensor([0, 4])
    scores = scorer(h, REL[:2], h) - scorer.head_bias[h, 0] - scorer.tail_bias[h, 0]
    assert (scores.abs() < 1e-5).all()
    scores.sum().backward()
    assert all(p.grad.isfinite().all() for p in scorer.parameters())
    assert scorer.entity.weight.grad.abs().max() < 1e-5


@pytest.mark.parametrize("name", ["euclidean", "poincare", "lorentz"])
@pytest.mark.parametrize("way", WAYS)
def test_sparse_gradients_have_the_same_rows(name, way):
    grads = check_sparse_is_dense(lambda sparse: model(name, sparse=sparse), WAYS[way], (H, REL, T))
    assert grads["entity.weight"].is_sparse
    assert grads["tail_bias"].is_sparse


def test_far_points_are_finite_and_close_to_exact():
    scorer = model("poincare", F32, c=1.0)
    with torch.no_grad():
        u = torch.nn.functional.normalize(torch.randn(N, D), dim=-1) * 3
        scorer.entity.weight.copy_(scorer.manifold.expmap0(u))
        scorer.stretch.fill_(1)
    torch.testing.assert_close(
        scorer(H, REL, T).double(), written_out(scorer, H, REL, T).double(), rtol=1e-6, atol=1e-5
    )


def test_start_points_and_factors():
    scorer = model("poincare", F32, init_std=1e-3)
    space, points = scorer.points()
    assert space is scorer.manifold
    assert points.shape == (N, D)
    assert not points.requires_grad
    assert 3e-4 < points.std() < 3e-3
    assert scorer.stretch.abs().max() <= 1
    assert [f.shape for f in scorer.factors(H, REL, T[:, 0])] == [(5, D)] * 4
    assert [f.shape for f in model("lorentz", F32).factors(H, REL, T[:, 0])] == [(5, D)] * 4, "no times"
    with pytest.raises(ValueError, match="init_std must be positive, got 0"):
        model("poincare", init_std=0)


def test_points_start_at_the_same_distances_in_each_model_of_hyperbolic_space():
    torch.manual_seed(0)
    names = [name for name, (manifold, _) in GEOMETRIES.items() if manifold != "Euclidean"]
    means = []
    for name in names:
        geometry = make_geometry(name, *GEOMETRIES[name], c=0.7, learn_c=False)
        manifold, points = MuR(geometry, 2000, R, sparse=False, d=D, init_std=0.1).points()
        means.append(float(manifold.dist0(points).mean()))
    assert means == pytest.approx([means[0]] * len(means), rel=0.05)


@pytest.mark.parametrize("place", ["poincare", "euclidean", "lorentz", "klein"])
def test_it_can_be_built_without_memory(place):
    with torch.device("meta"):
        scorer = MuR(geometry(place), 5, 3, False, 4, 0.1)
    assert all(p.is_meta for p in scorer.parameters())
