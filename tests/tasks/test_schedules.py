"""Learning rates over the steps of a run, against their formulas; and how batches of several sizes add up to one step."""

import copy
import csv
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tasks.checkpoint_parts import check_kinds
from tasks.errors import UserError
from tasks.schedules import Schedule
from tests.cli import SHORT, toy


def rates(schedule: Schedule, steps: int, values: list[float] | None = None) -> list[float]:
    """Of each of so many steps; values: of the validation metric after each, for a plateau."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    trainer = SimpleNamespace(estimated_stepping_batches=steps, check_val_every_n_epoch=1, limit_val_batches=1.0)
    configured = schedule.configure(optimizer, lambda: trainer, "val/accuracy", "max")
    scheduler = configured["lr_scheduler"]["scheduler"] if isinstance(configured, dict) else None
    history = []
    for k in range(steps):
        history.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if scheduler is not None:
            scheduler.step(*([values[k]] if values else []))
    return history


@pytest.mark.parametrize(
    ("schedule", "formula"),
    [
        (Schedule(), lambda t: 0.5),
        (Schedule("linear"), lambda t: 0.5 * (1 - (t - 1) / 20)),
        (Schedule("cosine"), lambda t: 0.25 * (1 + math.cos(math.pi * (t - 1) / 20))),
        (Schedule("constant", 4), lambda t: 0.5 * min(t / 4, 1)),
        (Schedule("linear", 4), lambda t: 0.5 * (t / 4 if t <= 4 else 1 - (t - 5) / 16)),
        (Schedule("inverse_sqrt", 4), lambda t: 0.5 * min(t / 4, math.sqrt(4 / t))),
        (Schedule("noam", 4, d_model=64), lambda t: 0.5 / 8 * min(t**-0.5, t * 4**-1.5)),
    ],
)
def test_schedules_are_their_formulas(schedule, formula):
    assert rates(schedule, 20) == pytest.approx([formula(t) for t in range(1, 21)])


def test_a_plateau_lowers_the_rate_after_validations_that_are_no_better():
    values = [0.1, 0.2, 0.2, 0.2, 0.3, 0.1, 0.1, 0.1]
    assert rates(Schedule("plateau", factor=0.1, patience=1), 8, values) == pytest.approx(
        [0.5, 0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.005]
    )
    assert rates(Schedule("plateau", factor=0.1), 4, [0.5, 0.50004, 0.50008, 0.50012]) == [0.5] * 4, "all are better"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "step"}, "optim.schedule must be one of constant, linear, cosine"),
        ({"name": "noam", "warmup_steps": 4}, "optim.schedule=noam needs optim.d_model"),
        ({"name": "noam", "d_model": 4}, "needs optim.warmup_steps of at least 1"),
        ({"name": "inverse_sqrt"}, "needs optim.warmup_steps of at least 1"),
        ({"name": "plateau", "warmup_steps": 1}, "has no warm-up"),
        ({"d_model": 4}, "optim.d_model=4 is for optim.schedule=noam"),
        ({"warmup_steps": -1}, "optim.warmup_steps must be a whole number"),
    ],
)
def test_settings_that_do_not_fit_are_named(settings, message):
    with pytest.raises(UserError, match=message):
        Schedule(**settings)


def test_a_run_with_a_plateau_and_least_epochs(tmp_path):
    result = toy(
        tmp_path, *SHORT, "optim.schedule=plateau", "optim.plateau.factor=0.1", "optim.lr=1.0e-5", "optim.rule=sgd",
        "trainer.max_epochs=9", "trainer.min_epochs=4", "trainer.patience=1",
    )  # fmt: skip
    assert result.code == 0, result.err
    rows = (result.record_path.parent / "history.csv").read_text().splitlines()
    column = rows[0].split(",").index("lr")
    assert [float(row.split(",")[column]) for row in rows[1:]] == pytest.approx([1e-5, 1e-5, 1e-6, 1e-7], rel=1e-6, abs=0)


@pytest.mark.parametrize("word", ["optim.schedule=plateau", "trainer.patience=1"])
def test_what_follows_validations_is_refused_without_them(tmp_path, word):
    result = toy(tmp_path, *SHORT, word, "trainer.limit_val_batches=0")
    assert result.code == 1
    assert "validations, and trainer.limit_val_batches=0 has none" in result.err


@pytest.fixture
def weights(tmp_path):
    """A function that gives the weights after an epoch of so many training pairs, by plain steps in float64."""

    def train(n: int, *words: str) -> dict[str, torch.Tensor]:
        result = toy(
            tmp_path, f"task.data.sizes={{train: {n}, dev: 10, test: 10}}", "trainer.max_epochs=1", "optim.rule=sgd",
            "optim.max_grad_norm=null", "task.model.init_norm=0.5", "trainer.precision=64-true", *words,
        )  # fmt: skip
        assert result.code == 0, result.err
        return torch.load(result.record_path.parent / "checkpoints" / "last.ckpt")["state_dict"]

    return train


@pytest.mark.long
def test_batches_count_by_their_items_where_a_step_says_how_many(weights, monkeypatch):
    """Two batches of 30 and 10 examples, added up, follow the gradient of all 40 as one batch does."""
    from tasks.prefix.task import PrefixTask

    plain = PrefixTask.step

    def weighted(self, batch):
        step = plain(self, batch)
        return step._replace(weight=float(step.sums["examples"]))

    whole = weights(40, "task.data.batch_size=40")
    parts = ("task.data.batch_size=30", "trainer.accumulate_grad_batches=2")
    unweighted = weights(40, *parts)
    monkeypatch.setattr(PrefixTask, "step", weighted)
    for name, value in weights(40, *parts).items():
        torch.testing.assert_close(value, whole[name], rtol=1e-9, atol=1e-12)
    assert any((unweighted[name] - whole[name]).abs().max() > 1e-6 for name in whole)


def test_a_step_of_fewer_batches_is_their_mean(weights):
    """The second step of three batches, two at a time, has one."""
    whole = weights(30, "task.data.batch_size=20")
    for name, value in weights(30, "task.data.batch_size=10", "trainer.accumulate_grad_batches=2").items():
        torch.testing.assert_close(value, whole[name], rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_the_mean_of_the_last_states_is_tested(tmp_path):
    words = (*SHORT, "trainer.max_epochs=4", "geometry=lorentz")
    result = toy(tmp_path, *words, "trainer.average_last=3")
    assert result.code == 0, result.err
    assert result.record["selection"] == {"metric": None, "average_last": 3}
    folder = result.record_path.parent / "checkpoints"
    assert sorted(f.name for f in folder.iterdir()) == [
        "average.ckpt", "best.ckpt", "epoch-000002.ckpt", "epoch-000003.ckpt", "epoch-000004.ckpt", "last.ckpt",
    ]  # fmt: skip
    states = [torch.load(folder / f"epoch-{k:06d}.ckpt")["state_dict"] for k in (2, 3, 4)]
    average = torch.load(folder / "average.ckpt")
    mean = average["state_dict"]
    own = {name: value for name, value in result.record["metrics"].items() if name.startswith("val/")}
    assert own.items() <= average["metrics"].items(), "of the mean, not of the last epoch"
    assert torch.load(folder / "best.ckpt")["best"]["epoch"] in range(1, 5)
    matrix = next(name for name in mean if "weight" in name and "embedding" not in name)
    torch.testing.assert_close(mean[matrix], sum(state[matrix] for state in states) / 3)
    points = mean["embedding.weight"] if "embedding.weight" in mean else mean["model.embedding.weight"]
    assert torch.allclose((points[:, 1:] ** 2).sum(-1) - points[:, 0] ** 2, torch.tensor(-1.0), atol=1e-5), "on the sheet"

    tested = toy(tmp_path, "mode=test", f"checkpoint={result.record_path.parent}", *words)
    assert tested.record["metrics"]["test/accuracy"] == result.record["metrics"]["test/accuracy"]
    half = toy(tmp_path / "half", *words, "trainer.average_last=3", "trainer.max_epochs=3")
    from tests.cli import QUIET, call, places

    resumed = call(
        f"trainer.resume={half.record_path.parent}", "trainer.max_epochs=4", *QUIET, *places(tmp_path / "half")
    )  # fmt: skip
    assert resumed.record["metrics"] == result.record["metrics"]


@pytest.mark.long
def test_the_mean_of_points_whose_curvature_was_learned_meanwhile(tmp_path):
    """They are scaled onto the sheet of the mean's c: points of one shape at every c keep it."""
    result = toy(
        tmp_path, *SHORT, "trainer.max_epochs=3", "trainer.average_last=2", "geometry=lorentz", "geometry.learn_c=true",
        "optim.lr=0.1",
    )  # fmt: skip
    assert result.code == 0, result.err
    folder = result.record_path.parent / "checkpoints"
    states = [torch.load(folder / f"{name}.ckpt")["state_dict"] for name in ("epoch-000002", "epoch-000003", "average")]
    (name,) = (name for name in states[0] if name.endswith("embedding.weight"))
    free_name = next(name for name in states[0] if name.endswith("free_c"))
    *c_of_epochs, c = (torch.nn.functional.softplus(state[free_name]) for state in states)
    assert abs(c_of_epochs[0] - c_of_epochs[1]) > 1e-3
    spaces = [s[name][:, 1:].double() * c_e.sqrt() for s, c_e in zip(states, c_of_epochs, strict=False)]
    sums = sum(torch.cat([(1 + x.square().sum(-1, keepdim=True)).sqrt(), x], -1) for x in spaces)
    expected = sums / (sums[:, :1].square() - sums[:, 1:].square().sum(-1, keepdim=True)).sqrt() / c.sqrt()
    torch.testing.assert_close(states[2][name].double(), expected, rtol=1e-5, atol=1e-5)
    column = next(k for k in result.record["diagnostics"] if k.endswith("/c"))
    assert result.record["diagnostics"][column] == pytest.approx(c.item())
    rows = list(csv.DictReader((result.record_path.parent / "history.csv").read_text().splitlines()))
    assert float(rows[-1][column]) == pytest.approx(c_of_epochs[1].item()), "of the last epoch, not of the mean"


@pytest.mark.parametrize("schedule", [Schedule("plateau"), Schedule("noam", 5, 16), Schedule("constant", 5)])
def test_the_state_of_a_schedule_has_the_kinds_of_a_fresh_one(schedule):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
    trainer = SimpleNamespace(check_val_every_n_epoch=1, estimated_stepping_batches=10, limit_val_batches=1.0)
    scheduler = schedule.configure(optimizer, lambda: trainer, "val/loss", "min")["lr_scheduler"]["scheduler"]
    fresh = copy.deepcopy(scheduler.state_dict())
    for _ in range(3):
        optimizer.step()
        scheduler.step(*([1.0] if schedule.name == "plateau" else []))
    state = scheduler.state_dict()
    check_kinds(state, fresh)
    for key, value in state.items():
        for wrong in ("x", [], None, float("nan"), torch.zeros(1)):
            if isinstance(value, (int, float)):
                with pytest.raises(ValueError, match="its schedules hold a "):
                    check_kinds(state | {key: wrong}, fresh)
    for key, wrong in (("last_epoch", -7), ("base_lrs", [-1.0]), ("base_lrs", []), ("_last_lr", [float("inf")])):
        if key in fresh:
            with pytest.raises(ValueError, match="its schedules hold "):
                check_kinds(state | {key: wrong}, fresh)
