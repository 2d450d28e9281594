"""What mode=predict is asked about: lines, objects of JSON, and tables as those of edges."""

import json

import pytest

from tasks.errors import UserError
from tasks.graph.folder import ENDS
from tasks.graph.queries import FORMS, read_queries
from tasks.names import Names
from tasks.node_queries import read_query_table
from tests.cli import call
from tests.tasks.graph.test_mistakes import start, tree, write

NODES = Names(("ann", "bob", "Zoë, Ltd."), "node", "mine")


def test_pairs_and_nodes_are_lines_or_objects_of_json():
    lines = [b"ann\tbob\n", b"\n", '{"nodes": ["bob", "Zoë, Ltd."], "id": 7}\n'.encode(), b"bob\n", b'{"node": "ann"}\n']
    assert list(read_queries(lines, "in", NODES)) == [(0, 1), (1, 2), (1,), (0,)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"ann\tbob\tann\n", "is neither a node nor a pair of nodes"),
        (b"ann\tbo\n", "mine has no node 'bo'. The nearest spellings: 'bob'"),
        (b'{"node": "bo"}\n', "mine has no node 'bo'. The nearest spellings: 'bob'"),
        (b'{"id": "bob"}\n', "it has no key nodes"),
    ],
)
def test_other_lines_are_told(line, said):
    with pytest.raises(UserError, match=f"in, line 1: .*{said}.* Each line is `node <tab> node`, or a node, whose likeliest links"):
        list(read_queries([line], "in", NODES))


@pytest.mark.parametrize(
    ("name", "text", "others"),
    [
        ("e.csv", 'source,target\nann,bob\nbob,"Zoë, Ltd."\n', [{}, {}]),
        ("e.csv", 'weight;Target;Source\n1;bob;ann\n2;Zoë, Ltd.;bob\n', [{"weight": "1"}, {"weight": "2"}]),
        ("e.tsv", "child\tsince\tparent\nann\t1\tbob\nbob\t\tZoë, Ltd.\n", [{"since": "1"}, {"since": ""}]),
        ("e.csv", 'ann,bob\n\nbob,"Zoë, Ltd."\n', [{}, {}]),
    ],
)
def test_tables_are_read_as_those_of_edges(tmp_path, name, text, others):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert list(read_query_table(tmp_path / name, NODES, ENDS, FORMS)) == list(zip([(0, 1), (1, 2)], others, strict=True))
    (tmp_path / name).write_text(text.replace("ann", "ane"), encoding="utf-8")
    with pytest.raises(UserError, match=rf"{name}, line [12]: mine has no node 'ane'. The nearest spellings: 'ann'"):
        list(read_query_table(tmp_path / name, NODES, ENDS, FORMS))


@pytest.mark.parametrize("text", ["source,target,id\nann,,7\nbob,ann,8\n", "ann,\nbob,ann\n"])
def test_a_row_without_a_second_node_is_a_single_one(tmp_path, text):
    (tmp_path / "e.csv").write_text(text)
    assert [ends for ends, _ in read_query_table(tmp_path / "e.csv", NODES, ENDS, FORMS)] == [(0,), (1, 0)]
    (tmp_path / "e.csv").write_text(text.replace("bob,ann", ",ann"))
    with pytest.raises(UserError, match=r"e\.csv, line [23]: .*,?ann"):
        list(read_query_table(tmp_path / "e.csv", NODES, ENDS, FORMS))


@pytest.mark.parametrize("text", ["node,note\nann,x\nbob,y\n", "Source;note\nann;x\nbob;y\n"])
def test_a_table_may_have_single_nodes_alone(tmp_path, text):
    (tmp_path / "e.csv").write_text(text)
    assert list(read_query_table(tmp_path / "e.csv", NODES, ENDS, FORMS)) == [((0,), {"note": "x"}), ((1,), {"note": "y"})]


@pytest.mark.long
def test_nodes_whose_classes_are_asked_for_may_be_a_table(tmp_path):
    labels = "".join(f"{k},{'ab'[k % 2]}\n" for k in range(40))
    write(tmp_path / "mine", edges=tree(40))
    (tmp_path / "mine" / "labels.csv").write_text("node,class\n" + labels)
    result = start(tmp_path, "graph_nc", f"data.dir={tmp_path}/mine")
    assert result.code == 0, result.err
    [record] = (tmp_path / "out").rglob("record.json")
    labels_file = tmp_path / "mine" / "labels.csv"
    done = call("mode=predict", f"checkpoint={record.parent}", f"input={labels_file}", f"output={tmp_path}/out.jsonl")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(line["node"], line["class"]) for line in lines[:2]] == [("0", "a"), ("1", "b")]


@pytest.mark.parametrize(("name", "text"), [("e.csv", "ann\nbob\n"), ("e.tsv", "ann\tbob\n"), ("e.csv", "ann\tbob\n"), ("e.csv", '{"nodes": ["ann", "bob"]}\n')])
def test_other_files_are_read_line_by_line(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_query_table(tmp_path / name, NODES, ENDS, FORMS) is None


@pytest.mark.long
def test_predictions_hand_on_the_other_columns(tmp_path):
    write(tmp_path / "mine", edges=tree(40))
    result = start(tmp_path, "graph", f"data.dir={tmp_path}/mine")
    assert result.code == 0, result.err
    [record] = (tmp_path / "out").rglob("record.json")
    (tmp_path / "new.csv").write_text("id,source,target\n7,0,5\n8,1,3\n")
    done = call("mode=predict", f"checkpoint={record.parent}", f"input={tmp_path}/new.csv", f"output={tmp_path}/out.jsonl")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(line["nodes"], line["id"]) for line in lines] == [(["0", "5"], "7"), (["1", "3"], "8")]
    assert all(set(line) == {"nodes", "id", "probability", "score"} for line in lines)
