"""Graphs that cannot be used: run.py says in one paragraph which file, line or node is at fault, and writes nothing; what
can be mended is mended, and said."""

import os
import pickle

import numpy as np
import pytest
from scipy import sparse

from tasks.errors import UserError
from tasks.graph.releases import read_release
from tests.cli import QUIET, Result, call
from tests.tasks.graph.releases import planetoid_files
from tests.tasks.graph.test_pickles import Hostile

SHORT = ("trainer.max_epochs=1", "task.data.passes=1")


def write(folder, **texts) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")


def tree(n: int, *more: str) -> str:
    return "".join([*(f"{k}\t{(k - 1) // 2}\n" for k in range(1, n)), *more])


def start(tmp_path, task: str, *words: str) -> Result:
    return call(f"task={task}", f"paths.output_dir={tmp_path}/out", *SHORT, *QUIET, *words)


def refused(tmp_path, task: str, *words: str) -> str:
    """The one paragraph that a run ends with, which leaves nothing but the cache."""
    result = start(tmp_path, task, *words)
    assert result.code == 1, result.out
    assert result.err.startswith("error: ")
    assert result.err.strip().count("\n") == 0, "one paragraph"
    assert "record:" not in result.out
    files = {f.relative_to(tmp_path / "out") for f in (tmp_path / "out").rglob("*") if f.is_file()}
    assert {f.parts[0] for f in files} <= {".cache"}
    return result.err


EDGES = tree(40)
NODES = [str(k) for k in range(40)]
NUMBERS = "".join(f"{k}\t{k % 3}\t{k % 5}\n" for k in NODES for k in [int(k)])
LABELS = "".join(f"{k}\t{'ab'[k % 2]}\n" for k in range(40))


@pytest.mark.parametrize(
    ("task", "files", "said"),
    [
        ("graph", {"edges": "0 1\n"}, "edges.tsv, line 1: '0 1' is not of the form node <tab> node"),
        ("graph", {"edges": "0\t0\n"}, "edges.tsv: it has no edge between two nodes"),
        ("graph", {"edges": tree(4)}, "3 edges are too few for shares of 0.05 and 0.1"),
        ("graph", {"edges": EDGES, "features": NUMBERS + "40\t1\n"}, "features.tsv, line 41: the node '40' must have 2"),
        ("graph", {"edges": EDGES, "features": "0\t1\t2\n1\tnan\t3\n"}, "features.tsv, line 2: a feature of the node '1' is nan"),
        ("graph", {"edges": EDGES, "features": "0\t1\t2\n1\t5\t3\n"}, "38 of 40 nodes have no features, as '2'"),
        ("graph_nc", {"edges": EDGES}, "There is no file"),
        ("graph_nc", {"edges": EDGES, "labels": "0\ta\n1\ta\n"}, "all labels are of one class"),
        ("graph_nc", {"edges": EDGES, "labels": "0\ta\n1\ta\n2\n"}, "labels.tsv, line 3: '2' is not of the form node <tab> class"),
    ],
)  # fmt: skip
def test_a_folder_that_cannot_be_used_is_refused(tmp_path, task, files, said):
    write(tmp_path / "mine", **files)
    assert said in refused(tmp_path, task, f"data.dir={tmp_path}/mine")


def test_a_class_that_training_lacks_is_told(tmp_path):
    write(tmp_path / "mine", edges=EDGES, labels=LABELS.replace("0\ta\n", "0\tc\n", 1))
    message = refused(tmp_path, "graph_nc", f"data.dir={tmp_path}/mine", "task.data.shares={dev: 0.3, test: 0.6}")
    assert "mine: no node for training has the class c, so it cannot be learned; take smaller task.data.shares" in message


def test_numbers_out_of_range_are_told_with_their_line(tmp_path):
    write(tmp_path / "mine", edges=tree(40, "3\t40\n"))
    np.save(tmp_path / "mine" / "features.npy", np.eye(40))
    message = refused(tmp_path, "graph", f"data.dir={tmp_path}/mine")
    assert "edges.tsv, line 40: '40' is no node. The features have 40 rows, so nodes are the numbers 0 to 39" in message


@pytest.mark.parametrize("word", ["task.model.t=-1", "task.model.t=0", "task.model.r=inf", "task.module.margin=inf"])
def test_a_decoder_that_cannot_be_is_named(tmp_path, word):
    assert word.partition("=")[0] + " must be a" in refused(tmp_path, "graph_toy", word)


@pytest.mark.parametrize("name", ["features.npy", "features.npz"])
def test_features_that_hold_a_pickle_are_refused_and_nothing_runs(tmp_path, name):
    write(tmp_path / "mine", edges=EDGES)
    hostile = np.array([Hostile(os.mkdir, str(tmp_path / "ran"))], dtype=object)
    if name == "features.npy":
        np.save(tmp_path / "mine" / name, hostile, allow_pickle=True)
    else:
        numbers = np.arange(2)
        np.savez(tmp_path / "mine" / name, format=np.array("csr"), shape=numbers, indices=numbers, indptr=numbers, data=hostile)
    message = refused(tmp_path, "graph", f"data.dir={tmp_path}/mine")
    assert f"{name} cannot be used: Object arrays cannot be loaded when allow_pickle=False" in message
    assert not (tmp_path / "ran").exists()


def test_a_features_file_that_is_cut_off_is_refused(tmp_path):
    write(tmp_path / "mine", edges=EDGES)
    sparse.save_npz(tmp_path / "mine" / "features.npz", sparse.csr_array(np.eye(40)))
    whole = (tmp_path / "mine" / "features.npz").read_bytes()
    (tmp_path / "mine" / "features.npz").write_bytes(whole[: len(whole) // 2])
    assert "features.npz cannot be used" in refused(tmp_path, "graph", f"data.dir={tmp_path}/mine")


@pytest.mark.filterwarnings("ignore:.*2 nodes have no edge")
def test_what_can_be_mended_is_said_and_trained_on(tmp_path):
    """Both directions of one edge, an edge twice, one from a node to itself, and two nodes without an edge."""
    more = ["0\t1\n", "7\t3\n", "5\t5\n"]
    write(tmp_path / "mine", edges=tree(40, *more), features=NUMBERS + "40\t1\t1\n41\t2\t2\n")
    result = start(tmp_path, "graph", f"data.dir={tmp_path}/mine")
    assert result.code == 0, result.err
    assert "mine: 42 nodes, 39 edges, 2 features, 2 isolated." in result.out
    assert "1 edges from a node to itself were left out." in result.out
    assert "1 repeated edges were left out." in result.out
    assert "38 edges have no reverse; all are taken in both directions." in result.out
    assert result.record["data"]["counts"]["train"]["isolated"] == 2


@pytest.fixture
def cora(tmp_path):
    """A small graph in the files of Planetoid."""
    planetoid_files(tmp_path / "cora")
    return tmp_path / "cora"


def test_the_files_of_planetoid_train(tmp_path, cora):
    result = start(tmp_path, "cora_nc", f"task.data.folder={cora}")
    assert result.code == 0, result.err
    counts = result.record["data"]["counts"]
    assert {split: counts[split]["nodes" if split != "train" else "all_edges"] for split in counts} == {
        "train": 29, "dev": 11, "test": 10,
    }  # fmt: skip


def test_a_hostile_or_truncated_release_is_refused(tmp_path, cora):
    file = cora / "ind.cora.allx"
    whole = file.read_bytes()
    file.write_bytes(pickle.dumps({"x": [Hostile(os.mkdir, str(tmp_path / "ran"))]}))
    message = refused(tmp_path, "cora_nc", f"task.data.folder={cora}")
    assert "ind.cora.allx is refused: it names" in message
    assert not (tmp_path / "ran").exists()
    file.write_bytes(whole[: len(whole) // 2])
    message = refused(tmp_path, "cora_nc", f"task.data.folder={cora}")
    assert "ind.cora.allx is refused: pickle data was truncated. It is damaged" in message
    file.unlink()
    assert f"{cora} lacks ind.cora.allx; fetch them" in refused(tmp_path, "cora_nc", f"task.data.folder={cora}")


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        *(("graph", value, "it must have a list of numbers for each node")
          for value in ([1, 2], {0: 1}, {0: ["x"]}, {0: [1.5]}, {"a": [0]}, {0: [10**30]})),
        ("graph", {0: [1], 1: [0]}, "names the node 29, and ind.cora.graph has 2 nodes"),
        *((part, value, "is not what was published, a table of numbers")
          for part in ("allx", "ty") for value in ({"a": 1}, [[1.0]], 3, np.ones(4))),
        ("tx", sparse.csr_matrix(np.eye(10, 5)), r"have the shapes \(20, 6\) and \(10, 5\)"),
        ("ally", np.eye(3)[:2], "do not follow the 2 of ind.cora.ally"),
    ],
)  # fmt: skip
def test_a_part_of_another_kind_is_refused(cora, part, value, said):
    (cora / f"ind.cora.{part}").write_bytes(pickle.dumps(value, protocol=2))
    with pytest.raises(UserError, match=said) as error:
        read_release(cora, "cora", labelled=True)
    assert str(cora) in str(error.value)


@pytest.mark.parametrize("text", ["", "-1", "20\n20", "9" * 30, "x"])
def test_an_index_that_names_no_nodes_is_refused(cora, text):
    (cora / "ind.cora.test.index").write_text(text)
    with pytest.raises(UserError, match="index is damaged"):
        read_release(cora, "cora", labelled=True)


@pytest.mark.long
def test_features_or_labels_of_too_few_nodes_are_told(tmp_path):
    folder = tmp_path / "disease_nc"
    folder.mkdir()
    (folder / "disease_nc.edges.csv").write_text(tree(40).replace("\t", ","))
    np.save(folder / "disease_nc.labels.npy", np.arange(40) % 2)
    sparse.save_npz(folder / "disease_nc.feats.npz", sparse.csr_array(np.eye(39)))
    said = refused(tmp_path, "disease_nc", f"task.data.folder={folder}")
    assert "disease_nc: there are features of 39 nodes, and the graph has 40; give one row for each node" in said
    sparse.save_npz(folder / "disease_nc.feats.npz", sparse.csr_array(np.where(np.eye(40) > 0, np.nan, 0)))
    said = refused(tmp_path, "disease_nc", f"task.data.folder={folder}")
    assert "the features of 40 nodes have values that are not finite, first of node 0" in said
    sparse.save_npz(folder / "disease_nc.feats.npz", sparse.csr_array(np.eye(40)))
    np.save(folder / "disease_nc.labels.npy", np.arange(38) % 2)
    assert "there are labels of 38 nodes, and the graph has 40" in refused(
        tmp_path, "disease_nc", f"task.data.folder={folder}"
    )
