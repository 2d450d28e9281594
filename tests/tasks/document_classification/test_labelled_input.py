"""New documents that look like labelled ones: they are read as they stand, and one note says so."""

import pytest

from tests.tasks.document_classification.files import data

WANTED = (
    "and each line was read as the text of a document, as it stands. Give texts without labels and header, one on each "
    'line, JSON objects {"title": "...", "text": "..."}, or a file .csv or .tsv whose first line names the columns title, '
    "text.\n"
)


def note(tmp_path, capsys, lines: list[bytes], **changes) -> str:
    found = data(tmp_path, **changes)
    found.prepared()
    capsys.readouterr()
    texts = [found.describe(one)["text"] for one in found.read_inputs(lines, "test.csv")]
    assert texts == [t for line in lines if (t := line.decode("utf-8-sig").rstrip("\r\n"))]
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    "header", [b"\xef\xbb\xbflabel,title,text\r\n", b'"text"\t"title"\t"label"\n', b"id;label;title;text\n"]
)
def test_a_header_of_labelled_documents_is_noted(tmp_path, capsys, header):
    said = note(tmp_path, capsys, [header, b'1,Rain,"It rains."\n', b"2,Shares,They rise.\n"])
    assert said.startswith("note: test.csv: the first line, ")
    assert said.endswith(f"looks like the header of a table with labels, {WANTED}")
    assert said.count("note:") == 1


@pytest.mark.parametrize("changes", [{}, {"classes": {"weather": ["1"], "business": ["2"]}}])
def test_lines_that_all_begin_with_a_class_are_noted(tmp_path, capsys, changes):
    lines = [b'"1","Rain","It rains."\n', b"\n", b"2\tShares\n"]
    said = note(tmp_path, capsys, lines, **changes)
    start = "note: test.csv: each line begins with the name of a class, as a row of a table with labels, "
    assert said == start + WANTED


@pytest.mark.parametrize(
    "lines",
    [
        [b"1,Rain\n", b"It rains, again\n"],
        [b"title,text\n", b"Rain,It rains\n"],
        [b"1\n", b"2\n"],
        [b"3,Rain\n"],
        [b"It rains.\n", b"label,title,text\n"],
    ],
)
def test_texts_are_not_noted(tmp_path, capsys, lines):
    assert note(tmp_path, capsys, lines) == ""
