"""Names of things by number, as of entities and nodes, and near spellings of an unknown one."""

import difflib
import itertools
import re
import unicodedata
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from tasks.reading import Fault, brief
from tasks.separators import tab_columns

NO_NAME = -1  # the other end of a pair that is a single name
QUOTED = 40  # characters of a name in a message, with what is no ASCII in it as escapes
COMPARED = 20_000  # names at most that an unknown one is compared with
_DECIMAL = re.compile(r"-?\d+(\.\d+)+")


class Names:
    """The numbers of names, and near spellings of a name that is not among them.

    names: by number. kind: what they are, as "entity". source: the graph's name.
    """

    def __init__(self, names: Sequence[str], kind: str, source: str) -> None:
        self.names, self.kind, self.source = names, kind, source
        self._numbers = {name: k for k, name in enumerate(names)}

    def number_of(self, name: str) -> int:
        """The number of a name. Raises Fault, with the nearest spellings, where there is none."""
        number = self._numbers.get(name)
        if number is not None:
            return number
        near = ", ".join(map(brief, self.near(name)))
        some = ", ".join(map(brief, self.names[:3]))
        hint = f"The nearest spellings: {near}" if near else f"It has {len(self.names):,}, as {some}"
        raise Fault(f"{self.source} has no {self.kind} {brief(name)}. {hint}")

    def ends_of(self, line: str) -> tuple[int, ...]:
        """The numbers of the name or of the pair of names, separated by a tab, in a line. Raises Fault for others."""
        columns = [column.strip() for column in tab_columns(line)]
        if len(columns) > 2 or not all(columns):
            raise Fault(f"{brief(line)} is neither a {self.kind} nor a pair of {self.kind}s")
        return tuple(map(self.number_of, columns))

    def named(self, ends: Sequence[int], keys: Sequence[str]) -> dict[str, str]:
        """The names of what `ends_of` gave, each under its key."""
        return dict(zip(keys, (self.names[k] for k in ends), strict=False))

    def near(self, name: str) -> list[str]:
        """Up to three names, the nearest first: those that differ in capitals, blanks and underscores only, those with
        the same word before a dot (as synsets, dog.n.01), then by difflib's ratio. Of more than 20,000 names, those are
        compared that begin or end with the same two letters."""
        plain, pool = _plain(name), self.names
        word = plain.partition(".")[0]
        same = list(itertools.islice((other for other in self.names if _plain(other) == plain), 3))
        same += itertools.islice((other for other in self.names if _plain(other).partition(".")[0] == word), 3)
        if len(pool) > COMPARED:
            first, last = plain[:2], plain[-2:]
            alike = (n for n in self.names if n[:2].lower() == first or n[-2:].lower() == last)
            pool = list(itertools.islice(alike, COMPARED))
        return list(dict.fromkeys(same + difflib.get_close_matches(name, pool, n=3)))[:3]


def pairs_of(inputs: Sequence[tuple[int, ...]]) -> Tensor:
    """What `Names.ends_of` gave as pairs (N, 2), with NO_NAME behind a single one."""
    return torch.tensor([(*ends, NO_NAME)[:2] for ends in inputs])


def on_spellings(names: Collection[str], kind: str) -> list[str]:
    """A sentence where names differ only in capitals, blanks, the encoding of accents (Unicode NFC or NFD), or as 3 and
    3.0 do, which pandas makes of integers with gaps (other decimals, as codes have them, are names of their own); none
    elsewhere. names: gone through twice. kind: what they are, in the plural."""
    integers = not any(name[-1:] != "0" and _DECIMAL.fullmatch(name) for name in names)
    spellings: dict[str, list[str]] = {}
    for name in names:
        spellings.setdefault(_spelt(name, integers), []).append(name)
    if not (alike := [own for own in spellings.values() if len(own) > 1]):
        return []
    some = " and ".join(ascii(name) if len(name) <= QUOTED else brief(name) for name in alike[0][:2])
    return [
        f"{sum(map(len, alike)):,} {kind} have names that differ from another's in capitals, blanks, the encoding of "
        f"accents (Unicode NFC or NFD) or a final .0 alone, as {some}; if they are the same, write them alike"
    ]


def _spelt(name: str, integers: bool) -> str:
    """The same for names that people take for the same. integers: 3.0 is 3."""
    plain = name.lower() if name.isascii() else unicodedata.normalize("NFC", name).casefold()
    if not plain.isascii() or " " in plain:
        plain = " ".join(plain.split())
    if integers and plain.endswith(".0") and (number := plain.removesuffix(".0")).removeprefix("-").isdecimal():
        return number
    return plain


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", " ")
