"""DistMult, ComplEx and TuckER: scores against the formulas, both directions, gradients, batch norms and dropout."""

import pytest
import torch

from hyperbolic.encoders.relational import bilinear
from hyperbolic.encoders.relational.bilinear import ComplEx, DistMult, TuckER
from tests.encoders.relational.agreement import (
    F64,
    built,
    check_directions,
    check_gradients,
    check_refuses_curvature,
    check_sparse,
    geometry,
    triples,
)
from tests.tolerances import tolerance

TUCKER = {"d": 4, "d_relation": 3, "input_dropout": 0.2, "hidden_dropout1": 0.3, "hidden_dropout2": 0.4}
PLAIN = TUCKER | {"input_dropout": 0.0, "hidden_dropout1": 0.0, "hidden_dropout2": 0.0}
MODELS = [
    pytest.param(DistMult, {"d": 5, "init_std": 1e-3}, id="DistMult"),
    pytest.param(ComplEx, {"d": 6, "init_std": 1e-3}, id="ComplEx"),
    pytest.param(TuckER, TUCKER, id="TuckER"),
]
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, F64])


def distmult(scorer, h, r, t):
    e, v = scorer.entity.weight.tolist(), scorer.relation.weight.tolist()
    return sum(a * b * c for a, b, c in zip(e[h], v[r], e[t], strict=True))


def complex_(scorer, h, r, t):
    e, v = scorer.entity.weight.tolist(), scorer.relation.weight.tolist()
    k = len(v[r]) // 2
    head, relation, tail = ([complex(row[j], row[k + j]) for j in range(k)] for row in (e[h], v[r], e[t]))
    return sum((a * b * c.conjugate()).real for a, b, c in zip(head, relation, tail, strict=True))


def tucker(scorer, h, r, t):
    def norm(layer, x):
        mean, variance = layer.running_mean.double(), layer.running_var.double()
        return (x - mean) / (variance + 1e-5).sqrt() * layer.weight.detach().double() + layer.bias.detach().double()

    e, v, core = (w.detach().double() for w in (scorer.entity.weight, scorer.relation.weight, scorer.core))
    query = torch.einsum("kij,i,k->j", core, norm(scorer.head_norm, e[h]), v[r])
    return float(norm(scorer.query_norm, query) @ e[t])


FORMULAS = {DistMult: distmult, ComplEx: complex_, TuckER: tucker}


@pytest.mark.parametrize(("cls", "settings"), MODELS)
@DTYPES
def test_the_score_is_the_papers(cls, settings, dtype):
    scorer = built(cls, dtype, **settings)
    h, r, t = triples()
    expected = [FORMULAS[cls](scorer, *triple) for triple in zip(h.tolist(), r.tolist(), t.tolist(), strict=True)]
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


def test_distmult_is_symmetric_and_complex_is_not():
    h, r, t = triples()
    scorer = built(DistMult, d=5, init_std=1.0)
    torch.testing.assert_close(scorer(h, r, t), scorer(t, r, h), **tolerance(F64, "identity"))
    scorer = built(ComplEx, d=6, init_std=1.0)
    assert (scorer(h, r, t) - scorer(t, r, h))[h != t].abs().min() > 1e-3


def test_factors_are_rows_and_for_complex_moduli():
    h, r, t = triples()
    scorer = built(DistMult, d=5, init_std=1.0)
    for factor, row in zip(
        scorer.factors(h, r, t), (scorer.entity(h), scorer.relation(r), scorer.entity(t)), strict=True
    ):
        assert torch.equal(factor, row)
    scorer = built(ComplEx, d=6, init_std=1.0)
    with torch.no_grad():
        scorer.relation.weight[0].zero_()
    factors = scorer.factors(h, r, t)
    for factor, row in zip(factors, (scorer.entity(h), scorer.relation(r), scorer.entity(t)), strict=True):
        torch.testing.assert_close(factor, torch.complex(row[:, :3], row[:, 3:]).abs(), **tolerance(F64, "identity"))
    sum((f**3).sum() for f in factors).backward()
    assert scorer.relation.weight.grad.isfinite().all()
    assert not scorer.relation.weight.grad[0].any()


@pytest.mark.parametrize("cls", [DistMult, ComplEx])
def test_rows_start_at_the_given_size(cls):
    torch.manual_seed(0)
    scorer = cls(geometry(), 500, 300, sparse=False, d=20, init_std=0.01)
    for table in (scorer.entity.weight, scorer.relation.weight):
        assert table.std().item() == pytest.approx(0.01, rel=0.05)


def test_tucker_starts_as_its_program():
    torch.manual_seed(0)
    scorer = TuckER(geometry(), 480, 280, sparse=False, **TUCKER | {"d": 20, "d_relation": 20})
    assert scorer.entity.weight.std().item() == pytest.approx((2 / 500) ** 0.5, rel=0.05)
    assert scorer.relation.weight.std().item() == pytest.approx((2 / 300) ** 0.5, rel=0.05)
    assert scorer.core.abs().max() <= 1
    assert scorer.core.std().item() == pytest.approx(3**-0.5, rel=0.05)


def test_in_training_batch_norms_of_tucker_use_the_batch():
    scorer = built(TuckER, **PLAIN).train()
    h, r, t = triples()
    x = scorer.entity(h)

    def norm(layer, x):
        return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt() * layer.weight + layer.bias

    query = torch.einsum("kij,bi,bk->bj", scorer.core, norm(scorer.head_norm, x), scorer.relation(r))
    expected = norm(scorer.query_norm, query) @ scorer.entity.weight.T
    torch.testing.assert_close(scorer.tails(h, r), expected, **tolerance(F64, "identity"))
    torch.testing.assert_close(scorer(h, r, t[:, None]), expected.gather(1, t[:, None]), **tolerance(F64, "identity"))


def test_a_batch_of_one_in_training_uses_the_running_statistics_and_leaves_them():
    scorer = built(TuckER, **PLAIN)
    one = torch.tensor([2])
    before = {name: buffer.clone() for name, buffer in scorer.named_buffers()}
    expected = scorer.tails(one, one)
    results = scorer.train().tails(one, one)
    torch.testing.assert_close(results, expected, **tolerance(F64, "identity"))
    results.sum().backward()
    assert scorer.core.grad.isfinite().all()
    for name, buffer in scorer.named_buffers():
        assert torch.equal(buffer, before[name]), name


def test_dropout_of_the_matrices_of_tucker_differs_between_examples():
    scorer = built(TuckER, **PLAIN | {"hidden_dropout1": 0.5}).train()
    scorer.query_norm.eval()
    scorer.head_norm.eval()
    h, r = torch.zeros(8, dtype=torch.long), torch.ones(8, dtype=torch.long)
    torch.manual_seed(1)
    queries = scorer.query(h, r)
    assert len(queries.unique(dim=0)) > 4
    many = scorer.query(h.repeat(2000), r.repeat(2000)).mean(0)
    assert (many - scorer.eval().query(h, r)[0]).abs().max() < 0.1  # the same on average


def test_large_products_of_tucker_go_relation_by_relation(monkeypatch):
    scorer = built(TuckER, **PLAIN)
    h, r, _ = triples()
    expected = scorer.tails(h, r)
    monkeypatch.setattr("hyperbolic.kernels.relation_linear.GATHERED", 0)
    torch.testing.assert_close(scorer.tails(h, r), expected, **tolerance(F64, "identity"))
    check_gradients(scorer)


def test_complex_rows():
    x, y = (torch.randn(3, 6, dtype=F64, generator=torch.Generator().manual_seed(n)) for n in (0, 1))
    a, b = (torch.complex(z[:, :3], z[:, 3:]) for z in (x, y))
    for results, expected in ((bilinear.complex_product(x, y), a * b), (bilinear.conjugate(x), a.conj())):
        torch.testing.assert_close(results, torch.cat([expected.real, expected.imag], -1), **tolerance(F64, "identity"))


def test_points_are_the_entities():
    for case in MODELS:
        cls, settings = case.values
        scorer = built(cls, **settings)
        manifold, points = scorer.points()
        assert manifold is scorer.manifold
        assert torch.equal(points, scorer.entity.weight)


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (DistMult, {"d": 6, "init_std": 0.0}, "DistMult: init_std must be positive, got 0.0"),
        (DistMult, {"d": 0, "init_std": 1.0}, "DistMult: d must be at least 1, got 0"),
        (ComplEx, {"d": 5, "init_std": 1.0}, "ComplEx: d counts real numbers, two for each complex one; d=5 is odd"),
        (TuckER, TUCKER | {"d_relation": 0}, "TuckER: d_relation must be at least 1, got 0"),
        (TuckER, TUCKER | {"input_dropout": 1.5}, "dropout probability has to be between 0 and 1"),
    ],
)
def test_mistakes_are_named(cls, settings, message):
    with pytest.raises(ValueError, match=message):
        built(cls, **settings)
