"""Weights & Biases is offline unless this machine is logged in; a run may have several loggers."""

import csv
import functools

import pytest
import pytorch_lightning as pl
from pytorch_lightning.loggers import CSVLogger

from configs import overview
from configs.build import make
from tasks import loggers
from tasks.errors import UserError
from tests.cli import short
from tests.configurations import checked


@pytest.fixture
def made(monkeypatch, tmp_path):
    arguments = {}
    monkeypatch.setattr(loggers, "WandbLogger", lambda **options: arguments.update(options) or arguments)  # nothing is sent
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    return lambda mode: loggers.wandb_logger("here", "hyperbolic", mode)["offline"]


def test_it_is_offline_without_a_login(made):
    assert made("auto") is True
    assert made("online") is False
    assert made("offline") is True


def test_it_is_online_with_a_login(made, monkeypatch, tmp_path):
    (tmp_path / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password x\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert made("auto") is False
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert made("auto") is True


def test_another_mode_is_refused():
    with pytest.raises(UserError, match=r"logger\.mode must be one of auto, online, offline"):
        loggers.wandb_logger("here", "hyperbolic", "sometimes")


@pytest.mark.long
def test_several_are_chosen_by_their_names_and_each_has_its_settings():
    assert list(checked("logger=[csv,wandb]", "logger.wandb.project=mine")["logger"]) == ["csv", "wandb"]
    assert checked("logger=wandb", "logger.wandb.project=mine")["logger"]["wandb"]["project"] == "mine"
    assert checked("logger=none")["logger"] == {}


def test_all_loggers_of_a_run_get_its_metrics_and_losses(tmp_path):
    more = "+logger.second={_target_: pytorch_lightning.loggers.CSVLogger, name: second, version: ''}"
    result = short(tmp_path, "logger=csv", more, "trainer.log_every_n_steps=2", "trainer.max_epochs=1")
    assert result.code == 0, result.err
    texts = []
    for name in ("log", "second"):
        with (result.record_path.parent / name / "metrics.csv").open() as file:
            texts.append(list(csv.DictReader(file)))
    assert texts[0] == texts[1]
    assert any(row.get("val/accuracy") for row in texts[0])
    assert any(row.get("step/loss") for row in texts[0])


def test_a_log_is_written_as_it_goes(tmp_path):
    """What was logged before a run is killed is there."""
    logger = make(checked("logger=csv")["logger"]["csv"], save_dir=str(tmp_path))
    logger.log_metrics({"step/loss": 0.5}, step=50)
    assert "0.5" in (tmp_path / "log" / "metrics.csv").read_text()


def test_a_step_of_several_batches_is_logged_once(tmp_path):
    words = ("trainer.log_every_n_steps=2", "trainer.accumulate_grad_batches=3", "trainer.max_epochs=1")
    result = short(tmp_path, "logger=csv", *words)
    assert result.code == 0, result.err
    with (result.record_path.parent / "log" / "metrics.csv").open() as file:
        steps = [int(row["step"]) for row in csv.DictReader(file) if row.get("step/loss")]
    assert steps
    assert steps == list(range(2, steps[-1] + 1, 2))


def test_they_are_made_with_the_folder_of_the_run(tmp_path):
    makers = [lambda save_dir: CSVLogger(save_dir, name="a"), lambda save_dir: CSVLogger(save_dir, name="b")]
    with loggers.open_loggers(makers, tmp_path) as opened:
        assert [logger.root_dir for logger in opened] == [str(tmp_path / "a"), str(tmp_path / "b")]


SETTINGS = {"optim": {"lr": 0.25}, "encoder": {"cell": "gru"}}


@pytest.mark.long
def test_wandb_has_the_settings_of_the_run_and_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    maker = functools.partial(loggers.wandb_logger, project="project", mode="offline")
    with loggers.open_loggers([maker], tmp_path / "task-encoder" / "now") as (logger,):
        loggers.log_settings(pl.Trainer(logger=logger), SETTINGS)
        assert logger.experiment.name == "task-encoder/now"
        assert logger.experiment.config["optim"] == {"lr": 0.25}


def test_tensorboard_has_the_settings_of_the_run(tmp_path):
    pytest.importorskip("tensorboard")
    maker = functools.partial(loggers.tensorboard_logger, name="tensorboard")
    with loggers.open_loggers([maker], tmp_path) as (logger,):
        loggers.log_settings(pl.Trainer(logger=logger), SETTINGS)
        logger.finalize("success")
    (events,) = tmp_path.glob("tensorboard/events.*")
    assert b"optim.lr: 0.25" in events.read_bytes()


def test_several_loggers_are_a_list():
    overview.check_words(["logger=[csv,wandb]"])


def test_tensorboard_writes_into_the_run_or_says_what_is_missing(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    logger = loggers.tensorboard_logger(str(tmp_path), "tensorboard")
    logger.log_metrics({"val/accuracy": 0.5}, step=1)
    logger.finalize("success")
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_without_tensorboard_the_package_is_named(monkeypatch):
    def refuse(**options):
        raise ModuleNotFoundError("no tensorboard")

    monkeypatch.setattr(loggers, "TensorBoardLogger", refuse)
    with pytest.raises(UserError, match=r"pip install '\.\[tensorboard\]'"):
        loggers.tensorboard_logger("here", "tensorboard")
