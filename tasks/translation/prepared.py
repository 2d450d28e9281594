"""Pairs as ids of pieces, with the vocabularies of both languages; kept in the cache and mapped into memory."""

import hashlib
import itertools
import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tasks.batches import SPLITS
from tasks.duplicates import count_in_train
from tasks.errors import UserError, one_of, whole
from tasks.fingerprints import cache_place, contents_sha256, joined_sha256, part_sha256
from tasks.folders import cached, read_arrays, write_arrays
from tasks.ragged import FIRST as FIRST_WORD
from tasks.ragged import Sentences, TextStore
from tasks.text import UNK
from tasks.translation.corpus import HeldOut, Pair, Source, check_train, read_pairs
from tasks.translation.subwords import KINDS, Subwords, learn

FORMAT = 6  # of the cache
BOS, EOS = 2, 3  # ids of the beginning and the end of a target sentence, behind those of tasks.text
FIRST = 4  # id of the first piece of a vocabulary
CHUNK = 10_000  # sentences that are split together
VOCABULARIES = ("separate", "shared")
AUTO = "auto"
FEWEST, MOST, CHARACTERS = 500, 8000, 200  # of pieces=auto: see `size_for`
Ids = tuple[np.ndarray, np.ndarray]  # of all sentences of a side, and where each starts
Reader = Callable[[], Iterator[tuple[str, Pair]]]  # the pairs and their splits, from the first on


@dataclass(frozen=True)
class Recipe:
    """How sentences become ids.

    subwords: how they are split, one of `subwords.KINDS`. pieces: how many of both languages together are learnt, of
    train, for subwords="bpe"; "auto": see `size_for`. vocabularies: "separate", each language has ids for the pieces
    of its own training sentences; "shared": both have the same. min_count: rarer pieces are the unknown one.
    max_length: most pieces of a sentence; longer pairs of train are left out, longer sentences of other splits are cut.
    """

    subwords: str
    pieces: int | str
    vocabularies: str
    min_count: int
    max_length: int

    def __post_init__(self) -> None:
        one_of("task.data.subwords", self.subwords, KINDS)
        one_of("task.data.vocabularies", self.vocabularies, VOCABULARIES)
        for name in ("min_count", "max_length", *(["pieces"] if self.pieces != AUTO else [])):
            whole(f"task.data.{name}", getattr(self, name), 1)


class Arrays(NamedTuple):
    """Of N pairs the ids of sources and targets, one sentence after the other (see `tasks.ragged.Sentences`); splits
    (N,) uint8, the number of each pair's in SPLITS; and the model of the pieces, its
    bytes, or one byte where there is none."""

    source_ids: np.ndarray
    source_starts: np.ndarray
    target_ids: np.ndarray
    target_starts: np.ndarray
    splits: np.ndarray
    model: np.ndarray

    def side(self, name: str) -> Sentences:
        """The sentences of "source" or "target"."""
        ids, starts = (torch.from_numpy(getattr(self, f"{name}_{part}")) for part in ("ids", "starts"))
        return Sentences(ids, starts)


class Corpus(NamedTuple):
    """Pairs of all splits. source, target: the pieces of the vocabularies, of id FIRST and on. texts: of dev and test
    the sentences of both sides as they are written. counts: of each split its pairs, how many were left out as empty
    on a side, how many were too long, and the pieces of each side; of dev and test also how many of these the
    vocabulary does not have, and in_train, the pairs that train has, too. files, sha256: of each split."""

    arrays: Arrays
    source: list[str]
    target: list[str]
    texts: dict[str, dict[str, list[str]]]
    counts: dict[str, dict[str, int]]
    files: dict[str, str]
    sha256: dict[str, str]


def prepare(read: Reader, recipe: Recipe) -> Corpus:
    """What the recipe makes of pairs, without names of files. `read` is called up to four times, to learn pieces.

    Raises UserError where pieces cannot be learnt, and those of `read`.
    """
    train, model = _TrainingSentences(read), b""
    if recipe.subwords == "bpe":
        model = learn(train, size_for(train) if isinstance(recipe.pieces, str) else recipe.pieces)
    subwords = Subwords(recipe.subwords, model)
    collected = _Collection(recipe, subwords)
    pairs = read()
    while chunk := list(itertools.islice(pairs, CHUNK)):
        collected.add(chunk)
    return collected.corpus()


def size_for(sentences: Iterable[str]) -> int:
    """How many pieces are learnt of sentences: one for each CHARACTERS characters, from FEWEST to MOST, and one more
    for each different character. 29,000 pairs of Multi30k have MOST. Of its first 1,500, where 1,000 are learnt
    0.4 % of the pieces of the test are unknown, and where 8,000 are 12 %: most of these are in a sentence or two."""
    total, different = 0, set[str]()
    for sentence in sentences:
        total += len(sentence)
        different.update(sentence)
    return min(max(FEWEST, total // CHARACTERS), MOST) + len(different)


class _TrainingSentences:
    """Both sides of the pairs of train, read anew in each iteration."""

    def __init__(self, read: Reader):
        self.read = read

    def __iter__(self) -> Iterator[str]:
        for split, pair in self.read():
            if split == "train" and all(pair):
                yield from pair


class _Collection:
    """Pairs that are counted and numbered as they come."""

    def __init__(self, recipe: Recipe, subwords: Subwords):
        self.recipe, self.subwords = recipe, subwords
        shared = TextStore() if recipe.vocabularies == "shared" else None
        self.stores = (shared or TextStore(), shared or TextStore())
        self.splits: list[int] = []
        self.hashes = array("q")  # of the pairs
        self.counts = {split: Counter(pairs=0, empty=0, long=0) for split in SPLITS}
        self.texts: dict[str, dict[str, list[str]]] = {s: {"source": [], "target": []} for s in SPLITS[1:]}

    def add(self, pairs: Sequence[tuple[str, Pair]]) -> None:
        sides = [self.subwords.split([pair[side] for _, pair in pairs]) for side in (0, 1)]
        for (split, pair), source, target in zip(pairs, *sides, strict=True):
            self._add_one(split, pair, source, target)

    def _add_one(self, split: str, pair: Pair, source: list[str], target: list[str]) -> None:
        most, counts, number = self.recipe.max_length, self.counts[split], hash((tuple(source), tuple(target)))
        if not (source and target):  # nor has "▁", SentencePiece's blank, any pieces
            counts["empty"] += 1
            return
        if max(len(source), len(target)) > most:
            counts["long"] += 1
            if split == "train":
                return
        source, target = source[:most], target[:most]
        counts.update({"pairs": 1, "source_pieces": len(source), "target_pieces": len(target)})
        self.splits.append(SPLITS.index(split))
        self.hashes.append(number)
        for store, pieces in zip(self.stores, (source, target), strict=True):
            store.add([pieces])
        if split in self.texts:
            for side, sentence in pair._asdict().items():
                self.texts[split][side].append(sentence)

    def corpus(self) -> Corpus:
        """Nothing can be added afterwards."""
        splits = np.array(self.splits, np.uint8)
        source, target, vocabularies = self._encode(splits == SPLITS.index("train"))
        model = np.frombuffer(self.subwords.model or b"\0", np.uint8)  # an empty file cannot be mapped
        arrays = Arrays(source[0], source[1], target[0], target[1], splits, model)
        counts = {split: dict(count) for split, count in self.counts.items()}
        for split, n in count_in_train(np.frombuffer(self.hashes, np.int64), splits).items():
            counts[split]["in_train"] = n
            for side in ("source", "target"):
                chosen = torch.from_numpy(splits == SPLITS.index(split))
                counts[split][f"{side}_unknown"] = _unknown(arrays.side(side), chosen)
        return Corpus(arrays, *vocabularies, self.texts, counts, files={}, sha256={})

    def _encode(self, train: np.ndarray) -> tuple[Ids, Ids, tuple[list[str], list[str]]]:
        """Ids and starts of both sides, and their vocabularies. train: bool (N,), the pairs whose pieces count."""
        if self.stores[0] is not self.stores[1]:
            (a, source), (b, target) = (store.encode(train, self.recipe.min_count) for store in self.stores)
            return _flat(a.sentences), _flat(b.sentences), (source, target)
        both, words = self.stores[0].encode(train.repeat(2), self.recipe.min_count)
        sides = [_every_second(both.sentences, first) for first in (0, 1)]
        return _flat(sides[0]), _flat(sides[1]), (words, words)


def _unknown(sentences: Sentences, chosen: Tensor) -> int:
    """How many pieces of the chosen sentences, bool (N,), are the unknown one."""
    return int((chosen.repeat_interleave(sentences.lengths) & (sentences.ids == UNK)).sum())


def _flat(sentences: Sentences) -> Ids:
    """Ids, with room for BOS and EOS in front of the first piece, and starts."""
    ids = sentences.ids
    return torch.where(ids < FIRST_WORD, ids, ids + (FIRST - FIRST_WORD)).numpy(), sentences.starts.numpy()


def _every_second(sentences: Sentences, first: int) -> Sentences:
    lengths = sentences.lengths
    kept = torch.zeros(len(lengths), dtype=torch.bool)
    kept[first::2] = True
    own: Tensor = lengths[first::2]
    starts = torch.cat([own.new_zeros(1), own.cumsum(0)])
    return Sentences(sentences.ids[kept.repeat_interleave(lengths)], starts)


def _sha256(arrays: Arrays) -> str:
    """Of the model of the pieces."""
    return hashlib.sha256(arrays.model.tobytes()).hexdigest()


def from_sources(sources: Mapping[str, Source], held_out: HeldOut, source: str, recipe: Recipe, cache: Path) -> Corpus:
    """What the recipe makes of files; kept in `cache`/translation and taken from there the next time.

    The folder's name is a fingerprint of the files' contents and the settings. source: the language translated from.
    Raises the errors of `prepare`, and UserError where a split has no pair.
    """
    shas = {split: [contents_sha256(path) for path in place.files] for split, place in sources.items()}
    names = {split: [path.name for path in place.files] for split, place in sources.items()}
    tables = {split: [place.fields, place.header, *[True] * place.by_column] for split, place in sources.items()}
    held = asdict(held_out) if len(sources) < len(SPLITS) else None
    facts = {"format": FORMAT, "shas": shas, "tables": tables, "held_out": held, "source": source}
    settings = facts | asdict(recipe)
    place = cache_place(cache / "translation", sources["train"].paths[0].parent.resolve().name, settings)

    def pairs() -> Iterator[tuple[str, Pair]]:
        return read_pairs(sources, held_out, source)

    def make() -> Corpus:
        check_train(sources["train"], pairs())
        corpus = prepare(pairs, recipe)
        for split in SPLITS:
            if not corpus.counts[split]["pairs"]:
                where = " and ".join(names.get(split, names["train"]))
                if split not in sources and (share := held_out.shares.get(split)):
                    n = sum(counts["pairs"] for counts in corpus.counts.values())
                    raise UserError(
                        f"Of {n:,} pairs of sentences in {where} none is held out for {split} "
                        f"(task.data.held_out.shares.{split}={share:g}); give it a larger share, as "
                        f"task.data.held_out.shares.{split}={min(0.3, 2 * share + 0.1):.1g}, or add a file."
                    )
                raise UserError(
                    f"There is no pair of sentences for {split} in {where}; add files, or give it a share of train in "
                    "task.data.held_out.shares."
                )
        files = {split: " + ".join(names.get(split, names["train"])) for split in SPLITS}
        sha256 = {split: joined_sha256(shas.get(split, shas["train"])) for split in SPLITS}
        parts = {split: share for split, share in held_out.shares.items() if split not in sources}
        rows = json.dumps([parts, held_out.language], sort_keys=True).encode()
        sha256 |= {split: part_sha256(sha256[split], rows) for split in parts}
        by_column = [split for split, place in sources.items() if place.by_column]
        sha256 |= {split: part_sha256(sha256[split], json.dumps([split]).encode()) for split in by_column}
        return corpus._replace(files=files, sha256=sha256)

    def write(folder: Path, corpus: Corpus) -> None:
        facts = {name: value for name, value in corpus._asdict().items() if name != "arrays"}
        facts["model_sha256"] = _sha256(corpus.arrays)
        write_arrays(folder, corpus.arrays._asdict(), settings, facts)

    def read() -> Corpus:
        arrays, facts = read_arrays(place, settings)
        corpus = Corpus(Arrays(**arrays), **{name: facts[name] for name in facts if name != "model_sha256"})
        if _sha256(corpus.arrays) != facts["model_sha256"]:
            raise ValueError("model.bin was changed")
        return corpus

    return cached(place, read, make, write, "prepared sentences")
