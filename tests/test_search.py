"""python run.py -m sweep=...: trials that are ranked by validation alone, what is missing run again, the best tested."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from configs import sweeper
from configs.sweeper import SearchSweeper
from scripts import collect, compare
from tasks import search
from tasks.errors import UserError
from tests.cli import QUIET, ROOT, call, command, places

SMALL = (
    "task=kg_completion_toy", *QUIET, "trainer.max_epochs=2", "trainer.check_val_every_n_epoch=1", "encoder=distmult",
    "trainer.kernels=plain", "task.data.batch_size=128",
)  # fmt: skip
RATES = "optim.lr=0.03,0.1,1e30"  # the last one diverges


def start(folder: Path, *words: str, sweep: str = "lr"):
    return call("-m", f"sweep={sweep}", *SMALL, *places(folder), "hydra.sweeper.n_trials=3", *words)


def folder_of(folder: Path) -> Path:
    (place,) = (folder / "out" / "search").iterdir()
    return place


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A search of three trials, of which one diverges: its folder, and what was printed."""
    folder = tmp_path_factory.mktemp("search")
    result = start(folder, RATES, "optim.max_grad_norm=null")
    assert result.code == 0, result.err
    return folder_of(folder), result


def test_trials_are_ranked_by_validation_and_the_best_is_tested_once(searched):
    place, result = searched
    summary = search.read(place)
    ranked = summary.ranked()
    assert (summary.metric, summary.mode) == ("val/mrr", "max")
    assert [trial.state for trial in ranked] == ["complete", "complete", "diverged"]
    assert ranked[0].value > ranked[1].value
    assert ranked[-1].settings == {"optim.lr": "1e+30"}
    assert "NaN" in ranked[-1].reason or "finite" in ranked[-1].reason
    for trial in ranked[:2]:
        record = json.loads((place / trial.folder / "record.json").read_text())
        assert record["metrics"]["val/mrr"] == trial.value
        assert not any(name.startswith("test/") for name in record["metrics"])
        assert record["config"]["optim"]["lr"] == float(trial.settings["optim.lr"])
        assert (trial.seed, trial.commit) == (record["seed"], record["commit"])
    assert result.out.count(": 85 entities") == 1, "by the test; what trials say of their data is in their folders"
    assert "entities" in (place / ranked[0].folder / "output.log").read_text(encoding="utf-8")
    before, _, after = result.out.partition("┏")
    assert "test/" not in before
    assert after.count("test/mrr") == 2, "in the table of the test, and in the line on the best"
    test = json.loads((place / "test" / "record.json").read_text())
    assert test["config"]["checkpoint"].endswith(ranked[0].folder)
    assert summary.best["metrics"] == test["metrics"]
    assert result.out.splitlines()[-1] == f"record: {place}/test/record.json"


def test_the_files_have_the_ranking(searched):
    place, _ = searched
    with (place / "search.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    assert [row["state"] for row in rows] == ["complete", "complete", "diverged"]
    assert "| rank | trial | val/mrr | lr | epoch | seconds |" in (place / "search.md").read_text()
    assert "test/" not in (place / "search.md").read_text() + (place / "search.csv").read_text()


def test_the_command_over_seeds_trains_the_best_settings(searched):
    place, result = searched
    (line,) = [line for line in result.out.splitlines() if line.startswith("again over seeds: ")]
    best = search.read(place).ranked()[0]
    assert f"optim.lr={best.settings['optim.lr']}" in line
    assert line.endswith("seed=1,2,3")
    assert "sweep=" not in line
    assert "encoder=distmult" in line
    assert "--config-dir" not in line


@pytest.mark.long
def test_a_search_in_which_a_trial_failed_goes_on(tmp_path):
    words = ("encoder=rotate", "encoder.d=4,3", "optim.lr=0.1", "optim.max_grad_norm=null")
    for _ in range(2):
        result = start(tmp_path, *words)
        assert result.code == 1
        assert "jobs failed:" in result.err
        assert "encoder.d=3: RotatE: d counts real numbers" in result.err
        assert "error: " not in result.err
        assert folder_of(tmp_path).joinpath("test", "record.json").exists()


@pytest.mark.long
def test_only_what_is_missing_is_run_again(searched):
    """As after kill -9 in the middle of a trial, and with a trial more."""
    place, _ = searched
    before = {trial.number: trial for trial in search.read(place).trials}
    best = search.read(place).ranked()[0]
    lost = next(number for number, trial in before.items() if trial.state == "complete" and number != best.number)
    (place / before[lost].folder / "record.json").unlink()
    times = {file: file.stat().st_mtime_ns for file in place.glob("*/*.json")}
    result = start(place.parents[2], RATES, "optim.max_grad_norm=null", "trainer.progress_every_n_steps=3")
    assert result.code == 0, result.err
    assert "2 of 3 trials are there already" in result.out
    assert {file: file.stat().st_mtime_ns for file in times} == times, "no other trial, and no test, was run"
    after = {trial.number: trial for trial in search.read(place).trials}
    assert {n: t.value for n, t in after.items()} == {n: t.value for n, t in before.items()}, "deterministic"
    again = start(place.parents[2], RATES, "optim.max_grad_norm=null")
    assert again.code == 0, again.err
    assert "3 of 3 trials are there already" in again.out
    assert search.read(place).best["trial"] == best.number


@pytest.mark.long
def test_other_ranges_are_another_search(searched):
    place, _ = searched
    result = start(place.parents[2], "optim.lr=0.03,0.1", f"hydra.sweeper.folder={place}")
    assert result.code == 1
    assert f"{place} holds another search: it differs in space" in result.err


def test_records_of_trials_are_kept_apart(searched, capsys):
    place, _ = searched
    record = json.loads(next(place.glob("trial-*/record.json")).read_text())
    assert collect.reason_to_skip({**record, "experiment": "hnn_subtree"}).startswith("skipped (not tested")
    assert compare.main([str(folder) for folder in place.glob("trial-*")]) == 1
    assert "The trials of a search are ranked in its search.md" in capsys.readouterr().err


def test_the_best_trial_is_compared_by_its_test(searched, capsys):
    place, _ = searched
    best = search.read(place).best
    assert compare.main([str(place)]) == 0
    out, err = capsys.readouterr()
    assert f"{best['metrics']['test/mrr']:.4f}" in out
    assert "1 run left out without a test" in err, "the other trial"


@pytest.mark.parametrize("folder", ["{}/other/trial-9", "../other/trial-9", ".."])
def test_a_search_names_no_record_outside_of_its_folder(searched, tmp_path, capsys, folder):
    place, _ = searched
    shutil.copytree(place, tmp_path / "search")
    record = next(place.glob("trial-*/record.json"))
    shutil.copytree(record.parent, tmp_path / "other" / "trial-9")
    shutil.copy(record, tmp_path)
    summary = json.loads((tmp_path / "search" / search.SUMMARY).read_text())
    summary["best"]["folder"] = folder.format(tmp_path)
    (tmp_path / "search" / search.SUMMARY).write_text(json.dumps(summary))
    assert compare.main([str(tmp_path / "search")]) == 1
    out, err = capsys.readouterr()
    assert "test/record.json is of mode=test" in err
    assert not out


@pytest.mark.long
def test_ties_of_the_best_are_counted(tmp_path):
    result = start(tmp_path, "trainer.limit_train_batches=1", "optim.lr=1e-30,1e-29,1e-28")
    assert "; 3 trials have this value, of which it is the first" in result.out, result.err


@pytest.mark.long
def test_a_metric_that_is_to_be_small_ranks_the_other_way(tmp_path):
    words = ("optim.lr=0.01,0.03,0.1", "task.module.select=val/mean_rank", "task.module.select_mode=min")
    result = start(tmp_path, *words, "optim.max_grad_norm=null")
    assert result.code == 0, result.err
    values = [trial.value for trial in search.read(folder_of(tmp_path)).ranked()]
    assert values == sorted(values)
    assert values[0] < values[-1]
    assert "Ranked by val/mean_rank, the lower the better" in result.out


@pytest.mark.long
def test_a_search_whose_trials_cannot_run_ends_at_the_first(tmp_path):
    result = start(tmp_path, "optim.lr=0.1,0.2", "task.module.regulariser=-1")
    assert result.code == 1
    assert "task.module.regulariser" in result.err
    assert "No trial has a result" in result.err
    assert len(search.read(folder_of(tmp_path)).trials) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("hydra.sweeper.n_trials=0",), "hydra.sweeper.n_trials must be a whole number of at least 1"),
        (("hydra.sweeper.baseline=yes please",), "hydra.sweeper.baseline must be true or false, not yes please"),
        (("hydra.sweeper.timeout=-1",), "hydra.sweeper.timeout must be a positive number"),
        (("hydra.sweeper.sampler=grid",), "hydra.sweeper.sampler must be one of random, tpe"),
        (("hydra.sweeper.pruner=median",), "needs hydra.sweeper.sampler=tpe"),
        (("task.module.obejctive=bce,cross_entropy",), "There is no key task.module.obejctive"),
        (("optim.lrr=0.1,0.2",), "There is no key optim.lrr"),
        (("encoder=distmult,murpp",), "There is no encoder named murpp"),
        (("mode=test", "checkpoint=null"), "A search trains models: leave mode out"),
        (("seed=0,1",), "with one seed"),
        (("task=kg", "data.dir=/nowhere"), "There is no folder or file /nowhere"),
        (("task.data.toy.seed=0,1",), "task.data.toy.seed gives several"),
        (("task=nli_toy", "encoder=gru", "task.labels=2,3"), "task.labels gives several"),
        (("fidelity=paper,code",), "It may change what is measured; start a search for each"),
        (("task.module.ties=realistic,pessimistic",), "It may change what is measured; start a search for each"),
        (("trainer.limit_val_batches=0",), "trainer.limit_val_batches=0: trials are ranked by their validation"),
        (("optim.lr=tag(log,interval(0,1))",), "begins above 0"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(tmp_path, words, message):
    own = [word for word in SMALL if word.partition("=")[0] not in {w.partition("=")[0] for w in words}]
    result = call("-m", "sweep=lr", *own, *places(tmp_path), *words)
    assert result.code == 1
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert not list(tmp_path.glob("out/**/trial-*"))


def test_the_search_of_another_task_is_named(tmp_path):
    result = call("-m", "sweep=nli", "task=kg_completion_toy", "hydra.sweeper.n_trials=2", *places(tmp_path))
    assert result.code == 1
    assert "There is no key task.model.d_hidden" in result.err
    assert "Is sweep=nli, which draws it, for this task?" in result.err
    assert not list(tmp_path.glob("out/**/trial-*"))


@pytest.mark.long
def test_spaces_with_conditions_and_keys_that_go_together_begin(tmp_path):
    """Their keys do not compose alone: the word's settings of one encoder, and a row of two keys."""
    few = ("hydra.sweeper.n_trials=1", "trainer=quick", *QUIET)
    nli = call("-m", "sweep=nli", "task=nli_toy", "encoder=gru,gru_attention", "geometry=poincare", *few, *places(tmp_path / "nli"))
    assert nli.code == 0, nli.err
    (tmp_path / "configs/sweep").mkdir(parents=True)
    space = (ROOT / "configs/sweep/lr.yaml").read_text().partition("    params:")[0]
    space += "    params:\n      encoder, encoder.n_heads: [[transformer, 1], [transformer, 2]]\n"
    (tmp_path / "configs/sweep/mine.yaml").write_text(space)
    words = ("sweep=mine", "task=document_classification_toy", "geometry=lorentz", f"--config-dir={tmp_path / 'configs'}")
    own = call("-m", *words, *few, *places(tmp_path / "own"))
    assert own.code == 0, own.err


def test_a_space_without_a_file_is_not_said_to_be_one(tmp_path):
    words = ("hydra/sweeper=search", "+hydra.sweeper.params={optim.lrr: [0.1, 0.2]}", "hydra.sweeper.n_trials=2")
    result = call("-m", "task=prefix_toy", *words, *places(tmp_path))
    assert result.code == 1
    assert "There is no key optim.lrr" in result.err
    assert "sweep=" not in result.err


def test_word_vectors_may_differ_among_trials_that_are_ranked_on_the_same_data():
    first, other = ({"sha256": {"train": "a", "dev": "b", "vectors": v}} for v in ("c", "d"))
    assert sweeper._to_rank_by(first) == sweeper._to_rank_by(other) == {"dev": "b"}
    assert sweeper._to_rank_by({"sha256": {"train": "a"}}) == {"train": "a"}


def test_a_search_without_m(tmp_path):
    result = call("sweep=lr", *SMALL, *places(tmp_path))
    assert result.code == 1
    assert "sweep=lr is a search, which -m starts" in result.err


def test_two_searches_in_one_folder(searched):
    import fcntl

    place, _ = searched
    with (place / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = start(place.parents[2], RATES, "optim.max_grad_norm=null")
    assert result.code == 1
    assert f"Another process is at the search in {place}" in result.err


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("hydra.sweeper.sampler=tpe", "hydra.sweeper.startup=2", "hydra.sweeper.pruner=median")])
def test_a_search_that_was_killed_goes_on(tmp_path, words):
    """Two trials at once; kill -9 when some are at their end."""
    if words:
        pytest.importorskip("optuna")
    own = ["-m", "sweep=lr", *SMALL, *places(tmp_path), "hydra.sweeper.n_trials=8", "hydra/launcher=local",
           "hydra.launcher.n_jobs=2", *words]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, "run.py", *own], cwd=ROOT, env=environment, start_new_session=True) as process:
        until = time.monotonic() + 200
        while len(list(tmp_path.glob("out/search/*/trial-*/record.json"))) < 3 and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("out/search/*/trial-*/record.json")}
    assert 3 <= len(before) < 8
    done = command(*own)
    assert done.returncode == 0, done.stderr
    assert {file: file.stat().st_mtime_ns for file in before} == before
    summary = search.read(folder_of(tmp_path))
    assert [trial.number for trial in summary.trials] == list(range(8))
    assert {trial.state for trial in summary.trials} <= {"complete", "pruned"}


@pytest.mark.long
def test_no_settings_are_trained_twice(searched):
    place, _ = searched
    result = start(place.parents[2], RATES, "optim.max_grad_norm=null", "hydra.sweeper.n_trials=5")
    assert result.code == 0, result.err
    assert result.out.count("and is not trained") == 2, result.out
    assert len(search.read(place).trials) == 3


GRAPH = ["a r b", "b r c", "c r d", "d r a", "a s c", "b s d"]


@pytest.mark.long
def test_other_data_are_another_search(tmp_path):
    """In two folders of one name, and after a file was edited."""
    for k, name in enumerate(("one", "two")):
        folder = tmp_path / name / "g"
        folder.mkdir(parents=True)
        for split in ("train", "valid", "test"):
            lines = GRAPH[k:] if split == "train" else GRAPH[k : k + 1]
            (folder / f"{split}.txt").write_text("".join(line.replace(" ", "\t") + "\n" for line in lines))
    words = ("-m", "sweep=lr", "task=kg", "encoder=distmult", "encoder.d=4", "trainer.max_epochs=1", *QUIET,
             *places(tmp_path), "trainer.kernels=plain", "hydra.sweeper.n_trials=1")  # fmt: skip
    one, two = (tmp_path / name / "g" for name in ("one", "two"))
    links = tmp_path / "g"
    links.symlink_to(one)
    assert call(*words, f"data.dir={links}").code == 0
    again = call(*words, f"data.dir={links}")
    assert "1 of 1 trials are there already" in again.out, again.err
    links.unlink()
    links.symlink_to(two)
    other = call(*words, f"data.dir={links}")
    assert other.code == 0, other.err
    assert "are there already" not in other.out
    place = folder_of_latest(tmp_path)
    with (two / "train.txt").open("a") as file:
        file.write("a\tr\tc\n")
    edited = call(*words, f"data.dir={links}", f"hydra.sweeper.folder={place}")
    assert f"{place} holds another search: it differs in data" in edited.err


@pytest.mark.long
def test_an_edited_configuration_is_another_search(tmp_path):
    """Of the first trial, and of a file that only later ones choose."""
    group = tmp_path / "configs" / "encoder"
    group.mkdir(parents=True)
    text = (ROOT / "configs" / "encoder" / "distmult.yaml").read_text(encoding="utf-8")

    def edit(comment: str, **sizes: str) -> None:
        for name in ("first", "second"):
            own = text.replace("d: 32", f"d: {sizes.get(name, 4)}")
            (group / f"{name}.yaml").write_text(f"{own}\n# {comment}\n", encoding="utf-8")

    def again(*words: str):
        found = f"hydra.searchpath=[file://{tmp_path / 'configs'}]"
        own = [word for word in SMALL if not word.startswith("encoder=")]
        rest = (*places(tmp_path), "encoder=first,second", "optim.lr=0.1", "hydra.sweeper.n_trials=1", *words)
        return call("-m", "sweep=lr", found, *own, *rest)

    edit("as it was")
    assert again().code == 0
    place = folder_of_latest(tmp_path)
    edit("with another comment")
    assert "1 of 1 trials are there already" in again().out
    for name in ("first", "second"):
        edit("changed", **{name: "3"})
        result = again(f"hydra.sweeper.folder={place}")
        assert f"{place} holds another search: it differs in configuration. A file of configs/ was edited" in result.err
    result = again()
    assert result.code == 0, result.err
    assert "are there already" not in result.out


def folder_of_latest(folder: Path) -> Path:
    return max((folder / "out" / "search").iterdir(), key=lambda place: (place / search.SUMMARY).stat().st_mtime_ns)


@pytest.mark.long
def test_words_of_a_multirun_that_was_killed_are_no_hindrance(tmp_path, monkeypatch):
    """skip_finished and trainer.resume, which the test of the best trial cannot take; and the command as it is called."""
    monkeypatch.setenv("HYPERBOLIC_COMMAND", "hyperbolic")
    words = ("skip_finished=true", "trainer.resume=auto", "hydra.sweeper.n_trials=1", "optim.max_grad_norm=null")
    result = start(tmp_path, "optim.lr=0.03,0.1", *words)
    assert result.code == 0, result.err
    assert "again over seeds: hyperbolic sweep task=kg_completion_toy" in result.out
    assert search.read(folder_of(tmp_path)).best["trial"] == 0


@pytest.mark.long
def test_the_first_trial_is_the_task_as_it_is(tmp_path):
    result = start(tmp_path, "optim.lr=0.03,0.1", "hydra.sweeper.n_trials=2")
    assert result.code == 0, result.err
    trials = search.read(folder_of(tmp_path)).trials
    assert [list(trial.settings) for trial in trials] == [["optim.lr"], ["optim.max_grad_norm", "optim.lr"]]


@pytest.mark.long
def test_a_trial_with_other_settings_than_the_sampler_says(tmp_path):
    words = ("optim.lr=0.03,0.1", "optim.max_grad_norm=null", "hydra.sweeper.n_trials=1")
    assert start(tmp_path, *words).code == 0
    file = folder_of(tmp_path) / "trial-000" / "record.json"
    record = json.loads(file.read_text())
    record["overrides"] = ["optim.lr=7" if word.startswith("optim.lr=") else word for word in record["overrides"]]
    file.write_text(json.dumps(record))
    result = start(tmp_path, *words)
    assert result.code == 1
    assert "trial-000 was trained with optim.lr=7" in result.err


@pytest.mark.parametrize(
    ("launcher", "sampler", "timeout", "n_jobs", "batches"),
    [
        ({"_target_": "x.BasicLauncher"}, "random", None, None, (1, True)),
        ({"_target_": "x.JoblibLauncher", "n_jobs": 3}, "random", None, None, (3, False)),
        ({"_target_": "x.SlurmLauncher", "array_parallelism": 64}, "random", None, 2, (64, False)),
        ({"_target_": "x.SlurmLauncher", "array_parallelism": 64}, "random", 9.0, None, (64, True)),
        ({"_target_": "x.SlurmLauncher", "array_parallelism": 64}, "tpe", None, None, (5, True)),
        ({"_target_": "x.SlurmLauncher", "array_parallelism": 64}, "tpe", None, 8, (8, True)),
        ({"_target_": "x.RayLauncher"}, "random", None, None, (os.cpu_count(), False)),
    ],
)
def test_how_many_are_launched_together(launcher, sampler, timeout, n_jobs, batches):
    sweeper = SearchSweeper(20, sampler, 10, None, 0, timeout, n_jobs, None, {}, {}, False)
    sweeper.master = OmegaConf.create({"hydra": {"launcher": launcher}})
    assert sweeper.batches() == batches


@pytest.mark.long
@pytest.mark.parametrize("place", ["test", "trial-000"])
def test_files_of_something_else_in_the_folder_of_a_search_stay(tmp_path, place):
    (tmp_path / "mine" / place).mkdir(parents=True)
    (tmp_path / "mine" / place / "notes.txt").write_text("mine")
    result = start(tmp_path, f"hydra.sweeper.folder={tmp_path / 'mine'}", RATES, "optim.max_grad_norm=null")
    assert result.code == 1
    assert f"{place} is where a run of this search would be, and it holds files of something else" in result.err
    assert (tmp_path / "mine" / place / "notes.txt").read_text() == "mine"


def test_a_search_with_numbers_beyond_all_bounds_is_damaged(searched):
    folder, _ = searched
    values = json.loads((folder / "search.json").read_text())
    for key, value in (("value", 10**400), ("epoch", 10**400), ("folder", "\ud800")):
        file = folder.parent / f"{key}.json"
        file.write_text(json.dumps(values | {"trials": [values["trials"][0] | {key: value}]}))
        with pytest.raises(UserError, match="is damaged"):
            search.read(file)
        file.unlink()


@pytest.mark.long
def test_a_baseline_is_the_task_as_it_is(tmp_path):
    result = start(tmp_path, "optim.lr=0.03,0.1", "hydra.sweeper.baseline=true", "hydra.sweeper.n_trials=2", "trainer.max_epochs=1")
    assert result.code == 0, result.err
    place = folder_of(tmp_path)
    by_number = {trial.number: trial.settings for trial in search.read(place).trials}
    assert by_number[0] == {}
    assert by_number[1]["optim.lr"] in ("0.03", "0.1")
    record = json.loads((place / "trial-000" / "record.json").read_text())
    assert not [word for word in record["overrides"] if word.startswith("optim.lr")]
