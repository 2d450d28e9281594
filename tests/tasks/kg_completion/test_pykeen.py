"""Filters, ranks and metrics against PyKEEN's, on the scores of one model, where PyKEEN is installed."""

import warnings

import pytest
import torch

from configs import checks, composing
from configs.build import build
from tests.tasks.kg_completion.graphs import evaluate

RANKS = ("realistic", "optimistic", "pessimistic")
NAMES = {
    "mrr": "inverse_harmonic_mean_rank",
    "mean_rank": "arithmetic_mean_rank",
    **{f"hits@{k}": f"hits_at_{k}" for k in (1, 3, 10)},
}


@pytest.fixture
def pykeen():
    """The modules evaluation and evaluation.evaluator; importing them warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (
            pytest.importorskip("pykeen.evaluation", reason="PyKEEN is not installed"),
            pytest.importorskip("pykeen.evaluation.evaluator", reason="PyKEEN is not installed"),
        )


@pytest.mark.filterwarnings("ignore")
def test_metrics_are_those_of_pykeen(tmp_path, pykeen, monkeypatch):
    evaluation, filters = pykeen
    composing.register()
    words = ("task=kg_completion_toy", "encoder=transe", f"paths.data_dir={tmp_path}", f"paths.output_dir={tmp_path}")
    task, data = build(checks.check(composing.composed(*words)))
    scores_of = task.model.forward
    monkeypatch.setattr(task.model, "forward", lambda e, r: (2 * scores_of(e, r)).round())  # many ties
    metrics = evaluate(task, data.test_dataloader())

    triples = data.graph.triples
    queries, every, n = triples["test"], torch.cat(list(triples.values())).unique(dim=0), task.n
    evaluator = evaluation.RankBasedEvaluator()
    for target, column in (("tail", 2), ("head", 0)):
        with torch.no_grad():
            scores = task.model(queries[:, 2 - column], queries[:, 1] + (0 if column else n))
        true = scores.gather(1, queries[:, column : column + 1])
        positives, _ = filters.create_sparse_positive_filter_(queries, every, filter_col=column)
        scores = filters.filter_scores_(scores, positives)
        scores.scatter_(1, queries[:, column : column + 1], true)
        evaluator.process_scores_(queries, target, scores, true)
    expected = evaluator.finalize()
    for ties in RANKS:
        for ours, theirs in NAMES.items():
            assert metrics[f"{ties}/{ours}"] == pytest.approx(expected.get_metric(f"both.{ties}.{theirs}"), rel=1e-6)
    for side in ("tail", "head"):
        assert metrics[f"{side}/mrr"] == pytest.approx(expected.get_metric(f"{side}.realistic.{NAMES['mrr']}"), rel=1e-6)
    assert metrics["optimistic/mrr"] > metrics["mrr"] > metrics["pessimistic/mrr"]
