"""Words of the command line: plain values are typed as they are, whatever their letters."""

import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from configs.words import quoted, value_of, with_quotes, working_form
from tasks import errors
from tasks.resume import word
from tests.cli import QUIET, SHORT, call

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def read(written: str) -> object:
    return OverridesParser.create().parse_override(written).value()


@pytest.mark.parametrize(
    "value",
    ["Säugetier", "/tmp/Übung 1/edges.tsv", "it's", 'a "b" ü', "ü\\", 'ü\\"', "a=b", "a&b#c;d!", "日本/語", "x~y"],
)
def test_a_plain_value_is_what_was_typed(value):
    (typed,) = with_quotes([f"task.root={value}"])
    assert typed.startswith('task.root="')
    assert read(typed) == value
    assert with_quotes([typed]) == [typed], "another process of the run is started with it"


@pytest.mark.parametrize(
    "typed",
    [
        "seed=1,2", "task.root=ü,v", "task.data.sizes={ü: 9}", "a=[ü]", "a=glob(ü*)", "a=${ü}", "a='ü", 'a="ü"', "a=~/ü",
        "a=b c", "a=", "~a", "--config-name=ü", "-m", "ü", "ü=1", "a=x\nü", "a=\udcfc", "a='it\\'s'", "a=1e-2",
    ],
)  # fmt: skip
def test_other_words_stay_as_they_are(typed):
    assert with_quotes([typed]) == [typed]


def test_a_word_that_names_a_file_is_its_name(tmp_path):
    folder = tmp_path / "graph (1) [ü]"
    assert with_quotes([f"data.dir={folder}"]) == [f"data.dir={folder}"]
    folder.mkdir()
    assert read(*with_quotes([f"data.dir={folder}"])) == str(folder)
    several = tmp_path / "a,2"
    assert with_quotes([f"data.dir={several}"]) == [f"data.dir={tmp_path}/a,\"2\""]
    several.mkdir()
    assert read(*with_quotes([f"data.dir={several}"])) == str(several)


@pytest.mark.parametrize("name", ["2024_05_01", "1.10", "1e3", ".5", "+5", "true", "inf"])
def test_a_place_whose_name_looks_like_a_number_has_that_name(name):
    for key in ("data.dir", "paths.output_dir", "checkpoint", "input", "trainer.resume", "task.data.files.train"):
        (word,) = with_quotes([f"{key}={name}"])
        assert read(word) == name
        assert with_quotes([word]) == [word]
    (several,) = with_quotes([f"data.dir={name},2.50"])
    override = OverridesParser.create().parse_override(several)
    assert [part.text for part in override.value().list] == [name, "2.50"]
    others = [f"optim.lr={name}", "data.dir=null", r"data.dir=a\,2", "hydra.sweeper.n_trials=5"]
    assert with_quotes(others) == others


@given(TEXT)
def test_a_text_in_quotes_is_that_text(text):
    assert read(f"a={quoted(text)}") == text
    assert value_of(f"a={quoted(text)}") == text
    assert read(f"a={errors.quoted(text)}") == text, "in messages"


@given(TEXT)
def test_a_form_that_works_is_read(text):
    if (form := working_form(f"a={text}")) is not None:
        read(form)


@pytest.mark.parametrize(
    ("typed", "form"),
    [
        ("a=ü,v", 'a="ü",v'),
        ("a=/tmp/x (1)/ü", 'a="/tmp/x (1)/ü"'),
        ("a={x: ü.tsv, y: [b,é f]}", 'a={x: "ü.tsv", y: [b,"é f"]}'),
        ("a=~/ü", 'a="HOME/ü"'),
        ("ü=1", None),
        ("ü", None),
        ("a=\udcfc", None),
    ],
)
def test_the_form_in_which_a_word_can_be_read(typed, form, monkeypatch):
    monkeypatch.setenv("HOME", "HOME")
    assert working_form(typed) == form


@pytest.mark.parametrize(
    ("typed", "value"), [("a=b", "b"), ("a='it\\'s'", "it's"), ("a=null", "null"), ("a=1,2", "1,2"), ("a=x (1)", "x (1)")]
)
def test_the_value_of_a_word(typed, value):
    assert value_of(typed) == value


def test_a_word_that_cannot_be_read_is_told_in_the_form_that_can():
    result = call("task=prefix_toy", "task.data.files.dev=ü,v")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert result.err.endswith("cannot be read; write it as 'task.data.files.dev=\"ü\",v'.\n")
    other = call("task=prefix_toy", "täsk=1").err
    assert "settings have the form key=value" in other


def test_letters_of_every_language_are_typed_as_they_are():
    outcome = call("task=wordnet_subtree", "task.root=Säugetier", "--cfg", "job")
    assert outcome.code == 0, outcome.err
    assert "root: Säugetier\n" in outcome.out


@pytest.mark.long
@pytest.mark.parametrize("name", ["Übung 1", "graph (1), 'ü' \"x\\"])
def test_the_word_to_go_on_is_pasted_into_a_shell(tmp_path, name):
    """In a multirun, whose jobs are composed from what the first composition made of the words."""
    folder = tmp_path / name
    folder.mkdir()
    out = (*QUIET, *SHORT, f"paths.output_dir={folder}")
    trained = call("-m", "task=prefix_toy", *out, "trainer.max_epochs=1", "seed=3")
    assert trained.code == 0, trained.err
    (file,) = folder.rglob("last.ckpt")
    (pasted,) = shlex.split(word(file))
    again = call(pasted, *QUIET, f"paths.output_dir={folder}", "trainer.max_epochs=2")
    assert again.code == 0, again.err
    assert f"goes on from {file}: " in again.out
    tested = call("mode=test", f"checkpoint={file.parent.parent}", *QUIET, f"paths.output_dir={folder}")
    assert tested.code == 0, tested.err


def test_a_word_without_need_has_no_quotes():
    assert word(Path("/out/kg-lorentz/2026-seed0/last.ckpt")) == "trainer.resume=/out/kg-lorentz/2026-seed0/last.ckpt"
    assert word(Path("/out/Prüf graph/last.ckpt")) == "'trainer.resume=/out/Prüf graph/last.ckpt'"
