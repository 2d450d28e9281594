"""Files of mentions in the format of the official release, made up."""

import json
import os
from pathlib import Path

import numpy as np
import torch

from tasks.entity_typing.types import COARSE, FINE
from tasks.word_vectors import WordVectors


def vocabulary(n: int) -> list[str]:
    return [f"w{k:x}" for k in range(n)]


def types(n: int) -> list[str]:
    return [*COARSE, *FINE, *(f"type_{k}" for k in range(n - len(COARSE) - len(FINE)))]


def write_mentions(path: Path, n: int, seed: int, n_words: int, n_types: int) -> Path:
    """n mentions: sentences of about 27 words as in the crowd data, words and types by Zipf's law, 5.4 types each."""
    draw = np.random.default_rng(seed)
    words, names = np.array(vocabulary(n_words), object), np.array(types(n_types), object)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, n, 20_000):
            size = min(20_000, n - start)
            left, inside, right, k = (1 + draw.poisson(mean, size) for mean in (11, 1.2, 11, 4.4))
            ends = np.cumsum(left + inside + right)
            drawn = words[draw.zipf(1.3, ends[-1]) % n_words].tolist()
            ids = names[draw.zipf(1.3, k.sum()) % n_types].tolist()
            of_types = np.cumsum(k)
            for i in range(size):
                a = int(ends[i - 1]) if i else 0
                b, c, d = a + left[i], a + left[i] + inside[i], int(ends[i])
                found = list(dict.fromkeys(ids[int(of_types[i - 1]) if i else 0 : of_types[i]]))
                record = {
                    "annot_id": f"SYN_{seed}.{start + i:07d}:0:0",
                    "mention_span": " ".join(drawn[b:c]),
                    "right_context_token": drawn[c:d],
                    "y_str": found,
                    "left_context_token": drawn[a:b],
                }
                file.write(json.dumps(record) + "\n")
    return path


def vectors(words: list[str], d: int = 3) -> WordVectors:
    tangent = torch.zeros(len(words) + 2, d)
    return WordVectors({w: k for k, w in enumerate(words, start=2)}, tangent, "synthetic", "0" * 64, "euclidean")


def end_process(*arguments: object) -> None:
    """What happens to a process that the system ends."""
    os._exit(1)
