"""run.py from the command line to the record: results, mistakes, resuming, several processes."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import run
from scripts import records
from tests.cli import QUIET, ROOT, Result, call, toy

SHORT = ("trainer.limit_train_batches=4", "task.data.sizes={train: 400, dev: 60, test: 60}", "task.data.batch_size=32")


def places(folder: Path) -> tuple[str, str]:
    return f"paths.data_dir={folder / 'data'}", f"paths.output_dir={folder / 'out'}"


def short(folder: Path, *words: str) -> Result:
    """Three epochs of four steps."""
    return toy(folder, *SHORT, "trainer.max_epochs=3", *words)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("finished")
    return folder, short(folder, "logger=csv", "seed=5")


def test_a_run_ends_with_its_record(finished):
    folder, result = finished
    assert result.code == 0, result.err
    assert "test/accuracy" in result.out
    home = result.record_path.parent
    assert home.parent == folder / "out" / "prefix_toy-poincare-gru"
    assert home.name.endswith("-seed5")
    names = {str(f.relative_to(home)) for f in home.rglob("*") if f.is_file() and ".hydra" not in f.parts}
    assert names >= {
        "record.json", "history.csv", "learning_curve.png", "log/metrics.csv", "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
    }  # fmt: skip
    assert not [n for n in names if "part" in n]
    assert (home / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_record_says_everything(finished):
    _, result = finished
    record = result.record
    records.validate(record, result.record_path)
    assert record["experiment"] is None
    assert record["seed"] == 5
    assert record["fidelity"] == "paper"
    assert record["data"]["share"] == pytest.approx(4 / 13)
    assert record["data"]["counts"]["test"] == {"pairs": 60, "positive": 30}
    assert record["parameters"] == sum(
        v.numel() for v in torch.load(result.record_path.parent / "checkpoints" / "best.ckpt")["state_dict"].values()
    )
    assert record["selection"]["metric"] == "val/accuracy"
    assert record["selection"]["value"] == record["metrics"]["val/accuracy"]
    assert {"test/accuracy", "test/loss", "val/loss", "train/loss"} <= set(record["metrics"])
    assert all(0 <= record["metrics"][f"{s}/accuracy"] <= 1 for s in ("train", "val", "test"))
    assert record["versions"]["torch"] == torch.__version__
    assert record["examples_per_s"] > 0
    assert record["peak_memory_bytes"] > 1e7
    assert str(finished[0]) not in json.dumps(record), "no path of this machine"
    assert any(name.startswith("diagnostics/sentences/") for name in record["diagnostics"])
    assert any(name.startswith("diagnostics/embedding.weight/") for name in record["diagnostics"])


def test_the_history_has_a_row_for_each_epoch(finished):
    _, result = finished
    with (result.record_path.parent / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [row["step"] for row in rows] == ["4", "8", "12"]
    assert all(float(row["val/accuracy"]) >= 0 and float(row["train/loss"]) > 0 for row in rows)
    best = max(rows, key=lambda row: float(row["val/accuracy"]))
    assert float(best["val/accuracy"]) == result.record["selection"]["value"]


def test_the_same_seed_gives_the_same_numbers(finished, tmp_path):
    _, result = finished
    again, other = short(tmp_path, "seed=5"), short(tmp_path, "seed=6")
    assert again.record["metrics"] == result.record["metrics"]
    assert again.record["data"]["sha256"] == result.record["data"]["sha256"] == other.record["data"]["sha256"]
    assert other.record["metrics"] != result.record["metrics"]


def test_a_checkpoint_is_tested(finished, tmp_path):
    _, result = finished
    best = result.record_path.parent / "checkpoints" / "best.ckpt"
    tested = short(tmp_path, "mode=test", f"checkpoint={best}", "seed=9")
    assert tested.code == 0, tested.err
    assert tested.record["metrics"]["test/accuracy"] == result.record["metrics"]["test/accuracy"]


def test_an_experiment_names_its_runs_and_carries_the_published_number(tmp_path):
    result = call(
        "experiment=hnn_prefix10_rnn_hyp", *QUIET, "task.data.sizes={train: 200, dev: 40, test: 40}",
        "task.data.batch_size=50", "trainer.max_epochs=1", *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    assert result.record["experiment"] == "hnn_prefix10_rnn_hyp"
    assert result.record["paper"]["published"] == pytest.approx(0.9691)
    assert "task.data.batch_size=50" in result.record["overrides"]
    assert not [w for w in result.record["overrides"] if w.startswith("paths.")]
    assert result.record_path.parent.parent.name == "hnn_prefix10_rnn_hyp"
    assert "published (fully hyperbolic RNN, PREFIX-10)" in result.out
    records.validate(result.record, result.record_path)


def test_a_multirun_makes_a_record_in_a_folder_of_its_own_for_each_job(tmp_path):
    result = call(
        "-m", "task=prefix_toy", "geometry=poincare,euclidean", "seed=0,1", *QUIET, "trainer.max_epochs=1",
        "trainer.limit_train_batches=1", "task.data.sizes={train: 100, dev: 20, test: 20}",
        *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    found = [json.loads(f.read_text()) for f in tmp_path.glob("out/*/*/record.json")]
    assert sorted((r["config"]["geometry"]["name"], r["seed"]) for r in found) == [
        ("euclidean", 0), ("euclidean", 1), ("poincare", 0), ("poincare", 1),
    ]  # fmt: skip
    assert result.out.count("record: ") == 4


def test_a_failed_job_fails_the_multirun_and_the_others_are_run(tmp_path):
    result = call(
        "-m", "task=prefix_toy", "task.data.batch_size=0,20", *QUIET, "trainer.max_epochs=1",
        "task.data.sizes={train: 20, dev: 20, test: 20}", *places(tmp_path),
    )  # fmt: skip
    assert result.code == 1
    assert "task.data.batch_size must be a whole number of at least 1" in result.err
    assert len(list(tmp_path.glob("out/*/*/record.json"))) == 1


def test_a_multirun_without_jobs_is_an_error(tmp_path):
    result = call("-m", "experiment=glob(nothing_*)", f"paths.output_dir={tmp_path}")
    assert result.code == 1
    assert "no name matches" in result.err


def test_steps_can_end_a_run_between_two_validations(tmp_path):
    result = toy(tmp_path, *SHORT, "trainer.max_steps=3", "trainer.max_epochs=null")
    assert result.code == 0, result.err
    assert result.record["selection"]["step"] == 3
    assert "val/accuracy" in result.record["metrics"]


def test_without_validation_the_last_state_is_tested(tmp_path):
    result = toy(tmp_path, *SHORT, "trainer.max_epochs=1", "trainer.limit_val_batches=0")
    assert result.code == 0, result.err
    assert result.record["selection"] is None
    assert "test/accuracy" in result.record["metrics"]


def test_training_stops_early(tmp_path):
    result = toy(tmp_path, *SHORT, "trainer.max_epochs=30", "trainer.patience=2", "optim.lr=0.0")
    assert result.code == 0, result.err
    with (result.record_path.parent / "history.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 3
    again = toy(
        tmp_path, *SHORT, "trainer.max_epochs=30", "trainer.patience=2", "optim.lr=0.0",
        f"trainer.resume={result.record_path.parent}",
    )  # fmt: skip
    assert again.code == 1
    assert "is finished (stopped early after 2 validations without a better one)" in again.err


def test_float64_is_a_setting(tmp_path):
    result = short(tmp_path, "trainer.precision=64-true", "optim=hnn", "trainer.max_epochs=1")
    assert result.code == 0, result.err
    state = torch.load(result.record_path.parent / "checkpoints" / "best.ckpt")["state_dict"]
    assert {v.dtype for v in state.values()} == {torch.float64}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("task=nothing", "There is no task named nothing"),
        ("geometry=nothing", "There is no geometry named nothing"),
        ("experiment=nothing", "There is no experiment named nothing"),
        ("nothing=1", "There is no key nothing"),
        ("optim.lr=fast", "optim.lr=fast"),
        ("geometry.parts.clasifier=euclidean", "sentence, ffnn, classifier"),
        ("geometry.parts.classifier=euclid", "geometry.parts.classifier"),
        ("geometry.c=0", "c must be a positive number"),
        ("geometry.c=-1", "c must be a positive number"),
        ("encoder.cell=lstm", "rnn, gru"),
        ("encoder.nonlinearity=cosine", "cosine"),
        ("task.data.batch_size=0", "task.data.batch_size must be a whole number of at least 1"),
        ("task.data.batch_size=1.5", "task.data.batch_size=1.5: a whole number is needed"),
        ("task.model.d_hidden=0", "task.model.d_hidden"),
        ("task.model.init_norm=-1.0", "task.model.init_norm"),
        ("optim.lr=-1", "lr must not be negative"),
        ("optim.rule=newton", "rule must be"),
        ("task.data.files.dev=nowhere.tsv", "There is no data file nowhere.tsv"),
        ("mode=test", "mode=test needs checkpoint="),
        ("mode=test checkpoint=nowhere", "there is no checkpoint nowhere"),
        ("trainer.resume=nowhere", "there is no checkpoint nowhere"),
        ("trainer.max_epochs=0", "trainer.max_epochs must be at least 1"),
        ("trainer.limit_train_batches=0", "trainer.limit_train_batches must be more than 0"),
        ("trainer.limit_test_batches=0", "trainer.limit_test_batches must be more than 0"),
        ("trainer.max_steps=0", "trainer.max_steps must be at least 1"),
        ("trainer.patience=0", "trainer.patience must be a whole number of at least 1"),
        ("trainer.precision=31", "Precision '31' is invalid"),
        ("trainer.accelerator=abacus", "abacus"),
        ("trainer.devices=0", "trainer:"),
        ("trainer.val_check_interval=1000", "trainer.val_check_interval"),
        ("task.module.select=val/f1", "val/accuracy, val/loss"),
        ("seed=-1", "seed must be a whole number of at least 0"),
    ],
)
def test_a_mistake_is_told_in_one_paragraph_and_leaves_nothing(tmp_path, words, said):
    result = toy(tmp_path, "task.data.sizes={train: 20, dev: 4, test: 4}", *words.split())
    assert result.code == 1
    assert said in result.err
    assert result.err.startswith("error: ")
    assert result.err.strip().count("\n") == 0, "one paragraph"
    assert "Traceback" not in result.err
    assert "record:" not in result.out
    assert [f for f in (tmp_path / "out").rglob("*") if f.is_file()] == []


@pytest.mark.parametrize("line", ["1 2\t1\t2", "1 99\t1\t1", "1 2\t1"])
def test_a_faulty_data_file_stops_the_run(tmp_path, line):
    (tmp_path / "dev.tsv").write_text(f"1 2\t1\t1\n{line}\n")
    result = toy(tmp_path, f"task.data.files.dev={tmp_path}/dev.tsv")
    assert result.code == 1
    assert "dev.tsv, line 2:" in result.err
    assert [f for f in (tmp_path / "out").rglob("*") if f.is_file()] == []


def test_an_output_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = call("task=prefix_toy", *QUIET, f"paths.output_dir={tmp_path}/file/out")
    assert result.code == 1
    assert f"{tmp_path}/file/out" in result.err
    assert "paths.output_dir=..." in result.err


def test_the_switch_shows_where_an_error_happened(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "told", ())  # what HYPERBOLIC_FULL_ERROR=1 makes of it
    with pytest.raises(ValueError, match="batch_size"):
        toy(tmp_path, "task.data.batch_size=0")


def test_a_checkpoint_of_another_task_is_refused(finished, tmp_path):
    _, result = finished
    best = result.record_path.parent / "checkpoints" / "best.ckpt"
    other = call("task=prefix10", *QUIET, "mode=test", f"checkpoint={best}", f"paths.output_dir={tmp_path}")
    assert other.code == 1
    assert "task.name='prefix_toy', not 'prefix10'" in other.err
    other = short(tmp_path, "mode=test", f"checkpoint={best}", "geometry=euclidean")
    assert other.code == 1
    assert "geometry.name='poincare', not 'euclidean'" in other.err


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "foreign"])
def test_a_damaged_checkpoint_is_refused(finished, tmp_path, damage):
    _, result = finished
    data = (result.record_path.parent / "checkpoints" / "last.ckpt").read_bytes()
    bad = tmp_path / "bad.ckpt"
    if damage == "foreign":
        torch.save({"weights": torch.zeros(2)}, bad)
    else:
        bad.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "text": b"no checkpoint"}[damage])
    for words in (("mode=test", f"checkpoint={bad}"), (f"trainer.resume={bad}",)):
        refused = short(tmp_path, "seed=5", *words)
        assert refused.code == 1
        assert "bad.ckpt is " in refused.err
        assert refused.err.strip().count("\n") == 0


def test_a_finished_run_is_not_resumed_unless_it_may_go_on(finished, tmp_path):
    _, result = finished
    home = result.record_path.parent
    again = short(tmp_path, "seed=5", f"trainer.resume={home}")
    assert again.code == 1
    assert "is finished (3 epochs of trainer.max_epochs=3)" in again.err
    assert "raise trainer.max_epochs" in again.err
    other = short(tmp_path, "seed=5", f"trainer.resume={home}", "optim.lr=0.02", "trainer.max_epochs=4")
    assert other.code == 1
    assert "optim.lr=0.01, not 0.02" in other.err
    weights = short(tmp_path, "seed=5", f"trainer.resume={home / 'checkpoints' / 'best.ckpt'}", "trainer.max_epochs=4")
    assert weights.code == 1
    assert "holds weights only" in weights.err
    longer = short(tmp_path, "seed=5", f"trainer.resume={home}", "trainer.max_epochs=4")
    assert longer.code == 0, longer.err
    whole = short(tmp_path, "seed=5", "trainer.max_epochs=4")
    assert same_end(whole, longer)


def test_resuming_starts_anew_where_no_run_has_the_same_settings(finished, tmp_path):
    folder, _ = finished
    result = short(folder, "trainer.resume=auto", "seed=77", "trainer.max_epochs=1")
    assert result.code == 0, result.err
    assert result.record["metrics"] == short(tmp_path, "seed=77", "trainer.max_epochs=1").record["metrics"]


def same_end(one: Result, other: Result) -> bool:
    """Whether two runs have the same weights, optimiser, metrics, selection and history, to the last bit."""
    ends = []
    for result in (one, other):
        assert result.code == 0, result.err
        folder = result.record_path.parent
        last = torch.load(folder / "checkpoints" / "last.ckpt")
        best = torch.load(folder / "checkpoints" / "best.ckpt")
        with (folder / "history.csv").open() as file:
            timeless = [
                {k: v for k, v in row.items() if k not in ("seconds", "examples_per_s")} for row in csv.DictReader(file)
            ]
        ends.append((last["state_dict"], last["optimizer_states"], best["state_dict"], timeless, result.record))
    (*states, rows, record), (*other_states, other_rows, other_record) = ends
    equal = all(_equal(a, b) for a, b in zip(states, other_states, strict=True))
    same = [record[k] == other_record[k] for k in ("metrics", "selection", "diagnostics")]
    return equal and rows == other_rows and all(same)


def _equal(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a == b


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Result:
    return short(tmp_path_factory.mktemp("uninterrupted"), *WHERE)


WHERE = ("trainer.val_check_interval=2", "task.data.shuffle=examples")


@pytest.mark.parametrize(("at", "by"), [(1, "SIGINT"), (2, "SIGINT"), (4, "SIGINT"), (7, "SIGINT"), (5, "SIGTERM")])
def test_an_interrupted_run_goes_on_exactly(tmp_path, monkeypatch, uninterrupted, at, by):
    """A signal in step `at`; epochs end after 4 steps, validations come after 2."""
    from tasks.prefix.task import PrefixTask

    steps = []
    plain = PrefixTask.training_step

    def interrupted(self, *arguments):
        steps.append(1)
        if len(steps) == at:
            os.kill(os.getpid(), getattr(signal, by))
        return plain(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(PrefixTask, "training_step", interrupted)
        broken = short(tmp_path, *WHERE)
    assert broken.code == 130
    assert "Interrupted at step" in broken.err
    assert "trainer.resume=" in broken.err
    assert len(steps) <= at + 2
    assert not list(tmp_path.rglob("record.json"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = short(tmp_path, *WHERE, "trainer.resume=auto")
    assert same_end(uninterrupted, resumed)


def test_a_killed_process_goes_on_exactly_from_its_last_checkpoint(tmp_path, uninterrupted):
    """SIGKILL, in a process of its own, some time after the first checkpoint within an epoch."""
    words = (
        "task=prefix_toy", *QUIET, *SHORT, *WHERE, "trainer.max_epochs=3", "trainer.checkpoint_every_n_steps=1",
        f"paths.data_dir={tmp_path}/data", f"paths.output_dir={tmp_path}/out",
    )  # fmt: skip
    slow = "import time, run; from tasks.prefix.task import PrefixTask as T; f = T.training_step\n"
    slow += "T.training_step = lambda s, b, i: (time.sleep(0.3 * (s.global_step >= 5)), f(s, b, i))[1]\nrun.main()"
    process = subprocess.Popen([sys.executable, "-c", slow, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while time.time() < deadline and process.poll() is None:
        last = next(iter(tmp_path.glob("out/*/*/checkpoints/last.ckpt")), None)
        if last is not None and torch.load(last)["global_step"] >= 5:
            break
        time.sleep(0.05)
    assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    resumed = short(tmp_path, *WHERE, "trainer.checkpoint_every_n_steps=1", "trainer.resume=auto")
    assert "resume" not in resumed.err
    assert same_end(uninterrupted, resumed)


def command(*words: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "run.py", *words], cwd=ROOT, capture_output=True, text=True, timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


def test_the_program_itself_reports_mistakes_by_its_exit_code():
    done = command("task=nothing")
    assert done.returncode == 1
    assert done.stderr.startswith("error: There is no task named nothing.")
    assert done.stderr.count("\n") == 1
    done = command("task=nothing", HYPERBOLIC_FULL_ERROR="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_the_program_prints_a_configuration():
    done = command("experiment=hnn_prefix50_gru_hyp_eucl_mlr", "--cfg", "job")
    assert done.returncode == 0, done.stderr
    assert re.search(r"parts:\n\s+classifier: euclidean", done.stdout)


@pytest.mark.slow
def test_two_processes_do_what_one_does(tmp_path):
    ends = []
    for devices in (1, 2):
        done = command(
            "task=prefix_toy", *QUIET, *SHORT, "trainer.max_epochs=2", "trainer.accelerator=cpu",
            f"trainer.devices={devices}", "task.data.sizes.test=54", "task.data.sizes.dev=58",
            "task.data.eval_batch_size=7",
            f"paths.data_dir={tmp_path}/d", f"paths.output_dir={tmp_path}/{devices}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("record: ") == 1
        path = Path(done.stdout.strip().splitlines()[-1].removeprefix("record: "))
        ends.append((json.loads(path.read_text()), torch.load(path.parent / "checkpoints" / "last.ckpt")["state_dict"]))
    (alone, weights), (shared, shared_weights) = ends
    assert shared["device"]["processes"] == 2
    for name in weights:
        torch.testing.assert_close(shared_weights[name], weights[name], rtol=1e-4, atol=1e-5)
    for name, value in alone["metrics"].items():
        assert shared["metrics"][name] == pytest.approx(value, rel=1e-4), name
    for split, count in (("test", 54), ("val", 58)):
        correct = shared["metrics"][f"{split}/accuracy"] * count
        assert correct == pytest.approx(round(correct), abs=1e-6), "every example counts once"
