"""Of a run of any task `figures.py all` draws the figures that it has."""

import pytest

from scripts import figures
from tests import cli
from tests.scripts.drawn import draw, error_of, left_out, train


@pytest.mark.long
def test_a_run_of_another_task_has_no_figures_of_types(tmp_path, capsys):
    done = cli.short(tmp_path, "trainer.max_epochs=1")
    run = done.record_path.parent
    assert draw(tmp_path / "drawn", "all", run) == 0
    assert {file.name.partition("-")[0] for file in (tmp_path / "drawn").iterdir()} == {"classes", "curves", "lengths"}
    capsys.readouterr()
    assert draw(tmp_path / "drawn", "boundaries", "factors", run) == 1
    assert "the task prefix_toy has no types" in capsys.readouterr().err
    assert draw(tmp_path / "drawn", "boundaries", run) == 1
    typing = train(tmp_path / "typing")
    assert draw(tmp_path / "both", "all", run, typing) == 0
    of_each = {"classes-prefix_toy", "lengths-prefix_toy", "attention-entity_typing_toy", "norms-entity_typing_toy"}
    drawn = {"-".join(file.name.split("-")[:2]) for file in (tmp_path / "both").iterdir()}
    assert of_each <= drawn
    assert not {*left_out(capsys.readouterr().err)} & {"classes", "lengths", "attention", "norms"}


@pytest.mark.long
def test_all_figures_of_a_hierarchy_are_those_that_it_has(tmp_path, capsys):
    """Its nodes have names, too, but no edges of a graph."""
    result = cli.call("task=poincare_embeddings_toy", "trainer.max_epochs=1", *cli.QUIET, *cli.places(tmp_path))
    assert draw(tmp_path / "drawn", "all", result.record_path.parent) == 0
    assert {file.name.partition("-")[0] for file in (tmp_path / "drawn").iterdir()} == {"tree", "curves"}
    assert "nodes" in left_out(capsys.readouterr().err)


# A toy task of each kind that no test above has, and the figures that it has.
KINDS = {
    "translation_toy": {"curves"},
    "kg_completion_toy": {"entities", "curves"},
    "graph_nc_toy": {"nodes", "classes", "curves"},
    "graph_toy": {"nodes", "curves"},
    "wordnet_subtree_toy": {"separation", "classes", "curves"},
    "document_classification_toy": {"classes", "curves"},
    "nli_toy": {"lengths", "classes", "curves"},
    "probing_toy": {"trees", "curves"},
    "poincare_glove_toy": {"curves"},
}


@pytest.mark.long
@pytest.mark.parametrize("task", KINDS)
def test_all_figures_of_a_run_of_any_kind_are_those_that_it_has(tmp_path, capsys, task):
    result = cli.call(f"task={task}", "trainer.max_steps=2", *cli.QUIET, *cli.places(tmp_path))
    assert result.code == 0, result.err
    capsys.readouterr()
    assert draw(tmp_path / "drawn", "all", result.record_path.parent) == 0
    assert {file.name.partition("-")[0] for file in (tmp_path / "drawn").iterdir()} == KINDS[task]
    assert left_out(capsys.readouterr().err) == [name for name in figures.FIGURES if name not in KINDS[task]]


@pytest.mark.long
def test_a_run_of_translation_has_no_attention_that_is_drawn(tmp_path, capsys):
    """Its data have texts, too, which are no pairs of premise and hypothesis."""
    result = cli.call(
        "task=translation_toy", "geometry=lorentz", "trainer.max_steps=2", *cli.QUIET, *cli.places(tmp_path)
    )
    assert result.code == 0, result.err
    assert draw(tmp_path / "drawn", "attention", result.record_path.parent) == 1
    assert "Translator has no attention by distances" in error_of(capsys)
