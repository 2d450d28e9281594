"""A graph of the user's: a folder with edges.tsv or edges.csv, and where there are some features and labels."""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tasks.errors import UserError
from tasks.fingerprints import contents_sha256, joined_sha256
from tasks.graph.feature_files import features_of, read_matrix, require_rows_of
from tasks.graph.graph import Graph, checked, undirected
from tasks.graph.splits import given_parts, keys_of
from tasks.name_tables import Rows, read_names, read_numbers
from tasks.reading import brief, existing, header_caution, is_packed, other_separator, read_lines, unread_files
from tasks.split_column import SPLIT

EDGES = "edges.tsv"
FORM = "node <tab> node"
FEATURES = ("features.npy", "features.npz", "features.tsv")
ENDS = {
    "node": ("source", "from", "src", "node1", "node_1", "node", "child", "hyponym", "narrower"),
    "other node": ("target", "to", "dst", "node2", "node_2", "parent", "hypernym", "broader"),
}
CLASSES = {"node": ("node", "id", "name"), "class": ("class", "label")}
UNKNOWN = ("na", "n/a", "nan", "none", "null", "?")  # classes that may stand for none, in small letters


def read_folder(folder: Path, name: str, labelled: bool, splits: bool = True) -> Graph:
    """The graph in a folder, or of the file of edges alone.

    edges.tsv: a line for each edge, `node <tab> node`; nodes have any names. labels.tsv: `node <tab> class`; nodes
    without a line or whose class is empty there have none. features.tsv: `node <tab> number <tab> number ...`, a line
    for each node; or features.npy (an array) or features.npz (of scipy.sparse.save_npz) with a row for each node, and
    then nodes are numbers from 0. Nodes that only labels or features have are nodes without an edge.

    Where the first line of labels, or of edges of a graph that is read without labels, names a column split, it has the
    splits, see `given_parts`; not so without `splits`.

    Tables may be packed, as edges.tsv.gz, or have commas and be called .csv; a first line may name the columns, see
    `read_names`. Warns of nodes without an edge and of a first line that looks like a header; `Graph.cautions` has what
    was warned of.

    Raises UserError, which names file and line, for what cannot be used.
    """
    if not folder.exists():
        raise UserError(f"There is no folder or file {folder}; name one that has {EDGES} with data.dir.")
    if folder.is_file() and labelled:
        raise UserError(f"{folder} is a file; name the folder that has {EDGES} and labels.tsv with data.dir.")
    files = [folder if folder.is_file() else table_file(folder / EDGES) or folder / EDGES]
    rows, edge_splits, note = _rows(files[0], ENDS, FORM, split=splits and not labelled)
    arrays = next((folder / file for file in FEATURES[:2] if (folder / file).is_file()), None)
    matrix = None if arrays is None else read_matrix(arrays)
    features_file = arrays or table_file(folder / FEATURES[2])
    by_name: Rows = []
    features_note, columns = "", None
    if features_file and matrix is None:
        table = read_numbers(features_file, "node <tab> number ...")
        by_name, features_note, columns = list(table.rows), table.note(features_file), table.header
    labels_file = table_file(folder / "labels.tsv") or folder / "labels.tsv"
    labels, node_splits, labels_note = (
        _rows(labels_file, CLASSES, "node <tab> class", ("class",), split=splits) if labelled else ([], [], "")
    )
    files += [features_file] if features_file else []
    files += [labels_file] if labelled else []
    cautions: list[str] = []

    def warn(caution: str) -> None:
        cautions.append(caution)
        warnings.warn(caution, stacklevel=2)

    for names in (EDGES,), FEATURES, ("labels.tsv",) if labelled else ():
        paths = [folder / file for file in names]
        if caution := unread_files([*paths, *(file.with_suffix(".csv") for file in paths[-1:])]):
            warn(caution)
    if features_file is None and folder.is_dir() and (other := _other_file(folder / FEATURES[2], 2, None)):
        warn(f"{folder}: no features are read.{other}")
    if matrix is not None:
        number = {str(k): k for k in range(len(matrix))}
        require_rows_of(files[0], rows, number, matrix)
    else:
        every = [*(end for _, ends in rows for end in ends), *(fields[0] for _, fields in (*by_name, *labels))]
        number = {node: k for k, node in enumerate(dict.fromkeys(every))}
        described = {fields[0] for _, fields in by_name}
        _require_common(labels_file, labels, files[0], {end for _, ends in rows for end in ends})
        for caution in _headers(files[0], rows, bool(note), labels_file, [] if labels_note else labels, described):
            warn(caution)
    pairs = np.array([[number[a], number[b]] for _, (a, b) in rows])
    edges, notes = undirected(pairs, len(number), str(files[0]))
    edge_parts = _edge_parts(files[0], rows, pairs, edges, edge_splits) if edge_splits else {}
    tables = [(files[0], rows), (labels_file, [(k, fields[:1]) for k, fields in labels])]
    features = matrix if matrix is not None else features_of(features_file, by_name, number, tables, columns)
    classes, of_nodes = _classes(labels_file, labels, number)
    parts = {}
    if node_splits and of_nodes is not None:
        parts = _node_parts(labels_file, labels, number, of_nodes, node_splits)
    of_classes = _notes_of_classes(labels_file, labels, of_nodes)
    sha256 = joined_sha256([contents_sha256(file) for file in files])
    listed = " and ".join(file.name for file in files)
    of_splits = (
        *_notes_of_splits(files[0], edge_parts, len(edges), "edges"),
        *_notes_of_splits(labels_file, parts, 0 if of_nodes is None else int((of_nodes >= 0).sum()), "known classes"),
    )
    notes = (*filter(None, (note, features_note, labels_note)), *of_splits, *notes, *of_classes)
    graph = Graph(
        name, len(number), edges, features, of_nodes, classes, tuple(number), parts=parts, notes=notes, files=listed,
        sha256=sha256, edge_parts=edge_parts,
    )  # fmt: skip
    if graph.isolated:
        alone = graph.names[np.setdiff1d(np.arange(graph.n), edges)[0]]
        warn(f"{folder}: {graph.isolated} nodes have no edge, as {brief(alone)}.")
    return checked(replace(graph, cautions=tuple(cautions)))


def _require_common(path: Path, labels: Rows, edges_file: Path, ends: set[str]) -> None:
    """Raises UserError where no node with a class is one of the `ends` of edges: names are written in two ways."""
    if labels and ends.isdisjoint(node for _, (node, _) in labels):
        (k, (node, _)) = labels[-1]
        raise UserError(
            f"{path}, line {k}: {brief(node)} is no node of {edges_file.name}, and no other line has one; there "
            f"nodes are called as {brief(min(ends))}. Write the names alike."
        )


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
    path: Path, fields: Mapping[str, Sequence[str]], form: str, optional: Sequence[str] = (), split: bool = False
) -> tuple[Rows, list[str], str]:
    """The rows of a table of names, what each has in a column split, and what `NameTable.note` says of it. optional: as
    of `read_names`. split: look for such a column; the list is empty where there is none."""
    if not path.exists():
        raise UserError(f"There is no file {path}; it must have lines of the form {form}.{_other_file(path, 2, 2)}")
    table = read_names(path, fields, form, optional=optional, further=SPLIT if split else None)
    rows = list(table.rows)
    splits = [columns.pop() for _, columns in rows if len(columns) > len(fields)]
    return rows, splits, table.note(path)


def _edge_parts(
    path: Path, rows: Rows, pairs: np.ndarray, edges: np.ndarray, splits: Sequence[str]
) -> dict[str, np.ndarray]:
    """The rows of `edges` of each split, without edges from a node to itself, which are none of them."""
    n = int(pairs.max()) + 1
    places = np.searchsorted(keys_of(edges, n), keys_of(np.sort(pairs, axis=1), n)).tolist()
    entries = zip(rows, places, splits, pairs[:, 0] != pairs[:, 1], strict=True)
    lines = ((k, place, f"the edge {brief(a)}, {brief(b)}", word) for (k, (a, b)), place, word, kept in entries if kept)
    return given_parts(path, lines)


def _notes_of_splits(path: Path, parts: Mapping[str, np.ndarray], count: int, things: str) -> Iterator[str]:
    """Of a table with splits: which of them it lacks, and how many of the `count` things have none."""
    if lacking := [split for split in ("dev", "test") if parts and split not in parts]:
        yield f"{path}: nothing has the split {' or '.join(lacking)}; shares of train are taken"
    without = count - sum(map(len, parts.values()))
    if parts and without > 0:
        yield f"{path}: {without:,} of {count:,} {things} have no split; they are neither trained on nor tested"


def _node_parts(
    path: Path, rows: Rows, number: dict[str, int], labels: np.ndarray, splits: Sequence[str]
) -> dict[str, np.ndarray]:
    """The nodes of each split, of those that have a class."""
    lines = ((k, number[node], node, word) for (k, (node, _)), word in zip(rows, splits, strict=True))
    return given_parts(path, ((k, n, f"the node {brief(node)}", word) for k, n, node, word in lines if labels[n] >= 0))


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
