"""The files of the features of a user's nodes: an array with a row for each, or a table of names and numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from scipy import sparse

from tasks.errors import UserError
from tasks.name_tables import NODES, Rows
from tasks.reading import brief, is_number


def dense(stream: BinaryIO) -> np.ndarray:
    """The matrix of a file that `scipy.sparse.save_npz` wrote. Raises ValueError, among others, where its indices lie
    outside of it, which would be written there."""
    matrix = sparse.load_npz(stream)
    if hasattr(matrix, "check_format"):  # the other formats are checked when they are made
        matrix.check_format(full_check=True)
    values: np.ndarray = matrix.toarray()
    return values


def read_matrix(path: Path) -> np.ndarray:
    """The features of nodes 0, 1, ... in a file .npy or .npz of `scipy.sparse`. Raises UserError, which names the file,
    where it has no row of finite real numbers for each."""
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


def require_rows_of(path: Path, rows: Rows, number: dict[str, int], matrix: np.ndarray) -> None:
    """Raises UserError, which names file and line, for an end of an edge that is no row of the matrix."""
    for k, ends in rows:
        for end in ends:
            if end not in number:
                raise UserError(
                    f"{path}, line {k}: {brief(end)} is no node. The features have {len(matrix)} rows, so "
                    f"nodes are the numbers 0 to {len(matrix) - 1}; name nodes as you like with features.tsv."
                )


def features_of(
    path: Path | None,
    rows: Rows,
    number: dict[str, int],
    others: Sequence[tuple[Path | None, Rows]],
    columns: Sequence[str] | None,
) -> np.ndarray | None:
    """The features of all nodes, by their numbers, from the rows of a table; None without one. Raises UserError, which
    names file and line, for what are no finite numbers, and for nodes that lack theirs or have two.

    others: the other tables, whose nodes need features, and their rows, each with nodes first. columns: the
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
        f" If this line names the columns, one of them must be called {', '.join(NODES[1:-1])} or {NODES[-1]}."
    )  # fmt: skip
    return (
        f"has {brief(values[wrong])} in {where}, and features are numbers with a decimal point. Code a category as "
        "columns of 0 and 1, one for each of its values, and give a number in the place of one that is "
        f"missing.{header}"
    )
