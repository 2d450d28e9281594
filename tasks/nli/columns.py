"""Pairs of sentences as numbers: cut into words, counted, and held in a few arrays."""

import hashlib
import itertools
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tasks.batches import SPLITS
from tasks.duplicates import count_duplicates
from tasks.errors import UserError, one_of, rate, sizes_of, whole
from tasks.labels import Labels, check_classes
from tasks.nli.pairs import NO_LABEL, NO_NUMBER, SENTENCES, Pair
from tasks.ragged import TextStore
from tasks.reading import ON_ERROR, Fault, Faults
from tasks.text import UNK
from tasks.tokens import TextOptions

Row = tuple[str, str, str, Pair | Fault]  # split, part, place for messages, pair


@dataclass(frozen=True)
class Recipe(TextOptions):
    """What is made of the pairs: their words as `TextOptions` say, and

    classes: by class the labels that it stands for; None: the labels of train, in alphabetical order. held_out: the
    share of train's premises that is dev, or test, with all their pairs, where these are not given. held_out_seed:
    draws them. sizes: by split how
    many pairs are used, from the first; None: all. on_error: fail | skip, at a line that cannot be used.
    """

    classes: dict[str, list[str]] | None
    held_out: float
    held_out_seed: int
    sizes: dict[str, int | None]
    on_error: str

    def __post_init__(self) -> None:
        super().__post_init__()
        Labels(self.classes)
        rate("task.data.held_out", self.held_out)
        whole("task.data.held_out_seed", self.held_out_seed, 0)
        sizes_of(self.sizes, SPLITS)
        one_of("task.data.on_error", self.on_error, ON_ERROR)


class Arrays(NamedTuple):
    """M pairs, whose premises and hypotheses stand in turn: pair k has the sentences 2 k and 2 k + 1.

    words (sum,) int32: rows of the vocabulary; starts (2 M + 1,) int64: of each sentence, see `ragged.Sentences`.
    labels, groups, splits (M,) int32: numbers of class, group and split. text (bytes,) uint8: the sentences as they
    were read, in UTF-8; text_starts (2 M + 1,) int64.
    """

    words: np.ndarray
    starts: np.ndarray
    labels: np.ndarray
    groups: np.ndarray
    splits: np.ndarray
    text: np.ndarray
    text_starts: np.ndarray

    def sentence(self, row: int, side: int) -> str:
        """The text of a premise (side 0) or hypothesis (1)."""
        start, stop = self.text_starts[2 * row + side : 2 * row + side + 2]
        return self.text[start:stop].tobytes().decode("utf-8")


NO_PAIRS = Arrays(
    *(np.zeros(n, dtype) for n, dtype in ((0, "i4"), (1, "i8"), (0, "i4"), (0, "i4"), (0, "i4"), (0, "u1"), (1, "i8")))
)


class Prepared(NamedTuple):
    """Arrays, and what their numbers stand for.

    words: of row FIRST on. classes. groups: (part, genre) of each group. counts, by split: pairs; held_out, those of
    them that were train's, where it was not given; unlabelled, skipped (dropped lines); cut (sentences); unknown (words
    that are not in the vocabulary) of all words; labels; those of `count_duplicates`, of pairs as they are read.
    faults: the first line that was skipped, by split. files, sha256: by split.
    """

    arrays: Arrays
    words: list[str]
    classes: list[str]
    groups: list[list[str]]
    counts: dict[str, dict[str, Any]]
    faults: dict[str, str]
    files: dict[str, str]
    sha256: dict[str, str]


def prepare(rows: Iterable[Row], recipe: Recipe, held_out: Sequence[str] = ()) -> Prepared:
    """What the recipe makes of pairs in memory, those of train first; without files and sha256. held_out: the splits
    that a part of train is kept for."""
    store = _Store(recipe, held_out)
    for split, part, place, pair in rows:
        store.add(split, part, place, pair)
    return store.finish()


class _Store:
    """Collects pairs with words and labels numbered as they come, and renumbers them when all were counted."""

    def __init__(self, recipe: Recipe, held_out: Sequence[str]) -> None:
        self.recipe, self.held_out, self.cut = recipe, held_out, recipe.cutter()
        unlabelled = [NO_LABEL] if recipe.classes is None else [NO_LABEL, NO_NUMBER]
        self.classes, self.sentences = Labels(recipe.classes, unlabelled), TextStore()
        self.labels, self.groups, self.splits = array("i"), array("i"), array("i")
        self.text, self.text_lengths, self.hashes = bytearray(), array("q"), array("q")
        self.group_numbers: defaultdict[tuple[str, str], int] = defaultdict(itertools.count().__next__)
        self.counts = {s: Counter(pairs=0, unlabelled=0, skipped=0, cut=0, words=0, unknown=0) for s in SPLITS}
        for split in held_out:
            self.counts[split]["held_out"] = 0
        self.faults = {split: Faults(recipe.on_error) for split in SPLITS}

    def add(self, split: str, part: str, place: str, pair: Pair | Fault) -> None:
        recipe, training = self.recipe, split == "train"
        if isinstance(pair, Pair) and training:
            split = self._split_of(pair.premise)
        count, size = self.counts[split], recipe.sizes.get(split)
        if size is not None and count["pairs"] >= size:
            return
        if isinstance(pair, Pair) and self._is_unlabelled(pair.label, training):
            count["unlabelled"] += 1
            return
        if isinstance(pair, Fault):
            self.faults[split].add(place, pair)
            return
        try:
            sentences = self._words(pair)
            label = self.classes.number(pair.label, training)
        except Fault as fault:
            self.faults[split].add(place, fault)
            return
        count["pairs"] += 1
        if training and split != "train":
            count["held_out"] += 1
        count["cut"] += sum(len(words) > recipe.max_length for words in sentences)
        read = [recipe.limit(words) for words in sentences]
        self.sentences.add(read)
        self.hashes.append(hash(tuple(map(tuple, read))))
        for text in pair[:2]:
            data = text.encode("utf-8")
            self.text += data
            self.text_lengths.append(len(data))
        self.labels.append(label)
        self.groups.append(self.group_numbers[part, pair.genre])
        self.splits.append(SPLITS.index(split))

    def _is_unlabelled(self, label: str, training: bool) -> bool:
        """-1 is a label where train has it."""
        is_new = not training and label == NO_NUMBER and not self.classes.has(label)
        return is_new or self.classes.is_unlabelled(label)

    def _split_of(self, premise: str) -> str:
        """The split that a premise of train is kept for, or train. It depends on nothing but itself and the seed."""
        if not self.held_out:
            return "train"
        data = f"{self.recipe.held_out_seed} {premise}".encode()
        drawn = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") / 2**64
        place = int(drawn / self.recipe.held_out)
        return self.held_out[place] if place < len(self.held_out) else "train"

    def _words(self, pair: Pair) -> list[list[str]]:
        sentences = []
        for field, text in zip(SENTENCES, pair[:2], strict=True):
            words = self.cut(text) if text.strip() else []
            if not words:
                raise Fault(f"its {field} is empty")
            sentences.append(words)
        return sentences

    def finish(self) -> Prepared:
        for split in SPLITS:
            if not self.counts[split]["pairs"]:
                larger = "; take a larger task.data.held_out, or more different pairs, as equal ones stay together"
                hint = larger if split in self.held_out else ""
                raise UserError(f"There are no pairs for {split} that can be used{self.faults[split].remark}{hint}.")
        labels, groups, splits = (np.frombuffer(a, np.int32) for a in (self.labels, self.groups, self.splits))
        counted = None if self.recipe.vocabulary == "all" else splits == SPLITS.index("train")
        pairs, names = self.sentences.encode(counted, self.recipe.min_count)
        words, starts = pairs.sentences.ids.numpy(), pairs.sentences.starts.numpy()
        classes, labels = self.classes.finish(labels)
        if self.recipe.classes is None and {*classes} == {NO_NUMBER, "0", "1", "2"}:
            raise UserError(
                f"The labels are {', '.join(classes)}, as in copies of SNLI and MultiNLI, where {NO_NUMBER} says that "
                "the annotators did not agree. Leave such pairs out by task.data.classes='{entailment: [\"0\"], "
                "neutral: [\"1\"], contradiction: [\"2\"]}', or name a class for each of the four there."
            )
        split_of_word = splits.repeat(pairs.sizes.numpy())
        counts: dict[str, dict[str, Any]] = {}
        for k, split in enumerate(SPLITS):
            ids, by_class = words[split_of_word == k], np.bincount(labels[splits == k], minlength=len(classes)).tolist()
            self.counts[split].update(words=len(ids), unknown=int((ids == UNK).sum()), skipped=self.faults[split].count)
            counts[split] = {**self.counts[split], "labels": dict(zip(classes, by_class, strict=True))}
        check_classes({split: counts[split]["labels"] for split in SPLITS}, "pairs")
        for split, own in count_duplicates(np.frombuffer(self.hashes, np.int64), labels, splits).items():
            counts[split] |= own
        text_starts = np.zeros(len(self.text_lengths) + 1, np.int64)
        np.cumsum(np.frombuffer(self.text_lengths, np.int64), out=text_starts[1:])
        text = np.frombuffer(self.text, np.uint8)
        arrays = Arrays(words, starts, labels, groups, splits, text, text_starts)
        faults = {split: each.first for split, each in self.faults.items() if each.first}
        return Prepared(arrays, names, classes, [list(g) for g in self.group_numbers], counts, faults, {}, {})
