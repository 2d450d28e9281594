"""The PREFIX data sets: generated from a seed, or read from tab files."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tasks.base import TaskData
from tasks.batches import SPLITS, Split
from tasks.errors import UserError, known_splits, whole
from tasks.local_paths import user_path
from tasks.prefix.files import generated, pad_rows, parse_ids, read_tab_file
from tasks.prefix.pairs import Pairs
from tasks.reading import Fault
from tasks.rows import read_examples

KEYS = ("first", "second")  # of new pairs as objects of JSON
CLASSES = ("no_prefix", "prefix")


class PrefixData(TaskData):
    """PREFIX-`noise`: 500,000 / 10,000 / 10,000 pairs in the paper.

    root: the folder of the cache. noise: percent of the prefix that is redrawn. vocabulary: words without id 0.
    max_length: of the first sentence. sizes: pairs of train, dev and test, even numbers. files: for each split a tab
    file that replaces the generated pairs, or null. generator_seed: of the data, not of the run.
    The others are TaskData's.
    """

    def __init__(
        self,
        root: str,
        noise: int,
        vocabulary: int,
        max_length: int,
        sizes: dict[str, int],
        files: dict[str, str | None],
        generator_seed: int,
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
    ):
        super().__init__(shuffle=shuffle, batch_size=batch_size, eval_batch_size=eval_batch_size, seed=seed)
        if whole("task.data.noise", noise, 0) > 100:
            raise UserError(f"task.data.noise is a percentage from 0 to 100, and it is {noise}.")
        if whole("task.data.vocabulary", vocabulary, 1) >= 2**16:
            raise UserError(f"task.data.vocabulary must be less than {2**16}, and it is {vocabulary}.")
        whole("task.data.max_length", max_length, 1)
        whole("task.data.generator_seed", generator_seed, 0)
        known_splits("task.data.files", files, SPLITS)
        self.root, self.generator_seed = Path(root), generator_seed
        known_splits("task.data.sizes", sizes, SPLITS)
        self.sizes = {split: whole(f"task.data.sizes.{split}", sizes.get(split), 2) for split in SPLITS}
        for split, size in self.sizes.items():
            if size % 2:
                raise UserError(f"task.data.sizes.{split} must be even (pairs come in twos), and it is {size}.")
        self.files = {split: files.get(split) for split in SPLITS}
        self.recipe = {"noise": noise, "vocabulary": vocabulary, "max_length": max_length}
        self._pairs: dict[str, Pairs] = {}

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {"n_words": self.recipe["vocabulary"] + 1, "n_classes": len(CLASSES), "classes": CLASSES}

    def cache_path(self, split: str) -> Path:
        name = "noise{noise}-words{vocabulary}-length{max_length}".format(**self.recipe)
        return self.root / f"{name}-{split}{self.sizes[split]}-seed{self.generator_seed}"

    def pairs(self, split: str) -> Pairs:
        """The pairs of one split, read or generated the first time they are needed."""
        if split not in self._pairs:
            file = self.files[split]
            if file is not None:
                self._pairs[split] = read_tab_file(user_path(file), self.recipe["vocabulary"])
            else:
                seed = [self.generator_seed, SPLITS.index(split)]
                self._pairs[split] = generated(self.cache_path(split), self.sizes[split], {**self.recipe, "seed": seed})
        return self._pairs[split]

    def vocabulary(self) -> dict[str, Any]:
        """Words are numbers, so there is nothing to keep."""
        return {}

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        """Nothing is read before it is needed."""

    def load(self) -> dict[str, Split]:
        return {split: self.pairs(split) for split in SPLITS}

    def fingerprint(self) -> dict[str, Any]:
        return {
            "files": {split: Path(self.files[split] or self.cache_path(split)).name for split in SPLITS},
            "counts": {
                split: {"pairs": len(self.pairs(split)), "positive": int(self.pairs(split).labels.sum())}
                for split in SPLITS
            },
            "sha256": {split: self.pairs(split).sha256() for split in SPLITS},
        }

    @property
    def input_keys(self) -> tuple[str, ...]:
        return KEYS

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[tuple[list[int], list[int]]]:
        """Pairs of lists of word ids, from lines `ids <tab> ids`."""
        form = "Each line is ids <tab> ids, separated by blanks"
        return read_examples(lines, name, self._input, "pairs", form, KEYS)

    def _input(self, line: str) -> tuple[list[int], list[int]]:
        columns = line.split("\t")
        if len(columns) != 2:
            raise Fault(f"it has {len(columns)} column{'s' * (len(columns) > 1)} instead of 2")
        return parse_ids(columns[0], self.recipe["vocabulary"]), parse_ids(columns[1], self.recipe["vocabulary"])

    def test_inputs(self) -> Iterator[tuple[tuple[list[int], list[int]], dict[str, Any]]]:
        pairs = self.pairs("test")
        for k in range(len(pairs)):
            first, second = (pairs.words[side, k, : pairs.lengths[side, k]].tolist() for side in (0, 1))
            yield (first, second), {"gold": CLASSES[int(pairs.labels[k])]}

    def encode(self, inputs: Sequence[tuple[list[int], list[int]]]) -> Split:
        return pad_rows([(*pair, 0) for pair in inputs], self.recipe["vocabulary"])

    def describe(self, example: tuple[list[int], list[int]]) -> dict[str, Any]:
        return {"first": example[0], "second": example[1]}
