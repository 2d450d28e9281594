"""The data set of entity typing, from files."""

import contextlib
import functools
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pytorch_lightning.utilities import rank_zero_only

from tasks.batches import SPLITS, Split
from tasks.entity_typing.cache import COUNTS, PreparedMentions, Recipe, prepare_mentions
from tasks.entity_typing.examples import Encoder
from tasks.entity_typing.mentions import Mention, parse
from tasks.entity_typing.release import Release
from tasks.entity_typing.types import TypeInventory, first_types, granularity, read_ontology
from tasks.entity_typing.typing_data import TypingData
from tasks.errors import UserError, one_of, whole
from tasks.fingerprints import joined_sha256
from tasks.reading import ON_ERROR, Fault, open_bytes
from tasks.word_vectors import VectorSource, WordVectors

CHUNK = 1 << 22  # words that are counted together


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
        self.on_error = one_of("task.data.on_error", on_error, ON_ERROR)
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
        note = f"word vectors: {len(kept.index):,} words that the checkpoint keeps; other words are unknown"
        try:
            vectors = self.vectors.read(self.cache, self.on_error)
        except UserError:
            root = self.vectors.root
            note += f", as long as {kept.source} (sha256 {kept.sha256[:12]}) is not in {root} (task.data.vectors)."
        else:
            if (vectors.sha256, vectors.space, vectors.d) == (kept.sha256, kept.space, kept.d):
                return vectors
            note += (
                f", as {vectors.source} (sha256 {vectors.sha256[:12]}, {vectors.d}d) is not the {kept.source} (sha256 "
                f"{kept.sha256[:12]}, {kept.d}d) that the model was trained with."
            )
        rank_zero_only(print)(note, flush=True)
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
