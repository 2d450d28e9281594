"""The wheel and the command `hyperbolic`: what is inside, and that it does in an empty folder what run.py does here."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest

from configs import own
from scripts import package
from scripts.package import console
from tasks.errors import UserError
from tests.cli import ROOT

FIRST = ["task=prefix_toy", "trainer.max_epochs=1", "trainer.enable_progress_bar=false"]


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["train", "task=umls"], ["task=umls"]),
        (["test", "checkpoint=RUN"], ["mode=test", "checkpoint=RUN"]),
        (["predict", "checkpoint=RUN", "mode=predict"], ["checkpoint=RUN", "mode=predict"]),
        (["train", "mode=predict", "checkpoint=RUN"], ["mode=predict", "checkpoint=RUN"]),
        (["sweep", "mode=test", "checkpoint=A,B"], ["-m", "mode=test", "checkpoint=A,B"]),
        (["sweep", "kg", "task=kg"], ["-m", "sweep=kg", "task=kg"]),
        (["sweep", "task=kg", "seed=0,1"], ["-m", "task=kg", "seed=0,1"]),
    ],
)
def test_a_command_is_run_py_with_more_words(words, given):
    assert console.words_of(words[0], words[1:]) == given


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "Did you mean train?"),
        (["predict", "mode=fit"], "the command says the mode"),
        (["sweep"], "name a search, or values"),
    ],
)
def test_a_command_that_is_none_is_refused(words, said, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("HYPERBOLIC_COMMAND", "")
    assert console.main(words) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def foreign(tmp_path, monkeypatch) -> Path:
    """The current folder is that of another program, whose configurations have names of ours."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "config.yaml").write_text("db: mysql\n")
    monkeypatch.chdir(tmp_path)
    for name in (own.VARIABLE, "HYPERBOLIC_COMMAND", "PYTHONPATH"):
        monkeypatch.setenv(name, "")  # is put back afterwards
    monkeypatch.delenv(own.VARIABLE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    return tmp_path / "configs"


def test_a_folder_configs_is_taken_with_a_word_and_a_named_one_without(foreign, capsys):
    assert own.choose_folder(["task=umls", "seed=1"], looks=True) == ["task=umls", "seed=1"]
    assert os.environ[own.VARIABLE] == str(foreign)
    assert f"those in {foreign} (--config-dir names another" in capsys.readouterr().err
    (foreign.parent / "mine").mkdir()
    with pytest.raises(UserError, match=r"--config-dir nowhere: there is no such folder"):
        own.choose_folder(["--config-dir", "nowhere"], looks=True)
    for words in (["--config-dir", "mine", "RUN"], ["RUN", "--config-dir=mine"]):
        assert own.choose_folder(words, looks=True) == ["RUN"]
        assert os.environ[own.VARIABLE] == str(foreign.parent / "mine")
    assert own.choose_folder(["-cd="], looks=True) == []
    assert os.environ[own.VARIABLE] == ""
    assert capsys.readouterr().err == ""


def test_a_foreign_folder_stops_only_what_builds_models(foreign, capsys):
    with pytest.raises(SystemExit):
        console.main(["compare", "nowhere"])
    assert "nowhere" in (message := capsys.readouterr().err)
    assert "config.yaml" not in message
    with pytest.raises(SystemExit) as end:
        console.main(["export", "nowhere", "--format", "npz"])
    assert end.value.code == 1
    assert "config.yaml has the name of one of this program's own files" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        console.main(["export", "nowhere", "--format", "npz", "--config-dir="])
    assert "There is no folder nowhere" in capsys.readouterr().err


def test_a_foreign_module_called_tasks_is_named(monkeypatch):
    foreign = types.ModuleType("tasks")
    foreign.__file__ = "/somewhere/tasks.py"
    monkeypatch.setitem(sys.modules, "tasks", foreign)
    with pytest.raises(ImportError, match=r"'tasks' is imported already, from /somewhere/tasks\.py"):
        package.use()


def test_messages_name_the_commands_that_the_user_has(monkeypatch):
    from tasks.errors import SCRIPTS, called

    assert tuple(console.SCRIPTS) == SCRIPTS
    text = "python run.py -m sweep=kg; python scripts/figures.py all RUN; python scripts/collect.py; pip install '.[sweep]'"
    assert called(text) == text
    monkeypatch.setenv("HYPERBOLIC_COMMAND", "hyperbolic")
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"hyperbolic-language": "1.2.3"}[name])
    assert called(text) == (
        "hyperbolic sweep kg; hyperbolic figures all RUN; python scripts/collect.py; "
        "pip install 'hyperbolic_language-1.2.3-py3-none-any.whl[sweep]'"
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from the files that git knows or would take, so that no earlier build is in it."""
    folder = tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(lambda name: (ROOT / name).is_file(), listed.stdout.splitlines()):
        (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "src" / name).write_bytes((ROOT / name).read_bytes())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(folder / "src"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def environment(wheel: Path, folder: Path, roots: list[str]) -> Path:
    """A virtual environment with the wheel, and of this one only these distributions and what they need."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    names, todo = set(), [*roots]
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if name in names:
            continue
        names.add(name)
        requirements = [each for each in distribution.requires or [] if "extra ==" not in each]
        todo += [re.split(r"[^\w.-]", each)[0] for each in requirements]
        for top in {file.parts[0] for file in distribution.files or [] if not file.parts[0].startswith("..")}:
            source = Path(str(distribution.locate_file(top)))
            if source.exists() and not (site / top).exists() and top != "__pycache__":
                (site / top).symlink_to(source)
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "bin" / "python"),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    return folder / "bin"


def run(program: Path, *words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess:
    """A program in an empty folder, with nothing of this checkout in its environment."""
    mine = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "HYPERBOLIC_DATA")}
    env = {**mine, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run([str(program), *words], cwd=folder, capture_output=True, text=True, timeout=300, env=env)


@pytest.mark.long
def test_the_wheel_has_two_packages_and_all_their_files(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info" not in name}
    assert {name.split("/")[0] for name in names} == {"hyperbolic", "hyperbolic_language"}
    inside = {name.removeprefix("hyperbolic_language/") for name in names}
    for top in ("configs", "hyperbolic", "tasks", "scripts"):
        for source in (ROOT / top).rglob("*"):
            name = source.relative_to(ROOT).as_posix()
            if source.suffix in (".py", ".yaml", ".cpp", ".h", ".json") and not name.startswith("scripts/package"):
                assert name in inside or name in names, f"{name} is not in the wheel"
    for kind in ("published/*.yaml", "tuning/*.csv"):
        assert {file.relative_to(ROOT).as_posix() for file in (ROOT / "results").glob(kind)} <= inside
    assert "run.py" in inside
    assert "hyperbolic/py.typed" in names


@pytest.mark.slow
def test_the_library_stands_alone(wheel, tmp_path):
    programs = environment(wheel, tmp_path / "venv", ["torch", "geoopt"])
    code = """
import importlib.util, torch, hyperbolic
from hyperbolic.manifolds import Lorentz
assert not any(importlib.util.find_spec(name) for name in ("hydra", "pytorch_lightning", "tasks", "configs", "scripts", "run"))
from hyperbolic import native
assert native.library("lorentz") is not None
space = Lorentz(); x = space.random(4, 3)
print(float(space.dist(x, x).abs().max()) < 1e-3)
"""
    result = run(programs / "python", "-c", code, folder=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert result.stdout == "True\n", result.stderr
    assert list((tmp_path / "cache").rglob("lorentz-*.so")), "the C++ sources are in the wheel"
    refused = run(programs / "hyperbolic", "train", "task=prefix_toy", folder=tmp_path)
    assert refused.returncode == 2
    assert re.search(r"pip install 'hyperbolic_language-[\d.]+-py3-none-any\.whl\[train\]'", refused.stderr)


@pytest.mark.slow
def test_the_command_does_what_run_py_and_the_scripts_do(wheel, tmp_path):
    from tests.test_imports import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    train = [re.split(r"[^\w.-]", each)[0] for each in extras["train"]]
    programs = environment(wheel, tmp_path / "venv", ["torch", "geoopt", *train])
    hyperbolic, folder = programs / "hyperbolic", tmp_path / "empty"
    (folder / "configs" / "encoder").mkdir(parents=True)
    gru = (ROOT / "configs" / "encoder" / "gru.yaml").read_text(encoding="utf-8")
    (folder / "configs" / "encoder" / "mine.yaml").write_text(gru.replace("hyperbolic.encoders.rnn", "my_encoder"))
    (folder / "my_encoder.py").write_text("from hyperbolic.encoders.rnn import RecurrentEncoder")

    two = run(hyperbolic, "train", *FIRST, "encoder=mine", "trainer=ddp", "trainer.devices=2", folder=folder)
    assert two.returncode == 0, two.stderr
    record = Path(two.stdout.splitlines()[-1].removeprefix("record: "))
    assert json.loads(record.read_text())["device"]["processes"] == 2
    assert record.is_relative_to(folder / "outputs")
    trained = str(record.parent)
    (folder / "pairs.tsv").write_text("1 2 3\t1 2\n4 5 6\t7\n")

    for words in (
        ["test", f"checkpoint={trained}", "trainer.enable_progress_bar=false"],
        ["predict", f"checkpoint={trained}", "input=pairs.tsv", "output=pairs.jsonl"],
        ["train", "mode=predict", f"checkpoint={trained}", "input=pairs.tsv", "output=again.jsonl"],
        ["sweep", *FIRST, "seed=0,1", "task.data.sizes={train: 200, dev: 50, test: 50}"],
        ["figures", "curves", trained],
        ["export", trained, "--format", "folder", "--out", "my_model"],
        ["predict", "checkpoint=my_model", "input=pairs.tsv", "output=exported.jsonl"],
        ["compare", "outputs"],
    ):
        done = run(hyperbolic, *words, folder=folder)
        assert done.returncode == 0, f"{words}: {done.stderr}"
    predictions = (folder / "pairs.jsonl").read_text()
    assert len(predictions.splitlines()) == 2
    assert "label" in json.loads(predictions.splitlines()[0])
    assert predictions == (folder / "again.jsonl").read_text() == (folder / "exported.jsonl").read_text()
    code = "from hyperbolic_language import load; print(sorted(load('my_model').points))"
    assert run(programs / "python", "-c", code, folder=folder).stdout == "['classes', 'words']\n"

    (folder / "configs" / "task").mkdir()
    (folder / "configs" / "task" / "kg.yaml").write_text("name: kg\n")
    shadow = run(hyperbolic, "train", *FIRST, folder=folder)
    assert shadow.returncode == 1
    assert "has the name of one of this program's own files" in shadow.stderr
