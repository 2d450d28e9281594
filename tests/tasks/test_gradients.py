"""Two processes train as one does: on every toy configuration, whatever the parameters, gradients and shares."""

import copy
import json
import types
from itertools import chain
from pathlib import Path

import pytest
import torch
from torch import nn

from configs import composing
from configs.build import build
from tasks.base import Step, Task, TaskData
from tasks.batches import TensorSplit, TrainBatches
from tasks.errors import UserError
from tasks.gradients import average_gradients
from tests.cli import QUIET, command
from tests.collectives import in_processes
from tests.configurations import TOYS, checked
from tests.runs import run_all
from tests.tolerances import tolerance

CLOSE = tolerance(torch.float64, "identity") | {"atol": 1e-11}  # after several steps, with sums in another order
# What is drawn for each process, and sizes of seconds. Batches of 15 are shared unequally.
SMALL = {
    "entity_typing_toy": (
        "task.model.input_dropout=0.0", "task.model.concat_dropout=0.0", "task.data.crowd_cycles=1",
        "task.data.sizes={train: 46, dev: 21, test: 18}",
    ),
    "document_classification_toy": (
        "task.model.word_dropout=0.0", "task.model.dropout=0.0", "task.data.sizes={train: 46, dev: 21, test: 18}",
    ),
    "nli_toy": ("task.data.sizes={train: 46, dev: 21, test: 18}",),
    "prefix_toy": ("task.data.sizes={train: 46, dev: 22, test: 18}",),
    "kg_completion_toy": ("task.data.sizes={train: 23, dev: 10, test: 9}",),
    "poincare_embeddings_toy": ("task.data.sizes.train=46",),
    "poincare_glove_toy": ("task.data.toy={topics: 2, words: 8, common: 3, strays: 2, lines: 60, length: 8, seed: 0}",),
    "translation_toy": ("task.data.toy.sizes={train: 46, dev: 21, test: 18}", "task.training.lr_factor=0.01"),
    "probing_toy": ("task.data.sizes={train: 46, dev: 21, test: 18}",),
    "wordnet_subtree_toy": ("task.data.toy.depth=4",),
}  # fmt: skip
GRAPH = ("task=kg_completion_toy", *SMALL["kg_completion_toy"], "optim.max_grad_norm=null")
RUNS = {name: (f"task={name}", *SMALL.get(name, ())) for name in TOYS} | {
    "learned curvature of the ball": ("task=prefix_toy", *SMALL["prefix_toy"], "geometry.learn_c=true"),
    "learned curvature of the hyperboloid": (*GRAPH, "geometry.learn_c=true"),
    "sparse points of the hyperboloid": (*GRAPH, "task.model.sparse=true"),
    "sparse points of the ball": (*GRAPH, "encoder=murp", "task.model.sparse=true", "task.model.loop_bias=true"),
    "one encoder for mention and context": (
        "task=entity_typing_toy", *SMALL["entity_typing_toy"], "encoder=transformer", "geometry=lorentz",
        "encoder.n_positions=60", "geometry.learn_c=true",
    ),
    "both sides corrupted": (*GRAPH, "task.data.reciprocal=false", "task.module.corrupt=both", "task.module.self_share=0.5"),
    "other heads and tails": (*GRAPH, "task.module.double_neg=true", "encoder=roth"),
    "weighted triples": (
        *GRAPH, "task.module.subsampling=true", "task.module.objective=self_adversarial", "task.module.regulariser=0.1",
    ),
    "a pool of negatives": (*GRAPH, "task.module.pool=20", "task.module.self_share=0.5", "task.module.regulariser=0.1"),
    "batch norm": (
        *GRAPH, "encoder=tucker", "task.data.examples=queries", "task.module.objective=all_bce",
        "encoder.input_dropout=0.0", "encoder.hidden_dropout1=0.0", "encoder.hidden_dropout2=0.0",
    ),
}  # fmt: skip
STEPS = {"prefix_toy": ("trainer.accumulate_grad_batches=2",)}  # of the whole program besides


def words(name: str, folder: Path) -> tuple[str, ...]:
    places = (f"paths.data_dir={folder}/d", f"paths.cache_dir={folder}/c", f"paths.output_dir={folder}/o")
    return (*RUNS[name], *places, "task.data.batch_size=15", "trainer.precision=64-true", "trainer.accelerator=cpu")


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def train(task, batches, world: int) -> list[torch.Tensor]:
    """The parameters after two epochs, without Lightning's loops."""
    task.double().train()
    optimizer = task.optimizer(task)
    for k, batch in enumerate(chain(batches, batches)):
        optimizer.zero_grad()
        task.training_step(batch, k).backward()
        if world > 1:
            average_gradients(task)
        task.on_before_optimizer_step(optimizer)
        optimizer.step()
    return [p.detach() for p in task.parameters()]


def started(task, data, rank: int, world: int) -> TrainBatches:
    """The batches of a process whose task is as before its first step."""

    def reduce(x: torch.Tensor, reduce_op: str) -> torch.Tensor:
        if world > 1:
            torch.distributed.all_reduce(x)
        return x

    strategy = types.SimpleNamespace(reduce=reduce)
    data.trainer = task.trainer = types.SimpleNamespace(
        global_rank=rank, world_size=world, accumulate_grad_batches=1, strategy=strategy, current_epoch=0
    )
    task.trainer.train_dataloader = data.train_dataloader()
    state = torch.get_rng_state()
    task.on_train_start()
    torch.set_rng_state(state)  # each process is at this point once
    return task.trainer.train_dataloader


def check_equal(task, data) -> None:
    """Two processes train the task as one does."""
    start = [p.detach().clone() for p in task.parameters()]
    others = [copy.deepcopy(task) for _ in range(2)]
    batches = [started(other, data, rank, 2) for rank, other in enumerate(others)]
    alone = train(task, started(task, data, 0, 1), 1)
    assert any(not torch.equal(a, b) for a, b in zip(start, alone, strict=True))
    for parameters in in_processes(2, lambda rank: train(others[rank], batches[rank], 2)):
        for ours, theirs in zip(parameters, alone, strict=True):
            torch.testing.assert_close(ours, theirs, **CLOSE)


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_steps_of_two_processes_are_those_of_one(name, tmp_path):
    composing.register()
    check_equal(*build(checked(*words(name, tmp_path))))


def test_tied_weights_are_trained_as_by_one_process(tmp_path):
    composing.register()
    task, data = build(checked(*words("poincare_glove_toy", tmp_path)))
    task.model.context, task.model.context_bias = task.model.word, task.model.word_bias
    check_equal(task, data)


class WordTask(Task):
    """The loss is a mean over words, of which some examples have more than others."""

    metric_names = ("loss",)

    def step(self, batch):
        words = (torch.arange(4) < batch["length"].unsqueeze(-1)).double()
        errors = (self.model(batch["length"].unsqueeze(-1).double()) - batch["length"].unsqueeze(-1)).square() * words
        return Step(errors.sum() / words.sum(), {"examples": len(words)}, weight=float(words.sum()))

    def summary(self, sums):
        return {}


def test_sums_without_a_number_of_examples_are_refused():
    task = WordTask(nn.Linear(1, 4), torch.optim.SGD, "val/loss", "min")
    task.step = lambda batch: Step(torch.ones(()), {"words": 3})
    with pytest.raises(UserError, match=r"WordTask.step: its sums \['words'\] need `examples`"):
        task.validation_step({}, 0)


class WordData(TaskData):
    model_sizes, fingerprint = {}, dict

    def load(self):
        return {"train": TensorSplit({"length": torch.arange(11) * 3 % 4 + 1})}


def test_a_mean_over_words_is_that_of_one_process():
    task = WordTask(nn.Linear(1, 4), lambda module: torch.optim.SGD(module.parameters(), lr=0.1), "val/loss", "min")
    check_equal(task, WordData(shuffle="examples", batch_size=5, eval_batch_size=5, seed=0))


def test_draws_go_on_where_a_checkpoint_was_written(tmp_path, monkeypatch):
    composing.register()
    task, data = build(checked(*words("poincare_embeddings_toy", tmp_path)))
    started(task, data, 0, 2)
    monkeypatch.setattr(task, "_gather", lambda value: [value, value])
    task._draw_negatives()
    checkpoint = {"optimizer_states": [], "loops": {"fit_loop": {"epoch_loop.batch_progress": {"is_last_batch": True}, "state_dict": {}}}}
    task.on_save_checkpoint(checkpoint)
    expected = task._draw_negatives()
    for rank in range(2):
        task.on_load_checkpoint(checkpoint)
        started(task, data, rank, 2)
        assert torch.equal(task._draw_negatives(), expected)


class Parts(nn.Module):
    """Three rows of which a process may use none, with and without sparse gradients, and what nobody uses."""

    def __init__(self):
        super().__init__()
        self.sparse, self.dense = nn.Embedding(3, 2, sparse=True), nn.Embedding(3, 2)
        self.unused, self.number = nn.Parameter(torch.ones(2)), nn.Parameter(torch.tensor(2.0, dtype=torch.float32))

    def forward(self, rows: list[int]) -> torch.Tensor:
        index = torch.tensor(rows, dtype=torch.long)
        return (self.sparse(index) * self.dense(index).square()).sum() * self.number


@pytest.mark.parametrize("shares", [([0, 1, 1], [1, 2]), ([0], []), ([], [2, 2]), ([], [])])
def test_the_mean_of_gradients_that_some_processes_have(shares):
    torch.manual_seed(0)
    whole = Parts()
    expected = copy.deepcopy(whole)
    if any(shares):
        (sum(expected(share) for share in shares) / 2).backward()

    def averaged(rank: int) -> Parts:
        parts = copy.deepcopy(whole)
        if shares[rank]:
            parts(shares[rank]).backward()
        average_gradients(parts)
        return parts

    for parts in in_processes(2, averaged):
        for (name, p), other in zip(parts.named_parameters(), expected.parameters(), strict=True):
            assert (p.grad is None) == (other.grad is None), name
            if p.grad is not None:
                assert p.grad.layout == other.grad.layout, name
                torch.testing.assert_close(p.grad.to_dense(), other.grad.to_dense(), **tolerance(p.dtype, "identity"))
        assert parts.unused.grad is None, "a gradient of zeros would count as a step of it"
        if any(shares):
            used = set(parts.sparse.weight.grad.coalesce().indices()[0].tolist())
            assert used == {*shares[0], *shares[1]}, "a lazy optimiser moves no other rows"


@pytest.fixture(scope="module")
def ends(tmp_path_factory) -> dict[str, list[tuple[dict, dict]]]:
    """The record and the last state of each run in one process, and in two."""
    folder, result = tmp_path_factory.mktemp("ends"), {name: [] for name in RUNS}
    for devices in (1, 2):
        places = {name: folder / str(devices) / str(k) for k, name in enumerate(RUNS)}
        lists = [
            (
                *words(name, folder), *QUIET, *STEPS.get(name, ()), "trainer.max_epochs=2", f"trainer.devices={devices}",
                "task.data.eval_batch_size=7", f"hydra.run.dir={place}",
            )
            for name, place in places.items()
        ]  # fmt: skip
        file = folder / f"{devices}.json"
        file.write_text(json.dumps(lists), encoding="utf-8")
        run_all(file, devices)
        for name, place in places.items():
            state = torch.load(place / "checkpoints" / "last.ckpt")["state_dict"]
            result[name].append((json.loads((place / "record.json").read_text("utf-8")), state))
    return result


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_two_processes_do_what_one_does(name, ends):
    (alone, weights), (shared, shared_weights) = ends[name]
    assert shared["device"]["processes"] == 2
    largest = max(float((weight - shared_weights[n]).abs().max()) for n, weight in weights.items())
    print(f"{name}: the largest difference is {largest:.1e}")
    for n, weight in weights.items():
        torch.testing.assert_close(shared_weights[n], weight, **CLOSE)
    assert shared["metrics"] == pytest.approx(alone["metrics"], rel=1e-9)


@pytest.mark.slow
def test_a_run_starts_its_processes(tmp_path):
    done = command(*words("prefix_toy", tmp_path), *QUIET, "trainer.max_epochs=1", "trainer.devices=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("record: ") == 1
    path = Path(done.stdout.strip().splitlines()[-1].removeprefix("record: "))
    assert json.loads(path.read_text("utf-8"))["device"]["processes"] == 2
