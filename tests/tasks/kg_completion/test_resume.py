"""A run that is stopped and goes on draws the same wrong answers as one that is not."""

from pathlib import Path

from tests.cli import QUIET, call, places

WORDS = (
    "task=kg_completion_toy", "task.model.loop_bias=true", "task.module.self_share=0.5", "optim.schedule=constant",
    "trainer.limit_train_batches=5", *QUIET,
)  # fmt: skip


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
