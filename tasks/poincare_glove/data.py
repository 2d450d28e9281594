"""Co-occurrence counts of a text file, made once and cached, as examples to learn from."""

import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from tasks.base import TaskData
from tasks.batches import Split, TensorSplit
from tasks.errors import UserError, known_splits, one_of, toy_recipe, whole
from tasks.fingerprints import cache_place, identity_of
from tasks.folders import cached_folder, read_arrays, write_meta
from tasks.local_paths import user_path
from tasks.names import Names, pairs_of
from tasks.outputs import rounded
from tasks.poincare_glove.cooccurrence import PARTS, pair_counts, write_parts
from tasks.poincare_glove.corpus import count_words, word_numbers
from tasks.poincare_glove.toy import write_corpus
from tasks.reading import progress_bar
from tasks.rows import read_examples
from tasks.text import TOKENIZERS, vocabulary
from tasks.vocabularies import check_names

FORMAT = 2  # of the cached files


@dataclass(frozen=True)
class PairCounts:
    """X_ij of E unordered pairs as examples: each pair of two words in both orders, a word with itself once.

    pairs (E, 2) int32, those of a word with itself at the end; counts (E,) float32; same: how many those are.
    """

    pairs: Tensor
    counts: Tensor
    same: int

    def __len__(self) -> int:
        return 2 * len(self.counts) - self.same

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """words, contexts (B,) int64, counts (B,)."""
        swapped = index >= len(self.counts)
        row = torch.where(swapped, index - len(self.counts), index)
        first, second = self.pairs[row].long().unbind(-1)
        words, contexts = torch.where(swapped, second, first), torch.where(swapped, first, second)
        return {"words": words, "contexts": contexts, "counts": self.counts[row]}


class PoincareGloveData(TaskData):
    """Word pairs of a text file with their weighted counts, split at random into train, dev and test.

    file: the text, one document or sentence a line (windows end with the line); null generates one, by the recipe
    `toy` (see `toy.sentences`). cache: folder of the counts. tokenizer: blanks | basic_english (torchtext's).
    lower: lower-case the text. window: words to either side that count, k words apart with weight 1 / k. min_count,
    max_vocabulary: rarer words, and all but so many, are left out; null: no limit. sizes: dev and test as shares of the
    pairs; train as a number of pairs of those that remain, evenly over the vocabulary, or null for all of them.
    split_seed: of the split, not of the run. The others are TaskData's.
    """

    def __init__(
        self,
        file: str | None,
        toy: dict[str, int] | None,
        cache: str,
        tokenizer: str,
        lower: bool,
        window: int,
        min_count: int,
        max_vocabulary: int | None,
        sizes: dict[str, float | None],
        split_seed: int,
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
    ):
        super().__init__(shuffle=shuffle, batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed)
        one_of("task.data.tokenizer", tokenizer, tuple(TOKENIZERS))
        for name, value, least in (("window", window, 1), ("min_count", min_count, 1), ("split_seed", split_seed, 0)):
            whole(f"task.data.{name}", value, least)
        if max_vocabulary is not None:
            whole("task.data.max_vocabulary", max_vocabulary, 2)
        known_splits("task.data.sizes", sizes, PARTS)
        self.shares = {}
        for part in ("dev", "test"):
            share = sizes.get(part)
            if not isinstance(share, float) or not 0 < share <= 0.5:
                raise UserError(f"task.data.sizes.{part} is a share of pairs, as 0.01, and it is {share}.")
            self.shares[part] = share
        train = sizes.get("train")
        self.train = None if train is None else whole("task.data.sizes.train", train, 1)
        if file is None and toy is None:
            raise UserError("task=poincare_glove learns from a text file; name one with task.data.file=corpus.txt.")
        if file is None:
            toy_recipe(toy, topics=1, words=1, common=1, strays=0, lines=1, length=1, seed=0)
        self.file, self.toy, self.cache = file, toy, Path(cache)
        self.recipe: dict[str, Any] = {
            "tokenizer": tokenizer, "lower": lower, "window": window, "min_count": min_count,
            "max_vocabulary": max_vocabulary, "shares": self.shares, "seed": split_seed, "format": FORMAT,
        }  # fmt: skip

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {"words": tuple(self._counts[1]["words"])}

    @property
    def identity(self) -> dict[str, str]:
        return {"words": identity_of(self._counts[1]["words"])}

    def vocabulary(self) -> dict[str, Any]:
        return {"words": self._counts[1]["words"]}

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        self.__dict__["_counts"] = {}, {"words": check_names(vocabulary["words"])}

    @functools.cached_property
    def word_names(self) -> Names:
        return Names(self._counts[1]["words"], "word", "The vocabulary")

    @property
    def input_keys(self) -> tuple[str, ...]:
        return ("word", "context")

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[tuple[int, ...]]:
        """Words, of which the nearest ones are asked for, and pairs of words, of which the count is."""

        def parse(line: str) -> tuple[int, ...]:
            return self.word_names.ends_of(line.lower() if self.recipe["lower"] else line)

        return read_examples(lines, name, parse, "words", "Each line is a word, or `word <tab> word`", self.input_keys)

    def encode(self, inputs: Sequence[tuple[int, ...]]) -> Split:
        """contexts: NO_NAME where nearest words are asked for."""
        pairs = pairs_of(inputs)
        return TensorSplit({"words": pairs[:, 0], "contexts": pairs[:, 1]})

    def describe(self, example: tuple[int, ...]) -> dict[str, Any]:
        return self.word_names.named(example, self.input_keys)

    def test_inputs(self) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
        """Pairs of words; gold: the logarithm of their weighted count."""
        split = self._split("test")
        for pair, count in zip(split.pairs.tolist(), split.counts.double().log().tolist(), strict=True):
            yield tuple(pair), {"gold": rounded(count)}

    def load(self) -> dict[str, Split]:
        return {part: self._split(part) for part in PARTS}

    def fingerprint(self) -> dict[str, Any]:
        facts = self._counts[1]
        parts, words = facts["parts"], len(facts["words"])
        counts = {part: {"pairs": parts[part]["pairs"], "words": words} for part in PARTS}
        if self.train is not None:
            train = self.splits()["train"]
            assert isinstance(train, PairCounts)
            counts["train"]["pairs"] = len(train.counts)
        return {
            "files": dict.fromkeys(PARTS, facts["file"]),
            "counts": counts,
            "sha256": {part: parts[part]["sha256"] for part in PARTS},
        }

    def _split(self, part: str) -> PairCounts:
        arrays, facts = self._counts
        pairs, counts, same = arrays[f"{part}.pairs"], arrays[f"{part}.counts"], facts["parts"][part]["same"]
        n = len(counts)
        if part == "train" and self.train is not None and self.train < n:
            rows = np.unique(np.linspace(0, n - 1, self.train).astype(np.int64))
            pairs, counts, same = pairs[rows], counts[rows], int((rows >= n - same).sum())
        return PairCounts(torch.from_numpy(pairs), torch.from_numpy(counts), same)

    @functools.cached_property
    def _counts(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The counts, and facts about them with the vocabulary; the text is counted where the cache has none."""
        path = self._text
        try:
            stat = path.stat()
        except OSError:
            raise UserError(f"There is no text file {path}; correct task.data.file.") from None
        if path.is_dir():
            raise UserError(f"{path} is a folder; task.data.file needs a text file.")
        stamp = {**self.recipe, "name": path.name, "size": stat.st_size, "modified": stat.st_mtime_ns}
        place = cache_place(self.cache, path.stem, stamp)
        result = cached_folder(place, lambda: read_arrays(place, stamp), lambda folder: self._count(folder, stamp))
        facts, least = result[1], self.recipe["min_count"]
        if (different := facts.get("different", 0)) > len(facts["words"]):  # of texts counted before it is not known
            kept = f"{len(facts['words']):,} of {different:,} different words, those that occur {least} times or more"
            line = f"{facts['file']}: {kept} (task.data.min_count, max_vocabulary); the others are left out."
            rank_zero_only(print)(line, flush=True)
        return result

    @functools.cached_property
    def _text(self) -> Path:
        if self.file is not None:
            return user_path(self.file)
        assert self.toy is not None
        return write_corpus(self.cache, **self.toy)

    def _count(self, folder: Path, stamp: dict[str, Any]) -> None:
        """Two passes over the text: its words, then its pairs, into a folder."""
        path, recipe, start = self._text, self.recipe, time.perf_counter()
        tokenizer, size = TOKENIZERS[recipe["tokenizer"]], path.stat().st_size
        with progress_bar(size, "counting words") as bar:
            counts = count_words(path, tokenizer, recipe["lower"], bar.update)
        words = list(vocabulary(counts, recipe["max_vocabulary"], recipe["min_count"]).itos)
        if len(words) < 2:
            raise UserError(
                f"{path}: of its {len(counts)} words {len(words)} occur at least task.data.min_count="
                f"{recipe['min_count']} times, and two are the least. Take a smaller one or a larger text."
            )
        index = {word: k for k, word in enumerate(words)}
        with progress_bar(size, "counting pairs") as bar:
            blocks = word_numbers(path, tokenizer, recipe["lower"], index, bar.update)
            chunks = pair_counts(blocks, len(words), recipe["window"])
            parts = write_parts(chunks, len(words), self.shares, recipe["seed"], folder)
        for name in PARTS:
            if not parts[name]["pairs"]:
                total = sum(p["pairs"] for p in parts.values())
                raise UserError(
                    f"{path} has {total} pairs of words, too few for a {name} split (task.data.sizes); take a "
                    "larger text, a smaller task.data.min_count or larger shares."
                )
        facts = {
            "file": path.name, "parts": parts, "tokens": sum(counts.values()), "different": len(counts),
            "seconds": round(time.perf_counter() - start, 1), "words": words,
        }  # fmt: skip
        sizes = {part: parts[part]["pairs"] for part in PARTS}
        forms = {f"{part}.pairs": ("<i4", (n, 2)) for part, n in sizes.items()}
        write_meta(folder, forms | {f"{part}.counts": ("<f4", (n,)) for part, n in sizes.items()}, stamp, facts)
