"""The graphs that HGCN published (Chami et al. 2019), and Planetoid's (Yang et al. 2016), from their files."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
from scipy import sparse

from tasks.errors import UserError
from tasks.fingerprints import file_sha256, joined_sha256
from tasks.graph.feature_files import dense
from tasks.graph.graph import Graph, checked, undirected
from tasks.graph.pickles import read_pickle
from tasks.reading import brief

SOURCE = "the folder data/{name} of github.com/HazyResearch/hgcn"
PLANETOID = ("x", "y", "tx", "ty", "allx", "ally")
Loaded = TypeVar("Loaded")
CLASS_BOUNDS = (1.0, 8 / 7, 9 / 7)  # of Airport's fifth number, from which its four classes are made


def planetoid(folder: Path, name: str, labelled: bool) -> Graph:
    """Cora, Citeseer or PubMed from the files ind.<name>.x, .y, .tx, .ty, .allx, .ally, .graph and .test.index.

    Nodes for the test are those of the index; train is the first nodes, as many as y has, and dev the next 1000
    (HyboNet's program; 500 in HGCN's and Planetoid's). Nodes of the test that have no features (Citeseer) get zeros
    and no label.
    """
    files = _present(folder, *(f"ind.{name}.{part}" for part in (*PLANETOID, "graph", "test.index")))
    source = SOURCE.format(name=folder.name)
    values = {part: _table(folder / f"ind.{name}.{part}", source) for part in PLANETOID}
    index = _index(files[-1])
    order, n_train, n_known = np.sort(index), len(values["y"]), len(values["ally"])
    links = planetoid_links(folder, name)
    n = links.n
    if order[0] != n_known or n < n_known + len(order):
        raise UserError(f"{files[-1]}: its nodes do not follow the {n_known} of ind.{name}.ally.")
    rows = np.concatenate([np.arange(n_known), index])
    for known, others in (("allx", "tx"), ("ally", "ty")):
        shapes = [values[part].shape for part in (known, others)]
        if shapes != [(n_known, shapes[0][1]), (len(index), shapes[0][1])]:
            raise UserError(
                f"{folder}: ind.{name}.{known} and ind.{name}.{others} have the shapes {shapes[0]} and {shapes[1]}, "
                f"and there are {n_known} and {len(index)} nodes; fetch them again: {source}."
            )
    features = np.zeros((n, values["allx"].shape[1]), dtype=np.float32)
    features[rows] = np.concatenate([values["allx"], values["tx"]])
    labels = np.full(n, -1, dtype=np.int64)
    labels[rows] = np.concatenate([values["ally"], values["ty"]]).argmax(1)
    n_dev = min(1000, n_known - n_train)
    parts = {"train": np.arange(n_train), "dev": np.arange(n_train, n_train + n_dev), "test": order}
    return _graph(links, files, features, labels if labelled else None, parts)


def planetoid_links(folder: Path, name: str) -> Graph:
    """Nodes and edges of :func:`planetoid`, from ind.<name>.graph and .test.index."""
    graph, index = _present(folder, f"ind.{name}.graph", f"ind.{name}.test.index")
    source = SOURCE.format(name=folder.name)
    others_of = read_pickle(graph, source)
    try:
        pairs = [(operator.index(a), operator.index(b)) for a, others in others_of.items() for b in others]
        edges, n = np.array(pairs, dtype=np.int64), len(others_of)
    except (AttributeError, TypeError, OverflowError):
        raise UserError(
            f"{graph} is not the published graph: it must have a list of numbers for each node; fetch it again: "
            f"{source}."
        ) from None
    if (last := int(_index(index).max())) >= n:
        raise UserError(f"{index} names the node {last}, and {graph.name} has {n} nodes; fetch both again: {source}.")
    return _links(name, [graph, index], n, *undirected(edges, n, str(graph)))


def _table(path: Path, source: str) -> np.ndarray:
    """The numbers (N, K) of a pickle. Raises UserError where it holds something else."""
    value = read_pickle(path, source)
    try:
        table = value.toarray() if isinstance(value, sparse.csr_array) else value
    except (MemoryError, ValueError):  # of a shape beyond all bounds
        table = None
    if not isinstance(table, np.ndarray) or table.ndim != 2 or not table.shape[1]:
        raise UserError(f"{path} is not what was published, a table of numbers; fetch it again: {source}.")
    return table


def _present(folder: Path, *names: str) -> list[Path]:
    """The files of a folder. Raises UserError, which names those that it lacks."""
    if absent := [name for name in names if not (folder / name).is_file()]:
        raise UserError(f"{folder} lacks {', '.join(absent)}; fetch them: {SOURCE.format(name=folder.name)}.")
    return [folder / name for name in names]


def _index(path: Path) -> np.ndarray:
    try:
        index = np.array([int(line) for line in path.read_text(encoding="ascii").split()], dtype=np.int64)
    except (ValueError, OverflowError):
        raise UserError(f"{path} is damaged: it must have a whole number on each line.") from None
    if not len(index) or index.min() < 0 or len(np.unique(index)) < len(index):
        raise UserError(f"{path} is damaged: it must have nodes, numbered from 0, each once.")
    return index


def disease(folder: Path, name: str, labelled: bool) -> Graph:
    """A simulated epidemic on a tree: <name>.edges.csv, rows `number,number`; <name>.labels.npy; <name>.feats.npz."""
    files = _present(folder, *(f"{name}.{part}" for part in ("edges.csv", "labels.npy", "feats.npz")))
    source = SOURCE.format(name=folder.name)
    labels = _load(files[1], lambda file: np.load(file, allow_pickle=False).astype(np.int64).reshape(-1), source)
    features = _load(files[2], lambda file: dense(file).astype(np.float32), source)
    return _graph(disease_links(folder, name), files, features, labels if labelled else None, {})


def disease_links(folder: Path, name: str) -> Graph:
    """Nodes and edges of :func:`disease`, from <name>.edges.csv."""
    (file,) = _present(folder, f"{name}.edges.csv")
    number: dict[str, int] = {}
    pairs = []
    text = _load(file, lambda stream: stream.read().decode(), SOURCE.format(name=folder.name))
    for k, line in enumerate(text.splitlines(), start=1):
        ends = line.strip().split(",")
        if len(ends) != 2:
            raise UserError(f"{file}, line {k}: {brief(line)} is not of the form number,number.")
        pairs.append([number.setdefault(end, len(number)) for end in ends])
    return _links(name, [file], len(number), *undirected(np.array(pairs), len(number), str(file)))


def _load(path: Path, read: Callable[[BinaryIO], Loaded], source: str) -> Loaded:
    try:
        with path.open("rb") as stream:
            return read(stream)
    except Exception as error:  # numpy and zipfile raise many
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path} is damaged ({reason}); fetch it again: {source}.") from None


def airport(folder: Path, name: str, labelled: bool) -> Graph:
    """Airports and flights between them, airport.p: a networkx graph whose nodes have five numbers.

    The fifth, of the population of the country, becomes four classes where `labelled`, and is a feature where not.
    """
    file = folder / f"{name}.p"
    graph = read_pickle(file, SOURCE.format(name=folder.name))
    try:
        adjacency, attributes = graph
        number = {node: k for k, node in enumerate(attributes)}
        features = np.array([attributes[node]["feat"] for node in number], dtype=np.float64)
        pairs = np.array([(number[a], number[b]) for a, others in adjacency.items() for b in others])
        if features.ndim != 2 or features.shape[1] != 5:
            raise ValueError(f"features of shape {features.shape}")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"{file} is not the published graph ({brief(str(error))}); fetch it again.") from None
    links = _links(name, [file], len(number), *undirected(pairs, len(number), str(file)), tuple(map(str, number)))
    labels = None
    if labelled:
        labels = np.digitize(features[:, 4], CLASS_BOUNDS).astype(np.int64)
        labels, features = labels - labels.min(), features[:, :4]
    return _graph(links, [file], features.astype(np.float32), labels, {})


def _links(
    name: str, files: Sequence[Path], n: int, edges: np.ndarray, notes: tuple[str, ...], names: tuple[str, ...] = ()
) -> Graph:
    listed, sha256 = _origin(files)
    return Graph(name, n, edges, names=names, notes=notes, files=listed, sha256=sha256)


def _graph(
    links: Graph,
    files: Sequence[Path],
    features: np.ndarray,
    labels: np.ndarray | None,
    parts: dict[str, np.ndarray],
) -> Graph:
    listed, sha256 = _origin(files)
    return checked(replace(links, features=features, labels=labels, parts=parts, files=listed, sha256=sha256))


def _origin(files: Sequence[Path]) -> tuple[str, str]:
    """The files in words, and the sha256 of all."""
    listed = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
    return listed, joined_sha256([file_sha256(file) for file in files])


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


def read_links(folder: Path) -> Graph:
    """The nodes and edges alone of a published graph, which is known by the files of its folder; those of features and
    labels need not be there. Raises UserError where it is none of them, or a file is damaged."""
    for name, reader in READERS.items():
        if reader is planetoid and (folder / f"ind.{name}.graph").is_file():
            return planetoid_links(folder, name)
        if reader is disease and (folder / f"{name}.edges.csv").is_file():
            return disease_links(folder, name)
        if reader is airport and (folder / f"{name}.p").is_file():
            return airport(folder, name, labelled=False)
    raise UserError(
        f"{folder} has the files of none of the published graphs {', '.join(READERS)}; a graph of your own has its "
        "edges in edges.tsv, a knowledge graph its triples in train.txt, valid.txt and test.txt."
    )
