"""Titles of entities and nodes that are named by codes, such as WN18RR's synsets and FB15k-237's /m/ identifiers."""

import re
from collections.abc import Sequence
from pathlib import Path

from tasks.errors import UserError
from tasks.reading import Fault, brief, other_separator, read_lines
from tasks.wordnet import title_of

FORMS = (
    "each line is `name <tab> title`, or a synset of WordNet's data.noun, data.verb, data.adj or data.adv (WN18RR's "
    "are of WordNet 3.0)"
)
_LICENCE = re.compile(r"  \d+ ")  # a line of it


def read_titles(paths: Sequence[Path]) -> dict[str, str]:
    """Titles by name, of several files the first that has the name.

    Lines are `name <tab> title`, whose further columns do not count, as in the entity2text.txt of KG-BERT, and of which
    an empty title is none; or WordNet's own, where a title is the first word of the synset and its name the offset.
    Offsets are of one part of speech each: a name that is one of two files has the title of the first.

    Raises UserError, which names file and line, where one is of neither form, and for a file without titles.
    """
    titles: dict[str, str] = {}
    for path in paths:
        of_file: dict[str, str] = {}
        for number, line in read_lines(path):
            if isinstance(line, str) and (not line.strip() or _LICENCE.match(line)):
                continue
            try:
                name, title = _parse(line)
            except Fault as fault:
                hint = other_separator(line, 2, csv=False) if isinstance(line, str) else ""
                raise UserError(f"{path}, line {number}: {fault}; {FORMS}.{hint}") from None
            if title:
                of_file.setdefault(name, title)
        if not of_file:
            raise UserError(f"{path} has no titles; {FORMS}.")
        titles = of_file | titles
    return titles


def _parse(line: str | Fault) -> tuple[str, str]:
    if isinstance(line, Fault):
        raise line
    if synset := title_of(line):
        return synset
    name, *columns = (column.strip() for column in line.split("\t"))
    if not columns or not name:
        raise Fault(f"{brief(line)} has no title")
    return name, columns[0]
