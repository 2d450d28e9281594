"""Files .gz are read as the files in them."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from tasks.document_classification.corpus import Document
from tasks.document_classification.sources import Form, find_sources, read_rows
from tasks.edges import read_edges
from tasks.errors import UserError
from tasks.graph.folder import read_folder
from tasks.poincare_glove.corpus import count_words
from tasks.reading import existing

EDGES = "b\ta\nc\ta\nd\tb\n"


def packed(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()))
    return path


def test_edges(tmp_path):
    plain = tmp_path / "edges.tsv"
    plain.write_text(EDGES, encoding="utf-8")
    one, other = (read_edges(path, "task.data.file") for path in (plain, packed(tmp_path / "edges.tsv.gz", EDGES)))
    assert (one.names, one.sha256) == (other.names, other.sha256)
    assert np.array_equal(one.child, other.child)


@pytest.mark.parametrize("data", [b"no gzip", gzip.compress(EDGES.encode(), mtime=0)[:-9]], ids=["no gzip", "cut short"])
def test_a_damaged_file_is_named(tmp_path, data):
    (tmp_path / "edges.tsv.gz").write_bytes(data)
    with pytest.raises(UserError, match=r"edges.tsv.gz cannot be read"):
        read_edges(tmp_path / "edges.tsv.gz", "task.data.file")
    with pytest.raises(UserError, match=r"edges.tsv.gz cannot be read"):
        read_folder(tmp_path, "mine", labelled=False)
    with pytest.raises(UserError, match=r"edges.tsv.gz cannot be read"):
        count_words(tmp_path / "edges.tsv.gz", str.split, True, print)


def test_a_folder_of_a_graph(tmp_path):
    texts = {"edges.tsv": EDGES, "features.tsv": "a\t1\nb\t2\nc\t3\nd\t4\n", "labels.tsv": "a\tx\nb\ty\n"}
    graphs = []
    for ending in ("", ".gz"):
        folder = tmp_path / f"graph{ending}"
        folder.mkdir()
        for name, text in texts.items():
            (folder / f"{name}{ending}").write_bytes(gzip.compress(text.encode()) if ending else text.encode())
        graphs.append(read_folder(folder, "mine", labelled=True))
    one, other = graphs
    assert (one.names, one.classes) == (other.names, other.classes)
    for name in ("edges", "features", "labels"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_a_text(tmp_path):
    (tmp_path / "text").write_text("a b a\nc", encoding="utf-8")
    files = (tmp_path / "text", packed(tmp_path / "text.gz", "a b a\nc"))
    assert [count_words(file, str.split, True, print) for file in files] == [{"a": 2, "b": 1, "c": 1}] * 2


def test_the_plain_file_comes_first(tmp_path):
    assert existing(tmp_path / "a.txt") is None
    packed(tmp_path / "a.txt.gz", "x")
    assert existing(tmp_path / "a.txt") == tmp_path / "a.txt.gz"
    (tmp_path / "a.txt").write_text("x")
    assert existing(tmp_path / "a.txt") == tmp_path / "a.txt"


def test_a_folder_of_texts_for_each_class(tmp_path):
    for name, text in (("x", "one text"), ("y", "another")):
        (tmp_path / name).mkdir()
        packed(tmp_path / name / "1.txt.gz", text)
    (source,) = find_sources(tmp_path)
    form = Form(None, ["label"], [["text"]], [])
    assert [row for _, _, row in read_rows([source], form)] == [Document("x", ("one text",)), Document("y", ("another",))]
    (tmp_path / "x" / "1.txt.gz").write_bytes(b"no gzip")
    with pytest.raises(UserError, match=r"x/1.txt.gz cannot be read \("):
        list(read_rows([source], form))
