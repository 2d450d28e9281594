"""How often words stand near each other: counted in one pass, sorted in memory by parts, merged from disk."""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tasks.batches import SPLITS as PARTS

PAIRS_IN_MEMORY = 1 << 23  # 16 bytes each, about five times that while they are sorted


def pair_counts(
    blocks: Iterable[tuple[np.ndarray, np.ndarray]], n_words: int, window: int, in_memory: int = PAIRS_IN_MEMORY
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sorted chunks (keys, counts) of X: for words i <= j the key is i * n_words + j and the count

        X_ij = sum of 1 / k over all places where i and j stand k = 1..window words apart in a line, in either order,

    the entry of the symmetric matrix; X_ii counts every place twice, as GloVe's cooccur does. Words outside of the
    vocabulary are no part of the distance (GloVe's too).

    blocks: (words, lines) of consecutive text. in_memory: pairs that stay in memory; the others are in temporary files.
    """
    with tempfile.TemporaryDirectory(prefix="pairs-") as folder:
        runs = _Runs(Path(folder), in_memory)
        context = (np.empty(0, np.int64), np.empty(0, np.int64))
        for words, lines in blocks:
            before = len(context[0])
            words, lines = (np.concatenate(both) for both in zip(context, (words, lines), strict=True))
            runs.add(*_pairs(words, lines, before, n_words, window))
            context = (words[-window:], lines[-window:])
        yield from runs.merged()


def _pairs(
    words: np.ndarray, lines: np.ndarray, before: int, n_words: int, window: int
) -> tuple[np.ndarray, np.ndarray]:
    """Keys and weights of all pairs whose second word is not among the first `before` ones."""
    keys, weights = [], []
    for k in range(1, min(window, len(words) - 1) + 1):
        first, second = words[:-k], words[k:]
        near = lines[:-k] == lines[k:]
        near[: max(before - k, 0)] = False
        first, second = first[near], second[near]
        keys.append(np.minimum(first, second) * n_words + np.maximum(first, second))
        weights.append(np.where(first == second, 2.0, 1.0) / k)
    if not keys:
        return np.empty(0, np.int64), np.empty(0)
    return np.concatenate(keys), np.concatenate(weights)


def _sum_up(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each key once, in order, with the sum of its values."""
    if not len(keys):
        return keys, values
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return keys[starts], np.add.reduceat(values[order], starts)


class _Runs:
    """Keys with counts: the newest in memory, older ones in sorted files."""

    def __init__(self, folder: Path, in_memory: int):
        self.folder, self.in_memory = folder, in_memory
        self.files: list[tuple[Path, Path]] = []
        self.newest: list[tuple[np.ndarray, np.ndarray]] = []
        self.size = 0

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        self.newest.append(_sum_up(keys, values))
        self.size += len(self.newest[-1][0])
        if self.size > self.in_memory:
            self._join()
            if self.size > self.in_memory // 2:
                self._write()

    def _join(self) -> None:
        if len(self.newest) > 1:
            self.newest = [_sum_up(*(np.concatenate(c) for c in zip(*self.newest, strict=True)))]
            self.size = len(self.newest[0][0])

    def _write(self) -> None:
        keys, counts = (self.folder / f"{len(self.files)}.{kind}.npy" for kind in ("keys", "counts"))
        for path, array in zip((keys, counts), self.newest[0], strict=True):
            np.save(path, array)
        self.files.append((keys, counts))
        self.newest, self.size = [], 0

    def merged(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All keys in order, a range of them at a time."""
        self._join()
        runs = [(np.load(k, mmap_mode="r"), np.load(v, mmap_mode="r")) for k, v in self.files] + self.newest
        if len(runs) < 2:
            yield from (run for run in runs if len(run[0]))
            return
        step = max(1, self.in_memory // (2 * len(runs)))  # a range has at most about `in_memory` entries
        marks = np.unique(np.concatenate([keys[::step] for keys, _ in runs]))[len(runs) :: len(runs)]
        starts = [0] * len(runs)
        for mark in [*marks, None]:
            ends = [len(keys) if mark is None else int(np.searchsorted(keys, mark)) for keys, _ in runs]
            slices = [(k[a:b], v[a:b]) for (k, v), a, b in zip(runs, starts, ends, strict=True)]
            starts = ends
            keys, values = _sum_up(*(np.concatenate(column) for column in zip(*slices, strict=True)))
            if len(keys):
                yield keys, values


def part_of(keys: np.ndarray, shares: dict[str, float], seed: int) -> np.ndarray:
    """The part of each pair, as its place in PARTS: drawn from (key, seed) alone. Keys are of a vocabulary."""
    with np.errstate(over="ignore"):  # splitmix64 (Steele, Lea and Flood 2014), which counts modulo 2**64
        z = keys.astype(np.uint64) + np.uint64(seed + 1) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    uniform = (z >> np.uint64(11)).astype(np.float64) / 2**53
    return np.where(uniform < shares["dev"], 1, np.where(uniform < shares["dev"] + shares["test"], 2, 0))


def write_parts(
    chunks: Iterable[tuple[np.ndarray, np.ndarray]], n_words: int, shares: dict[str, float], seed: int, folder: Path
) -> dict[str, dict[str, Any]]:
    """Write <part>.pairs.bin (E, 2) int32 and <part>.counts.bin (E,) float32 of each part, off-diagonal pairs first.

    Returns for each part {"pairs": E, "same": how many of them are of a word with itself, "sha256": ...}.
    """
    parts = {}
    files = {part: [(folder / f"{part}.{kind}.bin").open("wb") for kind in ("pairs", "counts")] for part in PARTS}
    try:
        same: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {part: [] for part in PARTS}
        sizes, digests = dict.fromkeys(PARTS, 0), {part: (hashlib.sha256(), hashlib.sha256()) for part in PARTS}

        def write(part: str, keys: np.ndarray, counts: np.ndarray) -> None:
            pairs = np.stack([keys // n_words, keys % n_words], -1).astype("<i4")
            for array, file, digest in zip((pairs, counts.astype("<f4")), files[part], digests[part], strict=True):
                file.write(array.tobytes())
                digest.update(array.tobytes())
            sizes[part] += len(keys)

        for keys, counts in chunks:
            place, diagonal = part_of(keys, shares, seed), keys // n_words == keys % n_words
            for k, part in enumerate(PARTS):
                write(part, keys[(place == k) & ~diagonal], counts[(place == k) & ~diagonal])
                same[part].append((keys[(place == k) & diagonal], counts[(place == k) & diagonal]))
        for part in PARTS:
            off = sizes[part]
            for keys, counts in same[part]:
                write(part, keys, counts)
            both = "".join(d.hexdigest() for d in digests[part]).encode()
            parts[part] = {"pairs": sizes[part], "same": sizes[part] - off, "sha256": hashlib.sha256(both).hexdigest()}
    finally:
        for file in (f for pair in files.values() for f in pair):
            file.close()
    return parts
