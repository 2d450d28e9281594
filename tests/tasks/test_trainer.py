"""Lightning's trainer, as all runs have it."""

import logging
import warnings

import pytest

from tasks import trainer
from tasks.errors import UserError
from tasks.trainer import make_trainer


def test_lightning_does_not_say_what_hardware_and_processes_it_found(monkeypatch):
    names = ("lightning_fabric.utilities.distributed", "pytorch_lightning.utilities.rank_zero")
    for name in (*names, "lightning_fabric", "pytorch_lightning"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
    make_trainer([], [], False, accelerator="cpu", devices=1)
    assert not any(logging.getLogger(name).isEnabledFor(logging.INFO) for name in names)


def test_more_processes_than_cores_are_warned_of_and_far_more_are_refused(monkeypatch):
    monkeypatch.setattr(trainer.os, "sched_getaffinity", lambda _: {0, 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.check_processes(2)
        trainer.check_processes("auto")
    with pytest.warns(UserWarning, match=r"trainer\.devices=3 is more than the 2 cores.*trainer\.devices=2 is faster"):
        trainer.check_processes("3")
    with pytest.raises(UserError, match=r"asks for 99 processes, and this machine has 2 cores.*trainer\.devices=2 or"):
        trainer.check_processes(99)
