"""Messages of mistakes."""

import os
import re
import subprocess
import sys

import pytest
from omegaconf.errors import InterpolationKeyError

from configs import composing
from configs.build import make_data
from configs.errors import ConfigError, paragraph
from tasks.errors import LONGEST, UserError, ends_with_its_reader, readable
from tests.cli import ROOT
from tests.configurations import checked

GENERATED = (  # all tasks whose recipe is a node of numbers
    "kg_completion_toy", "graph_toy", "graph_nc_toy", "probing_toy", "wordnet_subtree_toy", "poincare_embeddings_toy",
    "nli_toy", "document_classification_toy", "poincare_glove_toy",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain é", "plain é"),
        ("two\nlines\u2028more", "two lines more"),
        ("\x1b[31mred\0\ufeff\u202e", r"\x1b[31mred\x00\ufeff\u202e"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_what_a_terminal_would_act_on_is_escaped(text, line):
    for kind in (UserError, ConfigError):
        assert str(kind(text)) == line
        assert paragraph(kind(text)) == line


@pytest.mark.parametrize("letter", ["a", "\x1b", "\U000e0001"])
def test_a_message_has_an_end_and_keeps_its_remedy(letter):
    text = readable("file.txt, line 3: " + letter * 3_000_000 + ". Correct the line.")
    assert len(text) <= LONGEST
    assert text.startswith("file.txt, line 3: ")
    assert text.endswith("Correct the line.")


@pytest.mark.parametrize("task", GENERATED)
def test_a_recipe_of_generated_data_has_its_own_keys_and_whole_numbers(task):
    """A key more or less ended in a traceback; keys and values of poincare_glove's are the name of a file."""
    composing.register()
    values = checked(f"task={task}")
    recipe = values["task"]["data"]["toy"]
    key = next(key for key in ("seed", "depth") if key in recipe)
    for changed, said in (
        (recipe | {"/../x": 1}, "task.data.toy./../x is none of its keys"),
        ({name: value for name, value in recipe.items() if name != key}, f"task.data.toy.{key} is missing"),
        (recipe | {key: -1}, f"task.data.toy.{key} must be a whole number of at least "),
        (recipe | {key: 2**70}, f"task.data.toy.{key} must be below 2^32"),
    ):
        values["task"]["data"]["toy"] = changed
        with pytest.raises(UserError, match=re.escape(said)):
            make_data(values)


@pytest.mark.parametrize("words", [("run.py", "--help"), pytest.param(("scripts/figures.py", "--list"), marks=pytest.mark.long)])
def test_a_program_whose_reader_has_ended_says_nothing(words):
    """The other end of its standard output is closed before it writes, as by `head`."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run([sys.executable, *words], cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_another_pipe_that_is_broken_is_no_end_of_the_reader():
    with pytest.raises(BrokenPipeError, match="a worker"), ends_with_its_reader():
        raise BrokenPipeError("to a worker")


@pytest.mark.parametrize(
    ("key", "remedy"), [("geometry.layers", "; the file of geometry=... needs a line `layers: ...`"), ("paths.nope", ""), ("x", "")]
)
def test_a_value_that_is_taken_from_nowhere_is_named(key, remedy):
    error = InterpolationKeyError(f"Interpolation key '{key}' not found\n    full_key: task.model.activation")
    assert paragraph(error) == f"task.model.activation takes its value from {key}, which is not there{remedy}."
