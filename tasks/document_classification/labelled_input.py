"""Notes on new documents whose lines have labels, as training files have: predictions take such lines for texts."""

import sys
from collections.abc import Collection, Iterable, Iterator

from tasks.document_classification.sources import Form
from tasks.reading import bounded_lines, brief
from tasks.separators import has_columns

MARKS = (",", "\t", ";")  # between the columns of tables


def note_labels(lines: Iterable[bytes], name: str, form: Form, labels: Collection[str]) -> Iterator[bytes]:
    """The lines of a stream as they are. Says to standard error where the first is the header of a table of labelled
    documents, or at the end, where each began with one of the `labels` and a comma, tab or semicolon.

    name: of the stream, for messages. form: of labelled documents.
    """
    example = ", ".join(f'"{names[0]}": "..."' for names in form.texts)
    wanted = (
        f"Give texts without labels and header, one on each line, JSON objects {{{example}}}, or a file .csv or .tsv "
        f"whose first line names the columns {', '.join(names[0] for names in form.texts)}."
    )
    count = labelled = 0
    header = False
    for line in bounded_lines(lines):
        if text := line.decode("utf-8", "replace").removeprefix("\ufeff").strip():
            count += 1
            if count == 1 and (header := _is_header(text, form)):
                _say(f"{name}: the first line, {brief(text)}, looks like the header of a table with labels", wanted)
            labelled += any(_columns(text, mark)[0] in labels for mark in MARKS if mark in text)
        yield line
    if count > 1 and labelled == count and not header:
        _say(f"{name}: each line begins with the name of a class, as a row of a table with labels", wanted)


def _say(what: str, wanted: str) -> None:
    print(f"note: {what}, and each line was read as the text of a document, as it stands. {wanted}", file=sys.stderr)


def _columns(line: str, mark: str) -> list[str]:
    return [column.strip().strip('"') for column in line.split(mark)]


def _is_header(line: str, form: Form) -> bool:
    """Whether a line has a column for the label and one for each text, and other columns only of a word."""
    return any(
        has_columns(columns, form.fields) and " " not in "".join(columns)
        for columns in (_columns(line, mark) for mark in MARKS)
    )
