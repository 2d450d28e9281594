"""Pairs of nodes that no known edge joins, drawn while training."""

import torch
from torch import Tensor

from tasks.errors import UserError

DRAWS = 100  # after which a graph is called too dense


def wrong_links(count: int, n: int, known: Tensor, draws: torch.Generator | None = None) -> Tensor:
    """Pairs of different nodes (count, 2), uniform over all that are not known, with replacement.

    n: number of nodes. known: sorted numbers ``i n + j`` of pairs i < j. draws: a generator; None
    for PyTorch's own. Raises UserError where nearly all pairs are known.
    """
    pairs = torch.empty(0, 2, dtype=torch.long, device=known.device)
    for _ in range(DRAWS):
        size = (count - len(pairs) + count // 8 + 1, 2)
        drawn = torch.randint(n, size, device=known.device, generator=draws).sort(-1).values
        key = drawn[:, 0] * n + drawn[:, 1]
        place = torch.searchsorted(known, key).clamp_max(len(known) - 1)
        pairs = torch.cat([pairs, drawn[(known[place] != key) & (drawn[:, 0] != drawn[:, 1])]])
        if len(pairs) >= count:
            return pairs[:count]
    raise UserError("Nearly all pairs of nodes of this graph have an edge, so no wrong links can be drawn.")
