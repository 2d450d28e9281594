"""Rows of files and streams: JSON objects, tables with named columns, new examples."""

import contextlib
import gc
import gzip
import json
import re

import pytest

from tasks import reading
from tasks.errors import UserError
from tasks.reading import TO_UTF8, Fault, Faults
from tasks.rows import columns_of, other_keys, parse_object, read_examples, read_records

FIELDS = {"label": ("label", "stars"), "text": ("text", "review")}
DEEP = '{"label": "a", "text": ' + "[" * 200_000 + "]" * 200_000 + "}"


def read(tmp_path, content: str | bytes, name: str = "train.tsv", **settings) -> list:
    path = tmp_path / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.lower().endswith(".gz") else data)
    records = list(read_records(path, FIELDS, "rows", **settings))
    return [(k, str(r) if isinstance(r, Fault) else tuple(r.values())) for k, r in records]


@pytest.mark.filterwarnings("ignore:.*is read as the")  # where two columns may be one field
@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.jsonl", '{"label": 3, "text": "A b"}\n\n{"text": "c", "stars": " x "}\n', [(1, ("3", "A b")), (3, ("x", "c"))]),
        ("a.txt.gz", '{"label": "3", "text": "\\ud83d\\ude00"}', [(1, ("3", "\U0001f600"))]),
        ("a.tsv", '\ufefftext\tlabel\tmore\n"A" b\tx\t1\nc\ty\n', [(2, ("x", '"A" b')), (3, ("y", "c"))]),
        ("a.tsv.gz", "label\ttext\r\nx\ta\u2028b\r\n", [(2, ("x", "a\u2028b"))]),
        ("a.csv", 'label,text\n x ,"A ""b"", c"\ny,"two\nlines"\nz,d\n', [(2, ("x", 'A "b", c')), (3, ("y", "two\nlines")), (5, ("z", "d"))]),
        ("a.csv.gz", "\nlabel,text\n\nx,a\n", [(4, ("x", "a"))]),
        ("a.CSV.GZ", "Label, TEXT ,more\nx,a,1\n", [(2, ("x", "a"))]),
        ("a.csv", "category,Label,review,Text\nz,x,b,a\n", [(2, ("x", "a"))]),
        ("a.jsonl", '{"stars": "z", "Label": "x", "Text": "a"}', [(1, ("x", "a"))]),
        ("a.csv", "Stars,label,text\n5,x,a\n", [(2, ("x", "a"))]),
        ("a.csv.v2.tsv", "Text\ttext\tlabel\nb\ta\tx\n", [(2, ("x", "a"))]),
    ],
)  # fmt: skip
def test_json_lines_and_tables_are_read_alike(tmp_path, name, content, rows):
    assert read(tmp_path, content, name) == rows


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('label\ttext\nx\t"He said ""hi"""\ny\t"Hi"\nz\ta "" b\n', ['He said "hi"', '"Hi"', 'a "" b']),
        ('"label"\t"text"\n"x"\t"He said ""hi"""\n"y"\t"two\nlines\tand a tab"\n', ['He said "hi"', "two\nlines\tand a tab"]),
    ],
    ids=["where they are needed", "around all"],
)
def test_quotes_that_a_program_has_put_are_none_of_the_text(tmp_path, content, texts):
    assert [row[1][1] for row in read(tmp_path, content)] == texts


@pytest.mark.parametrize(
    "content",
    [
        'label\ttext\ny\t"two\nlines"\nz\t"b\n',
        'text\tlabel\n"two\nlines"\tx\n',
        'label\ttext\tmore\nx\t"two\nlines"\tq\n',
        'label\ttext\nx\t"three\nor\nlines"\n',
    ],
)
def test_a_text_that_goes_on_in_another_line_is_not_cut(tmp_path, content):
    with pytest.raises(UserError, match=r"line [34]: a text in quotes .* ends here, 'lines\"'.*files \.csv"):
        read(tmp_path, content)


def test_blanks_in_front_of_quotes_are_no_part_of_a_column(tmp_path):
    (tmp_path / "x.csv").write_text('a, "b"\n1, "2, 3"\n')
    assert [row for _, row in read_records(tmp_path / "x.csv", {"a": ["a"], "b": ["b"]}, "forms")] == [{"a": "1", "b": "2, 3"}]


def test_quotes_that_are_characters_may_be_odd(tmp_path):
    assert read(tmp_path, 'text\tlabel\n"a,\tx\nb."\ty\n') == [(2, ("x", '"a,')), (3, ("y", 'b."'))]
    (_, fault), (_, row) = read(tmp_path, 'label\ttext\n"a\nx\tb\n')
    assert fault.endswith("Texts in quotes that go on in other lines are read in files .csv")
    assert row == ("x", "b")


def test_optional_keys_are_of_any_case(tmp_path):
    rows = read(tmp_path, '{"LABEL": "x", "Text": "a", "Genre": "g"}', "a.jsonl", optional=("genre",))
    assert rows == [(1, ("x", "a", "g"))]
    assert other_keys(b'{"LABEL": "x", "Text": "a", "Nr": 1}', ["label", "text"]) == {"Nr": 1}


def test_a_table_may_have_no_header_and_fields_may_be_optional(tmp_path):
    assert read(tmp_path, '"1","a"\n"2","b"\n', "a.csv", header=("label", "text")) == [(1, ("1", "a")), (2, ("2", "b"))]
    rows = read(tmp_path, "label\ttext\tgenre\nx\ta\tg\nx\tb\n", optional=("genre", "id"))
    assert rows[0] == (2, ("x", "a", "g", ""))
    assert "2 columns, and the first line has 3" in rows[1][1]
    assert read(tmp_path, '{"label": "x", "text": "a", "genre": null}', optional=("genre",)) == [(1, ("x", "a", ""))]


def test_of_two_columns_that_may_be_one_field_the_one_that_is_read_is_named(tmp_path):
    with pytest.warns(UserWarning, match=r"a.csv: the column text is read as the text, not review."):
        assert read(tmp_path, "label,review,text\nx,a,b\n", "a.csv") == [(2, ("x", "b"))]


def test_a_label_may_be_a_whole_number_as_pandas_writes_it(tmp_path):
    lines = "".join(f'{{"label": {label}, "text": "a"}}\n' for label in ("2", "2.0", '" 2 "', "2.5"))
    *same, other = read(tmp_path, lines)
    assert [row[1][0] for row in same] == ["2", "2", "2"]
    assert "label must be a string or a whole number, and it is 2.5" in str(other[1])


def test_a_cell_may_be_longer_than_pythons_own_limit(tmp_path):
    assert len(read(tmp_path, f'label,text\nx,"{"a" * 200_000}"\n', "a.csv")[0][1][1]) == 200_000


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("label,text\rx,a\ry,b\r", "its lines end with carriage returns alone; `tr '\\r' '\\n' < FILE > NEW`"),
        ("sep=;\r\nlabel;text\r\nx;a\r\n", "it names a separator, for Excel; remove it"),
    ],
)
def test_a_file_that_a_program_of_another_machine_wrote_is_refused_with_the_command_that_converts_it(
    tmp_path, written, message
):
    (tmp_path / "a.csv").write_bytes(written.encode())
    number, fault = next(reading.read_lines(tmp_path / "a.csv"))
    assert number == 1
    assert isinstance(fault, reading.Fault)
    assert message in str(fault)


def test_a_carriage_return_within_a_line_is_a_character_of_it(tmp_path):
    assert read(tmp_path, 'label,text\nx,"a\rb"\n', "a.csv")[0][1] == ("x", "a\rb")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff\xfe", "it is not UTF-8 (byte 1)"),
        (b'{"label": "\xed\xa0\x80"}', "it is not UTF-8 (byte 12)"),
        (b'{"label": "x", "text": "a\0"}', "it has a NUL character (column 26), so it is no text"),
        (b'{"label": "x", "text": "\\ud800"}', "half of a surrogate pair"),
        (b'{"label": "x"', "it is not a JSON object (Expecting"),
        (b"[1]", "it is not a JSON object"),
        (b'{"label": "x", "label": "y"}', "it has the key 'label' twice"),
        (b'{"label": "x", "id": NaN}', "it is not a JSON object (NaN is no number of JSON)"),
        (b'{"label": "x", "id": -1e999}', "it is not a JSON object (-1e999 is too large for a number)"),
        (DEEP.encode(), "it is not a JSON object (nested too deeply)"),
        (b'{"label": "x"}', "it has none of the keys text, review"),
        (b'{"label": "x", "text": ' + b"9" * 100_000 + b"}", "it is not a JSON object (Exceeds"),
        (json.dumps({"label": "x", "text": ["a" * 100_000] * 100}).encode(), "text must be a string, and it is ['aaa"),
        (b'{"label": true, "text": "a"}', "label must be a string or a whole number, and it is True"),
        (b"x" * 5000, "it has more than 4,000 bytes"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_faulty_line_is_one_short_sentence_and_the_next_is_read(tmp_path, monkeypatch, line, message):
    monkeypatch.setattr(reading, "LONGEST", 4_000 if line[:1] == b"x" else 1 << 24)
    good = b'{"label": "x", "text": "a"}\n'
    rows = read(tmp_path, good + line + b"\n" + good)
    assert (rows[0], rows[2]) == ((1, ("x", "a")), (3, ("x", "a")))
    assert rows[1][0] == 2
    assert message in rows[1][1]
    assert len(rows[1][1]) < 400


def test_faults_of_a_table_with_quotes_are_named_by_their_first_line(tmp_path):
    rows = read(tmp_path, b'label,text\nx,"a\nb"\n\xff\ny,"c" d\nz,e\n', "a.csv")
    assert rows[0] == (2, ("x", "a\nb"))
    assert rows[1] == (4, f"it is not UTF-8 (byte 1); {TO_UTF8}")
    assert rows[2][0] == 5
    assert rows[2][1].startswith("it is no row of a table with quotes")
    assert rows[3] == (6, ("z", "e"))
    (row,) = read(tmp_path, 'label,text\nx,"a\n' + "b\n" * 1000, "a.csv")
    assert row == (2, "a quote in it is not closed, so that it takes in all lines to 1002 (unexpected end of data)")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty. Expected are rows"),
        (b"\n \n", "is empty"),
        (b"label\tname\n", "its first line has no column text"),
        (b"Text\tLabel\tlabel\tTEXT\n", "its first line has two columns text; give one of them another name"),
        (b"\xff\n", "line 1: it is not UTF-8"),
        (b"x" * 300_000, "its first line has no column label"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, content, message):
    with pytest.raises(UserError, match=r"train\.tsv") as caught:
        read(tmp_path, content)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv.gz", "label\ttext\nx\ta\n", "separated by tabs and must be separated by ','; save it with commas."),
        ("a.tsv", "text,id,label\na,1,x\n", "separated by ',' and must be separated by tabs; save it with tabs."),
    ],
)
def test_a_table_with_another_separator_is_told_so(tmp_path, name, content, message):
    with pytest.raises(UserError) as caught:
        read(tmp_path, content, name)
    assert str(caught.value) == f"{tmp_path / name}: its columns are {message}"


@pytest.mark.parametrize(
    ("content", "header", "rows"),
    [
        ("\ufefflabel;text\r\nx;a, b\r\n", None, [(2, ("x", "a, b"))]),
        ('"id";"label";"text"\n1;x;"a; ""b"",\nc"\n', None, [(2, ("x", 'a; "b",\nc'))]),
        ("label,text,a;b\nx,a,c\n", None, [(2, ("x", "a"))]),
        ("label;text,more\nx;a\n", None, "no column text (it has label, text,more)"),
        ("name;text\nx;a\n", None, "no column label (it has name, text)"),
        ("name,text\nx,a\n", None, "no column label (it has name, text)"),
        ("x;a, b\ny;c\n", ("label", "text"), [(1, ("x", "a, b")), (2, ("y", "c"))]),
        ("x,a; b\ny,c\n", ("label", "text"), [(1, ("x", "a; b")), (2, ("y", "c"))]),
        ('"x;y","a; b"\n', ("label", "text"), [(1, ("x;y", "a; b"))]),
        ("x;a;1\n", ("label", "text", "id", "more"), [(1, ("x", "a"))]),
        ('x;"a, b\nc"\n', ("label", "text"), [(1, ("x", "a, b\nc"))]),
        ("x\ny,c\n", ("label", "text"), [(1, "it has 1 columns, and 2 are expected (label, text)"), (2, ("y", "c"))]),
    ],
)
def test_semicolons_separate_where_the_first_line_says_so(tmp_path, content, header, rows):
    if isinstance(rows, str):
        with pytest.raises(UserError, match=re.escape(rows)) as caught:
            read(tmp_path, content, "a.csv")
        assert "separated" not in str(caught.value)
    else:
        assert read(tmp_path, content, "a.csv", header=header) == rows


def test_a_remedy_has_the_first_cells_of_each_column(tmp_path):
    said = []
    for content in ("name;text\nx;a\ny;b;c\nz;d\n", "name;text\n"):
        with pytest.raises(UserError, match=r"Expected are rows\. Do so\.$"):
            read(tmp_path, content, "a.csv", remedy=lambda columns, separator: said.append((columns, separator)) or "Do so.")
    assert said == [({"name": ("x", "z"), "text": ("a", "d")}, ";"), ({"name": (), "text": ()}, ";")]


@pytest.mark.parametrize("line", ["[", "\udcff"], ids=["no object", "no text"])
def test_a_file_is_closed_when_a_fault_ends_the_reading(tmp_path, monkeypatch, line):
    """At once, not by the next collection of garbage."""
    files, open_bytes = [], reading.open_bytes
    monkeypatch.setattr(reading, "open_bytes", lambda path: files.append(open_bytes(path)) or files[-1])
    path = tmp_path / "train.jsonl"
    path.write_bytes(f'{{"a": "1"}}\n{line}\n{{"a": "2"}}\n'.encode("utf-8", "surrogateescape"))
    gc.disable()
    try:
        with contextlib.suppress(UserError):
            list(Faults("fail").parse(path, read_records(path, {"a": ["a"]}, "objects"), lambda record: record["a"]))
        assert files[0].closed
    finally:
        gc.enable()


def test_new_examples_are_parsed_and_faults_named():
    def parse(line: str) -> int:
        if not line.isdecimal():
            raise Fault("it is no number")
        return int(line)

    assert list(read_examples([b"\xef\xbb\xbf1\r\n", b"\n", b"2"], "in", parse, "numbers", "A number")) == [1, 2]
    with pytest.raises(UserError, match=r"^in, line 3: it is no number\. A number\.$"):
        list(read_examples([b"1\n", b" \n", b"x"], "in", parse, "numbers", "A number"))
    with pytest.raises(UserError, match=r"^in, line 1: it is not UTF-8 \(byte 1\); `iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW` converts .*\. A number\.$"):
        list(read_examples([b"\xff"], "in", parse, "numbers", "A number"))
    for first in ("\ufeff1\n".encode("utf-16-le"), "\ufeff1\n".encode("utf-16-be")):
        with pytest.raises(UserError, match=r"line 1: it is not UTF-8 .*`iconv -f UTF-16 -t UTF-8 FILE > NEW` converts"):
            list(read_examples([first], "in", parse, "numbers", "A number"))
    with pytest.raises(UserError, match=r"^in has no numbers\. A number\.$"):
        list(read_examples([b"\n"], "in", parse, "numbers", "A number"))


def test_an_object_of_json_keeps_its_characters():
    assert parse_object('{"a": "\\ud83d\\ude00 \u2028"}') == {"a": "\U0001f600 \u2028"}


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        ('{"a": "x", "b": ["y", "z"], "c": 3}', "x\ty z\t3"),
        ('{"a": "x", "other": true}', "x"),
        ('{"B": "y", "A": "x"}', "x\ty"),
        ("a line", "a line"),
    ],
)
def test_an_object_is_a_line_of_columns(line, columns):
    assert columns_of(line, ("a", "b", "c"), " ") == columns


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": "x", "c": "z"}', "it has a key c and no key b"),
        ('{"b": "x"}', "it has a key b and no key a"),
        ('{"d": "x"}', "it has no key a"),
        ('{"a": true}', "a must be a text"),
        ('{"a": ["x", false]}', "a must be a text"),
    ],
)
def test_an_object_that_is_no_line_of_columns(line, message):
    with pytest.raises(Fault, match=message):
        columns_of(line, ("a", "b", "c"), " ")


def test_an_array_of_json_is_no_line_of_new_examples():
    with pytest.raises(UserError, match=r"in, line 1: it is an array of JSON, and an object a line is needed.*lines=True"):
        list(read_examples([b'[{"text": "a"}, {"text": "b"}]\n'], "in", str, "texts", "A text"))
    assert list(read_examples([b"[ sic ]\n"], "in", str, "texts", "A text")) == ["[ sic ]"]


def test_an_array_of_json_is_named(tmp_path):
    (tmp_path / "x.json").write_text('[{"label": "a"}]')
    with pytest.raises(UserError, match=r"x\.json is an array of JSON, and an object a line is needed.*lines=True"):
        next(read_records(tmp_path / "x.json", {"label": ["label"]}, "forms"))
