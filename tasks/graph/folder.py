"""A graph of the user's: a folder with edges.tsv or edges.csv, and where there are some features and labels."""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
from scipy import sparse

from tasks.errors import UserError
from tasks.fingerprints import contents_sha256, joined_sha256
from tasks.graph.graph import Graph, checked, undirected
from tasks.name_tables import NODES, Row, read_names, read_numbers
from tasks.reading import brief, existing, header_caution, is_number, is_packed, other_separator, read_lines

EDGES = "edges.tsv"
FORM = "node <tab> node"
FEATURES = ("features.npy", "features.npz", "features.tsv")
ENDS = {
    "node": ("source", "from", "src", "node1", "node_1", "node", "child", "hyponym", "narrower"),
    "other node": ("target", "to", "dst", "node2", "node_2", "parent", "hypernym", "broader"),
}
CLASSES = {"node": ("node", "id", "name"), "class": ("class", "label")}
UNKNOWN = ("na", "n/a", "nan", "none", "null", "?")  # classes that may stand for none, in small letters
Rows = list[Row]


def read_folder(folder: Path, name: str, labelled: bool) -> Graph:
    """The graph in a folder, or of the file of edges alone.

    edges.tsv: a line for each edge, `node <tab> node`; nodes have any names. labels.tsv: `node <tab> class`; nodes
    without a line or whose class is empty there have none. features.tsv: `node <tab> number <tab> number ...`, a line
    for each node; or features.npy (an array) or features.npz (of scipy.sparse.save_npz) with a row for each node, and
    then nodes are numbers from 0. Nodes that only labels or features have are nodes without an edge.

    Tables may be packed, as edges.tsv.gz, or have commas and be called .csv; a first line may name the columns, see
    `read_names`. Warns of nodes without an edge and of a first line that looks like a header; `Graph.cautions` has what
    was warned of.

    Raises UserError, which names file and line, for what cannot be used.
    """
    if not folder.exists():
        raise UserError(f"There is no folder {folder}; name one that has {EDGES} with data.dir.")
    if folder.is_file() and labelled:
        raise UserError(f"{folder} is a file; name the folder that has {EDGES} and labels.tsv with data.dir.")
    files = [folder if folder.is_file() else table_file(folder / EDGES) or folder / EDGES]
    rows, note = _rows(files[0], ENDS, FORM)
    arrays = next((folder / file for file in FEATURES[:2] if (folder / file).is_file()), None)
    matrix = None if arrays is None else _matrix(arrays)
    features_file = arrays or table_file(folder / FEATURES[2])
    by_name: Rows = []
    features_note, columns = "", None
    if features_file and matrix is None:
        table = read_numbers(features_file, "node <tab> number ...")
        by_name, features_note, columns = list(table.rows), table.note(features_file), table.header
    labels_file = table_file(folder / "labels.tsv") or folder / "labels.tsv"
    labels, labels_note = _rows(labels_file, CLASSES, "node <tab> class", ("class",)) if labelled else ([], "")
    files += [features_file] if features_file else []
    files += [labels_file] if labelled else []
    cautions: list[str] = []

    def warn(caution: str) -> None:
        cautions.append(caution)
        warnings.warn(caution, stacklevel=2)

    if features_file is None and folder.is_dir() and (other := _other_file(folder / FEATURES[2], 2, None)):
        warn(f"{folder}: no features are read.{other}")
    if matrix is not None:
        number = {str(k): k for k in range(len(matrix))}
        _check_numbers(files[0], rows, number, matrix)
    else:
        every = [*(end for _, ends in rows for end in ends), *(fields[0] for _, fields in (*by_name, *labels))]
        number = {node: k for k, node in enumerate(dict.fromkeys(every))}
        described = {fields[0] for _, fields in by_name}
        for caution in _headers(files[0], rows, bool(note), labels_file, [] if labels_note else labels, described):
            warn(caution)
    pairs = np.array([[number[a], number[b]] for _, (a, b) in rows])
    edges, notes = undirected(pairs, len(number), str(files[0]))
    tables = [(files[0], rows), (labels_file, [(k, fields[:1]) for k, fields in labels])]
    features = matrix if matrix is not None else _features(features_file, by_name, number, tables, columns)
    classes, of_nodes = _classes(labels_file, labels, number)
    of_classes = _notes_of_classes(labels_file, labels, of_nodes)
    sha256 = joined_sha256([contents_sha256(file) for file in files])
    listed = " and ".join(file.name for file in files)
    notes = (*filter(None, (note, features_note, labels_note)), *notes, *of_classes)
    graph = Graph(name, len(number), edges, features, of_nodes, classes, tuple(number), {}, notes, listed, sha256)
    if graph.isolated:
        alone = graph.names[np.setdiff1d(np.arange(graph.n), edges)[0]]
        warn(f"{folder}: {graph.isolated} nodes have no edge, as {brief(alone)}.")
    return checked(replace(graph, cautions=tuple(cautions)))


def _headers(
    edges_file: Path, edges: Rows, has_header: bool, labels_file: Path, labels: Rows, described: set[str]
) -> Iterator[str]:
    """What is to be said of a first edge whose nodes are in no other, and of a first label whose node and class are.
    has_header: a line before the edges names the columns. described: the nodes that have features."""
    (_, first), *others = edges
    ends = {end for _, pair in others for end in pair}
    if others and not has_header and ends.isdisjoint(first):
        yield header_caution(edges_file, first, "an edge")
    else:
        ends.update(first)
    if len(labels) > 1:
        (_, (node, label)), *others = labels
        if node not in ends | described and all(label != each for _, (_, each) in others):
            yield header_caution(labels_file, (node, label), "a node and its class")


def table_file(path: Path) -> Path | None:
    """The file of a table .tsv, or else .csv, packed or not; None where there is none."""
    return existing(path) or existing(path.with_suffix(".csv"))


def _notes_of_classes(path: Path, rows: Rows, labels: np.ndarray | None) -> Iterator[str]:
    """How many nodes have no class, and which classes may be meant to say so."""
    if labels is None:
        return
    if without := int((labels < 0).sum()):
        yield f"{path}: {without:,} of {len(labels):,} nodes have no class; they are neither trained on nor tested"
    names = Counter(label for _, (_, label) in rows if label.lower() in UNKNOWN)
    if names:
        counts = ", ".join(f"{name} ({count:,})" for name, count in sorted(names.items()))
        yield f"{path}: {counts}: taken as classes like any others; where one means that there is none, leave it empty"


def _rows(
    path: Path, fields: Mapping[str, Sequence[str]], form: str, optional: Sequence[str] = ()
) -> tuple[Rows, str]:
    """The rows of a table of names, and what `NameTable.note` says of it. optional: as of `read_names`."""
    if not path.exists():
        raise UserError(f"There is no file {path}; it must have lines of the form {form}.{_other_file(path, 2, 2)}")
    table = read_names(path, fields, form, optional=optional)
    return list(table.rows), table.note(path)


def _other_file(path: Path, least: int, most: int | None) -> str:
    """Of a table that is not there a sentence about a file which differs from it in its ending; "" without one."""
    if (other := next((each for each in sorted(path.parent.glob(f"{path.stem}.*")) if each.is_file()), None)) is None:
        return ""
    first = next((line for _, line in read_lines(other) if not isinstance(line, str) or line.strip()), "")
    columns = first.count("\t") + 1 if isinstance(first, str) else 0
    if least <= columns <= (most or columns):
        name = f"{path.name}{'.gz' if is_packed(other) else ''}"
        return f" There is {other.name}, which has such lines: rename it to {name}."
    hint = other_separator(first, least, most) if isinstance(first, str) else ""
    return f" There is {other.name}, which is not read: write its lines in this form to {path.name}.{hint}"


def dense(stream: BinaryIO) -> np.ndarray:
    """The matrix of a file that `scipy.sparse.save_npz` wrote. Raises ValueError, among others, where its indices lie
    outside of it, which would be written there."""
    matrix = sparse.load_npz(stream)
    if hasattr(matrix, "check_format"):  # the other formats are checked when they are made
        matrix.check_format(full_check=True)
    values: np.ndarray = matrix.toarray()
    return values


def _matrix(path: Path) -> np.ndarray:
    try:
        with path.open("rb") as stream:
            values = np.load(stream, allow_pickle=False) if path.suffix == ".npy" else dense(stream)
        if values.ndim != 2 or not values.size:
            raise ValueError(f"its shape is {values.shape}, and it must have a row of numbers for each node")
        if values.dtype.kind not in "fiub":
            raise ValueError(f"its values are of the type {values.dtype}, and must be real numbers")
        wrong = np.flatnonzero(~np.isfinite(values).all(1))
        if len(wrong):
            raise ValueError(f"its row {wrong[0]}, counted from 0, has a value that is not finite")
        return values.astype(np.result_type(values.dtype, np.float32))
    except Exception as error:  # numpy and zipfile raise many
        cause = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(f"{path} cannot be used: {cause}.") from None


def _check_numbers(path: Path, rows: Rows, number: dict[str, int], matrix: np.ndarray) -> None:
    for k, ends in rows:
        for end in ends:
            if end not in number:
                raise UserError(
                    f"{path}, line {k}: {brief(end)} is no node. The features have {len(matrix)} rows, so "
                    f"nodes are the numbers 0 to {len(matrix) - 1}; name nodes as you like with features.tsv."
                )


def _features(
    path: Path | None,
    rows: Rows,
    number: dict[str, int],
    others: Sequence[tuple[Path | None, Rows]],
    columns: Sequence[str] | None,
) -> np.ndarray | None:
    """Args: others: the other tables, whose nodes need features, and their rows, each with nodes first. columns: the
    names that the file has for its columns, that of the nodes first; None: it has none."""
    if path is None:
        return None
    features = np.full((len(number), len(rows[0][1]) - 1), np.nan)
    for k, (node, *values) in rows:
        try:
            row = np.array(values, dtype=np.float64).reshape(features.shape[1])
        except ValueError:
            fault = _no_numbers(values, columns, features.shape[1], k == rows[0][0])
            raise UserError(f"{path}, line {k}: the node {brief(node)} {fault}") from None
        if not np.isfinite(row).all():
            wrong = row[~np.isfinite(row)][0]
            raise UserError(f"{path}, line {k}: a feature of the node {brief(node)} is {wrong}; correct it.")
        before = features[number[node]]
        if not np.isnan(before).any() and (before != row).any():
            raise UserError(
                f"{path}, line {k}: the node {brief(node)} has other features on a line before; keep one of the two."
            )
        features[number[node]] = row
    without = [node for node, place in number.items() if np.isnan(features[place]).any()]
    if without:
        places = (f"{file}, line {k}" for file, lines in others for k, fields in lines if without[0] in fields)
        raise UserError(
            f"{path}: {len(without)} of {len(number)} nodes have no features, as {brief(without[0])} of "
            f"{next(places)}. Give a line for each, or remove these nodes."
        )
    return features


def _no_numbers(values: Sequence[str], columns: Sequence[str] | None, count: int, is_first: bool) -> str:
    """Why values of a node are not `count` numbers, as the end of a message: too few or too many, or the first one that
    is empty or a text. is_first: whether they are those of the first row."""
    wrong = next((place for place, value in enumerate(values) if not is_number(value)), None)
    if wrong is None or len(values) != count:
        return f"must have {count} numbers, as on the first line, and has {len(values)}."
    where = f"the column {brief(columns[wrong + 1])}" if columns else f"column {wrong + 2}"
    if not values[wrong]:
        return f"has an empty cell in {where}. Give it a number there, such as the mean of the others, or leave it out."
    header = "" if columns or any(map(is_number, values)) or not is_first else (
        f" If this line names the columns, the first one must be called {', '.join(NODES[1:-1])} or {NODES[-1]}."
    )  # fmt: skip
    return (
        f"has {brief(values[wrong])} in {where}, and features are numbers with a decimal point. Code a category as "
        "columns of 0 and 1, one for each of its values, and give a number in the place of one that is "
        f"missing.{header}"
    )


def _classes(
    path: Path, rows: Rows, number: dict[str, int]
) -> tuple[tuple[str, ...], np.ndarray | None]:
    if not rows:
        return (), None
    classes = sorted({label for _, (_, label) in rows if label})
    if not classes:
        raise UserError(f"{path}: no node has a class; give some of them one, as rows node <tab> class.")
    number_of_class = {label: c for c, label in enumerate(classes)}
    labels = np.full(len(number), -1, dtype=np.int64)
    for k, (node, label) in rows:
        if node not in number:
            raise UserError(f"{path}, line {k}: there is no node {brief(node)} in edges or features.")
        if not label:
            continue
        before = labels[number[node]]
        if before not in (-1, number_of_class[label]):
            raise UserError(
                f"{path}, line {k}: the node {brief(node)} has the class {brief(label)} here and "
                f"{brief(classes[before])} on a line before; keep one of the two."
            )
        labels[number[node]] = number_of_class[label]
    return tuple(classes), labels
