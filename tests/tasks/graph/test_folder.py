"""A user's folder: names, features and labels are read, and what cannot be used is told with its line."""

import gzip

import numpy as np
import pytest

from tasks.errors import UserError
from tasks.graph.folder import read_folder


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "edges.tsv").write_text("a\tb\nb\tc\n\nc\ta\n", encoding="utf-8")
    (tmp_path / "labels.tsv").write_text("a\tred\nb\tblue\nd\tblue\n", encoding="utf-8")
    (tmp_path / "features.tsv").write_text("a\t1.5\t2\nb\t3\t4\nc\t5\t6\nd\t7\t8\n", encoding="utf-8")
    return tmp_path


def test_names_features_and_labels_are_read(folder):
    with pytest.warns(UserWarning, match="1 nodes have no edge, as 'd'"):
        graph = read_folder(folder, "mine", True)
    assert graph.names == ("a", "b", "c", "d")
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert graph.features.tolist() == [[1.5, 2], [3, 4], [5, 6], [7, 8]]
    assert graph.classes == ("blue", "red")
    assert graph.labels.tolist() == [1, 0, -1, 0]


@pytest.mark.filterwarnings("ignore:.*have no edge")
def test_lines_end_where_files_end_them(folder):
    """Not at characters of Unicode that separate lines of a text, which a name may hold."""
    (folder / "features.tsv").unlink()
    (folder / "edges.tsv").write_text("a\u2028z\tb\r\nb\tc\r\n", encoding="utf-8")
    assert read_folder(folder, "mine", False).names[0] == "a\u2028z"


@pytest.mark.filterwarnings("ignore:.*have no edge")
def test_a_file_that_was_packed_is_the_same_graph(folder):
    before = read_folder(folder, "mine", False)
    (folder / "edges.tsv.gz").write_bytes(gzip.compress((folder / "edges.tsv").read_bytes()))
    (folder / "edges.tsv").unlink()
    assert read_folder(folder, "mine", False).sha256 == before.sha256


def test_an_array_of_features_numbers_the_nodes(folder):
    (folder / "features.tsv").unlink()
    np.save(folder / "features.npy", np.eye(3))
    (folder / "edges.tsv").write_text("0\t2\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="have no edge"):
        graph = read_folder(folder, "mine", False)
    assert (graph.n, graph.edges.tolist(), graph.labels) == (3, [[0, 2]], None)
    (folder / "edges.tsv").write_text("0\t2\n1\t3\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"edges.tsv, line 2: '3' is no node. The features have 3 rows"):
        read_folder(folder, "mine", False)
    np.save(folder / "features.npy", np.array([[0.0], [np.nan], [1.0]]))
    (folder / "edges.tsv").write_text("0\t2\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"features.npy cannot be used: its row 1, .* not finite"):
        read_folder(folder, "mine", False)
    for values, message in (
        (np.empty((3, 0)), r"its shape is \(3, 0\), and it must have a row of numbers"),
        (np.eye(3, dtype=complex), r"of the type complex128, and must be real numbers"),
        (np.zeros((3, 2), dtype="datetime64[D]"), r"of the type datetime64"),
    ):
        np.save(folder / "features.npy", values)
        with pytest.raises(UserError, match=f"features.npy cannot be used: .*{message}"):
            read_folder(folder, "mine", False)
    np.save(folder / "features.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="cannot be used"):
        read_folder(folder, "mine", False)


def test_sparse_features_whose_indices_lie_outside_are_refused_before_they_are_written(folder):
    (folder / "features.tsv").unlink()
    (folder / "edges.tsv").write_text("0\t1\n", encoding="utf-8")
    rows = {"data": np.ones(4), "indptr": np.arange(5), "shape": np.array([4, 3]), "format": np.array(b"csr")}
    np.savez(folder / "features.npz", **rows, indices=np.array([0, 1, 2, 2**30], dtype=np.int32))
    with pytest.raises(UserError, match=r"features.npz cannot be used: .*ind"):
        read_folder(folder, "mine", False)
    np.savez(folder / "features.npz", **rows, indices=np.array([0, 1, 2, 0], dtype=np.int32))
    with pytest.warns(UserWarning, match="have no edge"):
        assert read_folder(folder, "mine", False).features.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    outside = {"data": np.ones(1), "row": np.array([0]), "col": np.array([2**30]), "shape": np.array([4, 3])}
    np.savez(folder / "features.npz", **outside, format=np.array(b"coo"))
    with pytest.raises(UserError, match="features.npz cannot be used"):
        read_folder(folder, "mine", False)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("edges.tsv", "a b\n", r"edges.tsv, line 1: 'a b' is not of the form node <tab> node"),
        ("edges.tsv", "a\tb\r\na\r\n", r"edges.tsv, line 2: 'a' is not of the form node <tab> node"),
        ("edges.tsv", "", "edges.tsv is empty"),
        ("edges.tsv", "a\t\udcfc\n", r"edges.tsv, line 1: it is not UTF-8 \(byte 3\); `iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW`"),
        ("features.tsv", "a\t1\t2\nb\t3\n", r"features.tsv, line 2: the node 'b' must have 2 numbers"),
        ("features.tsv", "a\t1\t2\nb\tx\t3\n", r"features.tsv, line 2: the node 'b' has 'x' in column 2, and features are numbers"),
        ("features.tsv", "node\tage\tcity\na\t1\tParis\n",
            r"line 2: the node 'a' has 'Paris' in the column 'city', and .* Code a category as columns of 0 and 1, one for each of its values"),
        ("features.tsv", "node\tage\tcity\na\t\t2\n", r"line 2: the node 'a' has an empty cell in the column 'age'. Give it a number"),
        ("features.tsv", "a\t1\t\n", r"line 1: the node 'a' has an empty cell in column 3\."),
        ("features.tsv", "\t1\t2\n", r"line 1: .* is not of the form node <tab> number"),
        ("features.tsv", "\tnode\tage\n0\ta\t1\n1\tb\n", r"features.tsv, line 3: '1\\tb' has 2 columns, and the first line names 3"),
        ("features.tsv", "\tnode\n0\ta\n", r"features.tsv: the first line, '\\tnode', names no column of numbers beside node\."),
        ("labels.tsv", "a.0\tred\nb.0\tblue\n", r"labels.tsv, line 2: 'b.0' is no node of edges.tsv, and no other line has one; there nodes are called as 'a'"),
        ("features.tsv", "person\tage\na\t1\n", r"line 1: .* If this line names the columns, one of them must be called node, id or name\."),
        ("features.tsv", "a\t1\t2\nb\t3\t4\nc\t5\tnan\nd\t1\t1\n", r"features.tsv, line 3: a feature of the node 'c' is nan"),
        ("features.tsv", "a\t1\t2\nb\t3\t4\n", r"features.tsv: 2 of 4 nodes have no features, as 'c' of .*edges\.tsv, line \d"),
        ("features.tsv", "a\t1\t2\nb\t3\t4\na\t1\t3\n", r"features.tsv, line 3: the node 'a' has other features on a line before"),
        ("labels.tsv", "a\tred\nb\tred\n", "all labels are of one class"),
        ("labels.tsv", "a\tred\nb\tblue\na\tblue\n",
            r"labels.tsv, line 3: the node 'a' has the class 'blue' here and 'red' on a line before"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*nodes have no edge")
def test_what_cannot_be_used_is_told(folder, file, text, said):
    (folder / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=said):
        read_folder(folder, "mine", True)


@pytest.mark.filterwarnings("ignore:.*nodes have no edge")
@pytest.mark.parametrize("header", ["node,x,y", ",id,x,y", ",x,node,y", "Unnamed: 0,node,x,y", "index,name,x,y"])
def test_an_index_before_the_nodes_is_no_feature(folder, header):
    """As pandas writes one; the rows are in another order than the numbers of the nodes."""
    place = header.split(",").index(next(name for name in header.split(",") if name in ("node", "id", "name")))
    (folder / "features.tsv").unlink()
    lines = []
    for k, node in enumerate("dcba"):
        row = [str(k)] * (header.count(",") == 3) + [f"{ord(node)}", f"{k}.5"]
        lines.append(",".join([*row[:place], node, *row[place:]]))
    (folder / "features.csv").write_text("\n".join([header, *lines]))
    graph = read_folder(folder, "mine", False)
    expected = [[ord(node), 3.5 - "abcd".index(node)] for node in graph.names]
    assert graph.features.tolist() == expected


@pytest.mark.filterwarnings("ignore:.*nodes have no edge")
def test_a_header_is_named(folder, recwarn):
    read_folder(folder, "mine", True)
    assert not any("If it is a header" in str(each.message) for each in recwarn)
    for file, header in (("edges.tsv", "page\tcites\n"), ("labels.tsv", "page\tfield\n")):
        (folder / file).write_text(header + (folder / file).read_text())
    (folder / "features.tsv").unlink()
    with pytest.warns(UserWarning, match="If it is a header, remove it") as warned:
        read_folder(folder, "mine", True)
    said = [str(each.message) for each in warned]
    assert any("edges.tsv: the names of the first row, 'page' and 'cites', are in no other." in each for each in said)
    assert any("labels.tsv: the names of the first row, 'page' and 'field', are in no other." in each for each in said)
    (folder / "edges.tsv").write_text("page\tpage2\na\tb\nb\tc\n")
    with pytest.warns(UserWarning, match="'page' and 'field', are in no other"):
        read_folder(folder, "mine", True)


@pytest.mark.filterwarnings("ignore:.*have no edge")
def test_tables_with_commas_and_names_of_columns_are_the_same_graph(folder):
    """Columns in another order, in quotes, with further ones between them, and a header of the features."""
    before = read_folder(folder, "mine", True)
    for stem, header in (("edges", "Parent;weight;Child"), ("labels", "label;year;id")):
        rows = [line.split("\t") for line in (folder / f"{stem}.tsv").read_text().split("\n") if line.strip()]
        lines = [header, *(f'"{second}";0,5;{first}' for first, second in rows)]
        (folder / f"{stem}.csv").write_text("\n".join(lines) + "\n\n")
        (folder / f"{stem}.tsv").unlink()
    numbers = (folder / "features.tsv").read_text().replace("\t", ";").replace(".", ",")
    (folder / "features.csv").write_text(f"node;x;y\n{numbers}")
    (folder / "features.tsv").unlink()
    graph = read_folder(folder, "mine", True)
    assert graph.names == before.names
    assert graph.edges.tolist() == before.edges.tolist()
    assert graph.features.tolist() == before.features.tolist()
    assert graph.labels.tolist() == before.labels.tolist()
    assert graph.notes[0].endswith(
        "edges.csv: the first line names the columns (Child, Parent); further columns are not read: weight"
    )
    assert not any("header" in caution for caution in graph.cautions)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("features.tsv", "", "features.tsv is empty"),
        ("features.tsv", "node\tx\n", "features.tsv has no rows below the names of its columns"),
        ("features.tsv", "a\tNA\tNA\nb\t3\t4\n", "features.tsv, line 1: the node 'a' has 'NA' in column 2, and features are numbers"),
        ("edges.csv", "source,target\n", "edges.csv has no rows below the names of its columns"),
        ("labels.csv", "node,label\n", "labels.csv has no rows below the names of its columns"),
    ],
)
def test_tables_without_rows_and_numbers_that_are_none(folder, file, text, said):
    (folder / file.replace(".csv", ".tsv")).unlink()
    (folder / file).write_text(text)
    with pytest.raises(UserError, match=said):
        read_folder(folder, "mine", True)


def test_files_that_are_passed_over_are_named(folder):
    with pytest.warns(UserWarning, match="is read, and|have no edge"):
        before = read_folder(folder, "mine", True)
    (folder / "edges.csv").write_text("a,b\n")
    (folder / "labels.csv").write_text("a,b\n")
    with pytest.warns(UserWarning, match="is read, and|have no edge"):
        graph = read_folder(folder, "mine", True)
    said = tuple(f"{folder}: {name}.tsv is read, and {name}.csv not." for name in ("edges", "labels"))
    assert graph.cautions == (*said, *before.cautions)
    assert graph.sha256 == before.sha256
    (folder / "features.npy.gz").write_bytes(b"")  # which is never read
    with pytest.warns(UserWarning, match="is read, and|have no edge"):
        assert read_folder(folder, "mine", True).cautions == graph.cautions


def test_first_rows_whose_names_others_have_are_no_headers(tmp_path):
    (tmp_path / "links.tsv").write_text("u\tv\nv\tw\nw\tu\n")
    assert len(read_folder(tmp_path / "links.tsv", "links", False).edges) == 3
    (tmp_path / "links.csv").write_text("node,source,target\n1,a,b\n2,b,c\n")
    graph = read_folder(tmp_path / "links.csv", "links", False)
    assert graph.names == ("a", "b", "c")
    assert not graph.cautions


def test_a_file_of_edges_alone_is_a_graph(tmp_path):
    (tmp_path / "links.csv").write_text("a,b\nb,c\n")
    assert read_folder(tmp_path / "links.csv", "links", False).names == ("a", "b", "c")
    (tmp_path / "links.csv").write_text("a,b,0.5\n")
    with pytest.raises(UserError, match="line 1: 'a,b,0.5' is not of .* left out where the first line names the columns"):
        read_folder(tmp_path / "links.csv", "links", False)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("edges.txt", b"a,b\n", "There is edges.txt, which is not read: write its lines in this form to edges.tsv. Its columns "
         "are separated by commas, as those of a file .csv may be: give it such a name."),
        ("edges.txt", b"\na\tb\n", "There is edges.txt, which has such lines: rename it to edges.tsv."),
        ("edges.txt.gz", gzip.compress(b"a\tb\n", mtime=0), "There is edges.txt.gz, which has such lines: rename it to edges.tsv.gz."),
        ("edges.xlsx", b"PK\0\xff", "There is edges.xlsx, which is not read: write its lines in this form to edges.tsv."),
        ("nodes.csv", b"a,b\n", "it must have lines of the form node <tab> node."),
    ],
)  # fmt: skip
def test_a_file_with_another_ending_is_named(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_folder(tmp_path, "mine", False)
    assert str(caught.value).endswith(f"{said}")
    (tmp_path / "edges.tsv").write_text("a\tb\n")
    assert read_folder(tmp_path, "mine", False).names == ("a", "b")


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(UserError, match=r"There is no file .*edges.tsv"):
        read_folder(tmp_path, "mine", False)
    (tmp_path / "edges.tsv").write_text("a\tb\n")
    with pytest.raises(UserError, match=r"edges.tsv is a file; name the folder that has edges.tsv and labels.tsv with data"):
        read_folder(tmp_path / "edges.tsv", "mine", True)


def test_features_of_another_ending_are_not_passed_over_in_silence(folder):
    (folder / "features.txt").write_bytes((folder / "features.tsv").read_bytes().replace(b"\t", b","))
    (folder / "features.tsv").unlink()
    with pytest.warns(UserWarning, match=r"no features are read\..*features\.txt"):
        assert read_folder(folder, "mine", False).features is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.tsv", "a\tred\nb\tblue\nc\t\nd\tNA\n"),
        ("labels.csv", "a,red\nc,\nb,blue\nd,NA\n"),
        ("labels.csv", "class;note;node\nred;x;a\nblue;;b\n;;c\nNA;;d\n"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*have no edge")
def test_a_node_whose_class_is_empty_has_none(folder, name, text):
    """As one without a line; a class that is called NA is one, and named."""
    (folder / "labels.tsv").unlink()
    (folder / name).write_text(text)
    graph = read_folder(folder, "mine", True)
    assert graph.classes == ("NA", "blue", "red")
    assert graph.labels.tolist() == [2, 1, -1, 0]
    assert graph.notes[-2].endswith(f"{name}: 1 of 4 nodes have no class; they are neither trained on nor tested")
    assert graph.notes[-1].endswith(f"{name}: NA (1): taken as classes like any others; where one means that there is none, leave it empty")
    (folder / name).write_text(text.replace("NA", "unknown"))
    assert not any("like any others" in note for note in read_folder(folder, "mine", True).notes)


@pytest.mark.filterwarnings("ignore:.*have no edge")
def test_a_node_that_only_an_empty_class_has_is_one(folder):
    (folder / "features.tsv").unlink()
    (folder / "labels.tsv").write_text("a\tred\nb\tblue\nalone\t\n")
    graph = read_folder(folder, "mine", True)
    assert graph.names[-1] == "alone"
    assert graph.labels.tolist()[-1] == -1


def test_labels_of_which_all_are_empty_are_refused(folder):
    (folder / "labels.tsv").write_text("a\t\nb\t\n")
    with pytest.raises(UserError, match=r"labels\.tsv: no node has a class; give some of them one"):
        read_folder(folder, "mine", True)


@pytest.mark.parametrize("name", ["labels.csv", "labels.tsv"])
def test_names_of_columns_that_are_not_known_are_told(folder, name):
    (folder / "labels.tsv").unlink()
    text = "department,age,node\nit,30,a\nhr,40,b\n"
    (folder / name).write_text(text if name.endswith("csv") else text.replace(",", "\t"))
    known = r"Known names: node \(node, id, name\); class \(class, label\); split \(split\). Not known here: department, age."
    with pytest.raises(UserError, match=rf"{name}, line 1: .* It has 3 columns, not 2: further ones .* columns. {known}$"):
        read_folder(folder, "mine", True)
    (folder / name).write_text("a,red\nb,blue,green\n" if name.endswith("csv") else "a\tred\nb\tblue\tgreen\n")
    remedy = "not 2: quotes must stand around a name" if name.endswith("csv") else "cut -f1-2"
    with pytest.raises(UserError, match=f"{name}, line 2: .*{remedy}"):
        read_folder(folder, "mine", True)


@pytest.mark.filterwarnings("ignore:.*have no edge")
def test_a_text_between_semicolons_is_told_as_it_stands_there(folder):
    (folder / "features.tsv").unlink()
    (folder / "features.csv").write_text("a;1,5;2\nb;3;Paris, France\n")
    with pytest.raises(UserError, match=r"features\.csv, line 2: the node 'b' has 'Paris, France' in column 3"):
        read_folder(folder, "mine", True)
