"""Made-up pairs for tests and first tries: a sentence of letters, and the same sentence again or from its end."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tasks.batches import SPLITS
from tasks.errors import UserError, one_of, whole
from tasks.translation.corpus import Pair

TRANSLATIONS = ("copy", "reverse")


@dataclass(frozen=True)
class Toy:
    """A recipe. translation: "copy" or "reverse". words: how many different ones. shortest, longest: words of a
    sentence, every length equally likely. sizes: pairs of each split. seed: of the generator."""

    translation: str
    words: int
    shortest: int
    longest: int
    sizes: dict[str, int]
    seed: int

    def __post_init__(self) -> None:
        one_of("task.data.toy.translation", self.translation, TRANSLATIONS)
        whole("task.data.toy.words", self.words, 2)
        whole("task.data.toy.shortest", self.shortest, 1)
        whole("task.data.toy.longest", self.longest, self.shortest)
        if set(self.sizes) != set(SPLITS):
            raise UserError("task.data.toy.sizes needs a number for each of train, dev and test.")

    def pairs(self) -> Iterator[tuple[str, Pair]]:
        """The split and the sentences of each pair. The target's words are the source's in capitals."""
        for number, split in enumerate(SPLITS):
            draw = np.random.default_rng([self.seed, number])
            for _ in range(self.sizes[split]):
                length = draw.integers(self.shortest, self.longest + 1)
                words = [f"w{k}" for k in draw.integers(self.words, size=length)]
                translated = [word.upper() for word in (words if self.translation == "copy" else reversed(words))]
                yield split, Pair(" ".join(words), " ".join(translated))
