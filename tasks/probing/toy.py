"""Sentences with random trees, whose words say where they stand in the tree, and a fixed encoder that reads that."""

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from hyperbolic.geometry import make_geometry
from tasks.base import LayerStates
from tasks.probing.conllu import Sentence
from tasks.ragged import length_mask

ROWS = 1 << 12  # of the table of directions


def toy_sentence(draw: np.random.Generator, shortest: int, longest: int) -> Sentence:
    """A projective tree: words hang below earlier ones by chance, each on a side of its head by chance. A word is the
    path to it, as r.0.2: of the root's first child the third. The last word is a full stop below the root."""
    n = int(draw.integers(shortest, longest, endpoint=True)) - 1
    heads = [-1, *(int(draw.integers(max(0, k - 4), k)) for k in range(1, n))]
    names = ["r"]
    sides: dict[int, tuple[list[int], list[int]]] = {0: ([], [])}  # of each word its children on the left and the right
    for child in range(1, n):
        left, right = sides[heads[child]]
        names.append(f"{names[heads[child]]}.{len(left) + len(right)}")
        (left, right)[draw.integers(2)].append(child)
        sides[child] = ([], [])

    def in_order(node: int) -> list[int]:
        left, right = sides[node]
        return [*(k for child in left for k in in_order(child)), node, *(k for child in right for k in in_order(child))]

    order = in_order(0)
    place = {node: k for k, node in enumerate(order)}
    words = [names[node] for node in order]
    above = [place[heads[node]] if node else -1 for node in order]
    return Sentence((*words, f"{names[0]}.end"), (*above, place[0]), (*[False] * n, True))


class ToyEncoder(nn.Module):
    """States in flat space, in three layers: random numbers of each position; half the tree and half those; the tree.

    The tree is in the squared distances of the states (Reif et al. 2019): a word is the sum of a random direction for
    each beginning of its path.

    d: size of the states. seed: of the random numbers.
    """

    directions: Tensor
    positions: Tensor

    def __init__(self, d: int, seed: int):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        for name in ("directions", "positions"):
            self.register_buffer(name, torch.randn(ROWS, d, generator=generator) / d**0.5)
        self.geometry = make_geometry("euclidean", "Euclidean", "euclidean")

    def layer_states(self, sentences: Sequence[Sequence[str]]) -> LayerStates:
        lengths = torch.tensor([len(words) for words in sentences])
        mask = length_mask(lengths, int(lengths.max()))
        tree = self.directions.new_zeros(*mask.shape, self.directions.shape[1])
        tree[mask] = torch.stack([self._word(word) for words in sentences for word in words])
        positions = self.positions[: mask.shape[1]].expand_as(tree)
        return LayerStates(self.geometry, [positions, (tree + positions) / 2, tree], mask)

    def _word(self, path: str) -> Tensor:
        parts = path.split(".")
        beginnings = (".".join(parts[: k + 1]) for k in range(len(parts)))
        return self.directions[[zlib.crc32(beginning.encode()) % ROWS for beginning in beginnings]].sum(0)
