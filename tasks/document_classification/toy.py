"""Small documents about the weather and the market, for tests and first tries.

A document has two to five sentences, of which one tells its class and the others are about anything: "the rain stops
near the river ." Half of the telling sentences need both of their words: wind or price that rises is news of a storm or
a boom, one that falls of a calm or a crash. So a bag of words does not suffice, and neither does the first sentence.
"""

from collections.abc import Iterator

import numpy as np

from tasks.batches import SPLITS
from tasks.document_classification.corpus import Document, Row

SIGNS = {
    ("storm", "rises"): ("wind", "rain"),
    ("calm", "falls"): ("wind", "rain"),
    ("boom", "rises"): ("price", "share"),
    ("crash", "falls"): ("price", "share"),
}
OTHERS = ("door", "river", "house", "road", "lamp", "garden")
VERBS = ("opens", "waits", "turns", "ends")


def toy_rows(sizes: dict[str, int], seed: int) -> Iterator[Row]:
    """Documents of each split, whose classes are equally likely."""
    for number, split in enumerate(SPLITS):
        draw = np.random.default_rng([seed, number])
        for k in range(sizes[split]):
            yield split, f"document {k}", _document(draw)


def _document(draw: np.random.Generator) -> Document:
    (label, verb), nouns = list(SIGNS.items())[draw.integers(len(SIGNS))]
    sentences = [f"The {_pick(draw, OTHERS)} {_pick(draw, VERBS)} near the {_pick(draw, OTHERS)}." for _ in range(4)]
    sentences = sentences[: draw.integers(1, 5)]
    sentences.insert(draw.integers(len(sentences) + 1), f"The {_pick(draw, nouns)} {verb} near the {_pick(draw, OTHERS)}.")
    return Document(label, (" ".join(sentences),))


def _pick(draw: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[draw.integers(len(words))]
