"""A small entity typing task that is generated, for tests and first tries: types form a tree, words tell types."""

import functools
import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tasks.batches import SPLITS, Split
from tasks.entity_typing.examples import Columns, Encoder, encode
from tasks.entity_typing.mentions import Mention
from tasks.entity_typing.types import TypeInventory
from tasks.entity_typing.typing_data import TypingData
from tasks.errors import known_splits, rate, whole
from tasks.word_vectors import WordVectors

COARSE = ("person", "place", "thing")
BRANCHES = 3  # fine types of a coarse one, and ultra-fine types of a fine one
CUES = 3  # words that go with each type
FILLERS = 60  # words that go with none


class Tree(NamedTuple):
    """Types in levels, and the words that tell them."""

    names: tuple[str, ...]  # coarse, fine, ultra-fine
    level: np.ndarray  # (K,)
    parent: np.ndarray  # (K,), -1 for coarse types
    cues: list[list[str]]  # words of each type

    def path(self, k: int) -> list[int]:
        """Type k and those above it, the coarse one first."""
        return ([] if self.parent[k] < 0 else self.path(self.parent[k])) + [k]


def make_tree() -> Tree:
    """3 coarse types, 3 fine types below each of them, and 3 ultra-fine ones below each of these: 39 in all."""
    names, level, parent = list(COARSE), [0] * len(COARSE), [-1] * len(COARSE)
    for depth in (1, 2):
        for above in [k for k, at in enumerate(level) if at == depth - 1]:
            for branch in range(BRANCHES):
                names.append(f"{names[above]}_{'abc'[branch]}")
                level.append(depth)
                parent.append(above)
    cues = [[f"{name}{n}" for n in range(CUES)] for name in names]
    return Tree(tuple(names), np.array(level), np.array(parent), cues)


def make_vectors(tree: Tree, d: int, seed: int) -> WordVectors:
    """Random vectors: that of a cue is the sum of random ones of its type and of the types above it, plus noise."""
    draw = np.random.default_rng([seed, 1])
    type_vectors = draw.normal(size=(len(tree.names), d)) * (0.5**tree.level)[:, None]
    words, rows = [], [np.zeros(d), 0.01 * draw.normal(size=d)]
    for k, cues in enumerate(tree.cues):
        for cue in cues:
            words.append(cue)
            rows.append(type_vectors[tree.path(k)].sum(axis=0) + 0.1 * draw.normal(size=d))
    for n in range(FILLERS):
        words.append(f"word{n}")
        rows.append(0.3 * draw.normal(size=d))
    tangent = torch.from_numpy(np.stack(rows).astype(np.float32) / np.float32(np.sqrt(d)))
    sha = hashlib.sha256(tangent.numpy().tobytes() + "\n".join(words).encode()).hexdigest()
    return WordVectors({w: k for k, w in enumerate(words, start=2)}, tangent, "generated", sha, "euclidean")


def make_mentions(tree: Tree, n: int, draw: np.random.Generator, noise: float) -> list[Mention]:
    """Mentions of an ultra-fine type and the types above it.

    The mention has a cue of its fine type, the context one of its ultra-fine type, on either side, among fillers. With
    probability `noise` a cue is a filler instead, and a second ultra-fine type of the same fine type is there too.
    """
    leaves = np.flatnonzero(tree.level == 2)

    def filler() -> str:
        return f"word{draw.integers(FILLERS)}"

    def cue(k: int) -> str:
        return filler() if draw.random() < noise else str(draw.choice(tree.cues[k]))

    mentions = []
    for _ in range(n):
        leaf = int(draw.choice(leaves))
        types = tree.path(leaf)
        if draw.random() < noise:
            siblings = np.flatnonzero(tree.parent == tree.parent[leaf])
            types.append(int(draw.choice(siblings[siblings != leaf])))
        left, right = ([filler() for _ in range(draw.integers(0, 5))] for _ in range(2))
        side = left if draw.random() < 0.5 else right
        side.insert(int(draw.integers(len(side) + 1)), cue(leaf))
        words = [cue(types[1])] + [filler() for _ in range(draw.integers(0, 3))]
        mentions.append(Mention(left, " ".join(words).capitalize(), right, [tree.names[k] for k in types]))
    return mentions


class ToyTypingData(TypingData):
    """Generated mentions of 39 types.

    sizes: mentions of train, dev and test. d_word: dimension of the generated vectors. noise: see `make_mentions`.
    generator_seed: of the data, not of the run. The others are TypingData's.
    """

    def __init__(
        self,
        sizes: dict[str, int],
        d_word: int,
        noise: float,
        generator_seed: int,
        **options: Any,
    ):
        super().__init__(**options)
        known_splits("task.data.sizes", sizes, SPLITS)
        self.sizes = {split: whole(f"task.data.sizes.{split}", sizes.get(split), 1) for split in SPLITS}
        self.noise = rate("task.data.noise", noise)
        self.generator_seed = whole("task.data.generator_seed", generator_seed, 0)
        self.tree = make_tree()
        self.d_word = whole("task.data.d_word", d_word, 1)
        self._columns: dict[str, Columns] = {}

    @functools.cached_property
    def words(self) -> WordVectors:
        return make_vectors(self.tree, self.d_word, self.generator_seed)

    @functools.cached_property
    def types(self) -> TypeInventory:
        return TypeInventory(
            self.tree.names, torch.from_numpy(self.tree.level.astype(np.int64)), self.co_occurrence
        )

    def mentions(self, split: str) -> list[Mention]:
        """The generated mentions of a split."""
        draw = np.random.default_rng([self.generator_seed, 2 + SPLITS.index(split)])
        return make_mentions(self.tree, self.sizes[split], draw, self.noise)

    def test_inputs(self) -> Iterator[tuple[Mention, dict[str, Any]]]:
        for mention in self.mentions("test"):
            yield mention, {"gold": list(mention.types)}

    def columns(self, split: str) -> Columns:
        if split not in self._columns:
            encoder = Encoder(self.words.index, self.limits, {name: k for k, name in enumerate(self.tree.names)})
            self._columns[split] = encode(self.mentions(split), encoder)
        return self._columns[split]

    def load(self) -> dict[str, Split]:
        return {s: self.examples(self.columns(s), [(0, self.sizes[s])]) for s in SPLITS}

    def crowd_size(self) -> int:
        return self.sizes["train"]

    def fingerprint(self) -> dict[str, Any]:
        shas = {}
        for split in SPLITS:
            data = hashlib.sha256()
            for column in self.columns(split):
                data.update(column.tobytes())
            shas[split] = data.hexdigest()
        return {
            "files": dict.fromkeys(SPLITS, "generated"),
            "counts": {split: {"mentions": self.sizes[split]} for split in SPLITS},
            "sha256": shas,
        }
