"""The data sets of entity typing and their batches."""

import abc
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning.utilities import rank_zero_only

from tasks.base import TaskData
from tasks.batches import TrainBatches
from tasks.entity_typing.cache import COUNTS, Prepared, Recipe, Source, prepared
from tasks.entity_typing.examples import N_CHARACTERS, Columns, Encoder, Examples, Limits, encode
from tasks.entity_typing.mentions import Fault, Mention, read_inputs
from tasks.entity_typing.types import RULES, TypeInventory, count_pairs, first_types, granularity, read_ontology
from tasks.errors import UserError, one_of, whole
from tasks.word_vectors import WordVectors, read_vectors

SPLITS = ("train", "dev", "test")
FILES = ("train", "dev", "test", "ontology")
VECTORS = ("root", "files", "space", "c")


class TypingData(TaskData):
    """What all data sets of entity typing share.

    limits: the most words of a mention, characters of a mention, and words of mention and context together, as
    {mention, characters, context}. mask_padding: whether a batch is as wide as its longest mention; otherwise it is as
    wide as the limits, as in Lopez & Strube's code, where padding takes part in everything. crowd_cycles: further
    passes over the crowd-sourced part of the training data at the end of each epoch. The others are TaskData's.
    """

    def __init__(
        self,
        limits: dict[str, int],
        mask_padding: bool,
        crowd_cycles: int,
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
    ):
        super().__init__(shuffle=shuffle, batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed)
        if set(limits) != set(Limits._fields):
            raise UserError(f"task.data.limits needs {', '.join(Limits._fields)}, and it has {', '.join(limits)}.")
        self.limits = Limits(**limits).check()
        self.mask_padding = mask_padding
        self.crowd_cycles = whole("task.data.crowd_cycles", crowd_cycles, 0)

    @property
    @abc.abstractmethod
    def words(self) -> WordVectors:
        """The word vectors."""

    @property
    @abc.abstractmethod
    def types(self) -> TypeInventory:
        """The types, in the order of the classes."""

    @abc.abstractmethod
    def cycled(self) -> int:
        """How many mentions at the beginning of the training data are gone over again, `crowd_cycles` times."""

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {"words": self.words, "types": self.types, "n_characters": N_CHARACTERS}

    @property
    def identity(self) -> dict[str, str]:
        types = hashlib.sha256("\n".join(self.types.names).encode()).hexdigest()
        return {
            "types": f"{len(self.types)} with sha256 {types[:12]}",
            "vectors": f"{self.words.space} {self.words.d}d with sha256 {self.words.sha256[:12]}",
        }

    def examples(self, columns: Columns, parts: Sequence[tuple[int, int]]) -> Examples:
        return Examples(columns, parts, self.limits, full=not self.mask_padding)

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[Mention]:
        return read_inputs(lines, name)

    def describe(self, example: Mention) -> dict[str, Any]:
        return {"left": example.left, "mention": example.mention, "right": example.right}

    def encode(self, mentions: Sequence[Mention]) -> Examples:
        """New mentions as a split; their types are left out, so targets are (B, 1) of -1."""
        encoder = Encoder(self.words.index, self.limits, {}, keep_untyped=True)
        try:
            columns = encode((m._replace(types=[]) for m in mentions), encoder)
        except Fault as fault:
            raise UserError(f"{fault}.") from None
        return self.examples(columns, [(0, len(mentions))])

    def train_dataloader(self) -> TrainBatches:
        return TrainBatches(
            self.splits()["train"], self.batch_size, self.shuffle, self.seed, *self._place(),
            again=(self.cycled(), self.crowd_cycles), fill=False,
        )  # fmt: skip


class EntityTypingData(TypingData):
    """Mentions from files in the format of Choi et al. 2018, one JSON object a line.

    name: of the data set, for messages and the cache. root: its folder. cache: the folder that prepared data are kept
    in. files: candidates under `root`, of which the first that exists is taken, for dev, test, ontology and train, the
    latter by source (null: no source); the first one stands first and is the one of `crowd_cycles`. sources: a list of
    them, or "available": those that exist. types: "ontology", the lines of its file; "data", coarse and fine labels,
    then others as they first appear; "auto": ontology where its file exists. granularity: see types.RULES. vectors:
    {root, files, space, c}, see `read_vectors`. on_error, at what cannot be used: fail | skip. untyped, what
    becomes of mentions without a type: keep | fault. workers: processes that prepare, or
    null for one for each CPU, 8 at most. download: what scripts/download.py calls the data set. paper_mentions: how
    many training mentions the paper has, if it says so. The others are TypingData's.
    """

    def __init__(
        self,
        name: str,
        root: str,
        cache: str,
        files: dict[str, Any],
        sources: str | list,
        types: str,
        granularity: str,
        vectors: dict[str, Any],
        on_error: str,
        untyped: str,
        workers: int | None,
        download: str,
        paper_mentions: int | None,
        limits: dict[str, int],
        mask_padding: bool,
        crowd_cycles: int,
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
    ):
        super().__init__(limits, mask_padding, crowd_cycles, shuffle, batch_size, eval_batch_size, seed)
        self.name, self.root, self.cache, self.download = name, Path(root), Path(cache), download
        self.vectors, self.paper_mentions = vectors, paper_mentions
        for key, node, needed in (("files", files, FILES), ("vectors", vectors, VECTORS)):
            if set(node) != set(needed):
                raise UserError(f"task.data.{key} needs {', '.join(needed)}, and it has {', '.join(node)}.")
        self.files = {**files, "train": {source: names for source, names in files["train"].items() if names}}
        files = self.files
        if sources != "available" and not (isinstance(sources, list) and set(sources) <= set(files["train"])):
            raise UserError(f"task.data.sources is available or some of {', '.join(files['train'])}, not {sources!r}.")
        if isinstance(sources, list) and (not sources or len(set(sources)) < len(sources)):
            raise UserError(f"task.data.sources needs at least one source and each only once, not {sources!r}.")
        self.sources, self.main = sources, next(iter(files["train"]))
        self.from_types = one_of("task.data.types", types, ("auto", "ontology", "data"))
        self.granularity = one_of("task.data.granularity", granularity, RULES)
        self.on_error = one_of("task.data.on_error", on_error, ("fail", "skip"))
        self.untyped = one_of("task.data.untyped", untyped, ("keep", "fault"))
        self.workers = min(8, os.cpu_count() or 1) if workers is None else whole("task.data.workers", workers, 1)
        self._vectors: WordVectors | None = None
        self._prepared: Prepared | None = None
        self._types: TypeInventory | None = None

    @property
    def words(self) -> WordVectors:
        if self._vectors is None:
            v = self.vectors
            self._vectors = read_vectors(v["files"], Path(v["root"]), v["space"], v["c"], self.cache, self.on_error)
        return self._vectors

    @property
    def types(self) -> TypeInventory:
        if self._types is None:
            names = self.prepared().types
            pairs = functools.cache(lambda: count_pairs(self.splits()["train"].chunks(), len(names)))
            self._types = TypeInventory(names, granularity(names, self.granularity), pairs)
        return self._types

    def find(self, what: str, names: Sequence[str]) -> Source | None:
        """The first of some files under the root that exists."""
        for label in names:
            if (self.root / label).is_file():
                return Source(what, label, self.root / label, what if what in SPLITS else "train")
        return None

    def need(self, what: str, names: Sequence[str]) -> Source:
        """The same. Raises UserError where there is none."""
        if (found := self.find(what, names)) is None:
            tried = " or ".join(str(self.root / label) for label in names)
            raise UserError(
                f"There is no file {tried} ({what}). Fetch it with `python scripts/download.py {self.download}`, or "
                "name the folder of data sets with paths.data_dir=... or the environment variable HYPERBOLIC_DATA."
            )
        return found

    def train_sources(self) -> list[Source]:
        """The files of the training data, the main one first."""
        files = self.files["train"]
        chosen = list(files) if self.sources == "available" else self.sources
        if self.sources != "available":
            found = [self.need(s, files[s]) for s in chosen]
        else:
            found = [self.need(self.main, files[self.main])] + [self.find(s, files[s]) for s in chosen[1:]]
            found = [s for s in found if s is not None]
        return sorted(found, key=lambda s: s.name != self.main)

    def prepared(self) -> Prepared:
        """All mentions as columns, read or prepared the first time they are asked for."""
        if self._prepared is None:
            train = self.train_sources()
            dev, test = (self.need(split, self.files[split]) for split in ("dev", "test"))
            first, grow = self._first_types()
            order = (*train[1:], train[0], dev, test)  # as Lopez and Strube's code gives ids to types
            keep = self.untyped == "keep"
            recipe = Recipe(order, self.words.index, self.limits, tuple(first), grow, keep, self.on_error)
            self._prepared = prepared(self.cache / "entity_typing", self.name, recipe, self.workers)
            self._tell(train)
        return self._prepared

    def _first_types(self) -> tuple[list[str], bool]:
        """Types whose ids do not depend on the mentions, and whether there may be others."""
        names = self.files["ontology"]
        ontology = self.find("ontology", names) if self.from_types == "auto" else None
        if self.from_types == "ontology":
            ontology = self.need("ontology; task.data.types=data does without it", names)
        return (read_ontology(ontology.path), False) if ontology else (first_types(self.granularity), True)

    @rank_zero_only
    def _tell(self, train: list[Source]) -> None:
        """Say in a line each which sources are missing, lines that were passed over, and words without a vector."""
        parts = self._prepared.parts
        if missing := self.missing():
            n = sum(parts[source.name]["stop"] - parts[source.name]["start"] for source in train)
            print(
                f"{self.name}: {n:,} training mentions ({', '.join(source.name for source in train)}); without "
                f"{', '.join(missing)}, which `python scripts/download.py {self.download}` fetches.",
                flush=True,
            )
        for name, part in parts.items():
            if part["skipped"] or part["outside"]:
                print(
                    f"{self.name}: {part['skipped']:,} of {part['lines']:,} lines of {name} were skipped (first: "
                    f"{part['first_fault']}), and {part['outside']:,} types outside of the ontology.",
                    flush=True,
                )
            if part["untyped"]:
                print(f"{self.name}: {part['untyped']:,} mentions of {name} have no type.", flush=True)
        unknown, words = (sum(parts[source.name][key] for source in train) for key in ("unknown", "words"))
        print(f"{self.name}: word vectors {self.words.source} ({self.words.space}).", flush=True)
        if unknown:
            share = 100 * unknown / words
            print(f"{self.name}: {share:.1f} % of the words of the training mentions have no vector.", flush=True)

    def missing(self) -> list[str]:
        """Sources of the paper's training data that this run does not use."""
        return [s for s in self.files["train"] if s not in self.prepared().parts]

    def _parts(self, split: str) -> list[str]:
        return [s.name for s in self.train_sources()] if split == "train" else [split]

    def load(self) -> dict[str, Examples]:
        columns, _, parts = self.prepared()
        return {
            split: self.examples(columns, [(parts[p]["start"], parts[p]["stop"]) for p in self._parts(split)])
            for split in SPLITS
        }

    def cycled(self) -> int:
        part = self.prepared().parts.get(self.main)
        return part["stop"] - part["start"] if part else 0

    def fingerprint(self) -> dict[str, Any]:
        """Also by source what it gave, the vectors, and how much of the paper's training data there is. The counts of a
        split: see `cache.Prepared`."""
        parts = self.prepared().parts
        kept = {name: part["stop"] - part["start"] for name, part in parts.items()}
        of = {split: self._parts(split) for split in SPLITS}
        shas = {s: [parts[p]["sha256"] for p in of[s]] for s in SPLITS}
        train = sum(kept[p] for p in of["train"])
        return {
            "files": {s: " + ".join(parts[p]["file"] for p in of[s]) for s in SPLITS} | {"vectors": self.words.source},
            "counts": {
                s: {"mentions": sum(kept[p] for p in of[s])}
                | {key: sum(parts[p][key] for p in of[s]) for key in COUNTS}
                for s in SPLITS
            },
            "sha256": {
                s: v[0] if len(v) == 1 else hashlib.sha256("".join(v).encode()).hexdigest() for s, v in shas.items()
            } | {"vectors": self.words.sha256},
            "sources": {
                p: {"file": part["file"], "sha256": part["sha256"], "mentions": kept[p]} for p, part in parts.items()
            },
            "types": len(self.types),
            "vectors": {"words": len(self.words.tangent) - 2, "d": self.words.d, "space": self.words.space},
            "paper": {
                "missing": self.missing(),
                "mentions": self.paper_mentions,
                "share": 1.0 if not self.missing() else min(1.0, train / (self.paper_mentions or train)),
            },
        }  # fmt: skip
