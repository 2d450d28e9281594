"""TransE and RotatE: scores against the formulas, at equal points, far from the origin and in blocks; their start."""

import cmath
import math

import pytest
import torch

from hyperbolic.encoders.relational import translational
from hyperbolic.encoders.relational.translational import RotatE, TransE
from tests.encoders.relational.agreement import (
    F64,
    N_ENTITIES,
    all_triples_one_by_one,
    built,
    check_directions,
    check_gradients,
    check_refuses_curvature,
    check_sparse,
    geometry,
    triples,
)
from tests.tolerances import tolerance

MODELS = [
    pytest.param(TransE, {"d": 6, "margin": 4.0, "p": 1}, id="TransE1"),
    pytest.param(TransE, {"d": 6, "margin": 4.0, "p": 2}, id="TransE2"),
    pytest.param(RotatE, {"d": 6, "margin": 4.0}, id="RotatE"),
]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, F64])


def transe(scorer, h, r, t):
    e, v = scorer.entity.weight.tolist(), scorer.relation.weight.tolist()
    parts = [abs(a + b - c) for a, b, c in zip(e[h], v[r], e[t], strict=True)]
    return scorer.margin - (sum(parts) if scorer.p == 1 else math.sqrt(sum(x * x for x in parts)))


def rotate(scorer, h, r, t):
    e, v = scorer.entity.weight.tolist(), scorer.relation.weight.tolist()
    k = len(v[r])
    bound = (scorer.margin + 2) / k
    head, tail = ([complex(row[j], row[k + j]) for j in range(k)] for row in (e[h], e[t]))
    return scorer.margin - sum(abs(head[j] * cmath.exp(1j * math.pi * v[r][j] / bound) - tail[j]) for j in range(k))


@pytest.mark.parametrize(("cls", "settings"), MODELS)
@DTYPES
def test_the_score_is_the_papers(cls, settings, dtype):
    scorer = built(cls, dtype, **settings)
    h, r, t = triples()
    formula = transe if cls is TransE else rotate
    expected = [formula(scorer, *triple) for triple in zip(h.tolist(), r.tolist(), t.tolist(), strict=True)]
    torch.testing.assert_close(scorer(h, r, t), torch.tensor(expected, dtype=dtype), **tolerance(dtype, "identity"))


@pytest.mark.parametrize(("cls", "settings"), MODELS)
@DTYPES
def test_all_directions_agree(cls, settings, dtype):
    check_directions(built(cls, dtype, **settings), dtype)


@pytest.mark.parametrize(("cls", "settings"), MODELS)
def test_gradients(cls, settings):
    check_gradients(built(cls, **settings))


@pytest.mark.parametrize(("cls", "settings"), MODELS)
def test_sparse_gradients_are_the_same(cls, settings):
    check_sparse(cls, **settings)


@pytest.mark.parametrize(("cls", "settings"), MODELS)
def test_a_curved_geometry_is_refused_by_name(cls, settings):
    check_refuses_curvature(cls, **settings)


@pytest.mark.parametrize(("cls", "settings"), MODELS)
@DTYPES
def test_where_the_moved_head_is_the_tail_the_score_is_the_margin_and_gradients_are_finite(cls, settings, dtype):
    scorer = built(cls, dtype, **settings)
    with torch.no_grad():
        scorer.relation.weight.zero_()
    h, r, _ = triples()
    for scores in (
        scorer(h, r, h),
        scorer.tails(h, r).gather(1, h[:, None])[:, 0],
        scorer.of_heads(h[:, None], r, h)[:, 0],
    ):
        torch.testing.assert_close(scores, torch.full_like(scores, 4.0), **tolerance(dtype, "identity"))
    for scores in (scorer(h, r, h).sum(), scorer.tails(h, r).sum(), scorer.of_heads(h[:, None], r, h).sum()):
        scorer.zero_grad()
        scores.backward()
        assert all(p.grad.isfinite().all() for p in scorer.parameters())
    scorer.zero_grad()
    scorer(h, r, h).sum().backward()
    assert not scorer.entity.weight.grad.any()


@pytest.mark.parametrize(("cls", "settings"), MODELS)
def test_close_pairs_far_from_the_origin_keep_their_digits(cls, settings):
    """|q|^2 - 2<q, e> + |e|^2 in float32 would lose them all."""
    scorer = built(cls, torch.float32, **settings)
    with torch.no_grad():
        scorer.entity.weight.mul_(1e-3).add_(50)
        scorer.relation.weight.zero_()
    h, r, _ = triples()
    results = [scorer.tails(h, r)]
    with torch.no_grad():
        results.append(scorer.tails(h, r))
    exact = all_triples_one_by_one(scorer.double(), h, r)
    assert 1e-4 < (4 - exact[0, 1]) < 1e-2
    for scores in results:
        torch.testing.assert_close(scores.double(), exact, rtol=0, atol=1e-6)  # a few roundings of the margin


@pytest.mark.parametrize(("cls", "settings"), MODELS)
def test_without_a_graph_the_scores_are_the_same(cls, settings):
    scorer = built(cls, torch.float32, **settings)
    h, r, _ = triples()
    with torch.no_grad():
        plain = scorer.tails(h, r)
    torch.testing.assert_close(plain, scorer.tails(h, r).detach(), **tolerance(torch.float32, "formula"))


@pytest.mark.parametrize(("pairs", "columns"), [(1, 1), (6, 2), (7, 100), (100, 3)])
def test_blocks_of_rotate_change_nothing(monkeypatch, pairs, columns):
    torch.manual_seed(5)
    x, y = (torch.randn(n, 6, dtype=F64, requires_grad=True) for n in (5, 8))
    weight = torch.randn(5, 8, dtype=F64)
    plain = translational.moduli(x.unsqueeze(1) - y).sum(-1)
    expected = torch.autograd.grad((plain * weight).sum(), (x, y))
    monkeypatch.setattr(translational, "_BLOCK", (pairs, pairs))
    monkeypatch.setattr(translational, "_COLUMNS", columns)
    results = translational.ModulusDistances.run(x, y)
    torch.testing.assert_close(results, plain, **tolerance(F64, "identity"))
    for gradient, other in zip(torch.autograd.grad((results * weight).sum(), (x, y)), expected, strict=True):
        torch.testing.assert_close(gradient, other, **tolerance(F64, "identity"))


@pytest.mark.parametrize("cls", [translational.ModulusSums, translational.ModulusDistances])
def test_second_derivatives_of_what_depends_on_itself(cls):
    """Of results times a function of the arguments, so that a branch that is lost would be no error."""
    torch.manual_seed(5)
    x, y = (torch.randn(n, 6, dtype=F64, requires_grad=True) for n in (5, 8))
    leaves = (x,) if cls is translational.ModulusSums else (x, y)
    ends = []
    for function in (cls.run, cls.plain):
        loss = (function(*leaves) * x.square().sum(-1, keepdim=True).mT[..., :1]).square().sum()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        ends.append((first, *torch.autograd.grad(first.square().sum(), leaves)))
    for actual, expected in zip(*ends, strict=True):
        torch.testing.assert_close(actual, expected, **tolerance(F64, "identity"))


def test_rotate_follows_transforms_of_functions():
    scorer = built(RotatE, F64, d=6, margin=4.0)
    h, r, t = triples()
    query = scorer.query(h, r).detach()
    for score in (lambda q: scorer.compare_all(q, r, slice(None)), lambda q: scorer.compare(q, r, t)):
        expected = torch.autograd.functional.jacobian(lambda q: score(q).sum(), query)  # noqa: B023
        torch.testing.assert_close(torch.func.grad(lambda q: score(q).sum())(query), expected)  # noqa: B023


def test_complex_rows_have_an_even_number_of_coordinates():
    odd = torch.ones(2, 3)
    for scores in (lambda: translational.ModulusSums.run(odd), lambda: translational.ModulusDistances.run(odd, odd)):
        with pytest.raises(ValueError, match=r"even number of coordinates, got \("):
            scores()


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_no_queries_or_no_entities_give_no_scores(shape):
    x, y = (torch.ones(n, 4, dtype=F64, requires_grad=True) for n in shape)
    results = translational.ModulusDistances.run(x, y)
    assert results.shape == shape
    results.sum().backward()


def test_rotations_keep_lengths_and_start_as_phases_in_a_whole_turn():
    torch.manual_seed(0)
    scorer = RotatE(geometry(), 2000, 2000, sparse=False, d=8, margin=6.0)
    bound = 8 / 4
    assert scorer.relation.weight.shape == (2000, 4)
    for table in (scorer.entity.weight, scorer.relation.weight):
        assert table.abs().max() <= bound
        assert table.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
    turns = scorer.rotation(torch.arange(2000))
    torch.testing.assert_close(
        turns[:, :4].square() + turns[:, 4:].square(), torch.ones(2000, 4), **tolerance(torch.float32, "identity")
    )
    assert turns.mean(0).abs().max() < 0.05


def test_factors_are_rows_of_transe_and_moduli_of_rotate():
    h, r, t = triples()
    scorer = built(TransE, d=6, margin=4.0, p=2)
    assert [f.shape for f in scorer.factors(h, r, t)] == [(4, 6)] * 3
    scorer = built(RotatE, d=6, margin=4.0)
    first, second = scorer.factors(h, r, t)
    rows = scorer.entity(h)
    torch.testing.assert_close(first, torch.complex(rows[:, :3], rows[:, 3:]).abs(), **tolerance(F64, "identity"))
    assert second.shape == (4, 3)


def test_points_are_the_entities():
    scorer = built(RotatE, d=6, margin=4.0)
    manifold, points = scorer.points()
    assert manifold is scorer.manifold
    assert torch.equal(points, scorer.entity.weight)
    assert points.shape == (N_ENTITIES, 6)


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (TransE, {"d": 6, "margin": 4.0, "p": 3}, "TransE: p must be 1 or 2, got 3"),
        (TransE, {"d": 6, "margin": -1.0, "p": 1}, "TransE: margin must not be negative, got -1.0"),
        (TransE, {"d": 0, "margin": 1.0, "p": 1}, "d must be at least 1, got 0"),
        (RotatE, {"d": 5, "margin": 1.0}, "RotatE: d counts real numbers, two for each complex one; d=5 is odd"),
        (RotatE, {"d": 0, "margin": 1.0}, "d must be at least 1, got 0"),
    ],
)
def test_mistakes_are_named(cls, settings, message):
    with pytest.raises(ValueError, match=message):
        built(cls, **settings)


def test_distances_of_all_entities_serve_torch_func():
    x, y, weights = (torch.randn(*size, dtype=F64) for size in ((3, 4), (5, 4), (3, 5)))
    y[0] = x[0]  # where a root has no derivative
    tangents = torch.randn_like(x), torch.randn_like(y)
    _, slopes = torch.func.jvp(translational._distances, (x, y), tangents)
    leaves = [t.clone().requires_grad_() for t in (x, y)]
    grads = torch.autograd.grad((translational._distances(*leaves) * weights).sum(), leaves)
    torch.testing.assert_close((slopes * weights).sum(), sum((g * t).sum() for g, t in zip(grads, tangents, strict=True)))
    tables = torch.stack([y, y + 1])
    expected = torch.stack([translational._distances(x, table) for table in tables])
    torch.testing.assert_close(torch.func.vmap(lambda table: translational._distances(x, table))(tables), expected)
