"""Runs of every task that are killed again and again, and go on each time: their end is that of a run left alone."""

import os
import random
import select
import signal
import time
from collections.abc import Callable, Sequence

import pytest
import torch

from tasks.base import Task
from tasks.checkpoints import epoch_files, epoch_of
from tests.cli import QUIET, Result, call, places, short
from tests.configurations import TOYS
from tests.forks import exit_code, fork
from tests.test_resume import same_end, signalled

# Three epochs of seven batches; with batches that are added up, the last step of an epoch has fewer of them.
BATCHES = 21
SETTINGS = (
    *QUIET, "trainer.max_epochs=3", "trainer.limit_train_batches=7", "trainer.check_val_every_n_epoch=1",
    "trainer.patience=null", "trainer.checkpoint_every_n_steps=1", "trainer.accelerator=cpu",
)  # fmt: skip
DIFFERENT = {  # from task to task; one that is not here has none
    "prefix_toy": ("trainer.val_check_interval=3",),
    "nli_toy": ("trainer.accumulate_grad_batches=2", "trainer.val_check_interval=5"),
    "entity_typing_toy": ("trainer.accumulate_grad_batches=3", "trainer.average_last=2"),
    "kg_completion_toy": ("trainer.accumulate_grad_batches=2",),
    "poincare_embeddings_toy": ("trainer.val_check_interval=2",),
    "poincare_glove_toy": ("trainer.accumulate_grad_batches=4",),
    "document_classification_toy": ("trainer.accumulate_grad_batches=2", "trainer.val_check_interval=3"),
    "graph_toy": ("task.data.batch_size=16", "task.model.fanouts=[2,2]"),
    "graph_nc_toy": ("task.data.passes=7",),
    "wordnet_subtree_toy": ("task.data.batch_size=20", "trainer.accumulate_grad_batches=2"),
}


def kill(run: Callable[[], Result], batches: int, draw: random.Random, numbers: Sequence[int]) -> int:
    """Run in a fork of this process, which gets one of the signals within 20 ms after it has begun its n-th batch.

    It does not begin another batch before: the next one waits. Returns its exit code, or minus the signal that ended it.
    """
    seen = 0

    def step(*arguments: object) -> object:
        nonlocal seen
        seen += 1
        begin.write(b".")
        time.sleep(0.1 if seen > batches else 0)
        return plain(*arguments)

    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as begun, os.fdopen(writing, "wb", buffering=0) as begin:
        with pytest.MonkeyPatch.context() as patch:
            plain = Task.training_step
            patch.setattr(Task, "training_step", step)
            child = fork(run)
        begin.close()
        for _ in range(batches):
            assert select.select([begun], [], [], 120)[0]
            begun.read(1)
    time.sleep(draw.uniform(0, 0.02))
    os.kill(child, draw.choice(numbers))
    return exit_code(child)


def test_a_killed_run_goes_on_exactly_from_its_last_checkpoint(tmp_path):
    words = ("trainer.checkpoint_every_n_steps=1", "trainer.val_check_interval=2", "task.data.shuffle=examples")
    whole = short(tmp_path / "whole", *words)
    ended = kill(lambda: short(tmp_path / "killed", *words), 7, random.Random(0), [signal.SIGKILL])
    assert ended == -signal.SIGKILL
    resumed = short(tmp_path / "killed", *words, "trainer.resume=auto")
    assert same_end(whole, resumed)


@pytest.mark.slow
@pytest.mark.parametrize("task", TOYS)
def test_a_run_that_is_killed_four_times_ends_as_one_left_alone(tmp_path, monkeypatch, task):
    words, draw = (f"task={task}", *SETTINGS, *DIFFERENT.get(task, ())), random.Random(task)
    data, alone = places(tmp_path)
    whole = call(*words, data, alone)
    killed = (*words, data, places(tmp_path / "killed")[1], "trainer.resume=auto")
    for _ in range(4):
        numbers = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)
        assert kill(lambda: call(*killed), draw.randint(1, 5), draw, numbers) in (-signal.SIGKILL, 130)
    steps = signalled(monkeypatch, Task, at=0, by="SIGINT")
    assert same_end(whole, call(*killed))
    assert 0 < len(steps) < BATCHES


@pytest.mark.slow
def test_a_run_whose_last_checkpoint_is_epochs_old_ends_as_one_left_alone(tmp_path):
    """Each attempt writes last.ckpt once, at its beginning, and is killed when three epochs more are over."""
    words = (
        "task=prefix_toy", *SETTINGS, "trainer.max_epochs=6", "trainer.checkpoint_every_n_steps=null",
        "trainer.checkpoint_every_s=1000", "trainer.average_last=2", "trainer.val_check_interval=3",
    )  # fmt: skip
    data, alone = places(tmp_path)
    killed, draw = (*words, data, places(tmp_path / "killed")[1], "trainer.resume=auto"), random.Random(0)
    for _ in range(3):
        assert kill(lambda: call(*killed), draw.randint(22, 27), draw, [signal.SIGKILL]) == -signal.SIGKILL
        newest = max((tmp_path / "killed").glob("out/*/*/checkpoints"), key=lambda folder: folder.parent.name)
        behind = epoch_of(epoch_files(newest)[-1]) - torch.load(newest / "last.ckpt")["global_step"] / 7
        assert behind >= 2
    assert same_end(call(*words, data, alone), call(*killed))
