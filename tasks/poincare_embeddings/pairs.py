"""The ancestors of each node of a hierarchy, as examples to learn from and nodes to test."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.ragged import ranges

_DENSE = 0.05  # share of the nodes from which on they are counted all together


@dataclass(frozen=True, eq=False)
class Ancestors:
    """Ancestors of each of N nodes: those of node k are `nodes[offsets[k]:offsets[k + 1]]`, in rising order."""

    offsets: Tensor
    nodes: Tensor

    def pairs(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, ancestors): the position among `nodes` (B,) and the other end of every pair of theirs."""
        start = self.offsets[nodes]
        rows, places = ranges(start, self.offsets[nodes + 1] - start)
        return rows, self.nodes[places]

    def to(self, device: torch.device) -> "Ancestors":
        return self if self.offsets.device == device else Ancestors(self.offsets.to(device), self.nodes.to(device))


def excluded_pairs(
    children: Tensor, negatives: Tensor, ancestors: Ancestors, slots: Tensor
) -> tuple[Tensor, Tensor]:
    """Rows and columns of the pairs of `children` (B,) and different nodes `negatives` (P,) that are no wrong
    answers: a child's ancestors, and itself. slots: (N,), -1 throughout, working memory."""
    slots[negatives] = torch.arange(len(negatives), device=negatives.device)
    rows, nodes = ancestors.pairs(children)
    rows = torch.cat([rows, torch.arange(len(children), device=children.device)])
    columns = slots[torch.cat([nodes, children])]
    slots[negatives] = -1
    is_drawn = columns >= 0
    return rows[is_drawn], columns[is_drawn]


def ranks(order: Tensor, nodes: Tensor, ancestors: Ancestors) -> tuple[Tensor, Tensor]:
    """How well the nearest of all nodes are the ancestors of `nodes` (B,).

    The rank of an ancestor is its place among itself and all nodes that are no ancestors, the node itself left out;
    others as near as it come before it. The precision of the k-th nearest ancestor is k among all that are as near.

    Args: order (B, N): the distances of all nodes, or what rises with them; it is overwritten.
    Returns: of each node the sum of its ancestors' ranks (B,), and the mean of their precisions (B,), float64.
    """
    order[torch.arange(len(nodes), device=nodes.device), nodes] = torch.inf
    rows, above = ancestors.pairs(nodes)
    counts = torch.bincount(rows, minlength=len(nodes))
    width = int(counts.max())
    column = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    near = order.new_full((len(nodes), width), -torch.inf)  # in the empty places, which count for nothing
    near[rows, column] = order[rows, above]
    near = near.sort(-1).values
    order[rows, above] = torch.inf
    before = _count_before(order, near)
    is_filled = near > -torch.inf
    place = is_filled.cumsum(-1)
    rank_sum = torch.where(is_filled, before + 1, 0).sum(-1)
    precision = torch.where(is_filled, place / (place + before), 0).sum(-1) / counts.clamp_min(1)
    return rank_sum, precision


def _count_before(order: Tensor, near: Tensor) -> Tensor:
    """How many of each row of `order` (B, N) are at most each of its thresholds `near` (B, W), which rise: (B, W)."""
    row, column = (order <= near[:, -1:]).nonzero(as_tuple=True)
    if len(row) > order.numel() * _DENSE:
        flags = torch.empty_like(order, dtype=torch.float32)
        counts = [torch.le(order, near[:, k : k + 1], out=flags).sum(-1) for k in range(near.shape[1])]
        return torch.stack(counts, -1).double()
    value = order[row, column]
    counts = [torch.bincount(row[value <= near[row, k]], minlength=len(order)) for k in range(near.shape[1])]
    return torch.stack(counts, -1).double()
