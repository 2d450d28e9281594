"""The data sets of entity typing and their batches."""

import abc
import contextlib
import functools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from tasks.base import TaskData
from tasks.batches import Split, TrainBatches
from tasks.entity_typing.cache import COUNTS, PreparedMentions, Recipe, prepare_mentions
from tasks.entity_typing.examples import N_CHARACTERS, Columns, Encoder, Examples, Limits, encode
from tasks.entity_typing.label_graph import rows_of_types
from tasks.entity_typing.mentions import PLAIN, RELEASE, Mention, parse, read_inputs
from tasks.entity_typing.release import SPLITS, Release
from tasks.entity_typing.types import GRANULARITIES, TypeInventory, count_pairs, first_types, granularity, read_ontology
from tasks.errors import UserError, one_of, whole
from tasks.fingerprints import identity_of, joined_sha256
from tasks.ragged import FIRST
from tasks.reading import Fault, open_bytes
from tasks.text import PAD, UNK
from tasks.vocabularies import check_floats, check_names, check_numbers
from tasks.word_vectors import VectorSource, WordVectors

CHUNK = 1 << 22  # words that are counted together
KEPT_BYTES = 1 << 27  # of word vectors in a checkpoint at most


@dataclass(frozen=True)
class BatchOptions:
    """limits: see Limits. mask_padding: whether a batch is as wide as its longest mention; otherwise it is as wide as
    the limits, as in Lopez & Strube's code, where padding takes part in everything. crowd_cycles: further passes over
    the crowd-sourced part of the training data at the end of each epoch. The others are TaskData's."""

    limits: Limits
    mask_padding: bool
    crowd_cycles: int
    shuffle: str
    batch_size: int
    eval_batch_size: int
    seed: int


class TypingData(TaskData):
    """What all data sets of entity typing share. options: the fields of `BatchOptions`."""

    Options = BatchOptions

    def __init__(self, **options: Any):
        batches = BatchOptions(**options)
        super().__init__(batches.shuffle, batches.batch_size, batches.eval_batch_size, batches.seed)
        self.limits, self.mask_padding = batches.limits, batches.mask_padding
        self.crowd_cycles = whole("task.data.crowd_cycles", batches.crowd_cycles, 0)
        self._pairs: Tensor | None = None  # see co_occurrence

    @property
    @abc.abstractmethod
    def words(self) -> WordVectors:
        """The word vectors."""

    @property
    @abc.abstractmethod
    def types(self) -> TypeInventory:
        """The types, in the order of the classes."""

    @abc.abstractmethod
    def crowd_size(self) -> int:
        """How many mentions at the beginning of the training data are gone over again, `crowd_cycles` times."""

    def co_occurrence(self) -> Tensor:
        """How many training mentions have two types, for each pair of types: (E, 3), see `TypeInventory`."""
        if self._pairs is None:
            train = self.splits()["train"]
            assert isinstance(train, Examples)
            self._pairs = count_pairs(train.chunks(), len(self.types))
        return self._pairs

    def words_in_use(self) -> Counter[int]:
        """How often each row of the vectors stands in the data. Here all of them, once."""
        return Counter(range(FIRST, len(self.words.tangent)))

    def vocabulary(self) -> dict[str, Any]:
        """Types, and the vectors of the words of types and data, of these the most frequent, up to KEPT_BYTES; others
        are in the file of vectors, whose sha256 says which one it is."""
        words, types = self.words, self.types
        most = KEPT_BYTES // (words.d * words.tangent.element_size())
        by_count = [row for row, _ in self.words_in_use().most_common() if row >= FIRST]
        rows = sorted([*dict.fromkeys([*rows_of_types(types, words), *by_count])][:most])
        by_row = {row: word for word, row in words.index.items()}
        kept = {
            "types": list(types.names), "granularity": types.granularity, "words": [by_row[row] for row in rows],
            "tangent": words.tangent[[PAD, UNK, *rows]], "source": words.source, "sha256": words.sha256,
            "space": words.space,
        }  # fmt: skip
        return kept | ({} if self._pairs is None else {"pairs": self._pairs})

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        types, words = tuple(check_names(vocabulary["types"])), check_names(vocabulary["words"])
        levels = check_numbers(vocabulary["granularity"].unsqueeze(-1), 1, len(GRANULARITIES)).squeeze(-1)
        tangent = check_floats(vocabulary["tangent"], FIRST + len(words)).float()
        source, sha256, space = check_names([vocabulary[key] for key in ("source", "sha256", "space")], different=False)
        if len(levels) != len(types) or not types:
            raise ValueError("types without a granularity")
        self._pairs = check_numbers(vocabulary["pairs"], 3, 1 << 62) if "pairs" in vocabulary else None
        if self._pairs is not None and len(self._pairs) and self._pairs[:, :2].max() >= len(types):
            raise ValueError("pairs of other types")
        index = {word: row for row, word in enumerate(words, start=FIRST)}
        self.__dict__["words"] = self.all_words(WordVectors(index, tangent, source, sha256, space))
        self.__dict__["types"] = TypeInventory(types, levels, self.co_occurrence)

    def all_words(self, kept: WordVectors) -> WordVectors:
        """The vectors that `kept` is a part of, where their file is at hand, or else these. Here always these."""
        return kept

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {"words": self.words, "types": self.types, "n_characters": N_CHARACTERS}

    @property
    def identity(self) -> dict[str, str]:
        return {
            "types": identity_of(self.types.names),
            "vectors": f"{self.words.space} {self.words.d}d with sha256 {self.words.sha256[:12]}",
        }

    def examples(self, columns: Columns, parts: Sequence[tuple[int, int]]) -> Examples:
        return Examples(columns, parts, self.limits, full=not self.mask_padding)

    @property
    def input_keys(self) -> tuple[str, ...]:
        return (*RELEASE[:3], *PLAIN)

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
            again=(self.crowd_size(), self.crowd_cycles), fill=False,
        )  # fmt: skip


@dataclass(frozen=True)
class Preparation:
    """Where and how mentions are prepared. cache: the folder that prepared data are kept in. workers: processes that
    share the work, or None for one for each CPU, 8 at most."""

    cache: str
    workers: int | None


class EntityTypingData(TypingData):
    """Mentions from files in the format of Choi et al. 2018, one JSON object a line.

    release: the files. preparation: see there. sources: a list of those of the training data, the first of which in
    the release is the one of `crowd_cycles`, or "available": those that exist. types: "ontology", the lines of its
    file; "data", coarse and fine labels, then others as they first appear; "auto": ontology where its file exists.
    vectors: of the words. on_error, at what cannot be used: fail | skip. untyped, what becomes of mentions without a
    type: keep | fault. The others are TypingData's.
    """

    def __init__(
        self,
        release: Release,
        preparation: Preparation,
        sources: str | list,
        types: str,
        vectors: VectorSource,
        on_error: str,
        untyped: str,
        **options: Any,
    ):
        super().__init__(**options)
        release.check_selection(sources)
        self.release, self.sources, self.vectors = release, sources, vectors
        self.cache = Path(preparation.cache)
        workers = min(8, os.cpu_count() or 1) if preparation.workers is None else preparation.workers
        self.workers = whole("task.data.preparation.workers", workers, 1)
        self.type_source = one_of("task.data.types", types, ("auto", "ontology", "data"))
        self.on_error = one_of("task.data.on_error", on_error, ("fail", "skip"))
        self.untyped = one_of("task.data.untyped", untyped, ("keep", "fault"))
        self._mentions: PreparedMentions | None = None

    @functools.cached_property
    def words(self) -> WordVectors:
        return self.vectors.read(self.cache, self.on_error)

    @functools.cached_property
    def types(self) -> TypeInventory:
        names = self.mentions().types
        return TypeInventory(names, granularity(names, self.release.granularity), self.co_occurrence)

    def words_in_use(self) -> Counter[int]:
        words, counts = self.mentions().columns.words, np.zeros(len(self.words.tangent), np.int64)
        for first in range(0, len(words), CHUNK):
            counts += np.bincount(words[first : first + CHUNK], minlength=len(counts))
        return Counter({int(row): int(counts[row]) for row in np.flatnonzero(counts)})

    def all_words(self, kept: WordVectors) -> WordVectors:
        """The whole file, where it is the one that the model was trained with; a line says what unknown words are."""
        said = f"word vectors: {len(kept.index):,} words that the checkpoint keeps; other words are unknown"
        try:
            vectors = self.vectors.read(self.cache, self.on_error)
        except UserError:
            root = self.vectors.root
            said += f", as long as {kept.source} (sha256 {kept.sha256[:12]}) is not in {root} (task.data.vectors)."
        else:
            if (vectors.sha256, vectors.space, vectors.d) == (kept.sha256, kept.space, kept.d):
                return vectors
            said += (
                f", as {vectors.source} (sha256 {vectors.sha256[:12]}, {vectors.d}d) is not the {kept.source} (sha256 "
                f"{kept.sha256[:12]}, {kept.d}d) that the model was trained with."
            )
        rank_zero_only(print)(said, flush=True)
        return kept

    def mentions(self) -> PreparedMentions:
        """All mentions as columns, read or prepared at the first call."""
        if self._mentions is None:
            release, train = self.release, self.release.training_files(self.sources)
            dev, test = release.need("dev", release.dev), release.need("test", release.test)
            first, grow = self._first_types()
            order = (*train[1:], train[0], dev, test)  # as Lopez and Strube's code gives ids to types
            keep = self.untyped == "keep"
            recipe = Recipe(order, self.words.index, self.limits, tuple(first), grow, keep, self.on_error)
            self._mentions = prepare_mentions(self.cache / "entity_typing", release.name, recipe, self.workers)
            self._print_summary([source.name for source in train], self._mentions.parts)
        return self._mentions

    def _first_types(self) -> tuple[list[str], bool]:
        """Types whose ids do not depend on the mentions, and whether there may be others."""
        release = self.release
        ontology = release.find("ontology", release.ontology) if self.type_source == "auto" else None
        if self.type_source == "ontology":
            ontology = release.need("ontology; task.data.types=data does without it", release.ontology)
        return (read_ontology(ontology.path), False) if ontology else (first_types(release.granularity), True)

    @rank_zero_only
    def _print_summary(self, train: list[str], parts: dict[str, dict[str, Any]]) -> None:
        """In a line each: which sources are missing, lines that were passed over, and words without a vector."""
        lines = []
        if missing := self._missing(parts):
            n = sum(parts[source]["stop"] - parts[source]["start"] for source in train)
            lines.append(
                f"{n:,} training mentions ({', '.join(train)}); without {', '.join(missing)}, which "
                f"`python scripts/download.py {self.release.download}` fetches."
            )
        for source, part in parts.items():
            if part["skipped"] or part["outside"]:
                lines.append(
                    f"{part['skipped']:,} of {part['lines']:,} lines of {source} were skipped (first: "
                    f"{part['first_fault']}), and {part['outside']:,} types outside of the ontology."
                )
            if part["untyped"]:
                lines.append(f"{part['untyped']:,} mentions of {source} have no type.")
            if n := part.get("in_train", 0):
                which = f"{n:,} of {part['stop'] - part['start']:,} mentions of {source}"
                lines.append(f"{which} are in train, too, as the model reads them; they are kept.")
            if names := part.get("new_types"):
                some = ", ".join(names[:3])
                lines.append(f"{len(names):,} types of {source}, as {some}, are those of no training mention.")
        lines.append(f"word vectors {self.words.source} ({self.words.space}).")
        unknown, words = (sum(parts[source][key] for source in train) for key in ("unknown", "words"))
        if unknown:
            share = 100 * unknown / words
            lines.append(f"{share:.1f} % of the words of the training mentions have no vector.")
        for line in lines:
            print(f"{self.release.name}: {line}", flush=True)

    def _missing(self, parts: dict[str, dict[str, Any]]) -> list[str]:
        """Sources of the paper's training data that this run does not use."""
        return [source for source in self.release.sources if source not in parts]

    def _parts(self, split: str) -> list[str]:
        if split != "train":
            return [split]
        return [source.name for source in self.release.training_files(self.sources)]

    def load(self) -> dict[str, Split]:
        columns, _, parts = self.mentions()
        return {
            split: self.examples(columns, [(parts[p]["start"], parts[p]["stop"]) for p in self._parts(split)])
            for split in SPLITS
        }

    def test_inputs(self) -> Iterator[tuple[Mention, dict[str, Any]]]:
        """The file is read again, for the texts; lines that were skipped are not there."""
        types, keep = {name: k for k, name in enumerate(self.types.names)}, self.untyped == "keep"
        encoder = Encoder(self.words.index, self.limits, types, drop=True, keep_untyped=keep)
        with open_bytes(self.release.need("test", self.release.test).path) as lines:
            for line in lines:
                with contextlib.suppress(Fault):
                    mention = parse(line)
                    encoder.add(*mention)
                    yield mention, {"gold": [name for name in dict.fromkeys(mention.types) if name in types]}

    def crowd_size(self) -> int:
        part = self.mentions().parts.get(next(iter(self.release.sources)))
        return part["stop"] - part["start"] if part else 0

    def fingerprint(self) -> dict[str, Any]:
        """Also by source what it gave, the vectors, and how much of the paper's training data there is. The counts of a
        split: see `cache.PreparedMentions`."""
        parts = self.mentions().parts
        mentions = {name: part["stop"] - part["start"] for name, part in parts.items()}
        names = {split: self._parts(split) for split in SPLITS}
        train, missing = sum(mentions[p] for p in names["train"]), self._missing(parts)
        return {
            "files": {s: " + ".join(parts[p]["file"] for p in names[s]) for s in SPLITS}
            | {"vectors": self.words.source},
            "counts": {
                s: {"mentions": sum(mentions[p] for p in names[s])}
                | {key: sum(parts[p][key] for p in names[s]) for key in COUNTS}
                | ({} if s == "train" else {"in_train": parts[s]["in_train"], "new_types": len(parts[s]["new_types"])})
                for s in SPLITS
            },
            "sha256": {
                s: joined_sha256([parts[p]["sha256"] for p in names[s]]) for s in SPLITS
            } | {"vectors": self.words.sha256},
            "sources": {
                p: {"file": part["file"], "sha256": part["sha256"], "mentions": mentions[p]}
                for p, part in parts.items()
            },
            "types": len(self.types),
            "vectors": {"words": len(self.words.tangent) - 2, "d": self.words.d, "space": self.words.space},
            "paper": {
                "missing": missing,
                "mentions": self.release.paper_mentions,
                "share": 1.0 if not missing else min(1.0, train / (self.release.paper_mentions or train)),
            },
        }  # fmt: skip
