"""Types, their granularity, and how often two of them go together."""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tasks.errors import UserError, one_of
from tasks.reading import UNREADABLE, brief, open_bytes, reason

GRANULARITIES = ("coarse", "fine", "ultrafine")
RULES = ("choi", "hyfi", "depth")

# The labels of Choi et al. 2018: lines 1 to 9 and 10 to 130 of their types.txt.
COARSE = ("person", "group", "organization", "location", "entity", "time", "object", "event", "place")
_FINE = """
accident actor agency airline airplane airport animal architect army art artist athlete attack author award biology
body_part bridge broadcast broadcast_station building car cemetery chemistry city coach company computer conflict
country county currency degree department director disease doctor drug education election engineer ethnic_group
facility film finance food game geography god government health heritage holiday hospital hotel institution
instrument internet island language law lawyer league legal leisure library living_thing mass_transit medicine
military mobile_phone monarch mountain music musician music_school natural_disaster news news_agency other park
planet play political_party politician product programming_language protest province rail railway religion
religious_leader restaurant road scientific_method ship sign society software soldier spacecraft sport stage
stock_exchange structure subway team television_channel television_network television_program theater title train
transit transportation treatment water weapon website writing
"""
FINE = tuple(_FINE.split())
ULTRA_FINE_IN_HYFI = ("legal", "other")  # fine labels that Lopez & Strube's code does not have


def fine_labels(rule: str) -> tuple[str, ...]:
    """The fine labels of Choi et al. (121), or of Lopez & Strube's code (119)."""
    return tuple(t for t in FINE if rule != "hyfi" or t not in ULTRA_FINE_IN_HYFI)


@dataclass(frozen=True)
class TypeInventory:
    """K types in the order of the model's classes.

    names: (K,). granularity: (K,) long, 0 coarse, 1 fine, 2 ultra-fine. co_occurrence: computed when it is called,
    (E, 3) long with rows (i, j, n): n training mentions have both type i and type j, i < j, n > 0.
    """

    names: tuple[str, ...]
    granularity: Tensor
    co_occurrence: Callable[[], Tensor]

    def __len__(self) -> int:
        return len(self.names)


def granularity(names: Sequence[str], rule: str) -> Tensor:
    """(K,) long: the granularity of each type.

    rule: "choi" or "hyfi", by the names of the coarse and fine labels; "depth", by the number of parts of a path:
    /person is coarse, /person/artist fine, /person/artist/actor ultra-fine (OntoNotes).
    """
    one_of("task.data.granularity", rule, RULES)
    if rule == "depth":
        levels = [min(max(len([p for p in name.split("/") if p]), 1), 3) - 1 for name in names]
    else:
        labels = dict.fromkeys(fine_labels(rule), 1) | dict.fromkeys(COARSE, 0)
        levels = [labels.get(name, 2) for name in names]
    return torch.tensor(levels, dtype=torch.long)


def first_types(rule: str) -> list[str]:
    """The types that stand first where the others come from the data: coarse, then fine ones."""
    return [] if rule == "depth" else [*COARSE, *fine_labels(rule)]


def read_ontology(path: Path) -> list[str]:
    """The types of a file with one name a line.

    Raises UserError, with the line, where a type is empty or stands there twice, or the file is not UTF-8.
    """
    names: dict[str, int] = {}
    try:
        with open_bytes(path) as file:
            text = file.read()
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read ({reason(error)}).") from None
    for number, line in enumerate(text.removeprefix(BOM_UTF8).removesuffix(b"\n").split(b"\n"), start=1):
        try:
            name = line.decode("utf-8").strip()
        except UnicodeDecodeError:
            raise UserError(f"{path}, line {number} is not UTF-8. Fetch the file again.") from None
        if not name or name in names:
            fault = "is empty, and a type is needed"
            if name:
                fault = f"the type {brief(name)} stands on line {names[name]} too"
            raise UserError(f"{path}, line {number}: {fault}. Correct the file; it has one type a line.")
        names[name] = number
    return list(names)


def count_pairs(chunks: Iterable[tuple[np.ndarray, np.ndarray]], n_types: int) -> Tensor:
    """(E, 3) long, rows (i, j, n) with i < j: how many mentions have both types.

    chunks: the types (sum of L,) of some mentions one after the other, without repetition within a mention, and the
    number L of each mention, (N,). Time goes with the number of pairs; memory with that of a chunk and of the result.
    """
    keys, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for types, lengths in chunks:
        types, owner = np.asarray(types, np.int64), np.repeat(np.arange(len(lengths)), lengths)
        all_keys, all_counts = [keys], [counts]
        for lag in range(1, int(lengths.max(initial=0))):
            together = owner[lag:] == owner[:-lag]
            first, second = types[:-lag][together], types[lag:][together]
            key, count = np.unique(np.minimum(first, second) * n_types + np.maximum(first, second), return_counts=True)
            all_keys.append(key)
            all_counts.append(count)
        keys, rows = np.unique(np.concatenate(all_keys), return_inverse=True)
        counts = np.bincount(rows.ravel(), np.concatenate(all_counts), minlength=len(keys)).astype(np.int64)
    return torch.from_numpy(np.stack([keys // n_types, keys % n_types, counts], axis=1))
