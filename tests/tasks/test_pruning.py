"""A training that is behind others of a search is ended."""

from types import SimpleNamespace

import pytest

from tasks.base import Task
from tasks.errors import Pruned
from tasks.pruning import Pruning


def validated(callback: Pruning, value: float, epoch: int, monkeypatch, **state: object) -> None:
    monkeypatch.setattr("tasks.pruning.as_task", lambda module: module)
    trainer = SimpleNamespace(
        state=SimpleNamespace(fn="fit"), sanity_checking=False, current_epoch=epoch, max_epochs=4, **state
    )
    callback.on_validation_end(trainer, SimpleNamespace(select="val/x", metrics={"val/x": value}))


def test_the_judge_sees_each_validation_and_ends_the_run(monkeypatch):
    values = []
    callback = Pruning(lambda k, value: values.append((k, value)) or ("it is behind" if value < 0.3 else None))
    validated(callback, 0.5, 0, monkeypatch)
    with pytest.raises(Pruned, match="Ended in epoch 2: it is behind"):
        validated(callback, 0.2, 1, monkeypatch)
    assert values == [(1, 0.5), (2, 0.2)]


def test_a_run_at_its_end_is_not_pruned(monkeypatch):
    validated(Pruning(lambda k, value: "it is behind"), 0.2, 3, monkeypatch)


def test_a_run_is_pruned_through_the_trainer(tmp_path, monkeypatch):
    """As the program runs it: no record is left, and no test was made."""
    from configs import samplers
    from tests.cli import short

    monkeypatch.setattr(samplers, "judge", lambda job: lambda k, value: f"after {k}" if k == 2 else None)
    monkeypatch.setattr(Task, "on_test_epoch_end", lambda self: pytest.fail("it was tested"))
    result = short(tmp_path)
    assert result.code == 1
    assert "error: Ended in epoch 2: after 2." in result.err
    assert not list(tmp_path.glob("out/**/record.json"))
