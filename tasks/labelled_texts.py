"""Texts with classes: what the data of documents and of pairs of sentences share."""

import abc
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pytorch_lightning.utilities import rank_zero_only

from tasks.base import TaskData
from tasks.batches import SPLITS
from tasks.errors import UserError
from tasks.fingerprints import identity_of
from tasks.paper import share_of_paper
from tasks.ragged import FIRST
from tasks.reading import brief
from tasks.vocabularies import check_names
from tasks.word_vectors import VectorFiles, VectorRows


class Prepared(Protocol):
    """What texts are as arrays. words: of row FIRST on. classes: their names. counts, by split; of train with the
    number of texts of each class, "labels". files, sha256: by split."""

    @property
    def words(self) -> list[str]: ...
    @property
    def classes(self) -> list[str]: ...
    @property
    def counts(self) -> dict[str, dict[str, Any]]: ...
    @property
    def files(self) -> dict[str, str]: ...
    @property
    def sha256(self) -> dict[str, str]: ...


class Recipe(Protocol):
    """How texts are prepared. tokenizer: what cuts them into words. sizes: most of a split."""

    @property
    def tokenizer(self) -> str: ...
    @property
    def sizes(self) -> dict[str, int | None]: ...


def held_out_remarks(counts: Mapping[str, Mapping[str, Any]], together: str) -> Iterator[str]:
    """How many texts are held out of train, "held_out" in the counts of their split; of those `together` none is in
    two splits."""
    if parts := [f"{count['held_out']:,} for {split}" for split, count in counts.items() if "held_out" in count]:
        yield (
            f"Held out of train at random, as they are not given: {' and '.join(parts)} (task.data.held_out); "
            f"{together} stay together."
        )


class LabelledTexts(TaskData):
    """Texts as rows of words, and their classes. The attributes are set by subclasses.

    unit: what texts are called in the plural, also in `counts`. cache: the folder of prepared texts and vectors.
    in_paper: how many training texts the paper has, if it says so. vectors: of the words, or None.
    """

    unit: str
    recipe: Recipe
    cache: Path
    in_paper: int | None
    vectors: VectorFiles | None

    @abc.abstractmethod
    def prepared(self) -> Prepared:
        """All texts in arrays, read or made the first time they are needed."""

    @property
    def class_counts(self) -> tuple[int, ...]:
        """The training texts of each class."""
        return tuple(self.prepared().counts["train"]["labels"].values())

    @functools.cached_property
    def vector_rows(self) -> VectorRows | None:
        """The vectors of the vocabulary's words, from row FIRST on."""
        return None if self.vectors is None else self.vectors.rows_of(self.prepared().words, self.cache)

    @functools.cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.prepared().words, start=FIRST)}

    @property
    def identity(self) -> dict[str, str]:
        return {"words": identity_of(self.prepared().words), "labels": ", ".join(self.prepared().classes)}

    def vocabulary(self) -> dict[str, Any]:
        """Words and classes; of vectors their size alone, as weights have the rest."""
        texts, vectors = self.prepared(), self.vector_rows
        known = {"words": texts.words, "classes": texts.classes, "labels": texts.counts["train"]["labels"]}
        return known | {"d_vectors": None if vectors is None else vectors.matrix.shape[1]}

    def adopt_texts(self, vocabulary: dict[str, Any]) -> tuple[list[str], list[str], dict[str, Any]]:
        """Words, classes and counts of a `vocabulary`, whose vectors these data have from now on. Raises ValueError."""
        words, classes = check_names(vocabulary["words"]), check_names(vocabulary["classes"])
        labels, d = vocabulary["labels"], vocabulary["d_vectors"]
        if list(labels) != classes or not all(isinstance(count, int) for count in labels.values()):
            raise ValueError("labels that are not those of its classes")
        self.__dict__["vector_rows"] = None if d is None else VectorRows.of_weights(len(words), d)
        return words, classes, {"train": {"labels": labels}}

    def say_strange(self, kind: str, texts: Sequence[Sequence[Sequence[str]]], shown: Callable[[int], str]) -> None:
        """Say how many new texts have no word of the vocabulary: what is predicted of them says nothing. kind: what
        they are, in the plural. texts: the words of the sentences of each. shown: of the number of a text what the line
        quotes."""
        index = self.index
        strange = [k for k, text in enumerate(texts) if not any(word in index for words in text for word in words)]
        if strange:
            what = f"{len(strange):,} {kind} have no word that the vocabulary has"
            rank_zero_only(print)(f"{what}; the first is {brief(shown(strange[0]))}", flush=True)

    def toy_sizes(self) -> dict[str, int]:
        """How many texts of each split are generated."""
        sizes = {split: size for split in SPLITS if (size := self.recipe.sizes.get(split)) is not None}
        if len(sizes) < len(SPLITS):
            raise UserError("task.data.toy needs numbers for train, dev and test in task.data.sizes.")
        return sizes

    def fingerprint(self) -> dict[str, Any]:
        """Also how texts were cut into words, and how much of the paper's training data there is."""
        texts, vectors = self.prepared(), self.vector_rows
        words: dict[str, Any] = {"rows": FIRST + len(texts.words), "tokenizer": self.recipe.tokenizer}
        shas = dict(texts.sha256)
        if vectors is not None:
            words |= vectors.facts()
            shas |= {"vectors": vectors.sha256}
        return {
            "files": dict(texts.files),
            "counts": {split: dict(count) for split, count in texts.counts.items()},
            "sha256": shas,
            "words": words,
            "paper": share_of_paper(texts.counts, self.unit, self.in_paper),
        }
