"""A bias for self-loops is the same as other scores of self-loops, wherever scores are made."""

import pytest
import torch

from tasks.kg_completion.data import GraphData
from tasks.kg_completion.task import LinkPredictionTask
from tests.tasks.kg_completion.graphs import evaluate, every, folder_data, link_prediction

BIAS = [-3.0, 2.0, 0.5, -1.0]  # of each relation, and each reciprocal
TRAIN, DEV, TEST = "a r a, a r b, b r c, c s c, c r a, b s a, d s b", "a s b, b r b", "b s b, d r c"
OBJECTIVES = pytest.mark.parametrize(
    ("objective", "changes"),
    [
        ("bce", {"self_share": 0.5}),
        ("bce", {"corrupt": "both", "negatives": 20}),
        ("self_adversarial", {"self_share": 1.0}),
        ("cross_entropy", {"negatives": None}),
        ("cross_entropy", {"pool": 3}),
        ("bce", {"pool": 3, "self_share": 0.5}),
        ("all_bce", {"negatives": None}),
    ],
)


def pair(tmp_path, **changes) -> tuple[GraphData, LinkPredictionTask, LinkPredictionTask]:
    """Data, a task with a bias, and one without whose table has it."""
    both, pairs = changes.get("corrupt") == "both", "queries" if changes.get("objective") == "all_bce" else "triples"
    data = folder_data(tmp_path, TRAIN, DEV, TEST, reciprocal=not both, examples=pairs)
    biased, plain = (link_prediction(data, loop_bias=flag, **changes) for flag in (True, False))
    biased.model.loop.data = torch.tensor(BIAS[: len(biased.model.loop)], dtype=torch.float64)
    table = torch.randn_like(biased.model.scorer.table)
    biased.model.scorer.table.data = table
    plain.model.scorer.table.data = table + torch.diag_embed(biased.model.loop.detach().unsqueeze(-1).expand(-1, 4))
    return data, biased, plain


@OBJECTIVES
def test_loss_and_gradients(tmp_path, objective, changes):
    data, *tasks = pair(tmp_path, objective=objective, **changes)
    losses = []
    for task in tasks:
        torch.manual_seed(3)
        losses.append(task.train().step(every(data)).loss)
        losses[-1].backward()
    biased, plain = (task.model for task in tasks)
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(biased.scorer.table.grad, plain.scorer.table.grad)
    of_loops = plain.scorer.table.grad.diagonal(dim1=1, dim2=2).sum(-1)
    assert of_loops.abs().max() > 1e-3
    torch.testing.assert_close(biased.loop.grad, of_loops)


@pytest.mark.parametrize("corrupt", ["tails", "both"])
def test_ranks_and_answers(tmp_path, corrupt):
    data, biased, plain = pair(tmp_path, corrupt=corrupt)
    batches = [data.splits()["dev"][torch.arange(4)], data.splits()["test"][torch.arange(4)]]
    assert evaluate(biased, batches) == pytest.approx(evaluate(plain, batches))
    with torch.inference_mode():
        assert biased.predict(batches[0]) == plain.predict(batches[0])
    biased.model.loop.data.zero_()
    assert evaluate(biased, batches) != pytest.approx(evaluate(plain, batches))
