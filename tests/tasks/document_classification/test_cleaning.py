"""What releases have besides the text becomes text."""

import pytest

from tasks.document_classification.cleaning import check_steps, clean
from tasks.errors import UserError


@pytest.mark.parametrize(
    ("steps", "text", "expected"),
    [
        (["escapes"], r"one\ntwo \"three\" caf\u00e9 \\ C:\temp", 'one\ntwo "three" café \\ C: emp'),
        (
            ["escapes"],
            r"nice \ud83d\ude00, half \ud83d \ude00 and \u0000.",
            "nice \U0001f600, half \ufffd \ufffd and  .",
        ),
        (["backslashes"], "a long\\line of \\$5", "a long line of  $5"),
        (
            ["entities"],
            "Kerry #39;s AT&amp;T &#36;1 #36;2 quot;x quot; it;s C#12;",
            'Kerry \'s AT&T $1 $2 "x " it;s C#12;',
        ),
        (["entities", "tags"], "&lt;b&gt;...&lt;/b&gt; a < b <br/> 3<4", " ...  a < b   3<4"),
        ([], "\\n &amp; <b>", "\\n &amp; <b>"),
    ],
)
def test_texts_are_mended(steps, text, expected):
    assert clean(text, steps) == expected


def test_an_unknown_step_is_named():
    with pytest.raises(
        UserError, match=r"task\.data\.clean must be one of escapes, backslashes, entities, tags, and it is 'html'"
    ):
        check_steps("task.data.clean", ["tags", "html"])
