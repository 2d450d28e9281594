"""What releases of texts have besides the text: escapes, character references of HTML, tags."""

import html
import re
from collections.abc import Callable, Sequence

from tasks.errors import one_of

_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|([nrt"\\/]))')
_ESCAPED = {"n": "\n", "r": "\n", "t": " "}
_BROKEN = re.compile(r"(?<![&\w])(#\d{2,5}|quot|amp|lt|gt|nbsp|hellip|mdash);")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")


def _unescape(match: re.Match[str]) -> str:
    code, letter = match.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(letter, letter)


def _without_escapes(text: str) -> str:
    """Two escapes that are a surrogate pair become one character, half of a pair U+FFFD, and NUL a blank, as neither
    can be written."""
    text = _ESCAPE.sub(_unescape, text).replace("\0", " ")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


STEPS: dict[str, Callable[[str], str]] = {
    "escapes": _without_escapes,
    "backslashes": lambda text: text.replace("\\", " "),
    "entities": lambda text: html.unescape(_BROKEN.sub(r"&\1;", text)),
    "tags": lambda text: _TAG.sub(" ", text),
}


def clean(text: str, steps: Sequence[str]) -> str:
    """The text after some of STEPS, in their order:

    escapes      \\n, \\" and \\u00e9 become what they stand for (Yelp, Yahoo, Amazon), as \\ud83d\\ude00 does
    backslashes  become blanks: AG News has one where the article had the end of a line
    entities     character references of HTML, &amp; and &#39;, become characters, also those that lost
                 their & (AG News: #39;)
    tags         of HTML become blanks
    """
    for step in steps:
        text = STEPS[step](text)
    return text


def check_steps(name: str, steps: Sequence[str]) -> None:
    """Raises UserError, which names the setting, for a step that does not exist."""
    for step in steps:
        one_of(name, step, tuple(STEPS))
