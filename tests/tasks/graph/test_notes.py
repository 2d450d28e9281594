"""What is said of a graph's files, and when."""

from tests.cli import call
from tests.tasks.graph.test_mistakes import NUMBERS, start, tree, write


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
