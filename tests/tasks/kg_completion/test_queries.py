"""Questions are read from both sides, and what is wrong with a line is reported with its place and near spellings."""

import io

import pytest

from tasks.errors import UserError
from tasks.kg_completion.queries import Query, read_queries, read_query_table
from tasks.names import Names

ENTITIES = ("dog", "animal", "New York", "Zürich")
RELATIONS = ("hypernym", "located_in")


def read(data: bytes) -> list[Query]:
    names = Names(ENTITIES, "entity", "mine"), Names(RELATIONS, "relation", "mine")
    return list(read_queries(io.BytesIO(data), "questions.tsv", *names))


def test_both_sides_can_be_sought():
    assert read("dog\thypernym\t?\n?\tlocated_in\tZürich\n".encode()) == [
        Query("dog", "hypernym", "?", 0, 0, False),
        Query("?", "located_in", "Zürich", 3, 1, True),
    ]


def test_a_whole_triple_has_a_target():
    assert read(b"dog\thypernym\tanimal\n") == [Query("dog", "hypernym", "animal", 0, 0, False, 1)]


def test_a_table_with_other_columns(tmp_path):
    names = Names(ENTITIES, "entity", "mine"), Names(RELATIONS, "relation", "mine")
    (tmp_path / "new.csv").write_text('id,tail,head,relation\n7,?,"dog",hypernym\n8,animal, dog,hypernym\n')
    assert list(read_query_table(tmp_path / "new.csv", *names)) == [
        (Query("dog", "hypernym", "?", 0, 0, False), {"id": "7"}),
        (Query("dog", "hypernym", "animal", 0, 0, False, 1), {"id": "8"}),
    ]
    for text in ("Subject,Predicate,Object\ndog,hypernym,?\n", "dog,hypernym,?\n"):
        (tmp_path / "new.csv").write_text(text)
        assert list(read_query_table(tmp_path / "new.csv", *names)) == [(Query("dog", "hypernym", "?", 0, 0, False), {})]
    (tmp_path / "new.csv").write_text("dog,hypernym,?\ndog,hypernym,dig\n")
    with pytest.raises(UserError, match=r"new\.csv, line 2: mine has no entity 'dig'.* Each line is `head <tab>"):
        list(read_query_table(tmp_path / "new.csv", *names))
    (tmp_path / "new.tsv").write_text("dog\thypernym\t?\n")
    assert read_query_table(tmp_path / "new.tsv", *names) is None


@pytest.mark.parametrize(
    "text",
    [
        b"dog\thypernym\t?\n?\tlocated_in\tNew York\n",
        b"dog\thypernym\t?\r\n?\tlocated_in\tNew York\r\n",
        b"dog\thypernym\t?\n?\tlocated_in\tNew York",
        b"\xef\xbb\xbfdog\thypernym\t?\n?\tlocated_in\tNew York\n",
        b"\ndog\thypernym\t?\n  \n\t\t\n?\tlocated_in\tNew York\n\n",
        b"\xef\xbb\xbf\r\ndog\thypernym\t?\r\n \r\n?\tlocated_in\tNew York\r\n",
    ],
    ids=["plain", "windows", "no last newline", "byte-order mark", "blank lines", "all of it"],
)
def test_ends_of_lines_blank_lines_and_marks_change_nothing(text):
    assert read(text) == [
        Query("dog", "hypernym", "?", 0, 0, False),
        Query("?", "located_in", "New York", 2, 1, True),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "dog",
        "dog hypernym ?",
        "dog\thypernym",
        "dog\thypernym\t?\tmore",
        "dog\thypernym\t?\t",
        "?\thypernym\t?",
        "\thypernym\t?",
        "dog\t\t?",
        "?\thypernym\t",
    ],
)
def test_a_line_that_is_no_question_is_named(line):
    with pytest.raises(UserError) as caught:
        read(f"dog\thypernym\t?\n\n{line}\n".encode())
    blank = "" if all(line.split("\t")) else "; what is sought is written ?"
    start = f"questions.tsv, line 3: {line!r} is no question{blank}. Each line is `head <tab> relation"
    assert str(caught.value).startswith(start)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Dog\thypernym\t?", "line 2: mine has no entity 'Dog'. The nearest spellings: 'dog'"),
        ("?\thypernym\tNew_York", "line 2: mine has no entity 'New_York'. The nearest spellings: 'New York'"),
        ("dog\thypernim\t?", "line 2: mine has no relation 'hypernim'. The nearest spellings: 'hypernym'"),
        ("dog\thypernym\tanimals", "line 2: mine has no entity 'animals'. The nearest spellings: 'animal'"),
        ("?\t?\tdog", "line 2: mine has no relation '?'."),
        ("qqqqqq\thypernym\t?", "line 2: mine has no entity 'qqqqqq'. It has 4, as 'dog', "),
    ],
)
def test_unknown_names_get_the_nearest_spellings(line, message):
    with pytest.raises(UserError) as caught:
        read(f"dog\thypernym\t?\n{line}\n".encode())
    assert str(caught.value).startswith("questions.tsv, line 2: ")
    assert message in str(caught.value)
    assert ("nearest" in str(caught.value)) == ("nearest" in message)


def test_a_file_in_another_encoding_is_told():
    with pytest.raises(UserError, match=r"questions\.tsv, line 2: it is not UTF-8"):
        read(b"dog\thypernym\t?\nZ\xfcrich\tlocated_in\t?\n")


@pytest.mark.parametrize("text", [b"", b"\n \n"])
def test_a_file_without_questions_is_told(text):
    with pytest.raises(UserError, match=r"questions\.tsv has no questions\. Each line is"):
        read(text)


def test_questions_come_one_after_the_other():
    """A long file is answered while it is read; a fault is reported when it is reached."""

    def lines():
        yield b"dog\thypernym\t?\n"
        raise AssertionError("the second line was read too early")

    names = Names(ENTITIES, "entity", "mine"), Names(RELATIONS, "relation", "mine")
    assert next(read_queries(lines(), "-", *names)).head == "dog"
