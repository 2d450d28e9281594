"""Scores of all entities at once are those of the triples one by one, from both sides and in blocks."""

import functools

import pytest
import torch

from hyperbolic.encoders.relational.bilinear import ComplEx, DistMult
from hyperbolic.encoders.relational.conve import ConvE
from hyperbolic.encoders.relational.hybonet import HyboNet
from hyperbolic.encoders.relational.isometries import Attention, Rotation
from hyperbolic.encoders.relational.mur import MuR
from hyperbolic.encoders.relational.translational import RotatE, TransE
from hyperbolic.geometry import make_geometry
from tasks.kg_completion import model
from tests.tasks.kg_completion.graphs import EUCLIDEAN, TableScorer, graph_data, predictor
from tests.tolerances import tolerance

POINCARE = make_geometry("poincare", "PoincareBall", "mobius", c=0.7)
LORENTZ = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0)
ENCODERS = {
    "given": (TableScorer, EUCLIDEAN),
    "distmult": (functools.partial(DistMult, d=6, init_std=1.0), EUCLIDEAN),
    "complex": (functools.partial(ComplEx, d=6, init_std=1.0), EUCLIDEAN),
    "transe": (functools.partial(TransE, d=6, margin=6.0, p=1), EUCLIDEAN),
    "rotate": (functools.partial(RotatE, d=6, margin=6.0), EUCLIDEAN),
    "murp": (functools.partial(MuR, d=6, init_std=0.3), POINCARE),
    "roth": (functools.partial(Rotation, d=6, init_std=0.3, learn_c_per_relation=True), POINCARE),
    "atth": (functools.partial(Attention, d=6, init_std=0.3, learn_c_per_relation=True), POINCARE),
    "hybonet": (functools.partial(HyboNet, d=6, counts_time=True, scale=2.5, margin=8.0, max_norm=1.5), LORENTZ),
}
ANY = pytest.mark.parametrize("name", ENCODERS)
RECIPROCAL = pytest.mark.parametrize("reciprocal", [True, False])


def build(name: str, reciprocal: bool) -> model.LinkPredictor:
    encoder, geometry = ENCODERS[name]
    data = graph_data(reciprocal=reciprocal)
    link = predictor(data, encoder, geometry, loop_bias=True).double().requires_grad_(False)
    for key, value in link.named_parameters():
        if "bias" in key or key == "loop":
            torch.nn.init.normal_(value)
    return link.eval()


def queries(link: model.LinkPredictor, count: int = 11) -> tuple[torch.Tensor, torch.Tensor]:
    """Of both directions, mixed."""
    r = torch.randint(2 * len(link.relations), (count,))
    r[0], r[1] = 0, 2 * len(link.relations) - 1
    return torch.randint(len(link.entities), (count,)), r


def one_by_one(link: model.LinkPredictor, e: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """Every score as that of a triple (h, r, t)."""
    triples, n = [], len(link.relations)
    for x, y in zip(e.tolist(), r.tolist(), strict=True):
        turned = y >= n and not link.reciprocal
        triples += [(k, y - n, x) if turned else (x, y, k) for k in range(len(link.entities))]
    return scored(link, triples).view(len(e), -1)


def scored(link: model.LinkPredictor, triples: list[tuple[int, int, int]]) -> torch.Tensor:
    loops = torch.tensor([link.loop[r] if h == t else 0.0 for h, r, t in triples], dtype=torch.float64)
    return link.scorer(*torch.tensor(triples).unbind(-1)) + loops


@ANY
@RECIPROCAL
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_all_entities_have_the_scores_of_the_triples(name, reciprocal, mode):
    link = build(name, reciprocal)
    e, r = queries(link)
    expected = one_by_one(link, e, r)
    assert expected.std() > 0.01
    tails, heads = r < len(link.relations), r >= len(link.relations)
    assert tails.any()
    assert heads.any()
    for some in (slice(None), tails, heads, slice(0, 1), slice(1, 2)):
        with mode():
            scores = link(e[some], r[some])
        torch.testing.assert_close(scores, expected[some], **tolerance(torch.float64, "identity"))


def test_each_query_is_made_once():
    sizes = {"d": 12, "height": 3, "n_filters": 2}
    conve = functools.partial(ConvE, **sizes, input_dropout=0.0, feature_dropout=0.0, hidden_dropout=0.0)
    link = predictor(graph_data(), conve).train()
    assert link(*queries(link)).shape == (11, len(link.entities))
    norms = [part for part in link.modules() if hasattr(part, "num_batches_tracked")]
    assert norms
    assert all(part.num_batches_tracked == 1 for part in norms)


@ANY
@pytest.mark.parametrize("places", ["none", "mixed", "tails", "heads", "one head", "one tail"])
def test_wrong_answers_stand_for_tails_or_heads(name, places):
    link = build(name, reciprocal=False)
    count = 1 if "one" in places else 7
    entities, relations = len(link.entities), len(link.relations)
    h, t = torch.randint(entities, (2, count))
    r, wrong = torch.randint(relations, (count,)), torch.randint(entities, (count, 4))
    is_head = {"mixed": torch.arange(count) % 3 == 1, "none": None}.get(places, torch.full((count,), "head" in places))
    scores = link.negative_scores(h, r, t, wrong, is_head)
    triples = []
    for k in range(count):
        turned = is_head is not None and bool(is_head[k])
        pairs = [(h[k], t[k]), *((x, t[k]) if turned else (h[k], x) for x in wrong[k])]
        triples += [(int(a), int(r[k]), int(b)) for a, b in pairs]
    expected = scored(link, triples).view(count, -1)
    torch.testing.assert_close(scores, expected, **tolerance(torch.float64, "identity"))


def test_wrong_answers_that_a_batch_shares():
    link = build("given", reciprocal=True)
    h, r, own, others = torch.tensor([0, 1, 2]), torch.tensor([3, 7, 0]), torch.tensor([[0, 4], [2, 1], [5, 5]]), [1, 2, 9]
    scores = link.shared_scores(h, r, own, torch.tensor(others))
    rows = zip(h.tolist(), r.tolist(), own.tolist(), strict=True)
    expected = scored(link, [(x, y, z) for x, y, mine in rows for z in (*mine, *others)]).view(3, -1)
    torch.testing.assert_close(scores, expected, **tolerance(torch.float64, "identity"))


@RECIPROCAL
def test_loops_have_a_bias_that_is_learned(reciprocal):
    link = build("given", reciprocal)
    link.loop.requires_grad_()
    e, r = queries(link)
    link(e, r).sum().backward()
    relation = r if reciprocal else r % len(link.relations)
    assert link.loop.grad.tolist() == torch.bincount(relation, minlength=len(link.loop)).tolist()
    assert predictor(graph_data()).loop is None


def test_reciprocals_are_relations_of_their_own():
    with_, without = (predictor(graph_data(reciprocal=flag)) for flag in (True, False))
    assert (with_.reciprocal, without.reciprocal) == (True, False)
    assert len(with_.relations) == len(without.relations) == 4
    assert with_.scorer.n_relations == 2 * without.scorer.n_relations == 8
    e, r = torch.arange(3), torch.full((3,), 6)
    with_.scorer.table.data[6] += 10
    assert (with_(e, r) >= 10).all()
