"""A user's own folder of configurations, and --help, which shows it."""

import contextlib
import importlib
import io
import os
import subprocess
import sys

import pytest
from hydra.core.singleton import Singleton

from configs import composing, overview, own
from configs.build import restore
from scripts import export
from tasks.errors import UserError
from tests.cli import QUIET, ROOT, SHORT, call, places, short
from tests.configurations import CONFIGS, EXPERIMENTS, checked


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    composing.register()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(own.VARIABLE, str(tmp_path / "configs"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "configs" / "encoder").mkdir(parents=True)
    return tmp_path / "configs"


def test_a_file_of_the_user_s_is_a_choice_with_a_class_beside_the_folder(folder):
    (folder.parent / "own_encoder.py").write_text("from hyperbolic.encoders.rnn import RecurrentEncoder")
    gru = (CONFIGS / "encoder" / "gru.yaml").read_text(encoding="utf-8")
    (folder / "encoder" / "mine.yaml").write_text(gru.replace("hyperbolic.encoders.rnn", "own_encoder"))
    assert own.choose(["encoder=mine"]) == ["encoder=mine"]
    assert checked("task=prefix_toy", "encoder=mine")["encoder"]["_target_"] == "own_encoder.RecurrentEncoder"
    assert "mine" in overview.names("encoder")


def test_files_of_the_user_s_are_choices_after_a_job_in_the_process_of_joblib_s_launcher(folder, monkeypatch):
    gru = (CONFIGS / "encoder" / "gru.yaml").read_text(encoding="utf-8")
    (folder / "encoder" / "mine.yaml").write_text(gru)
    monkeypatch.setattr(Singleton, "_instances", Singleton._instances)
    Singleton.set_state(Singleton.get_state())  # as that launcher does
    assert checked("task=prefix_toy", "encoder=mine")["encoder"]["_target_"].startswith("hyperbolic")


def test_the_word_on_the_command_line_names_the_folder(folder, monkeypatch):
    monkeypatch.delenv(own.VARIABLE)
    assert own.choose(["task=umls", "--config-dir", str(folder), "seed=1"]) == ["task=umls", "seed=1"]
    assert own.folder() == folder
    with pytest.raises(UserError, match="--config-dir nowhere: there is no such folder"):
        own.choose(["--config-dir=nowhere"])


def test_a_file_that_is_no_yaml_is_named_with_its_line(folder):
    (folder / "encoder" / "mine.yaml").write_text("_target_: a.B\nsizes: [1\nother: 2\n")
    with pytest.raises(UserError, match=r"mine\.yaml, line 3: it is no YAML \(expected ',' or '\]', but got ':'\)"):
        own.choose([])
    (folder / "encoder" / "mine.yaml").write_bytes(b"cell: \xfc\n")
    with pytest.raises(UserError, match=r"mine\.yaml cannot be read .* UTF-8"):
        own.choose([])


def test_an_encoder_needs_to_be_made_by_the_model(folder):
    gru = (CONFIGS / "encoder" / "gru.yaml").read_text(encoding="utf-8")
    (folder / "encoder" / "mine.yaml").write_text(gru.replace("_partial_: true", ""))
    with pytest.raises(UserError, match=r"its file needs the line `_partial_: true`"):
        checked("task=prefix_toy", "encoder=mine")


def test_printed_commands_name_the_folder(folder, monkeypatch):
    monkeypatch.chdir(folder.parent.parent)
    place = folder.relative_to(folder.parent.parent)
    assert own.with_folder("failed: python run.py task=mine") == f"failed: python run.py --config-dir {place} task=mine"
    assert own.with_folder("python run.py -m a=1") == f"python run.py -m --config-dir {place} a=1"
    monkeypatch.chdir(folder.parent)
    assert own.with_folder("python run.py a=1") == "python run.py a=1", "./configs is found without"


def test_a_folder_configs_where_the_run_is_started_is_taken(folder, monkeypatch):
    monkeypatch.delenv(own.VARIABLE)
    monkeypatch.chdir(folder.parent)
    assert own.choose(["task=umls"], looks=True) == ["task=umls"]
    assert own.folder() == folder
    monkeypatch.delenv(own.VARIABLE)
    monkeypatch.chdir(ROOT)
    own.choose(["task=umls"], looks=True)
    assert own.folder() is None, "that is this checkout's own"


def test_a_file_with_the_name_of_ours_is_refused_unless_it_says_that_it_replaces_it(folder):
    file = folder / "encoder" / "gru.yaml"
    file.write_text((CONFIGS / "encoder" / "gru.yaml").read_text(encoding="utf-8"))
    own.choose([])  # a copy changes nothing
    text = file.read_text(encoding="utf-8").replace("cell: gru", "cell: rnn")
    file.write_text(text)
    with pytest.raises(UserError, match=r"gru\.yaml has the name of .* what encoder=gru means.*as encoder/my_gru\.yaml"):
        own.choose([])
    file.write_text(f"# replaces ours: a simpler cell\n{text}")
    own.choose([])
    assert checked("task=prefix_toy", "encoder=gru")["encoder"]["cell"] == "rnn"


def test_help_has_tasks_before_experiments_and_experiments_by_paper():
    text = overview.text()
    parts = ["Tasks (task=NAME)", "Choices", "Settings", "Experiments", "Examples"]
    assert sorted(parts, key=text.index) == parts
    assert all(f"  {name} " in text for name in overview.names("task"))
    experiments = text[text.index("Experiments") :]
    assert all(name in experiments for name in EXPERIMENTS)
    assert experiments.count("Ganea, Bécigneul and Hofmann") == 1
    assert "  optim " in text
    assert "probe.checkpoint" in text
    assert max(map(len, text.splitlines())) <= 130


def test_help_and_settings_need_neither_torch_nor_lightning():
    """So they are there at once: the imports take seconds."""
    code = """
import sys
sys.argv = ["run.py", *sys.argv[1:]]
from configs import overview
assert overview.answer(sys.argv[1:])
assert not {"torch", "pytorch_lightning", "hyperbolic"} & set(sys.modules)
"""
    for words in (["--help"], ["task=umls", "encoder=roth", "--cfg", "job"]):
        run = [sys.executable, "-c", code, *words]
        done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
        assert done.returncode == 0, done.stderr
        assert "umls" in done.stdout


def test_a_typo_in_what_is_only_printed_is_an_error():
    done = call("encoder=hybonett", "--cfg", "job")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: There is no encoder named hybonett. Did you mean hybonet")


def test_a_typo_in_the_defaults_of_a_file_of_your_own_is_named(tmp_path):
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "mine.yaml").write_text("defaults: [grru]\n", encoding="utf-8")
    done = call(f"hydra.searchpath=[file://{tmp_path}]", "task=prefix_toy", "encoder=mine")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "encoder/mine.yaml: its list of defaults has grru" in done.err
    assert "Did you mean gru" in done.err


def test_a_mistyped_experiment_gets_three_names_and_not_all():
    message = call("experiment=hnn_prefix10_gru_hyperbolic").err
    names = [name for name in EXPERIMENTS if f" {name}" in message]
    assert "hnn_prefix10_gru_hyp" in names
    assert len(names) <= 3


def test_a_setting_without_a_meaning_is_refused(tmp_path):
    result = call("task=nli", f"data.dir={tmp_path}", "task.labels=2", f"paths.output_dir={tmp_path}")
    assert result.code == 1
    assert "task.labels=2 means nothing for task=nli" in result.err
    assert checked("task=snli", "task.labels=3")["task"]["data"]["classes"].keys() == {"entailment", "neutral", "contradiction"}


def test_files_of_other_programs_in_the_folder_are_not_looked_at(folder):
    (folder / "app").mkdir()
    (folder / "app" / "t.yaml").write_text("{{ name }}: {% if x %}\n---\na: 1\n---\nb: 2\n")
    (folder / "app" / "latin.yaml").write_bytes(b"name: \xe9\n")
    (folder / "app" / "folder.yaml").mkdir()
    (folder / "app" / "gone.yaml").symlink_to("nowhere")
    own.choose([])
    assert call("task=prefix_toy", "--cfg", "job").code == 0
    assert checked("task=prefix_toy")["task"]["name"] == "prefix_toy"


def test_a_folder_is_named_in_python(folder, monkeypatch):
    """As `restore(..., config_dir=...)` does; modules beside it can be imported."""
    monkeypatch.delenv(own.VARIABLE)
    own.use(folder)
    assert own.folder() == folder
    assert str(folder.parent) in sys.path
    with pytest.raises(UserError, match="config_dir=nowhere: there is no such folder"):
        restore(folder, "x", config_dir="nowhere")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("import torhc\n", r"there is no module torhc|own_broken\.py, line 1: ModuleNotFoundError: No module named 'torhc'"),
        ("class Bag\n", r"expected ':' \(own_broken\.py, line 1\)"),
        ("x = 1\ny = x / 0\n", r"own_broken\.py, line 2: ZeroDivisionError: division by zero"),
        ("class Other: pass\n", "own_broken has no Bag"),
        (None, "there is no module own_broken"),
    ],
)
def test_an_own_class_that_cannot_be_used_is_named_with_the_reason(folder, module, message, caplog):
    sys.modules.pop("own_broken", None)
    if module is not None:
        (folder.parent / "own_broken.py").write_text(module)
    importlib.invalidate_caches()
    (folder / "encoder" / "mine.yaml").write_text("_target_: own_broken.Bag\n_partial_: true\n")
    own.choose(["encoder=mine"])
    with pytest.raises(UserError, match=rf"encoder\._target_=own_broken\.Bag cannot be used: ({message})\.$"):
        checked("task=prefix_toy", "encoder=mine")
    assert not caplog.records


def test_modules_beside_the_folder_are_versions_of_the_code(folder, monkeypatch, capsys):
    """Not those of installed packages below it, nor what was edited after it was imported."""
    installed = folder.parent / "lib" / "site-packages"
    installed.mkdir(parents=True)
    for place, name in ((folder.parent, "own_hashed"), (installed, "own_installed")):
        (place / f"{name}.py").write_text("")
        monkeypatch.syspath_prepend(str(place))
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    versions = own.modules()
    assert versions.keys() == {"own_hashed.py"}
    (folder.parent / "own_hashed.py").write_text("edited = True\n")
    assert own.modules() == versions
    own.note_changes({"code": [{"versions": versions}]})
    own.note_changes({"code": [{"versions": None}]})
    own.note_changes({})
    assert capsys.readouterr().err == ""
    own.note_changes({"code": [{"versions": {"own_hashed.py": "sha256 0"}}]})
    assert "note: own_hashed.py is another file ('sha256 e3b0c44298fc') than" in capsys.readouterr().err


@pytest.mark.long
def test_another_version_of_an_own_class_is_noted(folder, tmp_path, monkeypatch):
    """In the record, by a test and predictions of the model, in a search whose trials had both, and where runs are
    compared; the commit of this project is that of both."""
    module = folder.parent / "own_versions.py"
    module.write_text("from hyperbolic.encoders.rnn import RecurrentEncoder\n")
    gru = (CONFIGS / "encoder" / "gru.yaml").read_text(encoding="utf-8")
    (folder / "encoder" / "mine.yaml").write_text(gru.replace("hyperbolic.encoders.rnn", "own_versions"))
    run = short(tmp_path, "encoder=mine")
    assert run.code == 0, run.err
    first = run.record["versions"]["own_versions.py"]
    assert first.startswith("sha256 ")
    tests = ("mode=test", f"checkpoint={run.record_path.parent}", *QUIET, *places(tmp_path))
    assert "another file" not in call(*tests).err
    search = ("-m", "sweep=lr", "task=prefix_toy", "encoder=mine", "trainer.max_epochs=1", *QUIET, *SHORT, *places(tmp_path))
    assert call(*search, "hydra.sweeper.n_trials=1").code == 0
    module.write_text("from hyperbolic.encoders.rnn import RecurrentEncoder\n\nedited = True\n")
    own._version.cache_clear()  # as in the process of another command
    monkeypatch.delitem(sys.modules, "own_versions")
    tested = call(*tests)
    second = tested.record["versions"]["own_versions.py"]
    note = f"note: own_versions.py is another file ({second!r}) than the one this checkpoint was trained with ({first!r})"
    assert second != first
    assert note in tested.err
    exported = tmp_path / "exported"
    assert export.main([str(run.record_path.parent), "--format", "folder", "--out", str(exported)]) == 0
    for place in (run.record_path.parent, exported):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            restore(place, "run", folder)
        assert note in err.getvalue()
    more = call(*search, "hydra.sweeper.n_trials=2")
    assert f"The trials are of several versions of own_versions.py {', '.join(sorted([first, second]))}" in more.out


def test_a_setting_that_an_own_class_does_not_take_names_the_class(folder):
    (folder.parent / "own_reader.py").write_text("class Reader:\n    def __init__(self, geometry, d_in): pass\n")
    (folder / "encoder" / "mine.yaml").write_text("_target_: own_reader.Reader\n_partial_: true\ntwice: 1\n")
    own.choose(["encoder=mine"])
    with pytest.raises(UserError, match=r"There is no key encoder\.twice\. .*Reader takes no other"):
        checked("task=prefix_toy", "encoder=mine")


@pytest.mark.parametrize("word", ["encoder=transformer", "encoder.cell=rnn"])
def test_an_encoder_for_a_model_that_takes_none_is_refused(word, tmp_path):
    """It was left out without a word, so that a sweep over encoders compared a model with itself."""
    result = call("task=poincare_embeddings_toy", word, f"paths.output_dir={tmp_path}")
    assert result.code == 1
    assert f"{word}: tasks.poincare_embeddings.model.NodeEmbeddings takes no encoder; leave it out." in result.err
