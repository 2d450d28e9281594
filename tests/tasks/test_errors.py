"""Messages of mistakes."""

import pytest

from configs.errors import ConfigError, paragraph
from tasks.errors import LONGEST, UserError, readable


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain é", "plain é"),
        ("two\nlines\u2028more", "two lines more"),
        ("\x1b[31mred\0\ufeff\u202e", r"\x1b[31mred\x00\ufeff\u202e"),
        ("half \ud800", r"half \ud800"),
    ],
)
def test_what_a_terminal_would_act_on_is_escaped(text, line):
    for kind in (UserError, ConfigError):
        assert str(kind(text)) == line
        assert paragraph(kind(text)) == line


@pytest.mark.parametrize("letter", ["a", "\x1b", "\U000e0001"])
def test_a_message_has_an_end_and_keeps_its_remedy(letter):
    text = readable("file.txt, line 3: " + letter * 3_000_000 + ". Correct the line.")
    assert len(text) <= LONGEST
    assert text.startswith("file.txt, line 3: ")
    assert text.endswith("Correct the line.")
