"""Mentions as they are read: records of the release, what users type in, and what is wrong with either."""

import io
import json

import pytest

from tasks.entity_typing.mentions import Mention, parse, read_inputs
from tasks.errors import UserError
from tasks.reading import Fault

RECORD = {
    "left_context_token": ["In", "1999"],
    "mention_span": "Web users",
    "right_context_token": ["."],
    "y_str": ["person"],
}


def test_a_record_of_the_release_is_read():
    line = json.dumps(RECORD | {"annot_id": "x"}).encode()
    assert parse(line) == Mention(["In", "1999"], "Web users", ["."], ["person"])
    assert parse(line + b"\r") == parse(line)
    assert parse(b"\xef\xbb\xbf" + line) == parse(line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"mention_span": ', "it is not a JSON object"),
        (b"", "it is not a JSON object"),
        (b"[1, 2]", "it is not a JSON object"),
        (b'"text"', "it is not a JSON object"),
        (b"null", "it is not a JSON object"),
        (json.dumps({k: v for k, v in RECORD.items() if k != "y_str"}).encode(), "it has no key y_str"),
        (json.dumps(RECORD | {"mention_span": ["Web", "users"]}).encode(), "mention_span must be a string"),
        (json.dumps(RECORD | {"left_context_token": "In 1999"}).encode(), "and left_context_token"),
        (json.dumps(RECORD | {"y_str": "person"}).encode(), "y_str lists"),
        (b'{"mention_span": "caf\xe9"}', "it is not UTF-8 (byte 22); `iconv -f WINDOWS-1252"),
    ],
)
def test_a_record_that_cannot_be_used_says_why(line, said):
    with pytest.raises(Fault) as caught:
        parse(line)
    assert said in str(caught.value)


def test_all_forms_of_input_are_read():
    lines = [
        json.dumps({k: v for k, v in RECORD.items() if k != "y_str"}),
        '{"left": "He didn\'t see", "mention": "Obama\'s dog", "right": "in Rome."}',
        '{"mention": " Rome "}',
        "",
        " \t",
        "She met [the mayor] in Paris, France.",
        "[It] rained.",
    ]
    for stream in ([line.encode() for line in lines], io.BytesIO("\n".join(lines).encode("utf-8-sig"))):
        found = list(read_inputs(stream, "file"))
        assert found == [
            Mention(["In", "1999"], "Web users", ["."]),
            Mention(["He", "did", "n't", "see"], "Obama 's dog", ["in", "Rome", "."]),
            Mention([], "Rome", []),
            Mention(["She", "met"], "the mayor", ["in", "Paris", ",", "France", "."]),
            Mention([], "It", ["rained", "."]),
        ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"a sentence", "0 mentions in [brackets] instead of one"),
        (b"[a] and [b]", "2 mentions in [brackets] instead of one"),
        (b"[a [b]]", "in [brackets]"),
        (b"a [ ] b", "the mention in [brackets] is empty"),
        (b'{"mention": ""}', "mention must be a text that is not empty"),
        (b'{"left": "a"}', "neither a key mention_span nor mention"),
        (b'{"mention": "a", "rigth": "b"}', "a key 'rigth', and none right, which is probably meant"),
        (b'{"mention": "a", "left": 3}', "left must be a string or a list of words"),
        (b'{"mention": "a"', "not a JSON object"),
        (b"caf\xe9 [a]", "is not UTF-8"),
    ],
)
def test_a_faulty_input_is_named_with_its_line(line, said):
    with pytest.raises(UserError, match=r"inputs\.txt, line 3") as caught:
        list(read_inputs([b"[fine]", b"", line], "inputs.txt"))
    assert said in str(caught.value)


def test_an_input_without_mentions_is_an_error():
    with pytest.raises(UserError, match="inputs has no mentions"):
        list(read_inputs([b"", b" "], "inputs"))


def test_inputs_are_read_one_after_the_other():
    assert next(read_inputs(iter([b"[a]", b"faulty"]), "inputs")).mention == "a"
