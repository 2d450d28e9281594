"""Lightning's trainer, as all runs have it."""

import logging
import warnings
from types import SimpleNamespace

import pytest
import torch

from hyperbolic import switch
from tasks import machine, trainer
from tasks.errors import UserError
from tasks.trainer import make_trainer


def test_lightning_does_not_say_what_hardware_and_processes_it_found(monkeypatch):
    names = ("lightning_fabric.utilities.distributed", "pytorch_lightning.utilities.rank_zero")
    for name in (*names, "lightning_fabric", "pytorch_lightning"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
    make_trainer([], [], False, accelerator="cpu", devices=1)
    assert not any(logging.getLogger(name).isEnabledFor(logging.INFO) for name in names)


def test_threads_are_those_of_the_process_again_where_a_run_chooses_none(two_threads, monkeypatch):
    monkeypatch.setattr(machine, "_own_threads", [])
    for chosen, expected in ((1, 1), (3, 3), (None, 2), (None, 2)):
        machine.choose_threads(chosen)
        assert torch.get_num_threads() == expected


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


@pytest.mark.parametrize(
    ("device", "mode", "says"), [("cuda", "fast", True), ("cuda", "plain", False), ("cpu", "fast", False)]
)
def test_a_run_on_a_gpu_says_that_its_first_steps_compile(device, mode, says, monkeypatch, capsys, kernels_restored):
    switch.use_kernels(mode)
    monkeypatch.setattr(machine.native, "build", lambda say: None)
    strategy = SimpleNamespace(root_device=torch.device(device))
    machine.build_kernels(SimpleNamespace(strategy=strategy))
    assert ("the first steps of a model of many layers take minutes" in capsys.readouterr().err) == says
