"""The guard stops before a step that is not finite, names the tensor and keeps the state."""

import csv
import json
import re

import pytest
import torch

from tasks import watch
from tasks.prefix.task import PrefixTask
from tasks.watch import _are_finite
from tests.cli import toy

SMALL = ("task.data.sizes={train: 64, dev: 20, test: 20}", "task.data.batch_size=8", "trainer.max_epochs=2")


def spoil(monkeypatch, step: int, act) -> None:
    """Let `act(task, loss)` change the loss of one step."""
    plain = PrefixTask.training_step

    def spoiled(self, batch, batch_idx):
        loss = plain(self, batch, batch_idx)
        if self.global_step == step:
            loss = act(self, loss)
            self.latest_loss = loss.detach()
        return loss

    monkeypatch.setattr(PrefixTask, "training_step", spoiled)


def nan_loss(task, loss):
    return loss * float("nan")


def infinite_gradient(task, loss):
    task.model.classifier.a.register_hook(lambda g: g * float("inf"))
    return loss


@pytest.mark.parametrize(("act", "named"), [(nan_loss, "loss"), (infinite_gradient, "gradient of classifier.a")])
def test_a_step_that_is_not_finite_is_not_taken(tmp_path, monkeypatch, act, named):
    spoil(monkeypatch, 3, act)
    result = toy(tmp_path, *SMALL)
    assert result.code == 1
    assert "Training stopped at step 3 (epoch 1): not finite: " in result.err
    assert named in result.err
    assert result.err.strip().count("\n") == 0
    state = torch.load(next(tmp_path.rglob("nan_state.pt")))
    assert state["step"] == 3
    assert any(named in name for name in state["names"])
    assert state["batch"]["words"].shape[:2] == (2, 8)
    assert all(torch.isfinite(w).all() for w in state["weights"].values()), "the weights before the step"
    assert state["optimizer"]["state"]
    assert not list(tmp_path.rglob("record.json"))


def test_the_layer_that_makes_it_is_named(tmp_path, monkeypatch):
    def spoiled_layer(task, loss):
        task.model.ffnn.weights[0].data.fill_(float("nan"))
        return loss

    spoil(monkeypatch, 2, spoiled_layer)
    result = toy(tmp_path, *SMALL)
    assert result.code == 1
    assert "Training stopped at step 2" in result.err
    assert "parameter ffnn.weights.0" in result.err
    assert "output of ffnn, the first layer" in result.err


def test_a_sparse_gradient_without_rows_is_finite():
    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.long), torch.empty(0, 3), (5, 3))
    assert _are_finite([torch.tensor(1.0), empty])
    assert _are_finite([empty])
    assert not _are_finite([empty, torch.tensor(float("nan"))])


def test_the_guard_may_look_less_often(tmp_path, monkeypatch):
    spoil(monkeypatch, 1, nan_loss)
    result = toy(tmp_path, *SMALL, "trainer.nan_check_every_n_steps=4")
    assert result.code == 1
    assert "Training stopped at step 4" in result.err


def test_a_validation_that_is_not_finite_stops_too(tmp_path, monkeypatch):
    plain = PrefixTask.summary
    monkeypatch.setattr(PrefixTask, "summary", lambda self, sums: plain(self, sums) | {"loss": float("nan")})
    result = toy(tmp_path, *SMALL)
    assert result.code == 1
    assert "val/loss" in result.err


def test_a_log_gets_lines_and_no_bar(tmp_path, monkeypatch):
    monkeypatch.setattr(watch.ProgressLines.__init__, "__defaults__", (0.0,))
    result = toy(tmp_path, *SMALL, "trainer.enable_progress_bar=true")
    assert result.code == 0
    lines = [line for line in result.out.splitlines() if line.startswith("epoch ")]
    assert re.fullmatch(r"epoch 1/\d+, batch 1/\d+, loss 0\.\d{4}", lines[0])
    assert any("val/" in line for line in lines)
    assert "\r" not in result.out + result.err
    assert not re.search(r"(?m)^(Epoch|Validation|Testing) ", result.out)  # Lightning's own bar


def test_the_learned_curvature_of_a_record_is_that_of_the_end(tmp_path):
    words = ("geometry.learn_c=true", "optim.lr=0.05", "trainer.limit_train_batches=1", "trainer.max_epochs=5")
    result = toy(tmp_path, *SMALL, *words)
    assert result.code == 0, result.err
    folder = result.record_path.parent
    c = json.loads(result.record_path.read_text())["diagnostics"]["diagnostics/manifold/c"]
    weights = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=False)["state_dict"]
    free = next(value for name, value in weights.items() if name.endswith("free_c"))
    assert c == pytest.approx(float(torch.nn.functional.softplus(free)), rel=1e-5)
    *_, before, last = csv.DictReader((folder / "history.csv").read_text().splitlines())
    assert before["diagnostics/manifold/c"]
    assert not last["diagnostics/manifold/c"], "the end was not looked at"
