"""A knowledge graph on disk: files of triples, read into numbers."""

import functools
import itertools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tasks.batches import SPLITS
from tasks.errors import UserError, readable
from tasks.fingerprints import part_sha256
from tasks.kg_completion.reader import FORM, TripleReader
from tasks.kg_completion.splits import hold_out, inverses
from tasks.names import on_spellings
from tasks.reading import brief, existing, unread_files
from tasks.separators import ending
from tasks.split_files import split_name

FILES = {"train": "train.txt", "dev": "valid.txt", "test": "test.txt"}  # as WN18RR and FB15k-237 name them
OTHER_FILES = {
    "train": ("train.tsv", "train.csv"),
    "dev": ("dev.txt", "valid.tsv", "dev.tsv", "valid.csv", "dev.csv"),
    "test": ("test.tsv", "test.csv"),
}
EXPECTED = (
    f"Expected is a folder with {', '.join(FILES.values())} (dev.txt will do for valid.txt, and .tsv or .csv for "
    f".txt), plain or with .gz, rows {FORM}."
)


@dataclass(frozen=True)
class Notes:
    """Counts of a split's file: rows read, repeated rows that were dropped, triples that an earlier split has
    too (counts by its name; they are kept), entities and relations that train does not have, triples with these."""

    rows: int
    duplicates: int
    shared: Mapping[str, int]
    new_entities: int
    new_relations: int
    unseen: int


@dataclass(frozen=True, eq=False)
class Graph:
    """Triples in numbers.

    name: of the folder or the file. entities, relations: names by number, in the order of their first appearance in the
    files of train, dev, test (head before tail). triples: by split, long (N, 3) with columns head, relation, tail, no
    row twice. files, sha256: the file of each split and its fingerprint. notes: by split. headers: the splits whose
    file names its columns in the first line. held_out: the splits that were held out of train. cautions: of their
    files, sentences.
    """

    name: str
    entities: tuple[str, ...]
    relations: tuple[str, ...]
    triples: dict[str, Tensor]
    files: dict[str, str]
    sha256: dict[str, str]
    notes: dict[str, Notes]
    headers: tuple[str, ...] = ()
    held_out: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    @functools.cached_property
    def in_train(self) -> tuple[Tensor, Tensor]:
        """bool (E,) and (R,): the entities and the relations that train has."""
        train = self.triples["train"]
        entities = torch.zeros(len(self.entities), dtype=torch.bool)
        entities[train[:, 0]] = entities[train[:, 2]] = True
        relations = torch.zeros(len(self.relations), dtype=torch.bool)
        relations[train[:, 1]] = True
        return entities, relations

    def unseen(self, split: str) -> Tensor:
        """bool (N,): the triples of a split with an entity or a relation that train does not have."""
        triples = self.triples[split]
        entities, relations = self.in_train
        return ~(entities[triples[:, 0]] & relations[triples[:, 1]] & entities[triples[:, 2]])

    def __str__(self) -> str:
        """Its name and how large it is."""
        sizes = ", ".join(f"{len(triples):,} triples in {split}" for split, triples in self.triples.items())
        return f"{self.name}: {len(self.entities):,} entities, {len(self.relations):,} relations, {sizes}"

    def remarks(self) -> list[str]:
        """What is unusual about the files, a sentence for each fact; none for files without a fault."""
        remarks = [*self.cautions]
        if files := self._files_with_header():
            remarks.append(
                f"{self._place(', '.join(files))}: the names of the first row, "
                f"{self._words(self.triples['train'][0])}, are in no other. If it is a header, remove it: it was read "
                "as a triple."
            )
        one_file = len({*self.files.values()}) < len(self.files)
        for split, notes in self.notes.items():
            where = self._place(self.files[split]) + (f" ({split})" if one_file else "")
            if notes.duplicates:
                n = notes.duplicates
                remarks.append(f"{where}: {n} of {notes.rows} rows repeat earlier ones and were dropped.")
            for other, count in notes.shared.items():
                n = len(self.triples[split])
                remarks.append(f"{where}: {count} of {n} triples are also in {other}; they are kept.")
            if notes.unseen:
                remarks.append(
                    f"{where}: {notes.unseen} of {len(self.triples[split])} triples have an entity or a relation that "
                    f"train does not have (entities: {notes.new_entities}, relations: {notes.new_relations}), first "
                    f"{self._words(self.triples[split][self.unseen(split)][0])}."
                )
        known = (self.triples["train"], self.triples["test"], len(self.entities), self.relations)
        if leak := inverses(*known, symmetric="test" in self.held_out):
            remarks.append(f"{self.name}: {leak}.")
        remarks += [f"{self.name}: {line}." for line in on_spellings(self.entities, "entities")]
        if "?" in self.entities:
            remarks.append(f"{self.name}: an entity is called '?', which mode=predict takes for what is sought.")
        blank = [name for name in (*self.entities, *self.relations) if name != name.strip()]
        if blank:
            remarks.append(f"{self.name}: {len(blank)} names begin or end with a blank, first {brief(blank[0])}.")
        return remarks

    def _files_with_header(self) -> list[str]:
        """The files that begin as train does, if the entities and the relation of that row are in no other triple."""
        if "train" in self.headers:
            return []
        header = self.triples["train"][:1]
        splits = [split for split, rows in self.triples.items() if rows[:1].equal(header)]
        others = [rows[split in splits :] for split, rows in self.triples.items()]
        is_header = sum(map(len, others)) > 0 and not any(
            (rows[:, 1] == header[0, 1]).any() or torch.isin(rows[:, ::2], header[0, ::2]).any() for rows in others
        )
        return [self.files[split] for split in splits] if is_header else []

    def _place(self, file: str) -> str:
        """A file's name below that of its folder; the graph of one file has the name of it."""
        return file if file == self.name else f"{self.name}/{file}"

    def _words(self, triple: Tensor) -> str:
        h, r, t = triple.tolist()
        names = (self.entities[h], self.relations[r], self.entities[t])
        return readable(f"({', '.join(name[:60] for name in names)})")


def read_graph(folder: Path, held_out: Mapping[str, float] | None = None, seed: int = 0) -> Graph:
    """The graph in the files train.txt, valid.txt (or dev.txt) and test.txt (or .tsv, or .csv) of a folder, or in one
    file of triples.

    Rows are `head <tab> relation <tab> tail` in UTF-8, with Unix or Windows ends of lines; blank lines at the end of a
    file are passed over. In files .csv commas or semicolons separate the columns, which may be in quotes, and a first
    line may name the columns of any file, see `read_names`; in these blank lines are passed over anywhere. A column
    split of the one file that there is says of which split a triple is, see `split_column`; triples of none are left
    out. Rows that repeat an earlier one of the same file are dropped, triples of dev and test that an earlier split has
    too are kept; `Graph.remarks` reports both.

    held_out: by split the share of train that it is where nothing is given for it, see `hold_out`, drawn from `seed`.

    About 3 s and 100 MB for 1M rows on one core (0.2M entities), four times as long of a .csv and of a file whose first
    line names the columns.

    Raises UserError, which names file and line, for what is missing, empty, not UTF-8 or not of this form.
    """
    folder = Path(folder)
    shares = dict(held_out or {})
    if folder.is_file():
        paths = {"train": folder}
    else:
        paths = {split: path for split in SPLITS if (path := _split_file(folder, split, shares)) is not None}
    numbers: list[defaultdict[bytes, int]] = [defaultdict(itertools.count().__next__) for _ in range(2)]
    arrays: dict[str, np.ndarray] = {}
    sha256: dict[str, str] = {}
    headers: dict[str, str] = {}
    for split, path in paths.items():
        reader = TripleReader(path, *numbers, given_splits=len(paths) == 1)
        arrays[split], sha256[split] = reader.read()
        headers |= {split: f"{reader.note}."} if reader.note else {}
        if reader.parts:
            sha256 |= {part: part_sha256(sha256["train"], part.encode()) for part in reader.parts if part != "train"}
            arrays = {part: arrays["train"][rows] for part, rows in reader.parts.items()}
    others = (unread_files(folder / name for name in (FILES[split], *OTHER_FILES[split])) for split in paths)
    cautions = [*filter(None, others), *headers.values()]
    if reader.unused:
        cautions.append(f"{paths['train'].name}: {reader.unused:,} rows have no split and are left out.")
    entities, relations = (tuple(name.decode("utf-8") for name in of_kind) for of_kind in numbers)
    numbers.clear()
    files = {split: paths.get(split, paths["train"]).name for split in SPLITS}
    if missing := [split for split in SPLITS if split not in arrays and split not in shares]:
        split = missing[0]
        raise UserError(
            f"{folder} has no triples for {split}, and task.data.held_out has no share for {split}; give some the "
            f"split {split} in a column split, or set task.data.held_out.{split}=0.1. {EXPECTED}"
        )
    if shares := {split: share for split, share in shares.items() if split not in arrays}:
        distinct = np.sort(np.unique(arrays["train"], axis=0, return_index=True)[1])
        if repeated := len(arrays["train"]) - len(distinct):
            rows = len(arrays["train"])
            cautions.append(f"{files['train']}: {repeated} of {rows} rows repeat earlier ones and were dropped.")
        arrays |= hold_out(arrays["train"][distinct], shares, seed)
        drawn = " and ".join(f"{len(arrays[split]):,} triples for {split}" for split, share in shares.items() if share)
        if drawn:
            cautions.append(
                f"Held out of {files['train']} at random, as they are not given: {drawn} (task.data.held_out); every "
                "entity and relation stays in train."
            )
        drawing = json.dumps([shares, seed], sort_keys=True).encode()
        sha256 |= {split: part_sha256(sha256["train"], drawing + split.encode()) for split in shares}
    graph = assemble(folder.resolve().name, entities, relations, arrays, files, sha256)
    return replace(graph, headers=tuple(headers), held_out=tuple(shares), cautions=tuple(cautions))


def assemble(
    name: str, entities: Sequence[str], relations: Sequence[str], arrays: Mapping[str, np.ndarray],
    files: Mapping[str, str], sha256: Mapping[str, str],
) -> Graph:  # fmt: skip
    """A Graph of integer arrays (N, 3) by split: drops repeated rows and counts what `Notes` says."""
    arrays = {split: arrays[split] for split in SPLITS}
    sizes = [len(array) for array in arrays.values()]
    keys = np.split(triple_keys(list(arrays.values()), len(entities), len(relations)), np.cumsum(sizes)[:-1])
    in_train = [np.zeros(len(names), dtype=bool) for names in (entities, relations)]
    in_train[0][arrays["train"][:, ::2]] = in_train[1][arrays["train"][:, 1]] = True
    triples, notes = {}, {}
    earlier: dict[str, np.ndarray] = {}
    for (split, array), key in zip(arrays.items(), keys, strict=True):
        distinct, first = np.unique(key, return_index=True)
        if len(first) < len(array):
            array = array[np.sort(first)]
        triples[split] = torch.from_numpy(array.astype(np.int64))
        shared = {other: len(np.intersect1d(distinct, has, assume_unique=True)) for other, has in earlier.items()}
        new_entities, new_relations = ~in_train[0][array[:, ::2]], ~in_train[1][array[:, 1]]
        notes[split] = Notes(
            rows=len(key), duplicates=len(key) - len(array), shared={k: n for k, n in shared.items() if n},
            new_entities=len(np.unique(array[:, ::2][new_entities])),
            new_relations=len(np.unique(array[:, 1][new_relations])),
            unseen=int((new_entities.any(1) | new_relations).sum()),
        )  # fmt: skip
        earlier[split] = distinct
    return Graph(name, tuple(entities), tuple(relations), triples, dict(files), dict(sha256), notes)


def triple_keys(arrays: Sequence[np.ndarray], n_entities: int, n_relations: int) -> np.ndarray:
    """int64, one for each row of the arrays (N, 3) joined, equal where the triples are: (h R + r) E + t, where this
    is too large for 64 bits with the rank of (h, r) among the pairs that occur."""
    pairs = np.concatenate([array[:, 0].astype(np.int64) * n_relations + array[:, 1] for array in arrays])
    if n_entities * n_entities * n_relations > np.iinfo(np.int64).max:
        pairs = np.unique(pairs, return_inverse=True)[1]
    pairs *= n_entities
    pairs += np.concatenate([array[:, 2] for array in arrays])
    return pairs


def _split_file(folder: Path, split: str, held_out: Mapping[str, float]) -> Path | None:
    """The file of a split; None of one that is held out."""
    if not folder.is_dir():
        raise UserError(
            f"There is no folder or file {folder}. {EXPECTED} `python scripts/download.py wn18rr` (or fb15k237, umls) "
            "fetches a known one; data.dir says where that of task=kg is, paths.data_dir or the environment variable "
            "HYPERBOLIC_DATA where the others are."
        )
    for name in (FILES[split], *OTHER_FILES[split]):
        if (path := existing(folder / name)) is not None:
            return path
    if split in held_out and split != "train":
        if other := next((file for file in sorted(folder.iterdir()) if _may_be(file, split)), None):
            raise UserError(
                f"{folder} has no {FILES[split]}, and {other.name} is not read: rename it to {FILES[split]}, or move "
                f"it away, and a part of train is held out for {split} (task.data.held_out)."
            )
        return None
    raise UserError(f"{folder} has no {FILES[split]}. {EXPECTED}")


def _may_be(file: Path, split: str) -> bool:
    """Whether the name of a file of a folder says that it is this split."""
    is_table = ending(file) in (".txt", ".tsv", ".csv")
    return is_table and not file.name.startswith(".") and split_name(file.name.partition(".")[0]) == split
