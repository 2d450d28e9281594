"""Pairs are read alike from all the forms that data sets have, and faults of a line are described."""

import json

import pytest

from tasks.errors import UserError
from tasks.nli.pairs import Pair, read_inputs, read_pairs, read_table
from tasks.reading import Fault

SNLI = (
    "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2"
    "\tcaptionID\tpairID\tlabel1\n"
    'neutral\t( A )\t( B )\t(ROOT)\t(ROOT)\tA "man" runs.\tHe is late.\t1.jpg#4\t1.jpg#4r1n\tneutral\n'
    "-\t( A )\t( B )\t(ROOT)\t(ROOT)\tA man.\tA boy.\t1.jpg#4\t1.jpg#4r1n\n"
)
MULTINLI = "gold_label\tsentence1\tsentence2\tpromptID\tpairID\tgenre\tlabel1\nneutral\tHe ran.\tWhy?\t1\t1n\tfiction\tneutral\n"
SICK = "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\n1\tA man.\tA boy.\tNEUTRAL\t4.5\n"


def read(tmp_path, text: str, name: str = "train.txt") -> list:
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8"))
    return list(read_pairs(path))


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (SNLI, [(2, Pair('A "man" runs.', "He is late.", "neutral")), (3, Pair("A man.", "A boy.", "-"))]),
        (SNLI.replace("\n", "\r\n"), [(2, Pair('A "man" runs.', "He is late.", "neutral")), (3, Pair("A man.", "A boy.", "-"))]),
        (MULTINLI, [(2, Pair("He ran.", "Why?", "neutral", "fiction"))]),
        (SICK, [(2, Pair("A man.", "A boy.", "NEUTRAL"))]),
        ("\ufeffpremise\thypothesis\tlabel\n\nA\tB\tx\n", [(3, Pair("A", "B", "x"))]),
    ],
    ids=["SNLI", "Windows", "MultiNLI", "SICK", "blank line and mark"],
)
def test_tables_are_read_by_the_names_of_their_columns(tmp_path, text, pairs):
    assert read(tmp_path, text) == pairs


def test_json_lines_are_reported_by_their_content(tmp_path):
    """SciTail's have the ending .txt; a line separator inside of a sentence is no end of a line."""
    records = [
        {"gold_label": "entails", "sentence1": "A\u2028b", "sentence2": "c", "annotator_labels": ["x"], "genre": None},
        {"label": 2, "premise": "A", "hypothesis": "b", "genre": "oup"},
    ]
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    assert read(tmp_path, text) == [(1, Pair("A\u2028b", "c", "entails")), (2, Pair("A", "b", "2", "oup"))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"gold_label": "neutral", "sentence1": "A"}', "none of the keys sentence2, "),
        ('{"sentence1": "A", "sentence2": "B"}', "none of the keys gold_label, "),
        ('{"gold_label": "neutral", "sentence1": 3, "sentence2": "B"}', "sentence1 must be a string, and it is 3"),
        ('{"gold_label": true, "sentence1": "A", "sentence2": "B"}', "gold_label must be a string"),
        ('{"gold_label": "neutral"', "not a JSON object"),
        ("[]", "not a JSON object"),
    ],
)
def test_a_faulty_json_line_is_reported_and_the_next_is_read(tmp_path, line, message):
    good = '{"gold_label": "neutral", "sentence1": "A", "sentence2": "B"}\n'
    first, (number, fault), last = read(tmp_path, f"{good}{line}\n{good}")
    assert isinstance(fault, Fault)
    assert number == 2
    assert message in str(fault)
    assert (first[1], last) == (Pair("A", "B", "neutral"), (3, first[1]))


@pytest.mark.parametrize(("row", "columns"), [("neutral\tA", 2), ("neutral\tA\tB\tC\tD\tE\tF\tG", 8)])
def test_a_row_with_other_columns_is_reported(tmp_path, row, columns):
    _, (number, fault) = read(tmp_path, f"{MULTINLI}{row}\n")
    assert (number, str(fault)) == (3, f"it has {columns} columns, and the first line has 7")


def test_a_line_that_is_not_utf_8_is_reported(tmp_path):
    path = tmp_path / "dev.jsonl"
    path.write_bytes(b'{"gold_label": "x", "sentence1": "A", "sentence2": "B"}\n\xff\n')
    assert "not UTF-8 (byte 1)" in str(list(read_pairs(path))[1][1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"train\.txt is empty"),
        ("\n\n", r"train\.txt is empty"),
        ("neutral\tA man.\tA boy.\n", r"train\.txt: its first line has no column gold_label \(it has neutral, A man"),
        ("gold_label\tsentence1\n", "no column sentence2"),
    ],
)
def test_a_file_that_has_no_pairs_is_named(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("id\tUrteil\tSatz1\tSatz2\n1\ta\tEr lief.\tWarum?\n2\ta\tEs regnet.\tEs ist nass.\n3\tb\tJa.\tNein.\n",
         "Where Urteil is the label, Satz1 the premise and Satz2 the hypothesis, name them label, premise and hypothesis in "
         "the first line."),
        ("7\ta\tEr lief.\tWarum?\n8\ta\tEs regnet.\tEs ist nass.\n9\tb\tJa.\tNein.\n10\tb\tA.\tB.\n",
         "Where the first line is a pair, put one before it that names the columns: column1 <tab> label <tab> premise <tab> hypothesis"),
        ("Urteil\tSatz1\t" + "x" * 300 + "\na\tEr lief.\tWarum?\n", "(premise and hypothesis, or sentence_A and sentence_B, will do)."),
        ("a\t" * 40 + "\n" + "a\t" * 40, "(premise and hypothesis, or sentence_A and sentence_B, will do)."),
        ("a\tEr lief.\n", "(premise and hypothesis, or sentence_A and sentence_B, will do)."),
    ],
)  # fmt: skip
def test_a_table_with_other_names_is_told_how_to_name_them(tmp_path, text, remedy):
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    assert str(caught.value).endswith(remedy)


@pytest.mark.parametrize(("name", "separator"), [("train.tsv", "\t"), ("train.csv", ","), ("train.csv", ";")])
def test_the_advice_for_a_table_without_a_header_works(tmp_path, name, separator):
    rows = ["7\ta\tEr lief.\tWarum?", "8\ta\tEs regnet.\tEs ist nass.", "9\tb\tJa.\tNein.", "10\tb\tA.\tB."]
    text = "\n".join(row.replace("\t", separator) for row in rows) + "\n"
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as caught:
        list(read_pairs(tmp_path / name))
    header = str(caught.value).rpartition("columns: ")[2].replace(" <tab> ", "\t")
    (tmp_path / name).write_text(f"{header}\n{text}")
    pairs = [pair for _, pair in read_pairs(tmp_path / name)]
    assert [(pair.label, pair.premise) for pair in pairs] == [("a", "Er lief."), ("a", "Es regnet."), ("b", "Ja."), ("b", "A.")]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"dev\.txt cannot be read"):
        list(read_pairs(tmp_path / "dev.txt"))


def test_new_pairs_are_tab_separated_or_json():
    text = 'A man.\tHe is.\n\n{"premise": "A", "hypothesis": "b"}\r\n{"sentence1": "A", "sentence2": "b", "label": 1}\n'
    pairs = list(read_inputs(text.encode().splitlines(keepends=True), "in"))
    assert [pair[:2] for pair in pairs] == [("A man.", "He is."), ("A", "b"), ("A", "b")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"no tab", "1 column instead of 2"),
        (b"a\tb\tc", "3 columns instead of 2"),
        (b"a\t ", "its hypothesis is empty"),
        (b'{"premise": " ", "hypothesis": "b"}', "its premise is empty"),
        (b'{"premise": "a"}', "none of the keys sentence2, "),
        (b"{", "not a JSON object"),
        (b"\xff\ta", "is not UTF-8"),
    ],
)
def test_a_faulty_new_pair_is_named_with_its_line(line, message):
    with pytest.raises(UserError, match=r"^in\.tsv, line 2") as caught:
        list(read_inputs([b"a\tb\n", line], "in.tsv"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "noted"),
    [
        ([b"\xef\xbb\xbfpremise\thypothesis\r\n", b"a\tb\r\n"], True),
        ([b"\n", b"sentence1\tsentence2\n", b"a\tb\n"], True),
        ([b"a\tb\n", b"premise\thypothesis\n"], False),
        ([b"hypothesis\tpremise\n"], False),
        ([b'{"premise": "a", "hypothesis": "b"}\n'], False),
    ],
)
def test_a_header_of_new_pairs_is_noted_and_read_as_a_pair(capsys, lines, noted):
    assert len(list(read_inputs(lines, "in.tsv"))) == sum(bool(line.strip()) for line in lines)
    out, err = capsys.readouterr()
    assert out == ""
    if noted:
        assert err.startswith("note: in.tsv: the first line, ")
        assert "was read as a pair of sentences" in err
        assert "the lines are premise <tab> hypothesis, without a header, or a table whose name ends in .tsv.\n" in err
    else:
        assert err == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("in.tsv", "id\tlabel\tpremise\thypothesis\n1\tx\tA man.\tHe is.\n\n2\ty\tA\tb\n"),
        ("in.csv", "sentence2;sentence1\nHe is.;A man.\nb;A\n"),
        ("in.csv", "id,id,premise,hypothesis,\n0,1,A man.,He is.,\n0,2,A,b,\n"),
        ("in.tsv", '"id"\t"premise"\t"hypothesis"\n"1"\t"A man."\t"He is."\n"2"\t"A"\t"b"\n'),
    ],
)
def test_new_pairs_may_be_a_table_whose_first_line_names_its_columns(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    pairs, others = zip(*read_table(tmp_path / name), strict=True)
    assert pairs == (Pair("A man.", "He is.", ""), Pair("A", "b", ""))
    handed_on = [{"id": "1", "label": "x"}, {"id": "2", "label": "y"}]
    left = [name for name in ("id", "label") if name in text.partition("\n")[0]]
    assert list(others) == [{key: each[key] for key in left} for each in handed_on]
    (tmp_path / name).write_text(text.partition("\n")[2], encoding="utf-8")
    assert read_table(tmp_path / name) is None
    (tmp_path / name).write_text(f"{text.partition(chr(10))[0]}\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"in\.... has no rows below the names of its columns"):
        list(read_table(tmp_path / name))


def test_pairs_of_a_table_with_commas_or_semicolons(tmp_path):
    for text in ('label,premise,hypothesis\nyes,"A man, here.",He is.\n', "label;premise;hypothesis\nyes;A man, here.;He is.\n"):
        (tmp_path / "train.csv").write_text(text, encoding="utf-8")
        assert list(read_pairs(tmp_path / "train.csv")) == [(2, Pair("A man, here.", "He is.", "yes"))]


def test_a_faulty_row_of_new_pairs_is_named_with_its_line(tmp_path):
    (tmp_path / "in.tsv").write_text("premise\thypothesis\nA\tb\nA\t \n", encoding="utf-8")
    with pytest.raises(UserError, match=r"in\.tsv, line 3: its hypothesis is empty\."):
        list(read_table(tmp_path / "in.tsv"))


def test_no_new_pairs_at_all_is_an_error():
    with pytest.raises(UserError, match=r"in\.tsv has no pairs"):
        list(read_inputs([b"\n"], "in.tsv"))
