"""RotE/RotH, RefE/RefH and AttE/AttH against the paper's formulas, with matrices and points written out."""

import math

import pytest
import torch

from hyperbolic.encoders.relational import isometries
from hyperbolic.encoders.relational.isometries import Attention, Reflection, Rotation
from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.manifolds.poincare import distance_square, expmap0, mobius_add
from hyperbolic.smooth import asinhc
from tests.encoders.relational.agreement import WAYS, check_shared, check_sparse_is_dense, geometry
from tests.tolerances import tolerance

F32, F64 = torch.float32, torch.float64
N, R, D = 9, 3, 4
H, REL = torch.tensor([0, 3, 8, 3, 5]), torch.tensor([2, 0, 2, 1, 0])
T = torch.tensor([[0, 6], [2, 3], [8, 1], [7, 7], [4, 5]])
MODELS = pytest.mark.parametrize("cls", [Rotation, Reflection, Attention])
NAMES = pytest.mark.parametrize("name", ["euclidean", "poincare"])
SPACES = pytest.mark.parametrize(
    ("name", "c", "shared"),
    [("euclidean", 1.0, False), ("poincare", 0.3, False), ("poincare", 2.0, True)],
    ids=["euclidean", "own c", "shared c"],
)
DTYPES = pytest.mark.parametrize("dtype", [F32, F64], ids=str)


def model(cls, name: str, dtype=F64, c: float = 0.7, learn_c: bool = False, **settings):
    manifold, family = GEOMETRIES[name]
    geometry = make_geometry(name, manifold, family, c=None if manifold == "Euclidean" else c, learn_c=learn_c)
    settings = {"sparse": False, "d": D, "init_std": 0.4, "learn_c_per_relation": True, **settings}
    scorer = cls(geometry, N, R, **settings).to(dtype)
    for bias in (scorer.head_bias, scorer.tail_bias):
        bias.data.normal_()
    if scorer.free_c is not None:
        scorer.free_c.data += torch.randn(R, 1)
    return scorer


def matrix(v, kind: str):
    """Rotations or reflections (B, d, d) of pairs (B, d)."""
    blocks = v.new_zeros(*v.shape, v.shape[-1])
    for k in range(0, v.shape[-1], 2):
        a, b = v[:, k], v[:, k + 1]
        a, b = a / torch.hypot(a, b), b / torch.hypot(a, b)
        sign = -1 if kind == "rotation" else 1
        blocks[:, k, k], blocks[:, k, k + 1] = a, sign * b
        blocks[:, k + 1, k], blocks[:, k + 1, k + 1] = b, -sign * a
    return blocks


def written_out(scorer, h, r, t):
    """Scores (B, N) of heads and relations (B,) with tails (B, N)."""
    e, tail, p = (v.double() for v in (scorer.entity[h], scorer.entity[t], scorer.translation[r]))
    bias = scorer.head_bias[h] + scorer.tail_bias[t].squeeze(-1)
    turns = [matrix(getattr(scorer, k)[r].double(), k) for k in ("reflection", "rotation") if hasattr(scorer, k)]
    x = torch.einsum("bij,bj->bi", turns[0], e)
    if len(turns) == 2:
        other = torch.einsum("bij,bj->bi", turns[1], e)
        first, second = ((scorer.context[r].double() * v).sum(-1, keepdim=True) / math.sqrt(D) for v in (x, other))
        x = (first.exp() * x + second.exp() * other) / (first.exp() + second.exp())
    if scorer.flat:
        return bias - ((x + p).unsqueeze(1) - tail).square().sum(-1)
    c = scorer.manifold.c if scorer.free_c is None else torch.nn.functional.softplus(scorer.free_c[r].double())
    if isinstance(scorer, Rotation):
        x = torch.einsum("bij,bj->bi", turns[0], mobius_add(expmap0(e, c), expmap0(p[:, :D], c), c))
        x = mobius_add(x, expmap0(p[:, D:], c), c)
    else:
        x = mobius_add(expmap0(x, c), expmap0(p, c), c)
    c = c.unsqueeze(-1) if c.dim() else c
    square = distance_square(x.unsqueeze(1), expmap0(tail, c), c)
    return bias - (4 * square * asinhc(c * square) ** 2).squeeze(-1)


@MODELS
@SPACES
@DTYPES
def test_scores_are_the_formula(cls, name, c, shared, dtype):
    scorer = model(cls, name, dtype, c, learn_c_per_relation=not shared)
    scores = scorer(H, REL, T)
    assert scores.dtype is dtype
    torch.testing.assert_close(scores.double(), written_out(scorer, H, REL, T).double(), **tolerance(dtype, "identity"))


@MODELS
@SPACES
@DTYPES
def test_all_entities_have_the_scores_of_triples(cls, name, c, shared, dtype):
    scorer = model(cls, name, dtype, c, learn_c_per_relation=not shared)
    candidates, close = torch.arange(N).expand(len(H), -1), tolerance(dtype, "identity")
    one_by_one = scorer(H, REL, candidates)
    torch.testing.assert_close(scorer.tails(H, REL), one_by_one, **close)
    torch.testing.assert_close(scorer.tails(H, REL, 2, 7), one_by_one[:, 2:7], **close)
    of_heads = scorer.of_heads(candidates, REL, T[:, 0])
    torch.testing.assert_close(scorer.heads(REL, T[:, 0]), of_heads, **close)
    torch.testing.assert_close(of_heads[0, 4], scorer(H[:1] * 0 + 4, REL[:1], T[:1, 0])[0], **close)
    with torch.no_grad():
        torch.testing.assert_close(scorer.tails(H, REL), one_by_one, **close)
    check_shared(scorer, H, REL, T[:, 0], dtype)


@MODELS
@SPACES
@pytest.mark.parametrize("way", ["triples", "all"])
def test_gradients_are_those_of_the_formula(cls, name, c, shared, way):
    curved = name == "poincare"
    scorer = model(cls, name, c=c, learn_c=shared and curved, learn_c_per_relation=not shared)
    h, r, candidates = H[1:4], REL[1:4], torch.arange(2, 6).expand(3, -1)
    scores = scorer(h, r, candidates) if way == "triples" else scorer.tails(h, r, 2, 6)
    expected = written_out(scorer, h, r, candidates)
    cotangent, leaves = torch.randn_like(scores), dict(scorer.named_parameters())
    assert any("free_c" in key for key in leaves) == curved
    grads = [torch.autograd.grad((v * cotangent).sum(), list(leaves.values())) for v in (scores, expected)]
    for key, a, b in zip(leaves, *grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9, msg=lambda text, key=key: f"{key}: {text}")
        assert a.abs().max() > 0


@MODELS
@NAMES
def test_zero_vectors_have_finite_gradients(cls, name):
    scorer = model(cls, name, F32)
    with torch.no_grad():
        scorer.entity.zero_()
        scorer.translation.zero_()
    scores = scorer(H, REL, T) - scorer.head_bias[H] - scorer.tail_bias[T].squeeze(-1)
    assert (scores.abs() < 1e-6).all()  # the biases are rounded
    scores.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in scorer.parameters())
    assert not scorer.entity.grad.any()


@MODELS
@NAMES
def test_vectors_far_out_are_finite(cls, name):
    scorer = model(cls, name, F32, init_std=30.0)
    scores = scorer(H, REL, T)
    assert scores.isfinite().all()
    scores.sum().backward()
    assert all(p.grad.isfinite().all() for p in scorer.parameters())


@MODELS
@NAMES
@pytest.mark.parametrize("way", WAYS)
def test_sparse_gradients_have_the_same_rows(cls, name, way):
    grads = check_sparse_is_dense(lambda sparse: model(cls, name, sparse=sparse), WAYS[way], (H, REL, T))
    assert grads["head_bias"].is_sparse
    assert grads["entity"].is_sparse == (way != "all")


@MODELS
@NAMES
def test_relations_that_a_batch_lacks_may_be_left_out(cls, name, monkeypatch):
    scorer, ends = model(cls, name), []
    for few in (R, R - 1):
        monkeypatch.setattr(isometries, "_FEW", few)
        scorer.zero_grad()
        scorer(H, REL, T).square().sum().backward()
        ends.append([p.grad.clone() for p in scorer.parameters()])
    torch.testing.assert_close(*ends)


@MODELS
def test_curvatures_of_relations_start_at_the_geometry(cls):
    manifold, family = GEOMETRIES["poincare"]
    geometry = make_geometry("poincare", manifold, family, c=0.7)
    scorer = cls(geometry, N, R, False, D, 1e-3, True)
    torch.testing.assert_close(scorer.query(H, REL).c, torch.full((5, 1), 0.7, dtype=F64), rtol=1e-6, atol=0)
    space, points = scorer.points()
    assert space is geometry.manifold
    torch.testing.assert_close(space.logmap0(points), scorer.entity.detach())
    width = 2 * D if cls is Rotation else D
    assert [f.shape for f in scorer.factors(H, REL, T[:, 0])] == [(5, D), (5, width), (5, D)]


@MODELS
def test_mistakes_are_named(cls):
    for name in ("lorentz", "klein_tangent"):
        with pytest.raises(ValueError, match=rf"{cls.__name__} .* not with geometry={name}; choose geometry=.*poincare"):
            model(cls, name)
    with pytest.raises(ValueError, match="d must be even, .* got d=5"):
        model(cls, "poincare", d=5)
    with pytest.raises(ValueError, match=r"init_std must be positive, got -1"):
        model(cls, "euclidean", init_std=-1.0)
    with pytest.raises(ValueError, match=r"geometry.learn_c=true .* learn_c_per_relation=true"):
        model(cls, "poincare", learn_c=True)


@pytest.mark.parametrize("place", ["poincare", "euclidean"])
def test_it_can_be_built_without_memory(place):
    with torch.device("meta"):
        scorer = Rotation(geometry(place), 5, 3, False, 4, 0.1, True)
    assert all(p.is_meta for p in scorer.parameters())
