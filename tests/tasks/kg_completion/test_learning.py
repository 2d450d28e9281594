"""The generated graph is learnt by every model, beyond ranks at random and beyond answers that ignore the entity of the question."""

import pytest
import torch

from configs import checks, composing
from configs.build import build
from tasks.metrics import filtered_rank_bounds
from tests.tasks.kg_completion.graphs import evaluate

MARGIN = 0.2  # of the mean reciprocal rank, above the better of both baselines
SMALL_MARGIN = 0.1  # of losses other than the softmax, which are slower here
EPOCHS = 8
SOFTMAX = ("task.module.objective=cross_entropy", "task.module.negatives=null")
SPREAD = ("encoder=distmult", "encoder.init_std=0.3")  # products of small rows need many steps to begin
ENCODERS = (
    "hybonet", "murp", "mure", "roth", "rote", "refh", "refe", "atth", "atte", "transe", "rotate", "distmult",
    "complex", "tucker",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    composing.register()


def toy_task(tmp_path, *words: str):
    values = checks.check(
        composing.composed(
            "task=kg_completion_toy", "optim.schedule=constant", "task.data.batch_size=128",
            "task.data.eval_batch_size=1000", f"paths.data_dir={tmp_path}", f"paths.output_dir={tmp_path}", *words,
        )
    )  # fmt: skip
    return build(values)


def train(task, data, epochs: int) -> None:
    optimizer = task.configure_optimizers()
    task.train()
    batches = data.train_dataloader()
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for batch in batches:
            optimizer.zero_grad()
            task.step(batch).loss.backward()
            optimizer.step()


def baselines(task, data) -> dict[str, float]:
    """The mean reciprocal ranks of candidates in a random order (expected), and in the order of how often they answer
    the question's relation in training."""
    split, n = data.splits()["test"], len(task.model.entities)
    queries, counts = split[torch.arange(len(split))], torch.zeros(2 * task.n, n)
    for h, r, t in data.graph.triples["train"].tolist():
        counts[r, t] += 1
        counts[r + task.n, h] += 1
    known = queries["offsets"], queries["answers"]
    _, candidates = filtered_rank_bounds(torch.zeros(len(split), n), queries["target"], known)
    random = [sum(1 / k for k in range(1, count + 1)) / count for count in candidates.tolist()]
    first, last = filtered_rank_bounds(counts[queries["r"]], queries["target"], known)
    return {"random": sum(random) / len(random), "frequency": float((2 / (first + last)).mean())}


FLAT = ("rote", "refe", "atte")  # roth, refh and atth at c = 0
MODELS = [pytest.param(e, EPOCHS, marks=[pytest.mark.slow] if e in FLAT else []) for e in ENCODERS]
MODELS.append(pytest.param("conve", 12))


def check(tmp_path, epochs: int, margin: float, *words: str) -> None:
    task, data = toy_task(tmp_path, "optim.lr=0.05", *words)
    baseline = baselines(task, data)
    assert baseline == pytest.approx({"random": 0.126, "frequency": 0.273}, abs=1e-3)
    assert evaluate(task, data.test_dataloader())["mrr"] < baseline["frequency"]
    train(task, data, epochs)
    metrics = evaluate(task, data.test_dataloader())
    assert metrics["mrr"] >= max(baseline.values()) + margin
    assert min(metrics["tail/mrr"], metrics["head/mrr"]) > baseline["random"]


@pytest.mark.parametrize(("encoder", "epochs"), MODELS)
def test_every_model_learns_the_graph(tmp_path, encoder, epochs):
    check(tmp_path, epochs, MARGIN, f"encoder={encoder}", *SOFTMAX)


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        (EPOCHS, (*SPREAD, "task.module.objective=bce")),
        (EPOCHS, ("encoder=transe", "task.module.objective=self_adversarial")),
        (EPOCHS, ("encoder=rotate", "task.module.objective=self_adversarial", "task.module.pool=85")),
        (EPOCHS, ("encoder=complex", *SOFTMAX, "task.module.regulariser=0.001")),
        (16, (*SPREAD, "task.module.objective=all_bce", "task.data.examples=queries")),
        (
            EPOCHS,
            ("encoder=transe", "task.module.objective=self_adversarial", "task.module.corrupt=both",
             "task.data.reciprocal=false"),
        ),
    ],
    ids=["bce", "self-adversarial", "pool", "N3", "1-N", "both sides"],
)  # fmt: skip
def test_every_objective_learns_the_graph(tmp_path, epochs, words):
    check(tmp_path, epochs, SMALL_MARGIN, *words)
