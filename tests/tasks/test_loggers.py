"""Weights & Biases is offline unless this machine is logged in."""

import pytest

from tasks import loggers
from tasks.errors import UserError


@pytest.fixture
def made(monkeypatch, tmp_path):
    seen = {}
    monkeypatch.setattr(loggers, "WandbLogger", lambda **options: seen.update(options) or seen)  # nothing is sent
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
