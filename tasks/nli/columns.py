"""Pairs of sentences as numbers: cut into words, counted, and held in a few arrays."""

import hashlib
import itertools
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tasks.errors import UserError
from tasks.nli.pairs import NO_LABEL, Fault, Pair
from tasks.nli.places import SPLITS
from tasks.nli.tokens import END, START, make_tokenizer
from tasks.text import UNK, Tokenizer, vocabulary

FIRST = 2  # row of the first word, behind padding and the unknown word
Row = tuple[str, str, str, Pair | Fault]  # split, part, place for messages, pair


@dataclass(frozen=True)
class Recipe:
    """What is made of the pairs.

    tokenizer, lower: see `tokens.make_tokenizer`. ends: marks of beginning and end around each sentence. max_length:
    words that are kept of a sentence, without its ends. vocabulary: of which split the words are, "train" or "all".
    min_count: how often a word must be there, or it is the unknown word. classes: by class the labels that it stands
    for; None: the labels of train, in alphabetical order. held_out: the share of train's premises that is dev with all
    their pairs, or 0. held_out_seed: chooses them. sizes: by split how many pairs are used, from the first; None: all.
    on_error: fail | skip, at a line that cannot be used.
    """

    tokenizer: str
    lower: bool
    ends: bool
    max_length: int
    vocabulary: str
    min_count: int
    classes: dict[str, list[str]] | None
    held_out: float
    held_out_seed: int
    sizes: dict[str, int | None]
    on_error: str

    def cutter(self) -> Tokenizer:
        """Words of a sentence in full length."""
        return make_tokenizer(self.tokenizer, self.lower)

    def limited(self, words: list[str]) -> list[str]:
        """The words of a sentence that the model sees."""
        words = words[: self.max_length]
        return [START, *words, END] if self.ends else words


class Arrays(NamedTuple):
    """M pairs. Row 0 of two is of premises, row 1 of hypotheses.

    words (sum,) int32: rows of the vocabulary of all sentences; starts (2, M) int64, lengths (2, M) int32: where those
    of a sentence are. labels, groups, splits (M,) int16: numbers of class, group and split. text (bytes,) uint8: the
    sentences as they were read, in UTF-8; text_starts (2 M + 1,) int64: premise and hypothesis in turn.
    """

    words: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray
    groups: np.ndarray
    splits: np.ndarray
    text: np.ndarray
    text_starts: np.ndarray

    def sentence(self, row: int, side: int) -> str:
        """The text of a premise (side 0) or hypothesis (1)."""
        start, stop = self.text_starts[2 * row + side : 2 * row + side + 2]
        return self.text[start:stop].tobytes().decode("utf-8", "surrogatepass")


class Prepared(NamedTuple):
    """Arrays, and what their numbers stand for.

    words: of row FIRST on. classes. groups: (part, genre) of each group. counts, by split: pairs; unlabelled, skipped
    (dropped lines); cut (sentences); unknown (words that are not in the vocabulary) of all words; labels. faults: the
    first line that was skipped, by split. files, sha256: by split.
    """

    arrays: Arrays
    words: list[str]
    classes: list[str]
    groups: list[list[str]]
    counts: dict[str, dict[str, Any]]
    faults: dict[str, str]
    files: dict[str, str]
    sha256: dict[str, str]


def prepare(rows: Iterable[Row], recipe: Recipe) -> Prepared:
    """What the recipe makes of pairs in memory; without files and sha256."""
    store = _Store(recipe)
    for split, part, where, pair in rows:
        store.add(split, part, where, pair)
    return store.done()


class _Store:
    """Collects pairs with words numbered as they come, and renumbers them when all were counted."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.cut = recipe, recipe.cutter()
        self.numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        self.words, self.lengths = array("i"), array("i")
        self.labels, self.groups, self.splits = array("h"), array("h"), array("h")
        self.text, self.text_lengths = bytearray(), array("q")
        self.group_of: defaultdict[tuple[str, str], int] = defaultdict(itertools.count().__next__)
        self.label_of: dict[str, int] = {}  # as written, in the order of appearance where the classes are not given
        for k, labels in enumerate((recipe.classes or {}).values()):
            self.label_of |= dict.fromkeys(labels, k)
        self.counts = {s: Counter(pairs=0, unlabelled=0, skipped=0, cut=0, words=0, unknown=0) for s in SPLITS}
        self.faults: dict[str, str] = {}

    def add(self, split: str, part: str, where: str, pair: Pair | Fault) -> None:
        recipe, number = self.recipe, SPLITS.index(split)
        if isinstance(pair, Pair) and split == "train" and recipe.held_out and self._is_held_out(pair.premise):
            split, number = "dev", SPLITS.index("dev")
        count, size = self.counts[split], recipe.sizes.get(split)
        if size is not None and count["pairs"] >= size:
            return
        if isinstance(pair, Pair) and pair.label in NO_LABEL and pair.label not in self.label_of:
            count["unlabelled"] += 1
            return
        try:
            label, sentences = self._usable(pair, split)
        except Fault as fault:
            if recipe.on_error == "fail":
                raise UserError(
                    f"{where}: {fault}. Correct the line, or leave out such lines with task.data.on_error=skip."
                ) from None
            count["skipped"] += 1
            self.faults.setdefault(split, f"{where.rpartition(', ')[2]}: {fault}")
            return
        count["pairs"] += 1
        for words, text in zip(sentences, pair[:2], strict=True):
            count["cut"] += len(words) > recipe.max_length
            words = recipe.limited(words)
            self.words.extend([self.numbers[word] for word in words])
            self.lengths.append(len(words))
            data = text.encode("utf-8", "surrogatepass")
            self.text += data
            self.text_lengths.append(len(data))
        self.labels.append(label)
        self.groups.append(self.group_of[part, pair.genre])
        self.splits.append(number)

    def _is_held_out(self, premise: str) -> bool:
        """Whether a premise is kept from training. It depends on nothing but itself and the seed."""
        data = f"{self.recipe.held_out_seed} {premise}".encode("utf-8", "surrogatepass")
        drawn = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") / 2**64
        return drawn < self.recipe.held_out

    def _usable(self, pair: Pair | Fault, split: str) -> tuple[int, list[list[str]]]:
        if isinstance(pair, Fault):
            raise pair
        sentences = []
        for field, text in zip(("premise", "hypothesis"), pair[:2], strict=True):
            words = self.cut(text) if text.strip() else []
            if not words:
                raise Fault(f"its {field} is empty")
            sentences.append(words)
        if not pair.label:
            raise Fault("its label is empty")
        of_train = split == "train" or (split == "dev" and self.recipe.held_out > 0)
        if self.recipe.classes is None and of_train:
            self.label_of.setdefault(pair.label, len(self.label_of))
        if pair.label not in self.label_of:
            known = ", ".join(self.label_of)
            raise Fault(f"the label {pair.label!r} is none of {known} (see task.data.classes)")
        return self.label_of[pair.label], sentences

    def done(self) -> Prepared:
        for split in SPLITS:
            if not self.counts[split]["pairs"]:
                hint = "; take a larger task.data.held_out" if split == "dev" and self.recipe.held_out else ""
                raise UserError(f"There are no pairs for {split} that can be used{hint}.")
        words, lengths = (np.frombuffer(a, np.int32) for a in (self.words, self.lengths))
        labels, groups, splits = (np.frombuffer(a, np.int16) for a in (self.labels, self.groups, self.splits))
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        of_word = splits.repeat(2).repeat(lengths)
        kept, rows = self._vocabulary(words if self.recipe.vocabulary == "all" else words[of_word == 0])
        words = rows[words]
        classes = list(self.recipe.classes or sorted(self.label_of))
        if self.recipe.classes is None:
            place = {name: k for k, name in enumerate(classes)}
            labels = np.array([place[name] for name in self.label_of], np.int16)[labels]
        counts: dict[str, dict[str, Any]] = {}
        for k, split in enumerate(SPLITS):
            here, found = words[of_word == k], np.bincount(labels[splits == k], minlength=len(classes))
            self.counts[split].update(words=len(here), unknown=int((here == UNK).sum()))
            counts[split] = {**self.counts[split], "labels": dict(zip(classes, found.tolist(), strict=True))}
        text_starts = np.zeros(len(self.text_lengths) + 1, np.int64)
        np.cumsum(np.frombuffer(self.text_lengths, np.int64), out=text_starts[1:])
        arrays = Arrays(
            words, np.ascontiguousarray(starts[:-1].reshape(-1, 2).T), np.ascontiguousarray(lengths.reshape(-1, 2).T),
            labels, groups, splits, np.frombuffer(self.text, np.uint8), text_starts,
        )  # fmt: skip
        return Prepared(arrays, kept, classes, [list(g) for g in self.group_of], counts, self.faults, {}, {})

    def _vocabulary(self, words: np.ndarray) -> tuple[list[str], np.ndarray]:
        """The words that are kept, the most frequent first, and the row of each number."""
        names = list(self.numbers)
        found = np.bincount(words, minlength=len(names)).tolist()
        counts = Counter({name: n for name, n in zip(names, found, strict=True) if n})
        kept = list(vocabulary(counts, None, self.recipe.min_count).itos)
        rows = np.full(len(names), UNK, np.int32)
        rows[[self.numbers[word] for word in kept]] = np.arange(FIRST, FIRST + len(kept), dtype=np.int32)
        return kept, rows
