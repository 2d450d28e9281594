"""Scores by all models of knowledge graphs as one compiled graph, as a trace, and under autocast."""

import pytest
import torch

from hyperbolic.encoders.relational.bilinear import ComplEx, DistMult, TuckER
from hyperbolic.encoders.relational.conve import ConvE
from hyperbolic.encoders.relational.hybonet import HyboNet
from hyperbolic.encoders.relational.isometries import Attention, Reflection, Rotation
from hyperbolic.encoders.relational.mur import MuR
from hyperbolic.encoders.relational.translational import RotatE, TransE
from tests.encoders.relational.agreement import WAYS, built, triples
from tests.tolerances import tolerance

NO_DROPOUT = {"input_dropout": 0.0, "hidden_dropout1": 0.0, "hidden_dropout2": 0.0}
ISOMETRY = {"d": 4, "init_std": 0.4, "learn_c_per_relation": True}
SCORERS = {
    "transe": (TransE, "euclidean", {"d": 4, "p": 1, "margin": 2.0}),
    "rotate": (RotatE, "euclidean", {"d": 4, "margin": 2.0}),
    "distmult": (DistMult, "euclidean", {"d": 4, "init_std": 1.0}),
    "complex": (ComplEx, "euclidean", {"d": 4, "init_std": 1.0}),
    "tucker": (TuckER, "euclidean", {"d": 4, "d_relation": 3, **NO_DROPOUT}),
    "conve": (ConvE, "euclidean", {"d": 12, "height": 3, "n_filters": 2}
        | {"input_dropout": 0.0, "feature_dropout": 0.0, "hidden_dropout": 0.0}),
    "mure": (MuR, "euclidean", {"d": 4, "init_std": 0.4}),
    "murp": (MuR, "poincare", {"d": 4, "init_std": 0.4}),
    "rote": (Rotation, "euclidean", ISOMETRY),
    "roth": (Rotation, "poincare", ISOMETRY),
    "refh": (Reflection, "poincare", ISOMETRY),
    "atth": (Attention, "poincare", ISOMETRY),
    "hybonet": (HyboNet, "lorentz", {"d": 4, "counts_time": False, "scale": 2.5, "margin": 1.0, "max_norm": None}),
}  # fmt: skip


# In eager code these, the other isometries and MuRE go relation by relation. A model takes seconds.
BY_RELATION = ("murp", "roth")
SOME = [pytest.param(name, marks=[] if name in BY_RELATION else pytest.mark.slow) for name in SCORERS]


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_scores_are_one_graph(name):
    cls, place, settings = SCORERS[name]
    scorer = built(cls, torch.float32, place=place, **settings)
    h, r, t = triples()
    t = torch.stack([t, t.flip(0)], 1)

    def scores() -> list[torch.Tensor]:
        return [*(way(scorer, h, r, t) for way in WAYS.values()), scorer.heads(r, h)]

    torch._dynamo.reset()
    compiled = torch.compile(scores, fullgraph=True, backend="eager")()
    for one, other in zip(compiled, scores(), strict=True):
        torch.testing.assert_close(one, other, **tolerance(torch.float32, "identity"))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # of checks of sizes
@pytest.mark.parametrize("name", SCORERS)
def test_traced_scores_of_heads_are_right_for_other_relations(name):
    """A trace that had grouped the batch by relation would keep the relations that it was made with."""
    cls, place, settings = SCORERS[name]
    scorer = built(cls, torch.float64, place=place, **settings).requires_grad_(requires_grad=False)
    for parameter in scorer.parameters():
        parameter.mul_(0.3)  # points of the ball well inside of it, where a rounding is no distance
    h, r, _ = triples()
    traced = torch.jit.trace(lambda r, t: scorer.heads(r, t), (r, h), check_trace=False)
    torch.testing.assert_close(traced(r.flip(0), h), scorer.heads(r.flip(0), h))


@pytest.mark.parametrize("name", SCORERS)
def test_scores_under_autocast(name):
    """Of curved models in full precision, of flat ones near it: no operator meets two dtypes."""
    cls, place, settings = SCORERS[name]
    scorer = built(cls, torch.float32, place=place, **settings)
    h, r, t = triples()
    t = torch.stack([t, t.flip(0)], 1)
    for way in (*WAYS.values(), lambda s, h, r, t: s.of_heads(t, r, h), lambda s, h, r, t: s.heads(r, h)):
        with torch.no_grad():
            expected = way(scorer, h, r, t)
            with torch.autocast("cpu", torch.bfloat16):
                scores = way(scorer, h, r, t)
        torch.testing.assert_close(scores.float(), expected, rtol=0.1, atol=0.1)


class _Heads(torch.nn.Module):
    def __init__(self, scorer):
        super().__init__()
        self.scorer = scorer

    def forward(self, r, t):
        return self.scorer.heads(r, t)


@pytest.mark.long
@pytest.mark.every_case
@pytest.mark.parametrize("name", SCORERS)
def test_exported_scores_of_heads_serve_batches_of_any_size(name):
    cls, place, settings = SCORERS[name]
    scorer = built(cls, torch.float32, place=place, **settings)
    h, r, _ = triples()
    size = torch.export.Dim("B", min=2)
    exported = torch.export.export(_Heads(scorer), (r, h), dynamic_shapes=({0: size}, {0: size})).module()
    more = torch.cat([r, r.flip(0)]), torch.cat([h, h])
    torch.testing.assert_close(exported(*more), scorer.heads(*more), rtol=1e-3, atol=1e-3)
