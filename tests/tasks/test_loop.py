"""Our loops over batches do what Lightning's do: the same hooks, numbers and counts of progress."""

from pathlib import Path

import pytest
import torch
from pytorch_lightning.callbacks import Callback, LambdaCallback
from pytorch_lightning.loops.evaluation_loop import _EvaluationLoop
from pytorch_lightning.loops.training_epoch_loop import _TrainingEpochLoop

from configs import build, composing
from tasks import trainer, training
from tasks.base import Task, TaskData
from tasks.loop import HOOKS, OWN_WAYS, TRANSFERS, VALIDATION_HOOKS, EpochLoop, ValidationLoop
from tests.configurations import checked

SMALL = (
    "task=prefix_toy", "encoder=dan", "logger=none", "trainer.enable_progress_bar=false", "trainer.max_epochs=2",
    "task.data.sizes={train: 70, dev: 20, test: 20}", "task.data.batch_size=10",
)  # fmt: skip
CASES = {
    "plain": (),
    "accumulated": ("trainer.accumulate_grad_batches=3",),
    "float64": ("trainer.precision=64-true",),
    "scheduled": ("optim.schedule=noam", "optim.d_model=8", "optim.warmup_steps=3"),
    "validated": ("trainer.val_check_interval=3", "trainer.max_steps=10"),
    "continued": ("trainer.accumulate_grad_batches=3", "trainer.limit_train_batches=5"),
}


class Recorder(Callback):
    """The hooks that were called, with what decides of their arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []


def _noted(name: str):
    def hook(self: Recorder, trainer, module, *args) -> None:
        numbers = [a for a in args if isinstance(a, int)] + [float(a.detach()) for a in args if isinstance(a, torch.Tensor)]
        if name == "on_train_batch_end":
            numbers.append(float(args[0]["loss"]))
        self.calls.append((name, trainer.global_step, trainer.fit_loop.epoch_loop.batch_idx, *numbers))

    return hook


for hook_name in HOOKS + VALIDATION_HOOKS:
    setattr(Recorder, hook_name, _noted(hook_name))


def trained(folder: Path, monkeypatch, *words: str, also: tuple[Callback, ...] = (), **options) -> tuple[list[tuple], dict, dict]:
    """Calls of hooks, metrics, and the last checkpoint."""
    composing.register()
    values = checked(*SMALL, *words)
    torch.manual_seed(0)
    task, data = build.build(values)
    recorder = Recorder()
    own = trainer.make_trainer
    monkeypatch.setattr(training, "make_trainer", lambda callbacks, *args, **kw: own([recorder, *also, *callbacks], *args, **kw))
    outcome = training.fit(task, data, folder, None, **values["trainer"], **options)
    return recorder.calls, outcome.metrics, torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.mark.parametrize("case", CASES)
def test_it_trains_as_lightnings_loop(tmp_path, monkeypatch, case):
    words = CASES[case]
    if case == "continued":  # from the middle of the second epoch, after the first of its two steps
        words = (*words, "trainer.max_epochs=3", f"trainer.resume={tmp_path / 'first'}")
        state = trained(tmp_path / "first", monkeypatch, *CASES[case], "trainer.max_steps=3")[2]
        assert state["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]["processed"] == 3
    ours = trained(tmp_path / "ours", monkeypatch, *words)
    with monkeypatch.context() as patched:
        patched.setattr(EpochLoop, "advance", _TrainingEpochLoop.advance)
        patched.setattr(ValidationLoop, "run", _EvaluationLoop.run)
        theirs = trained(tmp_path / "theirs", patched, *words)
    assert ours[0] == theirs[0]
    assert {call[0] for call in ours[0]} == set(HOOKS + VALIDATION_HOOKS)
    assert ours[1] == theirs[1]
    for part in ("loops", "lr_schedulers", "global_step", "epoch"):
        assert ours[2][part] == theirs[2][part], part
    for name, value in theirs[2]["state_dict"].items():
        assert torch.equal(ours[2]["state_dict"][name], value), name


@pytest.mark.parametrize(
    ("owner", "name"), [*((Task, name) for name in OWN_WAYS), *((TaskData, name) for name in TRANSFERS)]
)
def test_a_part_of_the_step_that_is_done_in_another_way_is_done_so(tmp_path, monkeypatch, owner, name):
    """Of its own or of its data."""
    called: list[str] = []
    base = getattr(owner, name)

    def own(self, *args, **kwargs):
        called.append(name)
        return base(self, *args, **kwargs)

    monkeypatch.setattr(owner, name, own)
    trained(tmp_path, monkeypatch, "trainer.max_epochs=1")
    assert called


@pytest.mark.long
def test_a_hook_that_only_one_callback_was_given_is_called(tmp_path, monkeypatch):
    called: list[int] = []
    callback = LambdaCallback(on_train_batch_end=lambda trainer, module, outputs, batch, batch_idx: called.append(batch_idx))
    trained(tmp_path, monkeypatch, "trainer.max_epochs=1", also=(callback,))
    assert called == [*range(7)]


@pytest.mark.long
def test_lightnings_clipping_of_gradients_is_done(tmp_path, monkeypatch):
    variants = [{"gradient_clip_val": 1e-9}, {}]
    states = [trained(tmp_path / str(len(g)), monkeypatch, "trainer.max_epochs=1", **g)[2]["state_dict"] for g in variants]
    assert any(not torch.equal(value, states[1][name]) for name, value in states[0].items())
