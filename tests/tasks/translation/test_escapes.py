"""Words that are probed are written as the training texts have them."""

from types import SimpleNamespace
from unittest import mock

import pytest

from tasks.translation.detokenise import Writing
from tasks.translation.task import TranslationTask

WORDS = ["'s", '"', "AT&T", "[", "a|b", "<>", "dog", "über"]


def test_moses_tokeniser_leaves_what_is_escaped():
    writing = Writing("moses", "de")
    escaped = [writing.escaped(word) for word in WORDS]
    assert escaped[:6] == ["&apos;s", "&quot;", "AT&amp;T", "&#91;", "a&#124;b", "&lt;&gt;"]
    assert escaped[6:] == WORDS[6:]
    assert [writing.plain(word) for word in escaped] == WORDS
    assert [writing.escaped(word) for word in escaped] == escaped, "words of the training texts themselves"
    assert [Writing("none", "de").escaped(word) for word in WORDS] == WORDS
    for word in ('"', "&", "["):
        assert Writing("none", "en").words(word) == writing.escaped(word), "as the tokeniser itself writes them"


@pytest.mark.parametrize(("tokenised", "expected"), [("none", "'s"), ("moses", "&apos;s")])
def test_layer_states_read_escaped_words(tokenised, expected):
    task = SimpleNamespace(writing=Writing(tokenised, "de"), model=None, source_vocabulary=None)
    with mock.patch("tasks.translation.task.layer_states") as states:
        TranslationTask.layer_states(task, [["dog", "'s"], ["a"]])
    assert states.call_args.args[2] == [["dog", expected], ["a"]]
