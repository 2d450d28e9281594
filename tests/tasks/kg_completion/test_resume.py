"""A run that is stopped and goes on draws the same negatives as one that is not."""

from pathlib import Path

import pytest

from tasks.checkpoint_parts import Origin
from tasks.kg_completion.task import LinkPredictionTask
from tasks.resume import differences
from tasks.settings import CONTINUED
from tests.cli import QUIET, call, places
from tests.test_resume import same_end, signalled

WORDS = (
    "task=kg_completion_toy", "task.model.loop_bias=true", "task.module.self_share=0.5", "optim.schedule=constant",
    "trainer.limit_train_batches=5", *QUIET,
)  # fmt: skip


@pytest.mark.long
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    def run(*words: str):
        done = call(*WORDS, "trainer.check_val_every_n_epoch=1", *words, *places(tmp_path))
        assert done.code == 0, done.err
        return done

    whole = run("trainer.max_epochs=2").record
    half = run("trainer.max_epochs=1")
    folder = Path(half.out.strip().splitlines()[-1].removeprefix("record: ")).parent
    resumed = run("trainer.max_epochs=2", f"trainer.resume={folder}").record
    assert resumed["metrics"] == whole["metrics"]
    assert half.record["metrics"] != whole["metrics"]


def test_a_state_from_before_there_were_held_out_shares_goes_on():
    """What the splits are is told by their fingerprints."""
    config = {"task": {"name": "kg", "data": {"held_out": {"dev": 0.1, "test": 0.1}, "held_out_seed": 0, "batch_size": 5}}}
    before = {"task": {"name": "kg", "data": {"batch_size": 5}}}
    shas = {"train": "a", "dev": "b", "test": "c"}
    checkpoint = {"config": before, "data": {}, "sha256": shas}
    assert not differences(checkpoint, Origin(config=config, sha256=shas), CONTINUED)
    (difference,) = differences(checkpoint, Origin(config=config, sha256=shas | {"dev": "d"}), CONTINUED)
    assert difference == "sha256.dev='b', not 'd'"


@pytest.mark.long
@pytest.mark.parametrize(("schedule", "at"), [("constant", 2), ("linear", 7)])
def test_a_run_that_is_interrupted_within_an_epoch_goes_on_exactly(tmp_path, monkeypatch, schedule, at):
    """Of three epochs of five steps; a schedule needs the number of steps before the batches are set back."""

    def run(folder: Path, *words: str):
        options = (f"optim.schedule={schedule}", "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=2")
        return call(*WORDS, *options, *words, *places(folder))

    with monkeypatch.context() as patch:
        signalled(patch, LinkPredictionTask, at, "SIGINT")
        broken = run(tmp_path / "broken")
    assert broken.code == 130, broken.err
    resumed = run(tmp_path / "broken", "trainer.resume=auto")
    assert same_end(run(tmp_path / "whole"), resumed)
