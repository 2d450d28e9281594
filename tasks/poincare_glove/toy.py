"""A generated corpus in which every sentence is about one topic, so that a test knows which words are alike."""

from pathlib import Path

import numpy as np

from tasks.folders import write_text


def sentences(topics: int, words: int, common: int, strays: int, lines: int, length: int, seed: int) -> list[str]:
    """`lines` sentences of `length` words each: a fifth of these are `common` words that all sentences share, `strays`
    percent are of any topic, the others of the sentence's own; the r-th of a topic's `words` words comes as often as
    1 / (r + 3). Without strays words of two topics would never meet, and GloVe learns from pairs that do."""
    draw, shape = np.random.default_rng(seed), (lines, length)
    frequency = 1 / (np.arange(words) + 3.0)
    about, stray = draw.integers(topics, size=(lines, 1)), draw.integers(topics, size=shape)
    topic = np.where(draw.random(shape) < strays / 100, stray, about)
    rank = draw.choice(words, p=frequency / frequency.sum(), size=shape)
    is_common, which = draw.random(shape) < 0.2, draw.integers(common, size=shape)
    names = np.array([chr(ord("a") + k % 26) * (1 + k // 26) for k in range(topics)])
    text = np.char.add(np.where(is_common, "common", names[topic]), np.where(is_common, which, rank).astype(str))
    return [" ".join(row) for row in text.tolist()]


def write_corpus(folder: Path, **recipe: int) -> Path:
    """The text file with these sentences; it stays in `folder`, written whole or not at all."""
    path = folder / f"toy-{'-'.join(f'{name}{value}' for name, value in sorted(recipe.items()))}.txt"
    if not path.exists():
        write_text(path, "\n".join(sentences(**recipe)) + "\n")
    return path
