"""Searches by TPE, their databases, and trials that are pruned."""

import shutil
import sqlite3
from types import SimpleNamespace

import pytest
from hydra.types import RunMode
from omegaconf import OmegaConf

from configs import samplers
from configs.errors import ConfigError
from tasks import search
from tests.test_search import RATES, folder_of, start


@pytest.fixture
def optuna():
    return pytest.importorskip("optuna")


TPE = ("hydra.sweeper.sampler=tpe", "hydra.sweeper.startup=2", "hydra.sweeper.n_trials=4")


@pytest.mark.long
def test_tpe_starts_at_random_and_takes_a_diverged_trial_for_the_worst(tmp_path, optuna):
    place = tmp_path / "both"
    result = start(tmp_path, RATES, "optim.max_grad_norm=null", *TPE, f"hydra.sweeper.folder={place}")
    assert result.code == 0, result.err
    summary = search.read(place)
    assert {trial.state for trial in summary.trials} == {"complete", "diverged"}
    study = optuna.load_study(study_name="search", storage=f"sqlite:///{place}/optuna.db")
    assert study.direction.name == "MAXIMIZE"
    values = {trial.number: trial.value for trial in study.trials}
    for trial in summary.trials:
        assert values[trial.number] == (float("-inf") if trial.state == "diverged" else trial.value)
        assert study.trials[trial.number].params["optim.lr"] == trial.settings["optim.lr"]
    again = start(tmp_path, RATES, "optim.max_grad_norm=null", *TPE, f"hydra.sweeper.folder={place}")
    assert again.code == 0, again.err
    assert f"{len(summary.trials)} of 4 trials are there already" in again.out


@pytest.mark.parametrize("name", ["se?arch", "{a}", "%20#"])
def test_a_folder_of_any_name_has_the_database(tmp_path, optuna, name):
    file = tmp_path / name / "optuna.db"
    file.parent.mkdir()
    for _ in range(2):
        optuna.create_study(study_name="search", storage=samplers._storage(optuna, file), load_if_exists=True)
    assert [place.name for place in tmp_path.rglob("*") if place.is_file()] == ["optuna.db"]
    samplers.check_database(file)


@pytest.mark.parametrize("state", ["COMPLETE", "RUNNING"])
@pytest.mark.parametrize(("key", "value"), [("optim.lr", "0.1 +hostile=1"), ("optim.eps", 1e3)])
def test_words_of_a_database_are_those_of_the_space(tmp_path, optuna, key, value, state):
    """It is a file, and what it holds becomes words of the command line."""
    from configs.samplers import Tpe
    from configs.spaces import Choice, Interval, Space

    space = Space((), {"optim.lr": Choice(("0.1", "0.2")), "optim.eps": Interval(1e-8, 1e-4, True, False)}, {})
    sampler = Tpe(space, None, 0, 2, "max", tmp_path)
    values = {"optim.lr": "0.1", "optim.eps": 1e-6} | {key: value}
    distributions = {
        "optim.lr": optuna.distributions.CategoricalDistribution(tuple(dict.fromkeys(("0.1", "0.2", values["optim.lr"])))),
        "optim.eps": optuna.distributions.FloatDistribution(1e-8, 1e9, log=True),
    }
    trial = optuna.trial.create_trial(
        state=optuna.trial.TrialState[state], params=values, distributions=distributions,
        value=0.5 if state == "COMPLETE" else None,
    )  # fmt: skip
    sampler.study.add_trial(trial)
    with pytest.raises(ConfigError, match=r"optuna\.db: trial 0.*not that of these trials"):
        sampler.settings(0)


@pytest.mark.long
def test_databases_of_others(tmp_path, optuna):
    place = tmp_path / "mine"
    place.mkdir()
    words = (RATES, *TPE, f"hydra.sweeper.folder={place}")
    (place / "optuna.db").write_text("no database at all, though it is long enough to have a header")
    assert f"{place}/optuna.db cannot be read as the database of a search" in start(tmp_path, *words).err
    (place / "optuna.db").unlink()
    shutil.rmtree(place)
    place.mkdir()
    with sqlite3.connect(place / "optuna.db") as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
    database.close()
    assert f"{place}/optuna.db is a database of something else, with the tables recipes" in start(tmp_path, *words).err


@pytest.mark.long
def test_a_locked_database(tmp_path, optuna, monkeypatch):
    from configs import samplers

    monkeypatch.setattr(samplers, "WAIT_S", 0.1)
    place = tmp_path / "mine"
    samplers.Tpe(None, None, 0, 2, "max", place.mkdir() or place)  # makes the database
    holder = sqlite3.connect(place / "optuna.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        result = start(tmp_path, RATES, *TPE, f"hydra.sweeper.folder={place}")
    finally:
        holder.close()
    assert result.code == 1
    assert f"{place}/optuna.db is locked by another process" in result.err


@pytest.mark.slow
def test_a_search_by_tpe_without_its_database(tmp_path, optuna):
    words = ("optim.lr=tag(log,interval(0.01,0.1))", "optim.max_grad_norm=null", *TPE)
    assert start(tmp_path, *words).code == 0
    place = folder_of(tmp_path)
    (place / "optuna.db").unlink()
    shutil.rmtree(place / "trial-000")
    result = start(tmp_path, *words)
    assert result.code == 1
    assert "has 0 trials, and the folder has trial 1" in result.err


def test_a_trial_that_failed_and_is_repeated_has_the_value_of_the_repetition(tmp_path, optuna):
    from configs.samplers import Tpe
    from configs.spaces import Interval, Space

    tpe = Tpe(Space((), {"optim.lr": Interval(0.1, 1.0, True, False)}, {}), None, 0, 9, "max", tmp_path)
    settings = tpe.settings(0)
    tpe.note(search.Trial(0, settings, search.FAILED, "trial-000"))
    again = Tpe(tpe.space, None, 0, 9, "max", tmp_path)
    assert again.settings(0) == settings
    again.note(search.Trial(0, settings, search.COMPLETE, "trial-000", 0.7))
    assert [trial.value for trial in again.study.trials] == [0.7]


@pytest.mark.long
def test_the_median_rule_prunes(tmp_path, optuna):
    """Five trials whose validations are known, and one that is behind from its third one on."""
    from configs import samplers
    from configs.spaces import Space

    tpe = samplers.Tpe(Space((), {}, {}), None, 0, 9, "max", tmp_path)
    for number in range(5):
        trial = tpe.study.ask()
        for k in (1, 2, 3):
            trial.report(0.5 + number / 10, k)
        tpe.note(search.Trial(number, {}, search.COMPLETE, f"trial-{number:03d}", 0.5 + number / 10))
    tpe.study.ask()
    sweeper = {"_target_": samplers.SEARCH, "pruner": "median"}
    job = SimpleNamespace(
        mode=RunMode.MULTIRUN, sweeper=OmegaConf.create(sweeper), sweep=SimpleNamespace(dir=tmp_path, subdir="trial-005")
    )
    ends = samplers.judge(job)
    assert ends(1, 0.1) is None
    assert ends(3, 0.1) == "half of the other trials were better at validation 3 (0.1 here)"
    assert samplers.judge(job)(4, 0.9) is None, "better than the median"
