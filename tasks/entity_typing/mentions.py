"""Mentions in their sentence, as they are read: JSON lines of the official release, and what users type in."""

import difflib
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tasks.reading import Fault, brief, to_utf8
from tasks.rows import parse_object, read_examples
from tasks.text import tokenize

# The keys of each part of a record, in the release and in what a user writes.
RELEASE = ("left_context_token", "mention_span", "right_context_token", "y_str")
MISSPELT = 0.75  # difflib's likeness of a key and one that is missing, from which on it is taken for it
PLAIN = ("left", "mention", "right")
FORMS = (
    'a JSON object {"left": "...", "mention": "...", "right": "..."} (or mention_span with lists left_context_token '
    "and right_context_token), or a sentence with its mention in [brackets]"
)


class Mention(NamedTuple):
    """A mention, the words before and after it, and its types (none where they are to be predicted)."""

    left: list[str]
    mention: str
    right: list[str]
    types: list[str] = []  # noqa: RUF012 - a NamedTuple's default, never changed


def parse(line: bytes) -> Mention:
    """The mention of a line of the release, or of a file with the keys of PLAIN and `types`; it may begin with a
    byte-order mark. Raises Fault."""
    try:
        record = json.loads(str(line.removeprefix(BOM_UTF8), "utf-8"))
    except UnicodeDecodeError as error:
        raise Fault(f"it is not UTF-8 (byte {error.start + 1}); {to_utf8(error.object)}") from None
    except RecursionError:
        raise Fault("it is not a JSON object (nested too deeply)") from None
    except ValueError as error:
        raise Fault(f"it is not a JSON object ({error})") from None
    try:
        left, mention, right, types = map(record.__getitem__, RELEASE)
    except (KeyError, TypeError, AttributeError):
        if isinstance(record, dict) and PLAIN[1] in record:
            types = record.get("types")
            if not isinstance(types, list) or not all(isinstance(name, str) for name in types):
                raise Fault("types must be a list of strings, as in {..., \"types\": [\"person\"]}") from None
            return _from_json(record)._replace(types=types)
        raise Fault(_missing_key(record)) from None
    if type(mention) is not str or type(left) is not list or type(right) is not list or type(types) is not list:
        raise Fault("mention_span must be a string, and left_context_token, right_context_token and y_str lists")
    return Mention(left, mention, right, types)


def _missing_key(record: Any) -> str:
    if not isinstance(record, dict):
        return "it is not a JSON object"
    return f"it has no key {next(k for k in RELEASE if k not in record)}"


def read_inputs(lines: Iterable[bytes], name: str) -> Iterator[Mention]:
    """Mentions without types, one after the other, from lines in any of the FORMS; empty lines are passed over.

    name: of the file, for messages. Raises UserError, which names the line.
    """
    return read_examples(lines, name, _input, "mentions", f"Each line is {FORMS}")


def _input(line: str) -> Mention:
    text = line.strip()
    return _from_json(parse_object(text)) if text.startswith("{") else _from_sentence(text)


def _from_json(record: dict[str, Any]) -> Mention:
    names = RELEASE[:3] if RELEASE[1] in record else PLAIN
    if names[1] not in record:
        raise Fault(f"it has neither a key {RELEASE[1]} nor {PLAIN[1]}")
    missing = [name for name in names if name not in record]
    for key in record:  # others are handed on, but for one that is misspelt
        if key not in names and (near := difflib.get_close_matches(key, missing, 1, MISSPELT)):
            raise Fault(f"it has a key {brief(key)}, and none {near[0]}, which is probably meant")
    mention = record[names[1]]
    if isinstance(mention, list) and all(isinstance(word, str) for word in mention):
        mention = " ".join(mention)
    if not isinstance(mention, str) or not mention.strip():
        raise Fault(f"{names[1]} must be a text that is not empty, or a list of words")
    if names is PLAIN:
        mention = " ".join(tokenize(mention))
    return Mention(_words(names[0], record), mention, _words(names[2], record))


def _words(name: str, record: dict[str, Any]) -> list[str]:
    value = record.get(name, [])
    if isinstance(value, str):
        return tokenize(value)
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise Fault(f"{name} must be a string or a list of words")
    return value


def _from_sentence(text: str) -> Mention:
    spans = re.findall(r"\[([^\[\]]*)\]", text)
    if len(spans) != 1 or text.count("[") != 1 or text.count("]") != 1:
        raise Fault(f"it has {len(spans)} mentions in [brackets] instead of one")
    if not spans[0].strip():
        raise Fault("the mention in [brackets] is empty")
    left, right = re.split(r"\[[^\[\]]*\]", text)
    return Mention(tokenize(left), " ".join(tokenize(spans[0])), tokenize(right))
