"""WordNet's nouns and what is above each, from its own database files (Princeton WordNet 3.0, wndb(5WN))."""

import hashlib
import re
from pathlib import Path

import numpy as np

from tasks.edges import Edges
from tasks.errors import UserError
from tasks.reading import brief

FILES = ("data.noun", "index.noun")
HYPERNYMS = ("@", "@i")  # of a class, and of an instance
SETTING = "task.data.wordnet"
_SYNSET = re.compile(r"(\d{8}) \d\d [nvasr] [0-9a-f]{2} (\S+?)(?:\((?:a|p|ip)\))? ")


def read_nouns(folder: Path) -> Edges:
    """The noun synsets and their direct hypernyms, those of instances (Mozart, composer) among them.

    Synsets are in the order of data.noun and named as in NLTK: first word, part of speech, which of the word's senses
    it is (index.noun): "mammal.n.01". WordNet 3.0 has 82,115, and 743,241 pairs of a synset and one above it.

    Raises UserError, which names file and line, where a file is missing or not of WordNet's form.
    """
    path, data = folder / "data.noun", {}
    for name in FILES:
        try:
            data[name] = (folder / name).read_bytes()
        except OSError as error:
            raise UserError(
                f"{folder / name} cannot be read ({error.strerror}). {SETTING} needs the folder with WordNet's "
                f"{' and '.join(FILES)}; `python scripts/download.py wordnet` fetches them."
            ) from None
    senses = _senses(data["index.noun"].decode("utf-8", "replace"), folder / "index.noun")
    number: dict[str, int] = {}
    names: list[str] = []
    hypernyms: list[list[str]] = []
    for k, line in _lines(data["data.noun"].decode("utf-8", "replace")):
        try:
            offset, word, pointers = _synset(line)
            sense = senses[word.lower(), offset]
        except (ValueError, IndexError):
            raise UserError(f"{path}, line {k}: no synset of WordNet's noun file: {line[:60]!r}.") from None
        except KeyError:
            raise UserError(
                f"{path}, line {k}: index.noun has no sense of {brief(word)} at {offset[:40]}; both files must be of "
                "the same version of WordNet."
            ) from None
        number[offset] = len(names)
        names.append(f"{word.lower()}.n.{sense:02d}")
        hypernyms.append(pointers)
    try:
        edges = [(k, number[offset]) for k, offsets in enumerate(hypernyms) for offset in offsets]
    except KeyError as error:
        offset = error.args[0][:40]
        raise UserError(f"{path} has no synset {offset}, to which another points; it is cut off.") from None
    if not edges:
        raise UserError(f"{path} has no synset with a hypernym.")
    ends = np.array(edges, dtype=np.int32)
    sha256 = hashlib.sha256(data["data.noun"] + data["index.noun"]).hexdigest()
    return Edges(tuple(names), ends[:, 0], ends[:, 1], folder.name, sha256)


def title_of(line: str) -> tuple[str, str] | None:
    """The offset of a synset and its first word, blanks for underscores and without the marker of an adjective's place,
    from its line in data.noun, data.verb, ...; None for another line."""
    synset = _SYNSET.match(line)
    return None if synset is None else (synset[1], synset[2].replace("_", " "))


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers, without the licence at the top, whose lines begin with blanks."""
    return [(k, line) for k, line in enumerate(text.split("\n"), start=1) if line and not line.startswith("  ")]


def _senses(text: str, path: Path) -> dict[tuple[str, str], int]:
    """Which sense of a word the synset at an offset is, from 1, by (word, offset)."""
    senses = {}
    for k, line in _lines(text):
        fields = line.split()
        try:
            for sense, offset in enumerate(fields[-int(fields[2]) :], start=1):
                senses[fields[0], offset] = sense
        except (ValueError, IndexError):
            raise UserError(f"{path}, line {k}: no entry of WordNet's noun index: {line[:60]!r}.") from None
    return senses


def _synset(line: str) -> tuple[str, str, list[str]]:
    """Offset, first word and the offsets of the hypernyms of a line of data.noun."""
    fields = line.partition("|")[0].split()
    at = 4 + 2 * int(fields[3], 16)
    pointers = fields[at + 1 : at + 1 + 4 * int(fields[at])]
    kinds, offsets, parts = pointers[::4], pointers[1::4], pointers[2::4]
    hypernyms = [o for kind, o, part in zip(kinds, offsets, parts, strict=True) if kind in HYPERNYMS and part == "n"]
    return fields[0], fields[4], hypernyms
