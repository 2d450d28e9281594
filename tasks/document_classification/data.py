"""Labelled documents from files, as word ids in batches of whole documents of about the same size."""

import difflib
import hashlib
import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from tasks.batches import SPLITS, Split
from tasks.document_classification.cache import from_sources
from tasks.document_classification.corpus import Arrays, Corpus, Recipe, prepare, usable
from tasks.document_classification.labelled_input import note_labels
from tasks.document_classification.sources import (
    ENDINGS,
    Form,
    Source,
    find_sources,
    named_sources,
    read_rows,
    read_text,
    text_files,
)
from tasks.document_classification.toy import toy_rows
from tasks.duplicates import duplicates_remarks
from tasks.errors import UserError, one_of, readable, toy_recipe
from tasks.labelled_texts import LabelledTexts, held_out_remarks
from tasks.labels import Labels
from tasks.local_paths import user_path
from tasks.paper import paper_remarks
from tasks.ragged import FIRST, Documents, encode_texts
from tasks.reading import Fault, Faults, brief
from tasks.rows import first_line, is_other_table, parse_object, pick_fields, read_examples, read_new_rows
from tasks.split_files import several_files
from tasks.word_vectors import VectorFiles

SELECTIONS = ("held_out", "test")


@dataclass(frozen=True)
class DocumentSplit:
    """N documents: those of all splits; rows (N,), which of them; labels (N,) of these."""

    documents: Documents
    rows: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes(self) -> Tensor:
        """(N,): the words of each document."""
        return self.documents.sizes[self.rows]

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """words (M, T) of all M sentences of the batch, the longest of which has T; lengths (M,) of them, sentences
        (B,) of each document, labels (B,); all int64."""
        words, lengths, sentences = self.documents.pad_sentences(self.rows[index])
        return {"words": words, "lengths": lengths, "sentences": sentences, "labels": self.labels[index]}


class NewDocument(NamedTuple):
    """A document without a label: its text, the words of its sentences as the model sees them, and its file in the
    folder of new documents, where it has one of its own."""

    text: str
    sentences: list[list[str]]
    file: str | None


class DocumentData(LabelledTexts):
    """Documents of the splits train, dev and test from files, or from a recipe of made-up ones.

    folder: where the files are, or None with the recipe `toy` ({"seed": of the generator}).
    files: by split, names in the folder; null: found by their names, see `sources.find_sources`. form: of the files.
    cache: the folder that prepared documents and vectors are kept in. download: what scripts/download.py calls the data
    set, or null. paper_documents: how many training documents the paper has, if it says so, for the record. selection:
    "held_out": the best state is selected on documents that are not trained on, those of dev; "test": on the test set
    (Hype-HAN), which makes the result of the test too good. vectors: of the words, or null. recipe: the fields of
    `corpus.Recipe`; held_out is for splits without a file. The others are TaskData's.
    """

    Options, unit = Recipe, "documents"
    recipe: Recipe

    def __init__(
        self,
        folder: str | None,
        toy: dict[str, int] | None,
        files: dict[str, str | None] | None,
        form: Form,
        cache: str,
        download: str | None,
        paper_documents: int | None,
        selection: str,
        vectors: VectorFiles | None,
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
        **recipe: Any,
    ):
        super().__init__(shuffle=shuffle, batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed)
        if folder is None and toy is None:
            raise UserError(
                "task=documents needs a folder with labelled documents, such as train.csv and test.csv, or one file; "
                "name it with data.dir=my_documents."
            )
        if folder is None:
            toy_recipe(toy, seed=0)
        self.folder = None if folder is None else user_path(folder)
        self.toy, self.files, self.form, self.cache, self.download = toy, files, form, Path(cache), download
        self.in_paper, self.vectors = paper_documents, vectors
        self.selection = one_of("task.data.selection", selection, SELECTIONS)
        self.recipe = Recipe(**recipe)
        self._corpus: Corpus | None = None
        self._rows: dict[str, Tensor] = {}

    def prepared(self) -> Corpus:
        if self._corpus is None:
            self._corpus = self._made_up() if self.folder is None else self._from_files(self.folder)
            for split in SPLITS:
                if not self._corpus.counts[split]["documents"] and (split != "dev" or self.selection != "test"):
                    raise UserError(self._why_empty(self._corpus, split))
            for line in self._remarks(self._corpus):
                rank_zero_only(print)(line, flush=True)
            if self.selection == "test":
                rank_zero_only(print)(
                    "The test set selects the best state (task.data.selection=test), so that what is called val is the "
                    "test set, and its result too good.", flush=True,
                )  # fmt: skip
        return self._corpus

    def _why_empty(self, corpus: Corpus, split: str) -> str:
        """What to do about a split without documents."""
        n, most = corpus.counts["train"]["documents"], self.recipe.max_sentences
        given = {source.split for source in self._sources(self.folder)} if self.folder else {*SPLITS}
        whole = n + sum(count.get("held_out", 0) for count in corpus.counts.values())
        share, size = self.recipe.held_out.get(split, 0.0), self.recipe.sizes.get(split)
        if split not in given and size is None and round(whole * share):
            return (
                f"None of the {n:,} documents of train can be held out for {split} (task.data.held_out.{split}="
                f"{share}): equal texts stay together, and of these too few differ within the first {most} sentences, "
                f"which are read (task.data.max_sentences). Add a file for {split}, or documents that differ."
            )
        part = max(0.1, math.ceil(100 / n) / 100)  # at least one of them
        fault = corpus.faults.get(split)
        skipped = f" (the first of those that were skipped is {fault})" if fault else ""
        return (
            f"There are no documents for {split} that can be used{skipped}; add a file, or keep a part of the {n:,} "
            f"documents of train for it with task.data.held_out.{split}={part}."
        )

    def _remarks(self, corpus: Corpus) -> Iterator[str]:
        """What is unusual about the documents, and which are held out, a sentence for each."""
        for split, fault in corpus.faults.items():
            yield f"{corpus.counts[split]['skipped']:,} documents of {split} were skipped; the first is {fault}."
        yield from held_out_remarks(corpus.counts, "equal texts")
        sizes, most = np.diff(corpus.arrays.documents), self.recipe.max_sentences
        if self.download is None and self.folder is not None and (long := int((sizes >= most).sum())):
            yield f"{self._cut()} (task.data.max_sentences): {long:,}."
        yield from duplicates_remarks(corpus.counts, self.unit)
        totals = {name: sum(corpus.counts[split]["labels"][name] for split in SPLITS) for name in corpus.classes}
        if single := [name for name, n in totals.items() if n == 1]:
            names = ", ".join(name[:60] for name in single[:5])
            more = f" and {len(single) - 5:,} more" if len(single) > 5 else ""
            similar = difflib.get_close_matches(single[0], [name for name in totals if name != single[0]], 1)
            hint = f" Is {single[0][:60]} {similar[0][:60]}?" if similar else ""
            yield readable(f"Classes with a single document: {names}{more}.{hint}")
        yield from paper_remarks(corpus.counts, self.unit, self.in_paper)

    def _cut(self) -> str:
        most = self.recipe.max_sentences
        return f"Documents of {most} sentences or more, of which the first {most} are read"

    def _sources(self, folder: Path) -> list[Source]:
        return find_sources(folder) if self.files is None else named_sources(folder, self.files, self.download)

    def _from_files(self, folder: Path) -> Corpus:
        sources = self._sources(folder)
        splits = {source.split for source in sources}
        if "train" not in splits:
            raise UserError(f"There is no file for train in {folder}; add one, or name it in task.data.files.train.")
        if self.files is None:
            for remark in several_files((source.split, source.path) for source in sources):
                rank_zero_only(print)(remark, flush=True)
        held_out = {split: part for split, part in self.recipe.held_out.items() if split not in splits}
        if self.selection == "test":
            held_out.pop("dev", None)
        return from_sources(sources, self.form, replace(self.recipe, held_out=held_out), self.cache)

    def _made_up(self) -> Corpus:
        sizes = self.toy_sizes()
        assert self.toy is not None
        corpus = prepare(toy_rows(sizes, self.toy["seed"]), replace(self.recipe, held_out={}))
        sha256 = hashlib.sha256(corpus.arrays.words.tobytes() + corpus.arrays.labels.tobytes()).hexdigest()
        return corpus._replace(files=dict.fromkeys(SPLITS, "made up"), sha256=dict.fromkeys(SPLITS, sha256))

    def test_inputs(self) -> Iterator[tuple[NewDocument, dict[str, Any]]]:
        """The files are read again, for the texts."""
        corpus, classes = self.prepared(), Labels(self.recipe.classes)
        splits, labels = corpus.arrays.splits, corpus.arrays.labels
        if self.recipe.classes is None:
            for name in corpus.classes:
                classes.number(name, True)
        if self.folder is None:
            sizes = {split: size for split, size in self.recipe.sizes.items() if size is not None}
            rows = toy_rows(sizes, (self.toy or {})["seed"])
        else:
            rows = read_rows(self._sources(self.folder), self.form)
        numbers, test = iter(range(len(splits))), SPLITS.index("test")
        for _, document, sentences, _ in usable(rows, self.recipe, classes, {s: Faults("skip") for s in SPLITS}):
            if splits[k := next(numbers)] == test:
                gold = corpus.classes[int(labels[k])]
                yield NewDocument(_join(document.texts), sentences, None), {"gold": gold}

    def rows(self, split: str) -> Tensor:
        """Which of all prepared documents are those of a split: of train as they were read, of the others the shortest
        first, so that the batches of an evaluation have documents of about the same size."""
        if split not in self._rows:
            arrays = self.prepared().arrays
            rows = np.flatnonzero(arrays.splits == SPLITS.index(split))
            if split != "train":
                rows = rows[arrays.texts().sizes[rows].argsort(stable=True).numpy()]
            self._rows[split] = torch.from_numpy(rows)
        return self._rows[split]

    def load(self) -> dict[str, Split]:
        arrays = self.prepared().arrays
        documents, labels = arrays.texts(), torch.from_numpy(arrays.labels)
        splits = {}
        for split in SPLITS:
            rows = self.rows("test" if split == "dev" and self.selection == "test" else split)
            splits[split] = DocumentSplit(documents, rows, labels[rows].long())
        return {**splits}

    @property
    def model_sizes(self) -> dict[str, Any]:
        corpus = self.prepared()
        return {
            "n_words": FIRST + len(corpus.words), "n_classes": len(corpus.classes), "vectors": self.vector_rows,
            "classes": tuple(corpus.classes), "class_counts": self.class_counts,
        }  # fmt: skip

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        none, start = np.zeros(0, np.int32), np.zeros(1, np.int64)
        arrays = Arrays(none, start, start, none, none.astype(np.int8))
        self._corpus = Corpus(arrays, *self.adopt_texts(vocabulary), {}, {}, {})

    def fingerprint(self) -> dict[str, Any]:
        """Also how the best state is selected."""
        return super().fingerprint() | {"selection": self.selection}

    @property
    def input_keys(self) -> tuple[str, ...]:
        return (*self.form.optional, *(name for names in self.form.texts for name in names))

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[NewDocument]:
        """New documents from lines of text, or JSON objects with the fields of the files. A note says where they look
        like labelled ones."""
        fields = ", ".join(names[0] for names in self.form.texts)
        forms = (
            f"Each line is the text of a document, or a JSON object with {fields}; a text that begins with {{ must be "
            "in such an object"
        )
        labels = {*self.prepared().classes, *itertools.chain(*(self.recipe.classes or {}).values())}
        lines = note_labels(lines, name, self.form, labels)
        return self._note_cut(read_examples(lines, name, self._input, "documents", forms), name)

    def _note_cut(self, documents: Iterable[NewDocument], name: str) -> Iterator[NewDocument]:
        """The documents as they are; says at the end how many were cut."""
        count = 0
        for document in documents:
            count += len(document.sentences) == self.recipe.max_sentences
            yield document
        if count:
            print(f"note: {name}: {self._cut()}, as in training: {count:,}", file=sys.stderr)

    def read_table(self, path: Path) -> Iterator[tuple[NewDocument, dict[str, str]]] | None:
        """New documents of a table whose first line has the columns of the form, that of the label perhaps not. Raises
        UserError for a file .csv or .tsv whose first line has them not."""

        def parse(record: dict[str, str]) -> NewDocument:
            return self._new(self.form.document(record).texts)

        if is_other_table(path, self.form.inputs):
            names = ", and ".join(" or ".join(several) for several in self.form.texts)
            raise UserError(
                f"{path}: its first line, {brief(first_line(path))}, does not name the columns {names}. Name the "
                "columns of the texts so, between commas or semicolons in a .csv and tabs in a .tsv, or give texts "
                "alone, one a line, in a file .txt."
            )
        return read_new_rows(path, self.form.inputs, parse, self.form.optional)

    def read_folder(self, folder: Path) -> Iterator[NewDocument]:
        """A new document from each file of a folder and of all folders below it, by name; hidden ones are left out.
        Raises UserError, which names the file, where one cannot be used, and for a folder without files."""
        own = [file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")]
        if not (files := sorted([*own, *(file for _, file in text_files(folder))])):
            raise UserError(
                f"input={folder} has no files, of which each would be a document, in itself or in the folders in it."
            )
        if table := next((file for file in files if file.name.lower().endswith(ENDINGS)), None):
            raise UserError(
                f"{table} is a table of documents, and each file of input={folder} would be the text of one. Give "
                f"tables by their names, as input={table}, or a folder of texts (.txt)."
            )

        def read() -> Iterator[NewDocument]:
            for file in files:
                try:
                    yield self._new(read_text(file).texts, file.relative_to(folder).as_posix())
                except Fault as fault:
                    raise UserError(f"{file}: {fault}; each file of the folder is the text of a document.") from None

        yield from self._note_cut(read(), str(folder))

    def _input(self, line: str) -> NewDocument:
        if not line.lstrip().startswith("{"):
            return self._new((line,))
        record = pick_fields(parse_object(line), self.form.inputs, self.form.optional)
        return self._new(self.form.document(record).texts)

    def _new(self, texts: Sequence[str], file: str | None = None) -> NewDocument:
        return NewDocument(_join(texts), self.recipe.sentences(texts), file)

    def describe(self, example: NewDocument) -> dict[str, Any]:
        return {"text": example.text} | ({} if example.file is None else {"file": example.file})

    def words_of(self, example: NewDocument) -> list[list[str]]:
        return example.sentences

    def encode(self, inputs: Sequence[NewDocument]) -> DocumentSplit:
        """New documents as a split; its labels are 0. How many have no word of the vocabulary is said: what is
        predicted of them says nothing."""
        texts = [document.sentences for document in inputs]
        self.say_strange("documents", texts, lambda k: " ".join(word for words in texts[k] for word in words))
        rows = torch.arange(len(inputs))
        documents = encode_texts(texts, self.index)
        return DocumentSplit(documents, rows, torch.zeros_like(rows))


def _join(texts: Sequence[str]) -> str:
    return "\n".join(text for text in texts if text)
