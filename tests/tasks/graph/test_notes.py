"""What is said of a graph's files, and when."""

import warnings

import pytest

from tests.cli import call
from tests.tasks.graph.test_mistakes import LABELS, NUMBERS, start, tree, write


@pytest.mark.long
def test_what_was_left_out_is_said_once_in_training_and_not_in_predictions(tmp_path):
    write(tmp_path / "mine", edges=tree(40, "0\t1\n"), features=NUMBERS)
    note = "38 edges have no reverse; all are taken in both directions."
    result = start(tmp_path, "graph", f"data.dir={tmp_path}/mine")
    assert result.code == 0, result.err
    assert result.out.count(note) == 1
    [record] = (tmp_path / "out").rglob("record.json")
    (tmp_path / "pairs.tsv").write_text("0\t5\n", encoding="utf-8")
    words = (f"checkpoint={record.parent}", f"input={tmp_path / 'pairs.tsv'}", f"paths.output_dir={tmp_path}/out")
    result = call("mode=predict", *words)
    assert result.code == 0, result.err
    assert "mine: 40 nodes" not in result.out + result.err, "the graph is in the checkpoint"
    assert note not in result.out + result.err


@pytest.mark.long
def test_a_header_is_warned_of_in_every_run_and_once(tmp_path):
    """Also where the graph comes from the cache; training nodes are counted beside those of the graph."""
    write(tmp_path / "mine", edges="page\tcites\n" + tree(40), labels="site\tfield\n" + LABELS)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = start(tmp_path, "graph_nc", f"data.dir={tmp_path}/mine", "task.data.split_seed=1")
        assert result.code == 0, result.err
        said = [str(each.message) for each in caught if "If it is a header, remove it" in str(each.message)]
        assert len(said) == 2
        assert "edges.tsv: the names of the first row, 'page' and 'cites', are in no other." in said[0]
        assert "labels.tsv: the names of the first row, 'site' and 'field', are in no other." in said[1]
    counts = result.record["data"]["counts"]
    labelled = 40 + 1  # the header
    assert counts["train"]["training_nodes"] == labelled - counts["dev"]["nodes"] - counts["test"]["nodes"]
    assert counts["train"]["nodes"] == 43
    assert f"train: {counts['train']['training_nodes']} training nodes, 43 nodes, " in result.out


def test_class_weights_are_advised_where_a_rare_class_is_never_predicted(tmp_path):
    labels = "".join(f"{k}\t{'rare' if k % 8 == 0 else 'often'}\n" for k in range(80))
    write(tmp_path / "mine", edges=tree(80), labels=labels, features="".join(f"{k}\t1\n" for k in range(80)))
    words = ("task.data.shares={dev: 0.2, test: 0.2}", "task.data.passes=20", "trainer.max_epochs=2", "encoder=gcn", "optim.lr=0.1")
    result = start(tmp_path, "graph_nc", f"data.dir={tmp_path}/mine", *words)
    assert result.code == 0, result.err
    assert "note: never predicted in the test: rare (2 of 16). Try task.module.class_weights=balanced" in result.out
