"""Dependency trees from CoNLL-U files."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import conllu
from conllu.exceptions import ParseException

from tasks.errors import UserError
from tasks.probing.trees import TreeError, check_tree
from tasks.reading import Fault, Faults, brief, read_lines

COLUMNS = 10  # ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC
READ = ("id", "form", "lemma", "upos", "xpos", "features", "head")  # the first of them; features stay as they are
PENN_PUNCTUATION = frozenset(("''", ",", ".", ":", "``", "-LRB-", "-RRB-"))  # tags, as Hewitt & Manning exclude them
AUTO = "auto"
PUNCTUATION = (AUTO, "xpos", "upos")


class Sentence(NamedTuple):
    """words: its W words. heads: of each the number of its head, from 0, and -1 of the root. punctuation: whether a
    word is one. Words written as one (multi-word tokens) are apart, and words that are only in the enhanced graph
    (empty nodes) are left out."""

    words: tuple[str, ...]
    heads: tuple[int, ...]
    punctuation: tuple[bool, ...]


class LineFault(Fault):
    """A fault of the line `number` of a file."""

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.number = number


def read_sentences(path: Path, punctuation: str, faults: Faults) -> Iterator[Sentence]:
    """The sentences of a file, plain or `.gz`, which blank lines separate.

    punctuation: "xpos", by PENN_PUNCTUATION; "upos", by the universal tag PUNCT. A sentence that cannot be used goes to
    `faults` with the number of its line. Raises UserError where the file cannot be read or has no sentence.
    """
    number = 0
    for lines in _blocks(read_lines(path)):
        number = lines[0][0]
        try:
            yield parse_sentence(lines, punctuation)
        except LineFault as fault:
            faults.add(f"{path}, line {fault.number}", fault)
    if not number:
        expected = f"Expected is CoNLL-U: {COLUMNS} columns, and a blank line behind each sentence"
        raise UserError(f"{path} has no sentence. {expected}.")


def choose_punctuation(paths: Iterable[Path]) -> str:
    """"xpos" where a word of the files has one of PENN_PUNCTUATION in its column XPOS, else "upos": for
    `read_sentences`. Raises UserError where one cannot be read."""
    lines = (line for path in paths for _, line in read_lines(path) if isinstance(line, str))
    tags = (line.split("\t")[4:5] for line in lines if not line.startswith("#"))
    return "upos" if all(map(PENN_PUNCTUATION.isdisjoint, tags)) else "xpos"


def punctuation_remark(splits: Mapping[str, Sequence[Sentence]], column: str, setting: str) -> str:
    """How many words of the sentences of each split are punctuation, as a sentence. column: by which that was said,
    "xpos" or "upos". setting: one of PUNCTUATION."""
    marks = {split: [mark for each in sentences for mark in each.punctuation] for split, sentences in splits.items()}
    how = f"by the column {column.upper()} (task.data.punctuation={setting})"
    if not any(map(any, marks.values())):
        other = "; task.data.punctuation=auto looks at UPOS, too" if setting == "xpos" else ""
        return f"note: no word is punctuation {how}, so UUAS and root are of all words{other}."
    counts = ", ".join(f"{sum(own):,} of {len(own):,} words of {split}" for split, own in marks.items())
    return f"Punctuation {how}: {counts}; these have no edges in UUAS, and none is the root."


def _blocks(lines: Iterable[tuple[int, str | Fault]]) -> Iterator[list[tuple[int, str | Fault]]]:
    """Lines in a row that are neither blank nor comments, with their numbers."""
    block: list[tuple[int, str | Fault]] = []
    for number, line in lines:
        if isinstance(line, str) and not line.strip():
            if block:
                yield block
            block = []
        elif not (isinstance(line, str) and line.startswith("#")):
            block.append((number, line))
    if block:
        yield block


def parse_sentence(lines: Iterable[tuple[int, str | Fault]], punctuation: str) -> Sentence:
    """A sentence from its numbered lines. Raises LineFault for one that cannot be used."""
    numbers: list[int] = []
    words: list[str] = []
    heads: list[int] = []
    marks: list[bool] = []
    for number, line in lines:
        token = _token(number, line)
        if not isinstance(token["id"], int):  # a range, as 3-4, or an empty node, as 5.1
            continue
        if token["id"] != len(words) + 1:
            raise LineFault(number, f"its ID is {token['id']}, and the next word is {len(words) + 1}")
        if token["head"] is None:
            raise LineFault(number, f"the word {brief(token['form'])} has no head (column 7)")
        numbers.append(number)
        words.append(token["form"])
        heads.append(token["head"] - 1)
        marks.append(token["xpos"] in PENN_PUNCTUATION if punctuation == "xpos" else token["upos"] == "PUNCT")
    if not words:
        raise LineFault(number, "its sentence has no words")
    try:
        check_tree(heads)
    except TreeError as error:
        raise LineFault(numbers[error.node], f"the word {brief(words[error.node])} {error}") from None
    return Sentence(tuple(words), tuple(heads), tuple(marks))


def _token(number: int, line: str | Fault) -> conllu.models.Token:
    """The columns of a line by name. Raises LineFault."""
    if isinstance(line, Fault):
        raise LineFault(number, str(line))
    if (columns := 1 + line.count("\t")) != COLUMNS:
        raise LineFault(number, f"it has {columns} columns with tabs between them, and CoNLL-U has {COLUMNS}")
    try:
        token = conllu.parse(re.sub(" {2,}", " ", line), READ)[0][0]  # which takes two blanks for a tab
    except ParseException as error:
        raise LineFault(number, f"it is no line of CoNLL-U ({error})") from None
    except IndexError:
        raise LineFault(number, "it is no line of CoNLL-U, and a comment begins with # without blanks before") from None
    if token["id"] is None or not token["form"].strip():
        raise LineFault(number, f"it has no {'ID' if token['id'] is None else 'word'}")
    return token
