"""A run on a graph that is interrupted and goes on draws the same wrong links and neighbours as one that is left alone."""

from pathlib import Path

from tasks.graph.task import LinkTask
from tests.cli import QUIET, call, places
from tests.test_resume import same_end, signalled

# Two epochs of five steps, of seven in a pass
WORDS = (
    "task=graph_toy", "task.data.batch_size=16", "task.model.fanouts=[2,2]", "trainer.limit_train_batches=5",
    "trainer.max_epochs=2", "trainer.patience=null", *QUIET,
)  # fmt: skip


def test_an_interrupted_run_goes_on_exactly(tmp_path, monkeypatch):
    def run(folder: Path, *words: str):
        return call(*WORDS, *words, *places(folder))

    with monkeypatch.context() as patch:
        signalled(patch, LinkTask, 3, "SIGINT")
        broken = run(tmp_path / "broken")
    assert broken.code == 130, broken.err
    resumed = run(tmp_path / "broken", "trainer.resume=auto")
    assert same_end(run(tmp_path / "whole"), resumed)
