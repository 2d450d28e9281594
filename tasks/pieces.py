"""Words that a model reads in pieces: their states from those of the pieces."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hyperbolic.manifolds.base import Manifold


def words_of_pieces(manifold: Manifold, states: Sequence[Tensor], counts: Sequence[Sequence[int]]) -> list[Tensor]:
    """The centroid of the states of each word's pieces, (B, W, D) for the most words W, of each of some tensors (B, T,
    D) of points of the manifold; what stands where there is no word, or one without pieces, has no meaning.

    counts: of each sentence's words how many pieces they have; the pieces of a sentence begin at 0, word after word.
    """
    most = max(1, *(len(words) for words in counts))
    sizes = torch.tensor([[*words, *[0] * (most - len(words))] for words in counts], device=states[0].device)
    first = sizes.cumsum(1) - sizes
    place = torch.arange(max(1, int(sizes.max())), device=sizes.device)
    weights = (place < sizes.unsqueeze(-1)).to(states[0].dtype)  # (B, W, P)
    weights[..., 0] = 1  # somewhere, also where there is no piece
    index = (first.unsqueeze(-1) + place).clamp_max(states[0].shape[1] - 1)
    rows = torch.arange(len(sizes), device=sizes.device)[:, None, None]
    return [manifold.centroid(x[rows, index], weights) for x in states]
