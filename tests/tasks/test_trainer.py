"""Lightning's trainer, as all runs have it."""

import logging

from tasks.trainer import make_trainer


def test_lightning_does_not_say_what_hardware_and_processes_it_found(monkeypatch):
    names = ("lightning_fabric.utilities.distributed", "pytorch_lightning.utilities.rank_zero")
    for name in (*names, "lightning_fabric", "pytorch_lightning"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.NOTSET)
    make_trainer([], None, False, accelerator="cpu", devices=1)
    assert not any(logging.getLogger(name).isEnabledFor(logging.INFO) for name in names)
