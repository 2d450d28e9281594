"""Where labelled documents are, and how files hold them: tables, JSON lines, a folder of texts for each class."""

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tasks.batches import SPLITS
from tasks.column_names import guess_columns, list_names
from tasks.document_classification.corpus import Document, Row
from tasks.errors import UserError, known_splits, quoted
from tasks.reading import LONGEST, UNREADABLE, Fault, decode, existing, open_bytes, reason
from tasks.rows import has_column, read_records
from tasks.split_column import SPLIT, rows_with_splits, train_first
from tasks.split_files import split_name, stems_by_split

ENDINGS = (".jsonl", ".csv", ".tsv", ".jsonl.gz", ".csv.gz", ".tsv.gz")


class Source(NamedTuple):
    """A file of a split, or a folder that has a folder of texts for each class."""

    split: str
    path: Path


@dataclass(frozen=True)
class Form:
    """How records hold a document.

    header: the columns of tables whose first line does not name them, as the releases of Zhang et al. 2015; None: it
    does. label: the names that the field of the label may have; texts: the names that each text may have, in the order
    of the texts. optional: fields that are texts as well, before those, and may be missing.
    """

    header: list[str] | None
    label: list[str]
    texts: list[list[str]]
    optional: list[str]

    def __post_init__(self) -> None:
        if not self.label or not self.texts or not all(self.texts):
            raise UserError("task.data.form needs the name of a label and of at least one text, as label=[topic].")

    @property
    def fields(self) -> dict[str, list[str]]:
        """The names of each field, for `read_records`: "label" and "text 1", ..."""
        return {"label": self.label, **self.inputs}

    @property
    def inputs(self) -> dict[str, list[str]]:
        """As `fields`, without the label."""
        return {f"text {k}": names for k, names in enumerate(self.texts, start=1)}

    def document(self, record: Mapping[str, str]) -> Document:
        """The document of the fields of a record."""
        texts = (*(record[name] for name in self.optional), *(record[name] for name in self.inputs))
        return Document(record.get("label", ""), texts)

    def describe(self) -> str:
        """What is expected of a file, for messages."""
        names = [self.label[0], *(several[0] for several in self.texts)]
        example = ", ".join(f'"{name}": "..."' for name in names)
        return f"JSON lines {{{example}}}, or a table of columns {', '.join(names)}"

    def remedy(self, columns: Mapping[str, Sequence[str]], _: str) -> str:
        """Settings that read a table whose first line lacks a column, as sentences for a message; "" where it has too
        few. columns: by what the first line has for its name the cells of the next rows."""
        if (guess := guess_columns(columns, self.fields, (*self.optional, *SPLIT))) is None:
            return ""
        label, *texts = (guess[field] for field in self.fields)
        words = [] if label in self.label else [f"task.data.form.label=[{_atom(label)}]"]
        if any(text not in names for text, names in zip(texts, self.texts, strict=True)):
            words.append(f"task.data.form.texts=[{','.join(f'[{_atom(text)}]' for text in texts)}]")
        named = f"Where {label} is the label and {' and '.join(texts)} the text, add {shlex.join(words)}. "
        if {*itertools.chain(*self.fields.values())} & {*columns}:
            return named
        own = {label: self.label[0], **{text: names[0] for text, names in zip(texts, self.texts, strict=True)}}
        header = list_names([*columns], own, self.optional)
        unnamed = f"Where the first line is a document, add 'task.data.form.header=[{header}]'." if header else ""
        return unnamed if label in columns[label] else named + unnamed


def _atom(name: str) -> str:
    """The name of a column as an element of a list on the command line."""
    is_plain = re.fullmatch(r"(?!(null|true|false|nan|inf)$)[a-z_]\w*", name, re.ASCII | re.IGNORECASE)
    return name if is_plain else quoted(name)


def named_sources(folder: Path, files: Mapping[str, str | None], download: str | None) -> list[Source]:
    """The files of each split by name, also where they end in .gz. Raises UserError where one is not there."""
    known_splits("task.data.files", files, SPLITS)
    sources = []
    for split in SPLITS:
        if (name := files.get(split)) is None:
            continue
        if (path := existing(folder / name)) is None:
            fetch = f"Fetch it with `python scripts/download.py {download}`, or name" if download else "Name"
            raise UserError(
                f"There is no file {folder / name} ({split}). {fetch} the folder of data sets with paths.data_dir=... "
                "or the environment variable HYPERBOLIC_DATA."
            )
        sources.append(Source(split, path))
    return sources


def find_sources(place: Path) -> list[Source]:
    """The sources of a folder, of which the first that there are is taken:

        files whose names say of which split they are (`split_files.split_name`),
        folders whose names say so, with a folder of texts for each class: train and test, or train and no folder that
        is of no split, for else it is a class that has such a name,
        one file, or else a folder of texts for each class: all of it is train.

    A file instead of a folder is train. Raises UserError where nothing is found.
    """
    if place.is_file():
        return [Source("train", place)]
    if not place.is_dir():
        raise UserError(f"There is no folder or file {place}; name one with data.dir=...")
    stems = stems_by_split(place, ENDINGS)
    if any(stems.values()):
        return [Source(split, path) for split in SPLITS for _, path in sorted(stems[split].items())]
    folders = [path for path in sorted(place.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    splits = {path: split for path in folders if (split := split_name(path.name))}
    if {"train", "test"} <= set(splits.values()) or ("train" in splits.values() and len(splits) == len(folders)):
        return sorted((Source(split, path) for path, split in splits.items()), key=lambda s: SPLITS.index(s.split))
    files = [path for ending in ENDINGS for path in sorted(place.glob(f"*{ending}")) if path.is_file()]
    if len(files) == 1:
        return [Source("train", files[0])]
    if not files and len(folders) > 1:
        return [Source("train", place)]
    raise UserError(
        f"{place} has no documents that are found by their names: expected are files train and test that end in "
        f"{', '.join(ENDINGS[:3])} (or .gz), one such file to be split, or a folder of text files for each class."
    )


def read_rows(sources: Sequence[Source], form: Form) -> Iterator[Row]:
    """Split, place and document, or what is wrong with it, of all sources in their order, one after the other. Where a
    single file has a column split, see `split_column`, the documents of train come first."""
    if len(sources) == 1 and _has_splits(one := sources[0].path, form):
        yield from train_first(
            one, lambda: rows_with_splits(one, _records(one, form, *SPLIT), form.document), "documents"
        )
        return
    for split, path in sources:
        if path.is_dir():
            for label, file in text_files(path):
                try:
                    yield split, str(file), read_text(file, label)
                except Fault as fault:
                    yield split, str(file), fault
            continue
        for number, record in _records(path, form):
            yield split, f"{path}, line {number}", record if isinstance(record, Fault) else form.document(record)


def _has_splits(path: Path, form: Form) -> bool:
    """Whether a source has a column split that is none of the fields of a document."""
    if not path.is_file() or "split" in itertools.chain(*form.fields.values()):
        return False
    return has_column(path, "split") if form.header is None else "split" in form.header


def _records(path: Path, form: Form, *further: str) -> Iterator[tuple[int, dict[str, str] | Fault]]:
    """The records of a file. further: fields that are read besides, "" where the file does not have them."""
    return read_records(path, form.fields, form.describe(), (*form.optional, *further), form.header, form.remedy)


def text_files(folder: Path) -> list[tuple[str, Path]]:
    """The class and path of each text of a folder that has a folder for each class, which may have folders of its own.
    What is hidden is left out, and what links to folders within a class lead to."""
    classes = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    return [
        (path.name, file)
        for path in classes
        for file in sorted(path.rglob("*"))
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]


def read_text(file: Path, label: str = "") -> Document:
    """A file that is one document, unpacked where its name ends in .gz. Raises Fault where it is no text, and UserError
    where it cannot be read."""
    try:
        with open_bytes(file) as stream:
            text = stream.read(LONGEST + 1)
    except UNREADABLE as error:
        raise UserError(f"{file} cannot be read ({reason(error)}).") from None
    return Document(label, (decode(text),))
