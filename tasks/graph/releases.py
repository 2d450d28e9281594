"""The graphs that HGCN published (Chami et al. 2019), and Planetoid's (Yang et al. 2016), from their files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from tasks.errors import UserError
from tasks.fingerprints import file_sha256, joined_sha256
from tasks.graph.graph import Graph, checked, undirected
from tasks.graph.pickles import read_pickle

SOURCE = "the folder data/{name} of github.com/HazyResearch/hgcn"
PLANETOID = ("x", "y", "tx", "ty", "allx", "ally", "graph")
CLASS_BOUNDS = (1.0, 8 / 7, 9 / 7)  # of Airport's fifth number, from which its four classes are made


def planetoid(folder: Path, name: str, labelled: bool) -> Graph:
    """Cora, Citeseer or PubMed from the files ind.<name>.x, .y, .tx, .ty, .allx, .ally, .graph and .test.index.

    Nodes for the test are those of the index; train is the first nodes, as many as y has, and dev the next 1000
    (HGCN's program; 500 in Planetoid's). Nodes of the test that have no features (Citeseer) get zeros and no label.
    """
    source = SOURCE.format(name=folder.name)
    files = {part: folder / f"ind.{name}.{part}" for part in (*PLANETOID, "test.index")}
    absent = [file.name for file in files.values() if not file.is_file()]
    if absent:
        raise UserError(f"{folder} lacks {', '.join(absent)}; fetch them: {source}.")
    values: dict[str, Any] = {part: read_pickle(files[part], source) for part in PLANETOID}
    index = _index(files["test.index"])
    order, n_train, n_known = np.sort(index), len(values["y"]), len(values["ally"])
    n = int(order[-1]) + 1
    if order[0] != n_known or n < n_known + len(order):
        raise UserError(f"{files['test.index']}: its nodes do not follow the {n_known} of {files['ally'].name}.")
    rows = np.concatenate([np.arange(n_known), index])
    features = np.zeros((n, values["allx"].shape[1]), dtype=np.float32)
    features[rows] = sparse.vstack([values["allx"], values["tx"]]).toarray()
    labels = np.full(n, -1, dtype=np.int64)
    labels[rows] = np.concatenate([values["ally"], values["ty"]]).argmax(1)
    pairs = [(a, b) for a, others in values["graph"].items() for b in others]
    edges, notes = undirected(np.array(pairs), n, str(files["graph"]))
    n_dev = min(1000, n_known - n_train)
    parts = {"train": np.arange(n_train), "dev": np.arange(n_train, n_train + n_dev), "test": order}
    return _graph(name, list(files.values()), n, edges, notes, features, labels if labelled else None, parts)


def _index(path: Path) -> np.ndarray:
    try:
        return np.array([int(line) for line in path.read_text(encoding="ascii").split()])
    except ValueError:
        raise UserError(f"{path} is damaged: it must have a whole number on each line.") from None


def disease(folder: Path, name: str, labelled: bool) -> Graph:
    """A simulated epidemic on a tree: <name>.edges.csv, rows `number,number`; <name>.labels.npy; <name>.feats.npz."""
    source = SOURCE.format(name=folder.name)
    files = [folder / f"{name}.{part}" for part in ("edges.csv", "labels.npy", "feats.npz")]
    absent = [file.name for file in files if not file.is_file()]
    if absent:
        raise UserError(f"{folder} lacks {', '.join(absent)}; fetch them: {source}.")
    number: dict[str, int] = {}
    pairs = []
    for k, line in enumerate(files[0].read_text(encoding="utf-8").splitlines(), start=1):
        ends = line.strip().split(",")
        if len(ends) != 2:
            raise UserError(f"{files[0]}, line {k}: {line[:60]!r} is not of the form number,number.")
        pairs.append([number.setdefault(end, len(number)) for end in ends])
    edges, notes = undirected(np.array(pairs), len(number), str(files[0]))
    labels = _loaded(files[1], lambda: np.load(files[1], allow_pickle=False).astype(np.int64), source)
    features = _loaded(files[2], lambda: sparse.load_npz(files[2]).toarray().astype(np.float32), source)
    return _graph(name, files, len(number), edges, notes, features, labels if labelled else None, {})


def _loaded(path: Path, read: Callable[[], np.ndarray], source: str) -> np.ndarray:
    try:
        return read()
    except Exception as error:  # numpy and zipfile raise many
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path} is damaged ({reason}); fetch it again: {source}.") from None


def airport(folder: Path, name: str, labelled: bool) -> Graph:
    """Airports and flights between them, airport.p: a networkx graph whose nodes have five numbers.

    The fifth, of the population of the country, becomes four classes where `labelled`, and is a feature where not.
    """
    file = folder / f"{name}.p"
    adjacency, attributes = read_pickle(file, SOURCE.format(name=folder.name))
    try:
        number = {node: k for k, node in enumerate(attributes)}
        features = np.array([attributes[node]["feat"] for node in number], dtype=np.float64)
        pairs = np.array([(number[a], number[b]) for a, others in adjacency.items() for b in others])
        if features.ndim != 2 or features.shape[1] != 5:
            raise ValueError(f"features of shape {features.shape}")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} is not the published graph ({error}); fetch it again.") from None
    edges, notes = undirected(pairs, len(number), str(file))
    labels = None
    if labelled:
        labels = np.digitize(features[:, 4], CLASS_BOUNDS).astype(np.int64)
        labels, features = labels - labels.min(), features[:, :4]
    names = tuple(str(node) for node in number)
    graph = _graph(name, [file], len(number), edges, notes, features.astype(np.float32), labels, {}, names)
    return graph


def _graph(
    name: str,
    files: Sequence[Path],
    n: int,
    edges: np.ndarray,
    notes: tuple[str, ...],
    features: np.ndarray,
    labels: np.ndarray | None,
    parts: dict[str, np.ndarray],
    names: tuple[str, ...] = (),
) -> Graph:
    sha256 = joined_sha256([file_sha256(file) for file in files])
    listed = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
    return checked(Graph(name, n, edges, features, labels, (), names, parts, notes, listed, sha256))


READERS: dict[str, Callable[[Path, str, bool], Graph]] = {
    "cora": planetoid,
    "citeseer": planetoid,
    "pubmed": planetoid,
    "disease_lp": disease,
    "disease_nc": disease,
    "airport": airport,
}


def read_release(folder: Path, name: str, labelled: bool) -> Graph:
    """The graph `name` of READERS from its folder; with classes where `labelled`. Raises UserError, which names the
    file, where one is missing, damaged or another one than was published."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}; fetch it: {SOURCE.format(name=folder.name)}.")
    return READERS[name](folder, name, labelled)
