"""Pairs of sentences from files, as word ids in batches that are as wide as their longest sentence."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from tasks.base import TaskData
from tasks.batches import Split
from tasks.errors import UserError, known_splits
from tasks.nli.cache import from_files
from tasks.nli.columns import Prepared, Recipe, prepare
from tasks.nli.pairs import SENTENCES, Pair, read_inputs
from tasks.nli.places import ALL, SPLITS, find_files, named_files
from tasks.nli.toy import toy_pairs
from tasks.ragged import FIRST, Sentences, encode_texts
from tasks.reading import brief

MOST_GENRES = 20  # data with more have no metrics by genre


@dataclass(frozen=True)
class PairSplit:
    """N pairs: the sentences of all splits, premises and hypotheses in turn; rows (N,), which pairs of them; labels and
    groups (N,) of these."""

    sentences: Sentences
    rows: Tensor
    labels: Tensor
    groups: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Tensor:
        """(2, N): words of the premises and of the hypotheses."""
        return self.sentences.lengths.view(-1, 2)[self.rows].T

    @property
    def sizes(self) -> Tensor:
        """(N,): words of the longer sentence."""
        return self.lengths.amax(0)

    def __getitem__(self, index: Tensor) -> dict[str, Any]:
        """words (2, B, T) for the longest sentence T of the batch, lengths (2, B), labels and group (B,); all int64."""
        first = 2 * self.rows[index]
        words, lengths = self.sentences.pad(torch.stack([first, first + 1]))
        return {"words": words, "lengths": lengths, "labels": self.labels[index], "group": self.groups[index]}


@dataclass(frozen=True)
class InputSplit(PairSplit):
    """New pairs, whose batches have the premises' words as well: "tokens", a list for each pair."""

    tokens: tuple[list[str], ...]

    def __getitem__(self, index: Tensor) -> dict[str, Any]:
        return super().__getitem__(index) | {"tokens": [self.tokens[k] for k in index.tolist()]}


class NliData(TaskData):
    """Premise and hypothesis, and how they are related: SNLI, MultiNLI, and any files in their formats.

    folder: of the files; null makes pairs up by the recipe `toy` ({"seed": of the generator}). cache: the folder that
    prepared pairs are kept in. files: by split and part, names without their ending, null for a part that is not there;
    null: found by name, see `places.find_files`. download: what scripts/download.py calls the data set, or null.
    paper_pairs: how many training pairs the paper has, if it says so, for the record. recipe: the fields of
    `columns.Recipe`; held_out is for where there are no files for dev. The others are TaskData's.
    """

    def __init__(
        self,
        folder: str | None,
        toy: dict[str, int] | None,
        cache: str,
        files: dict[str, dict[str, str | None]] | None,
        download: str | None,
        paper_pairs: int | None,
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
        **recipe: Any,
    ):
        super().__init__(shuffle=shuffle, batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed)
        if folder is None and toy is None:
            raise UserError(
                "task=nli needs a folder with pairs for train, dev and test, such as train.jsonl, dev.jsonl and "
                "test.jsonl; name it with data.dir=my_pairs."
            )
        known_splits("task.data.files", files or {}, SPLITS)
        self.folder = None if folder is None else Path(folder).expanduser()
        self.toy, self.files, self.cache, self.download = toy, files, Path(cache), download
        self.paper_pairs = paper_pairs
        self.recipe = Recipe(**recipe)
        self._prepared: Prepared | None = None
        self._rows: dict[str, np.ndarray] = {}
        self._index: dict[str, int] | None = None

    def prepared(self) -> Prepared:
        """All pairs in arrays, read or made the first time they are needed."""
        if self._prepared is None:
            self._prepared = self._generated() if self.folder is None else self._from_files(self.folder)
            for split, fault in self._prepared.faults.items():
                n = self._prepared.counts[split]["skipped"]
                rank_zero_only(print)(f"{n:,} lines of {split} were skipped; the first is {fault}.", flush=True)
            n, total = self._prepared.counts["train"]["pairs"], self.paper_pairs
            if total is not None and n < total:
                rank_zero_only(print)(f"{n:,} training pairs, {n / total:.1%} of the paper's {total:,}.", flush=True)
        return self._prepared

    def _from_files(self, folder: Path) -> Prepared:
        named = None if self.files is None else named_files(folder, self.files, self.download)
        sources = find_files(folder) if named is None else named
        splits = {source.split for source in sources}
        if missing := [split for split in ("train", "test") if split not in splits]:
            raise UserError(f"task.data.files names no file for {missing[0]}.")
        held_out = 0.0 if "dev" in splits else self.recipe.held_out
        if "dev" not in splits and not held_out:
            raise UserError(
                f"There is no file for dev in {folder}; add one, or keep a part of train for it with "
                "task.data.held_out=0.1."
            )
        return from_files(sources, replace(self.recipe, held_out=held_out), self.cache)

    def _generated(self) -> Prepared:
        sizes = {split: size for split in SPLITS if (size := self.recipe.sizes.get(split)) is not None}
        toy = self.toy or {}
        if set(toy) != {"seed"} or len(sizes) < len(SPLITS):
            raise UserError("task.data.toy needs a seed, and task.data.sizes a number for train, dev and test.")
        rows = (
            (split, ALL, f"pair {k}", pair)
            for number, split in enumerate(SPLITS)
            for k, pair in enumerate(toy_pairs(sizes[split], np.random.default_rng([toy["seed"], number])))
        )
        pairs = prepare(rows, replace(self.recipe, held_out=0.0))
        sha256 = hashlib.sha256(pairs.arrays.text.tobytes() + pairs.arrays.labels.tobytes()).hexdigest()
        return pairs._replace(files=dict.fromkeys(SPLITS, "made up"), sha256=dict.fromkeys(SPLITS, sha256))

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, by number."""
        return tuple(self.prepared().classes)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Of each group the names of its metrics: its part and its genre, where it has one."""
        groups = self.prepared().groups
        by_genre = len({genre for _, genre in groups}) <= MOST_GENRES
        names = (["" if part == ALL else part, genre if by_genre else ""] for part, genre in groups)
        return tuple(tuple(dict.fromkeys(re.sub(r"[^\w.-]+", "_", n) for n in both if n)) for both in names)

    @property
    def model_sizes(self) -> dict[str, Any]:
        pairs = self.prepared()
        return {
            "n_words": FIRST + len(pairs.words), "n_classes": len(pairs.classes), "classes": self.labels,
            "groups": self.groups, "dev_groups": tuple(np.unique(pairs.arrays.groups[self.rows("dev")]).tolist()),
        }  # fmt: skip

    @property
    def identity(self) -> dict[str, str]:
        words = self.prepared().words
        digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
        return {"words": f"{len(words)} with sha256 {digest[:12]}", "labels": ", ".join(self.labels)}

    def rows(self, split: str) -> np.ndarray:
        """Which of all prepared pairs are those of a split: of train as they were read, of the others the shortest
        first, so that the batches of an evaluation have sentences of about the same length."""
        if split not in self._rows:
            arrays = self.prepared().arrays
            rows = np.flatnonzero(arrays.splits == SPLITS.index(split))
            if split != "train":
                rows = rows[np.diff(arrays.starts).reshape(-1, 2)[rows].max(1).argsort(kind="stable")]
            self._rows[split] = rows
        return self._rows[split]

    def load(self) -> dict[str, Split]:
        arrays, splits = self.prepared().arrays, {}
        sentences = Sentences(torch.from_numpy(arrays.words), torch.from_numpy(arrays.starts))
        for split in SPLITS:
            rows = self.rows(split)
            labels, groups = arrays.labels[rows].astype(np.int64), arrays.groups[rows].astype(np.int64)
            splits[split] = PairSplit(sentences, *(torch.from_numpy(a) for a in (rows, labels, groups)))
        return {**splits}

    def texts(self, split: str, k: int) -> tuple[str, str]:
        """Premise and hypothesis of the k-th pair of a split, as they were read."""
        arrays, row = self.prepared().arrays, int(self.rows(split)[k])
        return arrays.sentence(row, 0), arrays.sentence(row, 1)

    def fingerprint(self) -> dict[str, Any]:
        """The counts of a split: see `columns.Prepared`. Also how sentences were cut into words, and how much of the
        paper's training data there is."""
        pairs = self.prepared()
        n = pairs.counts["train"]["pairs"]
        share = None if self.paper_pairs is None else min(1.0, n / self.paper_pairs)
        return {
            "files": dict(pairs.files),
            "counts": {split: dict(count) for split, count in pairs.counts.items()},
            "sha256": dict(pairs.sha256),
            "words": {"rows": FIRST + len(pairs.words), "tokenizer": self.recipe.tokenizer},
            "paper": {"pairs": self.paper_pairs, "share": share},
        }

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[Pair]:
        return read_inputs(lines, name)

    def describe(self, example: Pair) -> dict[str, Any]:
        return {"premise": example.premise, "hypothesis": example.hypothesis}

    def encode(self, inputs: Sequence[Pair]) -> InputSplit:
        """New pairs as a split; its labels and groups are 0. Raises UserError for a sentence without words."""
        if self._index is None:
            self._index = {word: row for row, word in enumerate(self.prepared().words, start=FIRST)}
        cut, pairs = self.recipe.cutter(), []
        for pair in inputs:
            sentences = [cut(text) for text in pair[:2]]
            for field, text, words in zip(SENTENCES, pair[:2], sentences, strict=True):
                if not words:
                    raise UserError(f"The {field} {brief(text)} has no words; give a sentence that has.")
            pairs.append([self.recipe.limit(words) for words in sentences])
        rows, none = torch.arange(len(inputs)), torch.zeros(len(inputs), dtype=torch.long)
        sides = encode_texts(pairs, self._index).sentences
        return InputSplit(sides, rows, none, none, tuple(premise for premise, _ in pairs))
