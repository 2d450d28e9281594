"""Documents as numbers: cleaned, split into sentences and words, counted, and held in a few arrays."""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from tasks.batches import SPLITS
from tasks.document_classification.cleaning import check_steps, clean
from tasks.duplicates import count_duplicates
from tasks.errors import held_out_shares, one_of, sizes_of, whole
from tasks.labels import Labels, check_classes
from tasks.ragged import Documents, Sentences, TextStore
from tasks.reading import ON_ERROR, Fault, Faults
from tasks.sentences import check_language, split_sentences
from tasks.text import UNK
from tasks.tokens import TextOptions


class Document(NamedTuple):
    """A label as it is written, and the texts of a document: title and body, as an example."""

    label: str
    texts: tuple[str, ...]


Row = tuple[str, str, Document | Fault]  # split, place for messages, document


@dataclass(frozen=True)
class Recipe(TextOptions):
    """What is made of the documents: their words as `TextOptions` say, where max_length is that of a sentence, and

    max_sentences: most sentences of a document; further ones are cut off. language: of the sentences, see
    `split_sentences`. clean: see `cleaning.clean`. classes: by class the labels that it stands for; None: the labels of
    train, in alphabetical order. max_words: most words of the vocabulary, the most frequent; None: any. held_out: by
    split (dev, test) the share of the train documents that becomes it, where it is not given; those with the same
    sentences stay together. held_out_seed: draws them. sizes: by split how many documents are used, from the first;
    None: all. on_error: fail | skip, at a document that cannot be used.
    """

    max_sentences: int
    max_words: int | None
    language: str
    clean: list[str]
    classes: dict[str, list[str]] | None
    held_out: dict[str, float]
    held_out_seed: int
    sizes: dict[str, int | None]
    on_error: str

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("task.data.max_sentences", self.max_sentences, 1)
        if self.max_words is not None:
            whole("task.data.max_words", self.max_words, 1)
        check_language("task.data.language", self.language)
        check_steps("task.data.clean", self.clean)
        Labels(self.classes)
        held_out_shares("task.data.held_out", self.held_out, "documents")
        whole("task.data.held_out_seed", self.held_out_seed, 0)
        sizes_of(self.sizes, SPLITS)
        one_of("task.data.on_error", self.on_error, ON_ERROR)

    def sentences(self, texts: Iterable[str]) -> list[list[str]]:
        """The words of each sentence of a document, as the model sees them; no sentence goes over from one text into
        the next. Raises Fault where there are none."""
        cut, sentences = self.cutter(), []
        for text in texts:
            for sentence in split_sentences(clean(text, self.clean), self.language):
                if words := cut(sentence):
                    sentences.append(self.limit(words))
                    if len(sentences) == self.max_sentences:
                        return sentences
        if not sentences:
            raise Fault("its text is empty")
        return sentences


class Arrays(NamedTuple):
    """N documents. words (sum,) int32, sentences, documents int64: see `ragged.Documents`. labels (N,) int32: numbers
    of classes; splits (N,) int8: of splits."""

    words: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    labels: np.ndarray
    splits: np.ndarray

    def texts(self) -> Documents:
        """The documents as tensors that share this memory."""
        words, sentences, documents = (torch.from_numpy(a) for a in self[:3])
        return Documents(Sentences(words, sentences), documents)


class Corpus(NamedTuple):
    """Arrays, and what their numbers stand for.

    words: of row FIRST on. classes. counts, by split: documents; skipped; sentences; words; unknown (words that are not
    in the vocabulary); labels, the documents of each class; held_out, those of train that were moved there, if some
    were; those of `count_duplicates`, of which documents with the same sentences are. faults: the first that was
    skipped, by split. files, sha256: by split.
    """

    arrays: Arrays
    words: list[str]
    classes: list[str]
    counts: dict[str, dict[str, Any]]
    faults: dict[str, str]
    files: dict[str, str]
    sha256: dict[str, str]


def prepare(rows: Iterable[Row], recipe: Recipe) -> Corpus:
    """What the recipe makes of documents in memory; without files and sha256. Those of train come first.

    Raises UserError for one that cannot be used, where the recipe does not say to skip it, and for a class without
    documents in train.
    """
    store, classes = TextStore(), Labels(recipe.classes)
    labels, splits, hashes = array("i"), array("b"), array("q")
    faults = {split: Faults(recipe.on_error) for split in SPLITS}
    for split, _, sentences, label in usable(rows, recipe, classes, faults):
        store.add(sentences)
        hashes.append(hash(tuple(map(tuple, sentences))))
        labels.append(label)
        splits.append(SPLITS.index(split))
    keys = np.frombuffer(hashes, np.int64)
    marks = np.frombuffer(splits, np.int8)
    held_out = _hold_out(marks, keys, recipe)
    counted = None if recipe.vocabulary == "all" else held_out == SPLITS.index("train")
    texts, vocabulary = store.encode(counted, recipe.min_count, recipe.max_words)
    names, numbers = classes.finish(np.frombuffer(labels, np.int32))
    words, starts = texts.sentences.ids.numpy(), texts.sentences.starts.numpy()
    arrays = Arrays(words, starts, texts.starts.numpy(), numbers, held_out)
    counts = _counts(arrays, names, faults)
    for split in recipe.held_out:
        if drawn := int(((held_out != marks) & (held_out == SPLITS.index(split))).sum()):
            counts[split]["held_out"] = drawn
    check_classes({split: counts[split]["labels"] for split in SPLITS}, "documents", faults["train"].remark)
    for split, own in count_duplicates(keys, numbers, held_out).items():
        counts[split] |= own
    first = {split: each.first for split, each in faults.items() if each.first}
    return Corpus(arrays, vocabulary, names, counts, first, {}, {})


def usable(
    rows: Iterable[Row], recipe: Recipe, classes: Labels, faults: dict[str, Faults]
) -> Iterator[tuple[str, Document, list[list[str]], int]]:
    """Of the documents that the recipe takes the split, the document, its sentences and the number of its label; the
    others go to the `faults` of their split."""
    limits, taken = sizes_of(recipe.sizes, SPLITS), Counter[str]()
    for split, place, document in rows:
        if (limit := limits[split]) is not None and taken[split] >= limit:
            continue
        if isinstance(document, Fault):
            faults[split].add(place, document)
            continue
        try:
            sentences = recipe.sentences(document.texts)
            label = classes.number(document.label, split == "train")
        except Fault as fault:
            faults[split].add(place, fault)
            continue
        taken[split] += 1
        yield split, document, sentences, label


def _hold_out(splits: np.ndarray, keys: np.ndarray, recipe: Recipe) -> np.ndarray:
    """The split of each document, after those that are held out of train have moved into theirs; no more of them than
    `sizes` says. keys: the same for documents that are the same, which stay together."""
    splits = splits.copy()
    train = np.flatnonzero(splits == SPLITS.index("train"))
    order = np.random.default_rng(recipe.held_out_seed).permutation(train)
    _, first, group, sizes = np.unique(keys[order], return_index=True, return_inverse=True, return_counts=True)
    left = first.argsort()
    for split, part in recipe.held_out.items():
        if (splits == SPLITS.index(split)).any():
            continue
        size = recipe.sizes.get(split)
        most = round(part * len(train))
        taken = _fill(sizes[left], most if size is None else min(most, size), any_size=size is None)
        splits[order[np.isin(group, left[taken])]] = SPLITS.index(split)
        left = left[~taken]
    return splits


def _fill(sizes: np.ndarray, most: int, any_size: bool = False) -> np.ndarray:
    """Which groups are taken: the first ones that have `most` documents together, without those that do not fit.

    Args: any_size: where none fits, a smallest one is taken, as long as others are left.
    """
    totals = sizes.cumsum()
    n = int(np.searchsorted(totals, most, "right"))
    taken = np.arange(len(sizes)) < n
    room = most - (int(totals[n - 1]) if n else 0)
    for k in range(n, len(sizes)):
        if not room:
            break
        if sizes[k] <= room:
            taken[k] = True
            room -= int(sizes[k])
    if any_size and most and not taken.any() and len(sizes) > 1:
        taken[sizes.argmin()] = True
    return taken


def _counts(arrays: Arrays, classes: Sequence[str], faults: dict[str, Faults]) -> dict[str, dict[str, Any]]:
    """What a record says of each split."""
    words, sentences, documents, labels, splits = arrays
    begins = sentences[documents]
    of_unknown = np.searchsorted(begins, np.flatnonzero(words == UNK), "right") - 1
    several = (np.ones_like(labels), np.diff(documents), np.diff(begins))
    totals = [np.bincount(splits, weights, len(SPLITS)).astype(int).tolist() for weights in several]
    totals.append(np.bincount(splits[of_unknown], minlength=len(SPLITS)).tolist())
    counts: dict[str, dict[str, Any]] = {}
    for k, split in enumerate(SPLITS):
        names = ("documents", "sentences", "words", "unknown")
        by_class = np.bincount(labels[splits == k], minlength=len(classes)).tolist()
        counts[split] = {name: total[k] for name, total in zip(names, totals, strict=True)}
        counts[split] |= {"skipped": faults[split].count, "labels": dict(zip(classes, by_class, strict=True))}
    return counts
