"""Labelled pairs of sentences as they are read: JSON lines and tables with a header, as SNLI and MultiNLI have them."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import contains
from pathlib import Path
from typing import NamedTuple

from tasks.column_names import guess_columns, list_names
from tasks.reading import Fault, bounded_lines
from tasks.rows import parse_object, pick_fields, read_examples, read_new_rows, read_records
from tasks.separators import is_csv, named_columns
from tasks.split_column import SPLIT, Row, rows_with_splits

NO_LABEL = "-"  # annotators did not agree
NO_NUMBER = "-1"  # the same in copies of SNLI and MultiNLI that have numbers for labels
# What SNLI and MultiNLI call each field, and after it what SICK, SciTail and others do.
FIELDS = {
    "label": ("gold_label", "label", "entailment_label", "entailment_judgment"),
    "premise": ("sentence1", "premise", "sentence_A"),
    "hypothesis": ("sentence2", "hypothesis", "sentence_B"),
}
SENTENCES = {field: FIELDS[field] for field in ("premise", "hypothesis")}
FORMS = (
    'JSON lines {"gold_label": "...", "sentence1": "...", "sentence2": "..."}, or columns, tab-separated or in a file '
    ".csv with commas or semicolons, whose first line has these names (premise and hypothesis, or sentence_A and "
    "sentence_B, will do)"
)


class Pair(NamedTuple):
    """Premise, hypothesis, their label as it is written, and the genre ("" where there is none)."""

    premise: str
    hypothesis: str
    label: str
    genre: str = ""


def read_pairs(path: Path) -> Iterator[tuple[int, Pair | Fault]]:
    """Line number and pair, or what is wrong with the line, of a file in one of the FORMS; blank lines are passed over.

    The first line decides whether it is JSON, and the name, .csv or not, what separates columns. Raises UserError for a
    file that cannot be read, is empty, or has a header without the columns that are needed.
    """
    for number, record in _records(path):
        yield number, record if isinstance(record, Fault) else Pair(**record)


def read_with_splits(path: Path) -> Iterator[Row[Pair]]:
    """As `read_pairs`, with the split that the column of this name says, see `split_column.rows_with_splits`."""
    fields = ("label", "genre", *SENTENCES)
    yield from rows_with_splits(path, _records(path, *SPLIT), lambda record: Pair(**{k: record[k] for k in fields}))


def _records(path: Path, *further: str) -> Iterator[tuple[int, dict[str, str] | Fault]]:
    """The records of a file. further: fields that are read besides."""
    return read_records(path, FIELDS, FORMS, optional=("genre", *further), remedy=_remedy)


def _remedy(columns: Mapping[str, Sequence[str]], separator: str) -> str:
    """What a first line that lacks a column must be, as a sentence for a message; "" where it has too few. columns: by
    what it has for its name the cells of the next rows."""
    if (guess := guess_columns(columns, FIELDS, others=("genre", *SPLIT))) is None:
        return ""
    label, premise, hypothesis = (guess[field] for field in FIELDS)
    if label not in columns[label]:
        return (
            f"Where {label} is the label, {premise} the premise and {hypothesis} the hypothesis, name them label, "
            "premise and hypothesis in the first line."
        )
    names = list_names([*columns], {name: field for field, name in guess.items()})
    names = names.replace(",", " <tab> " if separator == "\t" else separator)
    return f"Where the first line is a pair, put one before it that names the columns: {names}" if names else ""


def read_inputs(lines: Iterable[bytes], name: str) -> Iterator[Pair]:
    """Pairs without labels from lines `premise <tab> hypothesis` or JSON objects with the two; empty lines are passed
    over, and a note says where the first line looks like a header. name: of the stream, for messages. Raises UserError,
    which names the line."""
    forms = 'Each line is premise <tab> hypothesis, or a JSON object {"premise": "...", "hypothesis": "..."}'
    if is_csv(Path(name)):
        forms += "; a table .csv has a first line that names the columns premise and hypothesis"
    return read_examples(_note_header(lines, name), name, _input, "pairs", forms)


def read_table(path: Path) -> Iterator[tuple[Pair, dict[str, str]]] | None:
    """Pairs without labels of a table whose first line names their columns, each with the others; None of another
    file."""
    return read_new_rows(path, SENTENCES, _new)


def _note_header(lines: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The lines as they are; says to standard error where the first has the names of the two columns."""
    is_first = True
    for line in bounded_lines(lines):
        if is_first and (text := line.decode("utf-8", "replace").removeprefix("\ufeff").strip()):
            is_first, columns = False, [column.strip() for column in text.split("\t")]
            if len(columns) == 2 and all(map(contains, SENTENCES.values(), named_columns(columns, SENTENCES))):
                print(
                    f"note: {name}: the first line, {' <tab> '.join(columns)}, looks like a header, and it was read as "
                    "a pair of sentences, as each line is. Remove it: the lines are premise <tab> hypothesis, without "
                    "a header, or a table whose name ends in .tsv.", file=sys.stderr,
                )  # fmt: skip
        yield line


def _input(line: str) -> Pair:
    if line.lstrip().startswith("{"):
        return _new(pick_fields(parse_object(line), SENTENCES))
    sentences = line.split("\t")
    if len(sentences) != 2:
        raise Fault(f"it has {len(sentences)} column{'s' * (len(sentences) > 1)} instead of 2")
    return _new(dict(zip(SENTENCES, sentences, strict=True)))


def _new(sentences: Mapping[str, str]) -> Pair:
    for field, text in sentences.items():
        if not text.strip():
            raise Fault(f"its {field} is empty")
    return Pair(**sentences, label="")
