"""A run on a graph that goes on draws what one that is left alone draws, and it is not tested on what trained it."""

from pathlib import Path

import pytest

from tasks.graph.task import LinkTask
from tests.cli import QUIET, call, places
from tests.test_resume import same_end, signalled

# Two epochs of five steps, of seven in a pass
WORDS = (
    "task=graph_toy", "task.data.batch_size=16", "task.model.fanouts=[2,2]", "trainer.limit_train_batches=5",
    "trainer.max_epochs=2", "trainer.patience=null", *QUIET,
)  # fmt: skip


@pytest.mark.long
def test_an_interrupted_run_goes_on_exactly(tmp_path, monkeypatch):
    def run(folder: Path, *words: str):
        return call(*WORDS, *words, *places(folder))

    with monkeypatch.context() as patch:
        signalled(patch, LinkTask, 3, "SIGINT")
        broken = run(tmp_path / "broken")
    assert broken.code == 130, broken.err
    resumed = run(tmp_path / "broken", "trainer.resume=auto")
    assert same_end(run(tmp_path / "whole"), resumed)


@pytest.mark.long
def test_a_run_is_not_tested_on_other_splits(tmp_path):
    assert call(*WORDS, *places(tmp_path)).code == 0
    (record,) = tmp_path.rglob("record.json")
    words = (*WORDS[:3], "mode=test", f"checkpoint={record.parent}", *QUIET, *places(tmp_path / "test"))
    refused = call(*words, "task.data.split_seed=1")
    assert refused.code == 1
    assert "was trained with data.splits=" in refused.err
    assert "its settings of task.data" in refused.err
    assert call(*words).code == 0
