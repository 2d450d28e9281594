"""Damaged checkpoints, in their bytes and in their fields: a run uses them, or ends with one short paragraph."""

import copy
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli import QUIET, Result, call, places, toy
from tests.mutations import mutated

CHECKPOINTS = 300  # damaged ones of each kind
LONGEST = 1000  # characters of a message
TINY = ("task.data.sizes={train: 40, dev: 8, test: 8}", "task.data.batch_size=20", "encoder=dan")
VALUES = (
    None, True, -1, 0, 3, 10**30, 1.5, float("nan"), float("inf"), -0.5, "", "x", "nan", "a" * 3_000_000, "\ud800", "a\0b",
    "../../x", "${oc.env:HOME}", [], [1, "a"], {}, {"a": {"b": 1}}, {1: 2}, b"bytes", (1, 2), {"x"}, 2**63, 1j,
    torch.tensor(float("nan")), torch.zeros(2, 3, dtype=torch.int64), torch.zeros(0), torch.full((3, 3), 1e38),
    torch.zeros(3, dtype=torch.complex64), torch.eye(3).to_sparse(), torch.zeros(3, 3).T, torch.zeros(1).expand(10**9),
)  # fmt: skip


def places_in(node: Any, path: tuple = ()) -> list[tuple]:
    """The paths to all values of a checkpoint; of long lists to the first ones."""
    items = list(node.items()) if isinstance(node, dict) else list(enumerate(node))[:4] if isinstance(node, list) else []
    return [place for key, value in items for place in ((*path, key), *places_in(value, (*path, key)))]


def with_another_value(checkpoint: dict, seed: int) -> dict:
    """The checkpoint, in which one value or a few were replaced, removed, added or made of another size."""
    draw, checkpoint = random.Random(seed), copy.deepcopy(checkpoint)
    for _ in range(draw.choice((1, 1, 1, 3))):
        top = draw.choice(list(checkpoint))
        *parents, last = draw.choice([(top,), *((top, *rest) for rest in places_in(checkpoint[top]))])
        node = checkpoint
        for key in parents:
            node = node[key]
        how, value = draw.randrange(8), node[last]
        if how == 0:
            del node[last]
        elif how == 1 and isinstance(value, dict):
            value[draw.choice(("more", 7, "_target_", "state"))] = draw.choice(VALUES)
        elif isinstance(value, torch.Tensor) and not value.is_complex() and value.numel() < 10**6 and how < 6:
            none = value[:0] if value.dim() else value.new_empty(0)
            changes = (none, value.double(), value * float("nan"), value * 1e30, value.long(), value.unsqueeze(0),
                       -value, value.flatten()[:1])  # fmt: skip
            node[last] = draw.choice(changes)
        else:
            node[last] = draw.choice(VALUES)
    return checkpoint


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Path]:
    """A place with data, and the checkpoints of a short run."""
    folder = tmp_path_factory.mktemp("finished")
    result = toy(folder, *TINY, "trainer.max_epochs=2")
    assert result.code == 0, result.err
    (folder / "new.txt").write_text("1 2\t1\n3\t3\n")
    return folder, result.record_path.parent / "checkpoints"


def attempts(folder: Path, run: Path) -> list[tuple[str, ...]]:
    """What a user may do with the checkpoints of a run."""
    new = f"input={folder / 'new.txt'}"
    return [
        ("mode=test", f"checkpoint={run}"),
        ("mode=predict", f"checkpoint={run}", new, f"output={run / 'predictions.jsonl'}"),
        (f"trainer.resume={run}", "trainer.max_epochs=3"),
    ]


def told_in_one_paragraph(result: Result, run: Path) -> None:
    if result.code == 0:
        return
    assert result.code == 1
    assert result.err.startswith("error: ")
    assert len(result.err.splitlines()) == 1, result.err
    assert len(result.err) < LONGEST, result.err
    assert not (run / "predictions.jsonl").exists()


@pytest.mark.long
def test_a_checkpoint_without_metrics_is_refused(finished, tmp_path):
    """On all three ways; a run that went on from one ended with a traceback."""
    folder, states = finished
    for k in range(3):
        run = tmp_path / str(k)
        shutil.copytree(states, run / "checkpoints")
        for file in (run / "checkpoints").iterdir():
            torch.save({key: v for key, v in torch.load(file).items() if key != "metrics"}, file)
        result = call(*attempts(folder, run)[k], *QUIET, *places(folder))
        assert result.code == 1
        assert "is not a checkpoint of this program" in result.err
        told_in_one_paragraph(result, run)


def loops(*path: str) -> tuple:
    return ("loops", "fit_loop", *path)


def with_value(checkpoint: dict, path: tuple, value: Any) -> dict:
    checkpoint = copy.deepcopy(checkpoint)
    node = checkpoint
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return checkpoint


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("callbacks", "History", "rows"), [{}]),
        (("callbacks", "History", "rows"), [{"epoch": 0, "step": 5}]),
        (("callbacks", "History", "rows"), [{"epoch": 1, "step": 2, "\ud800x": 1.0}]),
        (("callbacks", "Diagnostics", "latest"), {"a": "x", 5: torch.zeros(2)}),
        (("callbacks", "Diagnostics", "latest"), {"/home/x": 1.0}),
        (("callbacks", "Diagnostics", "latest"), {"diagnostics/x": float("nan")}),
        (loops("epoch_loop.batch_progress", "total", "started"), "x"),
        (loops("epoch_loop.automatic_optimization.optim_progress", "optimizer", "zero_grad", "total", "completed"), []),
        (loops("epoch_progress", "current", "processed"), -7),
        (("metrics", "val/loss"), 2**2030),
    ],
)  # fmt: skip
def test_a_state_that_would_end_a_training_later_is_refused_before_it(finished, tmp_path, path, value):
    """And nothing is left of the run that was to go on."""
    folder, states = finished
    shutil.copytree(states, tmp_path / "run" / "checkpoints")
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    torch.save(with_value(torch.load(last), path, value), last)
    words = (f"trainer.resume={tmp_path / 'run'}", "trainer.max_epochs=3", *QUIET)
    result = call(*words, *places(folder)[:-1], f"paths.output_dir={tmp_path / 'out'}")
    assert result.code == 1
    told_in_one_paragraph(result, tmp_path / "run")
    assert "last.ckpt" in result.err
    assert not [file for file in (tmp_path / "out").rglob("*") if file.is_file() and ".cache" not in file.parts]


def test_attributes_of_a_tensor_are_left_in_the_file(finished, tmp_path):
    folder, states = finished
    shutil.copytree(states, tmp_path / "checkpoints")
    checkpoint = torch.load(tmp_path / "checkpoints" / "best.ckpt")
    for value in checkpoint["state_dict"].values():
        value.is_floating_point = "x"
    torch.save(checkpoint, tmp_path / "checkpoints" / "best.ckpt")
    assert call("mode=test", f"checkpoint={tmp_path}", *QUIET, *places(folder)).code == 0


@pytest.mark.long
def test_lists_that_are_shared_are_gone_through_once(finished, tmp_path):
    """Each of 60 holds the next one twice: as many values as no time is enough for."""
    folder, states = finished
    shutil.copytree(states, tmp_path / "run" / "checkpoints")
    shared: Any = 0
    for _ in range(60):
        shared = {"a": shared, "b": shared}
    for file in (tmp_path / "run" / "checkpoints").iterdir():
        checkpoint = torch.load(file)
        torch.save(checkpoint | {"more": shared, "loops": checkpoint.get("loops", {}) | {"more": shared}}, file)
    assert call("mode=test", f"checkpoint={tmp_path / 'run'}", *QUIET, *places(folder)).code == 0
    result = call(f"trainer.resume={tmp_path / 'run'}", "trainer.max_epochs=3", *QUIET, *places(folder))
    assert result.code == 1
    assert "its counts are more than 100,000" in result.err


class Hostile:
    """Pickled, it is a call of `os.system` when it is read."""

    def __init__(self, file: Path):
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


def test_a_hostile_checkpoint_is_not_read_and_nothing_advises_to_read_it(finished, tmp_path):
    folder, states = finished
    run, trace = tmp_path / "run", tmp_path / "trace"
    shutil.copytree(states, run / "checkpoints")
    for file in (run / "checkpoints").iterdir():
        torch.save(torch.load(file) | {"more": Hostile(trace)}, file)
    for words in attempts(folder, run):
        result = call(*words, *QUIET, *places(folder))
        told_in_one_paragraph(result, run)
        assert result.code == 1
        assert "so it was not read" in result.err
        assert "weights_only" not in result.err
    assert not trace.exists()


@pytest.mark.slow
@pytest.mark.parametrize("level", ["bytes", "fields"])
def test_a_damaged_checkpoint_is_used_or_refused_in_one_paragraph(finished, tmp_path, level):
    folder, states = finished
    for seed in range(CHECKPOINTS):
        told_in_one_paragraph(*damaged(folder, states, tmp_path / str(seed), level, seed))


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    ["document_classification", "entity_typing", "graph", "graph_nc", "kg_completion", "nli", "poincare_embeddings",
     "poincare_glove", "probing", "translation", "wordnet_subtree"],
)  # fmt: skip
def test_a_damaged_checkpoint_of_any_task_is_used_or_refused_in_one_paragraph(tmp_path, task):
    """What a checkpoint keeps of its data differs between tasks."""
    words = (f"task={task}_toy", "trainer.max_epochs=2", "trainer.limit_train_batches=2", *QUIET, *places(tmp_path))
    result = call(*words)
    assert result.code == 0, result.err
    states, codes = result.record_path.parent / "checkpoints", set()
    for seed in range(40):
        run, resumes = tmp_path / str(seed), seed % 2
        shutil.copytree(states, run / "checkpoints")
        file = run / "checkpoints" / ("last.ckpt" if resumes else "best.ckpt")
        file = file if file.exists() else next((run / "checkpoints").iterdir())
        torch.save(with_another_value(torch.load(file), 1000 + seed), file)
        use = (f"trainer.resume={run}", "trainer.max_epochs=3") if resumes else ("mode=test", f"checkpoint={run}")
        result = call(*use, *QUIET, *places(tmp_path))
        told_in_one_paragraph(result, run)
        codes.add(result.code)
    assert codes == {0, 1}, "some changes do not matter"


@pytest.mark.slow
def test_damaged_notes_of_hydra_are_used_or_passed_over(tmp_path):
    """They say where the folder of the user's own graph is, which a checkpoint keeps only by its name."""
    graph, out = tmp_path / "elsewhere" / "graph", tmp_path / "here"
    graph.mkdir(parents=True)
    out.mkdir()
    for split in ("train", "valid", "test"):
        (graph / f"{split}.txt").write_text("a\tr\tb\nb\tr\tc\nc\ts\ta\n")
    words = ("task=kg", f"data.dir={graph}", "trainer.max_epochs=1", "task.data.batch_size=2", *QUIET, *places(out))
    finished = call(*words)
    assert finished.code == 0, finished.err
    states = finished.record_path.parent / "checkpoints"
    notes = (states.parent / ".hydra" / "config.yaml").read_bytes()
    codes = set()
    for seed in range(-1, CHECKPOINTS):
        run = tmp_path / str(seed)
        shutil.copytree(states, run / "checkpoints")
        (run / ".hydra").mkdir()
        (run / ".hydra" / "config.yaml").write_bytes(notes if seed < 0 else mutated(notes, seed))
        result = call("mode=test", f"checkpoint={run}", *QUIET, *places(out))
        told_in_one_paragraph(result, run)
        codes.add(result.code)
        assert seed >= 0 or result.code == 0, result.err
    assert codes == {0, 1}, "some say another folder, most the same"


def damaged(folder: Path, states: Path, run: Path, level: str, seed: int) -> tuple[Result, Path]:
    """The result of using a damaged copy of some checkpoints, and where it lies."""
    shutil.copytree(states, run / "checkpoints")
    words = attempts(folder, run)[seed % 3]
    file = run / "checkpoints" / ("last.ckpt" if "resume" in words[0] and seed % 4 else "best.ckpt")
    if level == "bytes":
        file.write_bytes(mutated(file.read_bytes(), seed))
    else:
        torch.save(with_another_value(torch.load(file), seed), file)
    return call(*words, *QUIET, *places(folder)), run
