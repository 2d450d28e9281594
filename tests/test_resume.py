"""A run that was interrupted or killed goes on to the same end, to the last bit."""

import csv
import math
import os
import signal
import zipfile
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from tasks import record, resume
from tasks.base import Task
from tasks.checkpoint_parts import Origin
from tasks.checkpoints import Checkpoints
from tasks.entity_typing.hyfi import PARTS
from tasks.entity_typing.task import EntityTypingTask
from tasks.prefix.task import PrefixTask
from tasks.settings import CONTINUED, TAKEN_UP, TESTED
from tests.cli import QUIET, Result, call, places, short


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("finished")
    return folder, short(folder, "logger=csv", "seed=5")


WHERE = ("trainer.val_check_interval=2", "task.data.shuffle=examples")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Result:
    return short(tmp_path_factory.mktemp("uninterrupted"), *WHERE)


def same_end(one: Result, other: Result) -> bool:
    """Whether two runs have the same weights, optimiser, metrics, selection and history, to the last bit."""
    ends = []
    for result in (one, other):
        assert result.code == 0, result.err
        folder = result.record_path.parent
        last = torch.load(folder / "checkpoints" / "last.ckpt")
        best = torch.load(folder / "checkpoints" / "best.ckpt")
        with (folder / "history.csv").open() as file:
            timeless = [
                {k: v for k, v in row.items() if k not in ("seconds", "examples_per_s")} for row in csv.DictReader(file)
            ]
        ends.append((last["state_dict"], last["optimizer_states"], best["state_dict"], timeless, result.record))
    (*states, rows, record), (*other_states, other_rows, other_record) = ends
    equal = all(_equal(a, b) for a, b in zip(states, other_states, strict=True))
    same = [record[k] == other_record[k] for k in ("metrics", "selection", "diagnostics")]
    return equal and rows == other_rows and all(same)


def _equal(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a == b


@pytest.mark.long
@pytest.mark.parametrize(("steps", "accumulate"), [pytest.param(6, 1, marks=pytest.mark.long), (2, 3)])
def test_a_run_that_its_steps_ended_within_an_epoch_goes_on_in_it(tmp_path, steps, accumulate):
    words = ("seed=5", "optim.schedule=constant", f"trainer.accumulate_grad_batches={accumulate}")
    part = short(tmp_path / "part", *words, f"trainer.max_steps={steps}")
    assert part.record["selection"]["step"] == steps
    home = f"trainer.resume={part.record_path.parent}"
    longer = short(tmp_path / "longer", *words, home, "trainer.max_epochs=4")
    assert longer.code == 0, longer.err
    whole = short(tmp_path / "whole", *words, "trainer.max_epochs=4")
    assert same_end(whole, longer)


@pytest.mark.long
def test_a_run_that_its_steps_ended_at_a_validation_within_an_epoch_goes_on(tmp_path):
    words = ("optim.schedule=constant", *WHERE)
    part = short(tmp_path / "part", *words, "trainer.max_steps=6")
    assert part.code == 0, part.err
    home = f"trainer.resume={part.record_path.parent}"
    longer = short(tmp_path / "longer", *words, home, "trainer.max_epochs=4")
    assert same_end(short(tmp_path / "whole", *words, "trainer.max_epochs=4"), longer)


@pytest.mark.long
@pytest.mark.parametrize("words", [("trainer.max_epochs=2",), ("trainer.max_steps=6",)])
def test_a_plateau_goes_on_from_the_end_of_an_epoch_and_from_within_one(tmp_path, words):
    """The rate falls after each epoch but the first, which is the best."""
    plateau = ("optim.schedule=plateau", "optim.plateau.factor=0.1", "optim.lr=1.0e-5", "optim.rule=sgd")
    part = short(tmp_path / "part", *plateau, *words)
    longer = short(tmp_path / "longer", *plateau, f"trainer.resume={part.record_path.parent}", "trainer.max_epochs=4")
    whole = short(tmp_path / "whole", *plateau, "trainer.max_epochs=4")
    assert same_end(whole, longer)
    with (whole.record_path.parent / "history.csv").open() as file:
        assert [float(row["lr"]) for row in csv.DictReader(file)] == pytest.approx([1e-5, 1e-5, 1e-6, 1e-7], rel=1e-6, abs=0)


@pytest.mark.long
def test_a_run_that_goes_on_in_its_own_folder_keeps_the_best_state_of_a_whole_one(tmp_path):
    """What stands in for the best state of a run that max_steps ended is of that end alone."""
    words = ("optim.schedule=constant", "seed=5")
    there = f"hydra.run.dir={tmp_path}/run"
    for steps in (6, 10):
        resume = [f"trainer.resume={tmp_path}/run"] if steps > 6 else []
        part = short(tmp_path / "out", *words, there, *resume, f"trainer.max_steps={steps}")
        assert part.code == 0, part.err
    states = tmp_path / "run" / "checkpoints"
    assert torch.load(states / "before.ckpt")["global_step"] == 8
    longer = short(tmp_path / "out", *words, there, f"trainer.resume={tmp_path}/run", "trainer.max_epochs=4")
    assert not (states / "before.ckpt").exists()
    assert same_end(short(tmp_path / "whole", *words, "trainer.max_epochs=4"), longer)


@pytest.mark.long
def test_a_state_of_patience_from_before_is_taken_over(tmp_path, monkeypatch):
    """Its key in a checkpoint is that of Lightning's callback."""
    words = ("trainer.patience=3", "optim.lr=0", "optim.schedule=constant")
    part = short(tmp_path / "part", *words, "trainer.max_epochs=2")
    file = part.record_path.parent / "checkpoints" / "last.ckpt"
    state = torch.load(file)
    (key,) = [key for key in state["callbacks"] if "Stopping" in key]
    assert key.startswith("EarlyStopping{")
    longer = short(tmp_path / "longer", *words, f"trainer.resume={part.record_path.parent}", "trainer.max_epochs=9")
    assert "training ended in epoch 4: " in longer.out
    for name, value in (("wait_count", -1), ("wait_count", "a"), ("best_score", 3), ("best_score", torch.tensor(math.nan))):
        torch.save(state | {"callbacks": state["callbacks"] | {key: state["callbacks"][key] | {name: value}}}, file)
        damaged = short(tmp_path / "damaged", *words, f"trainer.resume={file}", "trainer.max_epochs=9")
        assert damaged.code == 1
        assert "is damaged" in damaged.err, damaged.err


@pytest.mark.long
def test_a_finished_run_is_not_resumed_unless_it_may_go_on(finished, tmp_path):
    _, result = finished
    home = result.record_path.parent
    again = short(tmp_path, "seed=5", f"trainer.resume={home}")
    assert again.code == 0, again.err
    assert "finished before (3 epochs of trainer.max_epochs=3); to train it further, raise trainer.max_epochs" in again.out
    assert "max_steps" not in again.out, "which does not bound it"
    assert again.record_path == result.record_path
    assert not list(tmp_path.glob("out/[!.]*/*")), "nothing is left of the attempt"
    other = short(tmp_path, "seed=5", f"trainer.resume={home}", "optim.lr=0.02", "trainer.max_epochs=4")
    assert other.code == 1
    assert "optim.lr=0.01, not 0.02" in other.err
    weights = short(tmp_path, "seed=5", f"trainer.resume={home / 'checkpoints' / 'best.ckpt'}", "trainer.max_epochs=4")
    assert weights.code == 1
    assert "holds weights only" in weights.err
    longer = short(tmp_path, "seed=5", f"trainer.resume={home}", "trainer.max_epochs=4")
    assert longer.code == 0, longer.err
    whole = short(tmp_path, "seed=5", "trainer.max_epochs=4")
    assert same_end(whole, longer)


@pytest.mark.long
def test_a_command_that_is_given_again_when_its_run_went_on_and_finished_does_nothing(tmp_path, monkeypatch):
    """As Slurm does with a job that was pre-empted. The first attempt stays unfinished for ever."""
    words = ("logger=csv", "trainer.resume=auto")
    with monkeypatch.context() as patch:
        signalled(patch, PrefixTask, 3, "SIGTERM")
        assert short(tmp_path, *words).code == 130
    finished = short(tmp_path, *words)
    with monkeypatch.context() as patch:
        steps = signalled(patch, PrefixTask, 0, "SIGTERM")
        again = short(tmp_path, *words)
    assert again.code == 0, again.err
    assert not steps
    assert "finished before, with the same settings" in again.out
    assert again.record_path == finished.record_path
    assert len(list(tmp_path.glob("out/[!.]*/*"))) == 2


@pytest.mark.long
def test_resuming_starts_anew_where_no_run_has_the_same_settings(finished, tmp_path):
    folder, _ = finished
    result = short(folder, "trainer.resume=auto", "seed=77", "trainer.max_epochs=1")
    assert result.code == 0, result.err
    assert result.record["metrics"] == short(tmp_path, "seed=77", "trainer.max_epochs=1").record["metrics"]


def signalled(patch: pytest.MonkeyPatch, task: type[Task], at: int, by: str) -> list[int]:
    """Let step `at` of the task send its process a signal. Returns a list that has an entry for each step."""
    steps, plain = [], task.training_step

    def interrupted(self, *arguments):
        steps.append(1)
        if len(steps) == at:
            os.kill(os.getpid(), getattr(signal, by))
        return plain(self, *arguments)

    patch.setattr(task, "training_step", interrupted)
    return steps


def test_of_all_runs_only_the_one_that_goes_on_is_read_as_a_whole(finished, tmp_path, monkeypatch):
    """Of the newest that is unfinished the weights are damaged, so it is the one before."""
    run = finished[1].record_path.parent
    state = torch.load(run / "checkpoints" / "last.ckpt")
    origin = Origin(**{key.name: state[key.name] for key in fields(Origin)})
    for number, name in enumerate(("other", "finished", "damaged", "unfinished", "older")):
        file = tmp_path / name / "checkpoints" / "last.ckpt"
        file.parent.mkdir(parents=True)
        config = state["config"] | ({"fidelity": "code"} if name == "other" else {})
        torch.save(state | {"config": config}, file)
        if name == "finished":
            (tmp_path / name / "record.json").write_text("{}")
        if name == "damaged":
            whole, weights = bytearray(file.read_bytes()), state["state_dict"]["model.embedding.weight"].numpy().tobytes()
            whole[whole.index(weights)] ^= 1
            file.write_bytes(whole)
        os.utime(file, (1000 - number, 1000 - number))
    read, testzip = [], zipfile.ZipFile.testzip
    monkeypatch.setattr(zipfile.ZipFile, "testzip", lambda self: read.append(Path(self.filename).parts[-3]) or testzip(self))
    chosen = resume.checkpoint_to_continue("auto", tmp_path, origin, 3, -1)
    assert chosen["file"] == tmp_path / "unfinished" / "checkpoints" / "last.ckpt"
    assert read == ["damaged", "unfinished"]
    assert _equal(chosen["state_dict"], state["state_dict"])


@pytest.mark.parametrize(("at", "by"), [(1, "SIGINT"), (2, "SIGINT"), (4, "SIGINT"), (7, "SIGINT"), (5, "SIGTERM")])
def test_an_interrupted_run_goes_on_exactly(tmp_path, monkeypatch, uninterrupted, at, by):
    """A signal in step `at`; epochs end after 4 steps, validations come after 2."""
    with monkeypatch.context() as patch:
        steps = signalled(patch, PrefixTask, at, by)
        broken = short(tmp_path, *WHERE)
    assert broken.code == 130
    assert "Interrupted at step" in broken.err
    assert "trainer.resume=" in broken.err
    assert len(steps) <= at + 2
    assert not list(tmp_path.rglob("record.json"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = short(tmp_path, *WHERE, "trainer.resume=auto")
    assert same_end(uninterrupted, resumed)


def interrupted(tmp_path, monkeypatch, *words: str) -> tuple[int, int]:
    """Of a run that is signalled in its second batch how many batches it has, and how often it saves, once a step; it
    goes on exactly."""
    saved, save_last = [], Checkpoints.save_last
    with monkeypatch.context() as patch:
        steps = signalled(patch, PrefixTask, 2, "SIGTERM")
        patch.setattr(Checkpoints, "save_last", lambda self, trainer: saved.append(1) or save_last(self, trainer))
        broken = short(tmp_path / "broken", *words)
    assert broken.code == 130, broken.err
    assert f"Interrupted at step {len(saved)}; go on with trainer.resume=" in broken.err
    assert same_end(short(tmp_path / "whole", *words), short(tmp_path / "broken", *words, "trainer.resume=auto"))
    return len(steps), len(saved)


def test_a_run_in_float64_goes_on_exactly(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, "trainer.precision=64-true", "trainer.checkpoint_every_n_steps=1")


def test_a_run_that_adds_up_batches_stops_after_a_step_and_goes_on_exactly(tmp_path, monkeypatch):
    """A signal in the second of three batches of a step; of the four of an epoch the last is a step of its own."""
    words = ("trainer.accumulate_grad_batches=3", "trainer.checkpoint_every_n_steps=1")
    steps, saves = interrupted(tmp_path, monkeypatch, *words)
    assert (steps, saves) == (3, 1)


@pytest.mark.long
@pytest.mark.parametrize("accumulate", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_run_that_validates_after_every_batch_stops_after_a_step_and_goes_on_exactly(tmp_path, monkeypatch, accumulate):
    words = ("trainer.val_check_interval=1", f"trainer.accumulate_grad_batches={accumulate}", "trainer.checkpoint_every_n_steps=1")
    steps, saves = interrupted(tmp_path, monkeypatch, *words)
    assert (steps, saves) == ((2, 2) if accumulate == 1 else (3, 1))


@pytest.mark.long
def test_a_run_that_was_trained_and_not_tested_is_only_tested(tmp_path, monkeypatch):
    """It ended after its last epoch, and by its patience: interrupted in the test."""
    for name, words in {
        "complete": ("trainer.max_epochs=1",),
        "early": ("trainer.max_epochs=9", "trainer.patience=1", "optim.lr=1e-12"),
    }.items():
        home = tmp_path / name
        with monkeypatch.context() as patch:
            patch.setattr(PrefixTask, "test_step", interrupted_by_hand)
            broken = short(home, *words)
        assert (broken.code, broken.err.count("Interrupted")) == (130, 1), broken.err
        assert "go on with trainer.resume=" in broken.err
        with monkeypatch.context() as patch:
            steps = signalled(patch, PrefixTask, 0, "SIGINT")
            resumed = short(home, *words, "trainer.resume=auto")
        assert not steps
        whole = short(tmp_path / "whole", *words)
        assert whole.record["metrics"] == resumed.record["metrics"]
        assert whole.record["diagnostics"] == resumed.record["diagnostics"]


def interrupted_by_hand(*_) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_run_of_two_processes_goes_on_in_one_with_the_metrics_of_both(tmp_path, monkeypatch, uninterrupted):
    """Only their sums are shared out anew: random numbers are not those of one process alone."""
    with monkeypatch.context() as patch:
        signalled(patch, PrefixTask, 3, "SIGINT")
        short(tmp_path, *WHERE)
    file = next(tmp_path.glob("out/*/*/checkpoints/last.ckpt"))
    last = torch.load(file)
    (alone,) = last["processes"]
    shares = [{**alone, "sums": {k: v * share for k, v in alone["sums"].items()}} for share in (0.25, 0.75)]
    torch.save(last | {"processes": shares}, file)
    resumed = short(tmp_path, *WHERE, "trainer.resume=auto")
    assert last["global_step"] == 3
    assert resumed.record["metrics"] == pytest.approx(uninterrupted.record["metrics"])


@pytest.mark.long
def test_a_run_that_goes_on_and_is_interrupted_at_once_names_the_checkpoint_it_came_from(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        signalled(patch, PrefixTask, 2, "SIGINT")
        short(tmp_path, *WHERE)
    (file,) = tmp_path.glob("out/*/*/checkpoints/last.ckpt")
    with monkeypatch.context() as patch:
        patch.setattr(PrefixTask, "on_train_start", interrupted_by_hand)
        patch.setattr(Checkpoints, "on_train_start", lambda *_: None)  # the signal is not noted for later
        again = short(tmp_path, *WHERE, f"trainer.resume={file}")
    assert again.code == 130
    assert f"; go on with trainer.resume={file}." in again.err


@pytest.mark.long
@pytest.mark.parametrize("kept", [True, False])
def test_a_record_has_the_commits_of_all_attempts(tmp_path, monkeypatch, kept):
    first, second = "a" * 40, "b" * 40
    for sha, dirty in ((first, True), (second, False)):
        monkeypatch.setattr(record, "commit", lambda sha=sha, dirty=dirty: (sha, dirty))
        resumed = [f"trainer.resume={file}" for file in tmp_path.glob("out/*/*/checkpoints/last.ckpt")]
        with monkeypatch.context() as patch:
            if not resumed:
                signalled(patch, PrefixTask, 2, "SIGINT")
            result = short(tmp_path, *WHERE, *resumed)
        if not resumed and not kept:  # as those from before
            (file,) = tmp_path.glob("out/*/*/checkpoints/last.ckpt")
            torch.save({k: v for k, v in torch.load(file).items() if k != "code"}, file)
    assert result.code == 0, result.err
    began = (first, True) if kept else (None, None)
    made = result.record
    assert [(own["commit"], own["dirty"]) for own in made["code"]] == [began, (second, False)]
    assert (made["commit"], made["dirty"]) == (second, True if kept else None), "the start is not forgotten"
    last = torch.load(result.record_path.parent / "checkpoints" / "last.ckpt")
    assert last["code"] == made["code"]


def typing(folder: Path, *words: str) -> Result:
    """Two epochs of six steps: two over all mentions, and two in each of two further passes."""
    return call(
        "task=entity_typing_toy", *QUIET, "task.data.sizes={train: 30, dev: 20, test: 20}", "task.data.batch_size=16",
        "task.data.crowd_cycles=2", "trainer.max_epochs=2", *places(folder), *words,
    )  # fmt: skip


@pytest.mark.long
def test_a_typing_run_goes_on_exactly_within_the_further_passes_of_an_epoch(tmp_path, monkeypatch):
    """A signal in step 3: the second of three passes over the mentions has just begun."""
    with monkeypatch.context() as patch:
        steps = signalled(patch, EntityTypingTask, 3, "SIGINT")
        broken = typing(tmp_path / "broken")
    assert broken.code == 130, broken.err
    assert len(steps) == 3
    last = torch.load(next(tmp_path.glob("broken/out/*/*/checkpoints/last.ckpt")))
    assert (last["global_step"], last["epoch"]) == (3, 0)
    resumed = typing(tmp_path / "broken", "trainer.resume=auto")
    assert same_end(typing(tmp_path / "whole"), resumed)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("trainer.limit_val_batches=1", "trainer.limit_val_batches=1.0, not 1."),  # the whole, and a batch
        ("trainer.limit_val_batches=0.5", "trainer.limit_val_batches=1.0, not 0.5."),
        ("trainer.average_last=2", "trainer.average_last=None, not 2."),
    ],
)
def test_what_the_best_state_is_chosen_by_stays(finished, word, message):
    folder, run = finished
    result = short(folder, f"trainer.resume={run.record_path.parent}", "trainer.max_epochs=9", "seed=5", word)
    assert result.code == 1
    assert message in result.err


def test_a_setting_that_came_later_is_what_was_done_before():
    old = {"config": {"task": {"name": "wn18rr"}}, "data": {}}

    def origin(**model) -> Origin:
        task = {"name": "wn18rr", "model": {"loop_bias": False} | model, "module": {"self_share": 0.0}}
        return Origin(config={"task": task})

    assert resume.differences(old, origin(), TESTED) == []
    assert resume.differences(old, origin(), CONTINUED) == []
    differences = resume.differences(old, origin(loop_bias=True), TESTED)
    assert differences == ["task.model.loop_bias=False, not True"]
    assert resume.differences(old, Origin(config=old["config"]), CONTINUED) == [], "tasks without the setting"
    typed = {"task": {"name": "ultrafine", "model": {"hyfi": {"midpoint": "encoder", "order": list(PARTS)}}}}
    assert resume.differences({**old, "config": {"task": {"name": "ultrafine"}}}, Origin(config=typed), TESTED) == []
    columns = {"fidelity": {"paper": {}, "code": {"layers": {"mobius": {"RNN": {"margin": 1e-5}}}}}, "epochs": 10}
    later = Origin(config={"task": old["config"]["task"] | columns})
    assert resume.differences(old, later, CONTINUED) == [], "what settings take their values from"


def test_a_dropout_of_weights_that_was_a_default_of_one_family_is_that_of_the_encoder_today():
    def config(layers: str, encoder: dict, **task) -> dict:
        return {"task": {"name": "cora_nc"} | task, "geometry": {"layers": layers}, "encoder": encoder}

    rate = {"Linear": {"weight_dropout": 0.5}}
    old = {"config": config("mobius", {"layer_defaults": {"mobius": rate}}), "data": {}}
    new = Origin(config=config("mobius", {"weight_dropout": 0.5}, transformer={"n_positions": 128}))
    assert resume.differences(old, new, CONTINUED) == resume.differences(old, new, TESTED) == []
    other = {"config": config("lorentz", {"layer_defaults": {"mobius": rate}}), "data": {}}
    here = Origin(config=config("lorentz", {"weight_dropout": 0.5}))
    assert resume.differences(other, here, TESTED) == ["encoder.weight_dropout=0.0, not 0.5"], "it had none"


def test_validations_that_follow_from_the_length_of_a_run_may_be_others_of_a_longer_one():
    def config(epochs: int) -> dict:
        return {"task": {"name": "kg"}, "trainer": {"max_epochs": epochs, "check_val_every_n_epoch": epochs // 10}}

    key = "trainer.check_val_every_n_epoch"
    old = {"config": config(20), "data": {}, "auto": [key]}
    assert resume.differences(old, Origin(config=config(40), auto=[key]), TAKEN_UP) == []
    assert resume.differences(old, Origin(config=config(40)), TAKEN_UP) == [f"{key}=2, not 4"]
    assert resume.differences(old, Origin(config=config(40)), CONTINUED) == [], "of a run that is named"
