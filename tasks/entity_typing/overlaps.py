"""What the mentions of dev and test share with those of train: whole mentions, and types."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from tasks.entity_typing.examples import Columns
from tasks.entity_typing.release import Source

FACTORS = np.random.default_rng(0).integers(1, 1 << 63, 2 + 3 + 255, dtype=np.uint64) | np.uint64(1)
MIX = np.uint64(29)


def keys(columns: Columns) -> np.ndarray:
    """(N,) uint64: the same for mentions that are the same to the model, of others hardly ever; types do not count."""
    starts = columns.word_starts
    places = np.arange(len(columns.words), dtype=np.int64) - np.repeat(starts[:-1], np.diff(starts))
    words = (columns.words.astype(np.uint64) + np.uint64(1)) * FACTORS[0] ^ places.astype(np.uint64) * FACTORS[1]
    words = (words ^ words >> MIX) * FACTORS[0]
    sums = np.add.reduceat(words ^ words >> MIX, starts[:-1])  # a mention has words
    rest = np.concatenate([columns.spans, columns.characters], axis=1).astype(np.uint64)
    return sums + (rest * FACTORS[2 : 2 + rest.shape[1]]).sum(1, dtype=np.uint64)


class Overlaps:
    """Gathers mentions and types by source."""

    def __init__(self) -> None:
        self._keys: dict[str, list[np.ndarray]] = defaultdict(list)
        self._types: dict[str, set[int]] = defaultdict(set)

    def add(self, source: str, columns: Columns) -> None:
        if columns.mentions:
            self._keys[source].append(keys(columns))
            self._types[source].update(np.unique(columns.types).tolist())

    def by_source(self, sources: Iterable[Source], types: list[str]) -> dict[str, dict[str, Any]]:
        """Of each source of dev and test: in_train, how many of its mentions train has, too; new_types, the names of
        its types that no mention of train has."""
        train = [source.name for source in sources if source.split == "train"]
        known = np.concatenate([np.zeros(0, np.uint64), *(part for name in train for part in self._keys[name])])
        learned = set().union(*(self._types[name] for name in train))
        return {
            source.name: {
                "in_train": sum(int(np.isin(part, known).sum()) for part in self._keys[source.name]),
                "new_types": [types[k] for k in sorted(self._types[source.name] - learned)],
            }
            for source in sources if source.split != "train"
        }  # fmt: skip
