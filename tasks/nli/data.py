"""Pairs of sentences from files, as word ids in batches that are as wide as their longest sentence."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from tasks.base import TaskData
from tasks.errors import UserError, known_splits, one_of, rate, sizes_of, whole
from tasks.nli.cache import from_files
from tasks.nli.columns import FIRST, Prepared, Recipe, prepare
from tasks.nli.pairs import Pair, read_inputs
from tasks.nli.places import ALL, SPLITS, Source, find_files, named_files
from tasks.nli.toy import toy_pairs
from tasks.text import PAD, UNK

MOST_GENRES = 20  # data with more have no metrics by genre


@dataclass(frozen=True)
class PairSplit:
    """N pairs: rows of all words one after the other (sum,); where the words of a sentence start, and how many there
    are, (2, N) with premises first; labels and groups (N,)."""

    words: Tensor
    starts: Tensor
    lengths: Tensor
    labels: Tensor
    groups: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def sizes(self) -> Tensor:
        """(N,): words of the longer sentence."""
        return self.lengths.amax(0)

    def __getitem__(self, index: Tensor) -> dict[str, Any]:
        """words (2, B, T) for the longest sentence T of the batch, lengths (2, B), labels and group (B,); all int64."""
        lengths = self.lengths[:, index]
        place = torch.arange(int(lengths.max()))
        inside = place < lengths.unsqueeze(-1)
        where = torch.where(inside, self.starts[:, index].unsqueeze(-1) + place, 0)
        words = torch.where(inside, self.words[where].long(), PAD)
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
    paper_pairs: how many training pairs the paper has, if it says so, for the record. Of tokenizer, lower, ends,
    max_length, vocabulary, min_count, classes, held_out_seed, sizes and on_error `columns.Recipe` says what they mean.
    held_out: of train, where there are no files for dev. The others are TaskData's.
    """

    def __init__(
        self,
        folder: str | None,
        toy: dict[str, int] | None,
        cache: str,
        files: dict[str, dict[str, str | None]] | None,
        download: str | None,
        paper_pairs: int | None,
        tokenizer: str,
        lower: bool,
        ends: bool,
        max_length: int,
        vocabulary: str,
        min_count: int,
        classes: dict[str, list[str]] | None,
        held_out: float,
        held_out_seed: int,
        sizes: dict[str, int | None],
        on_error: str,
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
    ):
        super().__init__(shuffle=shuffle, batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed)
        if folder is None and toy is None:
            raise UserError(
                "task=nli needs a folder with pairs for train, dev and test, such as train.jsonl, dev.jsonl and "
                "test.jsonl; name it with data.dir=my_pairs."
            )
        known_splits("task.data.files", files or {}, SPLITS)
        if classes is not None:
            labels = [label for several in classes.values() for label in several]
            if len(classes) < 2 or len(set(labels)) < len(labels) or not all(classes.values()):
                raise UserError(
                    "task.data.classes needs at least two classes, and for each one or more labels that no other has, "
                    f"as {{entailment: [entailment], other: [neutral, contradiction]}}; it is {classes}."
                )
        self.folder = None if folder is None else Path(folder).expanduser()
        self.toy, self.files, self.cache, self.download = toy, files, Path(cache), download
        self.paper_pairs = paper_pairs
        self.recipe = Recipe(
            tokenizer=tokenizer, lower=lower, ends=ends, max_length=whole("task.data.max_length", max_length, 1),
            vocabulary=one_of("task.data.vocabulary", vocabulary, ("train", "all")),
            min_count=whole("task.data.min_count", min_count, 1), classes=classes,
            held_out=rate("task.data.held_out", held_out),
            held_out_seed=whole("task.data.held_out_seed", held_out_seed, 0), sizes=sizes_of(sizes, SPLITS),
            on_error=one_of("task.data.on_error", on_error, ("fail", "skip")),
        )  # fmt: skip
        self.recipe.cutter()  # an unknown tokeniser is told at once
        self._prepared: Prepared | None = None
        self._rows: dict[str, np.ndarray] = {}
        self._index: dict[str, int] | None = None

    def prepared(self) -> Prepared:
        """All pairs in arrays, read or made the first time they are asked for."""
        if self._prepared is None:
            self._prepared = self._made_up() if self.folder is None else self._from_files(self.folder)
            for split, fault in self._prepared.faults.items():
                n = self._prepared.counts[split]["skipped"]
                rank_zero_only(print)(f"{n:,} lines of {split} were skipped; the first is {fault}.", flush=True)
            n, whole_set = self._prepared.counts["train"]["pairs"], self.paper_pairs
            if whole_set is not None and n < whole_set:
                said = f"{n:,} training pairs, {n / whole_set:.1%} of the paper's {whole_set:,}."
                rank_zero_only(print)(said, flush=True)
        return self._prepared

    def _from_files(self, folder: Path) -> Prepared:
        named = self.files is not None
        sources: list[Source] = named_files(folder, self.files, self.download) if named else find_files(folder)
        has = {source.split for source in sources}
        if missing := [split for split in ("train", "test") if split not in has]:
            raise UserError(f"task.data.files names no file for {missing[0]}.")
        held_out = 0.0 if "dev" in has else self.recipe.held_out
        if "dev" not in has and not held_out:
            raise UserError(
                f"There is no file for dev in {folder}; add one, or keep a part of train for it with "
                "task.data.held_out=0.1."
            )
        recipe = Recipe(**{**vars(self.recipe), "held_out": held_out})
        return from_files(sources, recipe, self.cache)

    def _made_up(self) -> Prepared:
        sizes = self.recipe.sizes
        if set(self.toy) != {"seed"} or any(sizes.get(split) is None for split in SPLITS):
            raise UserError("task.data.toy needs a seed, and task.data.sizes a number for train, dev and test.")
        rows = (
            (split, ALL, f"pair {k}", pair)
            for number, split in enumerate(SPLITS)
            for k, pair in enumerate(toy_pairs(sizes[split], np.random.default_rng([self.toy["seed"], number])))
        )
        made = prepare(rows, Recipe(**{**vars(self.recipe), "held_out": 0.0}))
        sha256 = hashlib.sha256(made.arrays.text.tobytes() + made.arrays.labels.tobytes()).hexdigest()
        return made._replace(files=dict.fromkeys(SPLITS, "made up"), sha256=dict.fromkeys(SPLITS, sha256))

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, by number."""
        return tuple(self.prepared().classes)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Of each group the names of its metrics: its part and its genre, where it has one."""
        found = self.prepared().groups
        by_genre = len({genre for _, genre in found}) <= MOST_GENRES
        names = (["" if part == ALL else part, genre if by_genre else ""] for part, genre in found)
        return tuple(tuple(dict.fromkeys(re.sub(r"[^\w.-]+", "_", n) for n in both if n)) for both in names)

    @property
    def model_sizes(self) -> dict[str, Any]:
        made = self.prepared()
        return {
            "n_words": FIRST + len(made.words), "n_classes": len(made.classes), "labels": self.labels,
            "groups": self.groups, "dev_groups": tuple(np.unique(made.arrays.groups[self.rows("dev")]).tolist()),
        }  # fmt: skip

    @property
    def identity(self) -> dict[str, str]:
        words = self.prepared().words
        digest = hashlib.sha256("\n".join(words).encode("utf-8", "surrogatepass")).hexdigest()
        return {"words": f"{len(words)} with sha256 {digest[:12]}", "labels": ", ".join(self.labels)}

    def rows(self, split: str) -> np.ndarray:
        """Which of all prepared pairs are those of a split: of train as they were read, of the others the shortest
        first, so that the batches of an evaluation have sentences of about the same length."""
        if split not in self._rows:
            arrays = self.prepared().arrays
            rows = np.flatnonzero(arrays.splits == SPLITS.index(split))
            if split != "train":
                rows = rows[arrays.lengths[:, rows].max(0).argsort(kind="stable")]
            self._rows[split] = rows
        return self._rows[split]

    def load(self) -> dict[str, PairSplit]:
        arrays = self.prepared().arrays
        words, found = torch.from_numpy(arrays.words), {}
        for split in SPLITS:
            rows = self.rows(split)
            starts, lengths = arrays.starts[:, rows], arrays.lengths[:, rows].astype(np.int64)
            labels, groups = arrays.labels[rows].astype(np.int64), arrays.groups[rows].astype(np.int64)
            found[split] = PairSplit(words, *(torch.from_numpy(a) for a in (starts, lengths, labels, groups)))
        return found

    def texts(self, split: str, k: int) -> tuple[str, str]:
        """Premise and hypothesis of the k-th pair of a split, as they were read."""
        arrays, row = self.prepared().arrays, int(self.rows(split)[k])
        return arrays.sentence(row, 0), arrays.sentence(row, 1)

    def fingerprint(self) -> dict[str, Any]:
        """The counts of a split: see `columns.Prepared`. Also how the words were found, and how much of the paper's
        training data there is."""
        made = self.prepared()
        n = made.counts["train"]["pairs"]
        share = None if self.paper_pairs is None else min(1.0, n / self.paper_pairs)
        return {
            "files": dict(made.files),
            "counts": {split: dict(count) for split, count in made.counts.items()},
            "sha256": dict(made.sha256),
            "words": {"rows": FIRST + len(made.words), "tokenizer": self.recipe.tokenizer},
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
        cut, found = self.recipe.cutter(), []
        for pair in inputs:
            for field, text in zip(("premise", "hypothesis"), pair[:2], strict=True):
                words = cut(text)
                if not words:
                    raise UserError(f"The {field} {text!r} has no words; give a sentence that has.")
                found.append(self.recipe.limited(words))
        lengths = torch.tensor([len(words) for words in found])
        rows = torch.tensor([self._index.get(word, UNK) for words in found for word in words], dtype=torch.int32)
        starts, none = lengths.cumsum(0) - lengths, torch.zeros(len(inputs), dtype=torch.long)
        return InputSplit(rows, starts.view(-1, 2).T, lengths.view(-1, 2).T, none, none, tuple(found[::2]))
