"""HyboNet's scores in one kernel against the steps that they are made of: values, gradients, threads, and when."""

import pytest
import torch

from hyperbolic import switch
from hyperbolic.encoders.relational.hybonet import HyboNet
from hyperbolic.encoders.relational.scorer import Scorer
from hyperbolic.geometry import make_geometry
from hyperbolic.kernels import relation_linear, relation_scores
from tests.tolerances import tolerance

F32, F64 = torch.float32, torch.float64
ENTITIES, RELATIONS = 70, 5
SIZES = [(1, 1, 1), (40, 3, 4), (33, 20, 33), (600, 7, 16)]  # questions, tails, dimensions of space

pytestmark = pytest.mark.usefixtures("kernels_restored")


@pytest.fixture(autouse=True)
def _compiler():
    if not switch.native():
        pytest.skip("no C++ compiler")


def case(n, m, d, dtype=F64, c=0.7, **settings):
    """A model with random numbers, and questions with tails in which entities and relations come many times."""
    geometry = make_geometry("lorentz", "Lorentz", "lorentz", c=c, learn_c=settings.pop("learn_c", False))
    options = {"sparse": False, "d": d, "counts_time": False, "scale": 2.5, "margin": 8.0, "max_norm": 1.5}
    scorer = HyboNet(geometry, ENTITIES, RELATIONS, **{**options, **settings}).to(dtype)
    with torch.no_grad():
        for parameter in (scorer.matrix, scorer.bias, scorer.head_bias, scorer.tail_bias):
            parameter.normal_()
        scorer.entity.weight.copy_(scorer.manifold.random(ENTITIES, d, std=0.4, dtype=dtype))
    return scorer, (torch.randint(ENTITIES, (n,)), torch.randint(RELATIONS, (n,)), torch.randint(ENTITIES, (n, m)))


def gradients(scorer, scores):
    weight = torch.linspace(-1, 2, scores.numel(), dtype=scores.dtype).view(scores.shape[::-1]).T  # not contiguous
    return torch.autograd.grad(scores, [p for p in scorer.parameters() if p.requires_grad], weight, retain_graph=True)


def assert_alike(ones, others, dtype):
    for one, other in zip(ones, others, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, **tolerance(dtype, "model" if dtype is F32 else "identity"))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("c", [0.3, 2.0])
@pytest.mark.parametrize(("n", "m", "d"), SIZES)
def test_values_and_gradients_are_those_of_the_steps(n, m, d, c, dtype, monkeypatch):
    scorer, triples = case(n, m, d, dtype, c)
    expected = Scorer.forward(scorer, *triples)
    with monkeypatch.context() as patch:
        patch.setattr(scorer, "query", None)  # the kernel makes none
        actual = scorer(*triples)
    assert actual.dtype is dtype
    assert_alike([actual], [expected], dtype)
    assert_alike(gradients(scorer, actual), gradients(scorer, expected), dtype)


def test_any_number_of_threads_gives_the_same_numbers():
    scorer, triples = case(600, 7, 16, F32)
    ends = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        scores = scorer(*triples)
        ends.append([scores, *gradients(scorer, scores)])
    for one, other in zip(*ends, strict=True):
        assert torch.equal(one, other)


def test_frozen_parameters_get_no_gradient():
    scorer, triples = case(4, 3, 2)
    scorer.entity.weight.requires_grad_(False)
    scorer.head_bias.requires_grad_(False)
    actual, expected = scorer(*triples), Scorer.forward(scorer, *triples)
    assert_alike(gradients(scorer, actual), gradients(scorer, expected), F64)
    actual.sum().backward()
    assert scorer.entity.weight.grad is None
    assert scorer.head_bias.grad is None


@pytest.mark.parametrize("settings", [{"learn_c": True}, {"sparse": True}], ids=str)
def test_where_the_steps_do_more_they_are_taken(settings, monkeypatch):
    scorer, triples = case(4, 3, 2, **settings)
    monkeypatch.setattr(relation_scores, "scores", None)
    assert scorer(*triples).shape == (4, 3)


def test_large_products_go_relation_by_relation(monkeypatch):
    scorer, triples = case(4, 3, 2)
    tables = (scorer.entity.weight, scorer.matrix, scorer.bias, scorer.head_bias, scorer.tail_bias)
    tables = relation_scores.Tables(*tables)
    assert relation_scores.usable(tables, *triples)
    monkeypatch.setattr(relation_linear, "GATHERED", 4 * 9 - 1)
    assert not relation_scores.usable(tables, *triples)


@pytest.mark.parametrize("shapes", [(1, 1, (5, 2)), (5, 5, (3, 2)), (5, 7, (5, 2)), (7, 5, (5, 2))], ids=str)
def test_shapes_that_do_not_fit(shapes):
    scorer, _ = case(4, 3, 2)
    h, r, t = (torch.zeros(shape, dtype=torch.long) for shape in shapes)
    with pytest.raises((ValueError, RuntimeError)):
        scorer(h, r, t)


def test_no_questions_and_no_tails():
    scorer, (h, r, t) = case(4, 3, 2)
    assert scorer(h, r, t[:, :0]).shape == (4, 0)
    assert scorer(h[:0], r[:0], t[:0]).shape == (0, 3)


def test_other_integers_and_strides():
    scorer, (h, r, t) = case(4, 3, 2)
    expected = scorer(h, r, t)
    assert torch.equal(scorer(h.int(), r.int(), t.int()), expected)
    assert torch.equal(scorer(h, r, t.T.contiguous().T), expected)


@pytest.mark.parametrize("wrong", [-1, ENTITIES])
@pytest.mark.parametrize("place", [0, 2])
def test_an_entity_that_is_not_there(place, wrong):
    scorer, triples = case(4, 3, 2)
    triples[place][1] = wrong
    with pytest.raises(ValueError, match=rf"Embedding: row numbers must lie in 0..{ENTITIES - 1}"):
        scorer(*triples)


@pytest.mark.parametrize("wrong", [-1, RELATIONS])
def test_a_relation_that_is_not_there(wrong):
    scorer, (h, r, t) = case(4, 3, 2)
    r[2] = wrong
    with pytest.raises(IndexError, match=rf"relation_scores: index {wrong} of {RELATIONS} relations"):
        scorer(h, r, t)


def test_second_derivatives():
    scorer, triples = case(4, 3, 2)
    seconds = []
    for forward in (scorer, lambda *t: super(type(scorer), scorer).forward(*t)):
        (grad,) = torch.autograd.grad(forward(*triples).square().sum(), scorer.matrix, create_graph=True)
        seconds.append(torch.autograd.grad(grad.square().sum(), scorer.matrix)[0])
    torch.testing.assert_close(*seconds, rtol=1e-4, atol=1e-5)
