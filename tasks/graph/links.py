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
        pairs = torch.cat([pairs, drawn[~is_known(drawn, n, known) & (drawn[:, 0] != drawn[:, 1])]])
        if len(pairs) >= count:
            return pairs[:count]
    raise UserError("Nearly all pairs of nodes of this graph have an edge, so no wrong links can be drawn.")


def is_known(pairs: Tensor, n: int, known: Tensor) -> Tensor:
    """Which of the pairs (P, 2) of n nodes, the smaller number first, are known: bool (P,). known: as in `wrong_links`,
    at least one."""
    key = pairs[:, 0] * n + pairs[:, 1]
    place = torch.searchsorted(known, key).clamp_max(len(known) - 1)
    return known[place] == key
