"""What is above each node of a hierarchy, as examples to learn from and nodes to test."""

from dataclasses import dataclass

import torch
from torch import Tensor

_MANY = 0.05  # share of the nodes from which on they are counted all together


@dataclass(frozen=True, eq=False)
class Above:
    """What is above each of N nodes: those of node k are `ancestors[offsets[k]:offsets[k + 1]]`, in rising order."""

    offsets: Tensor
    ancestors: Tensor

    def of(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, ancestors): the position among `nodes` (B,) and the other end of every pair of theirs."""
        start = self.offsets[nodes]
        counts = self.offsets[nodes + 1] - start
        rows = torch.arange(len(nodes), device=nodes.device).repeat_interleave(counts)
        within = torch.arange(len(rows), device=nodes.device) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        return rows, self.ancestors[start.repeat_interleave(counts) + within]

    def to(self, device: torch.device) -> "Above":
        return self if self.offsets.device == device else Above(self.offsets.to(device), self.ancestors.to(device))


@dataclass(frozen=True, eq=False)
class TrainPairs:
    """The pairs (node, one above it): children, parents, int32 (M,)."""

    children: Tensor
    parents: Tensor

    def __len__(self) -> int:
        return len(self.children)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """children, parents (B,), int64."""
        return {"children": self.children[index].long(), "parents": self.parents[index].long()}


@dataclass(frozen=True, eq=False)
class EvaluationNodes:
    """Nodes (M,) that have others above them."""

    nodes: Tensor

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        return {"nodes": self.nodes[index]}


def excluded(children: Tensor, drawn: Tensor, above: Above, slots: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the pairs of `children` (B,) and different nodes `drawn` (P,) that are no wrong answers:
    a child's ancestors, and itself. slots: (N,), -1 throughout, for one's own use."""
    slots[drawn] = torch.arange(len(drawn), device=drawn.device)
    rows, ancestors = above.of(children)
    rows = torch.cat([rows, torch.arange(len(children), device=children.device)])
    columns = slots[torch.cat([ancestors, children])]
    slots[drawn] = -1
    kept = columns >= 0
    return rows[kept], columns[kept]


def ranks(order: Tensor, nodes: Tensor, above: Above) -> tuple[Tensor, Tensor]:
    """How well the nearest of all nodes are the ancestors of `nodes` (B,).

    The rank of an ancestor is its place among itself and all nodes that are no ancestors, the node itself left out;
    others as near as it come before it. The precision of the k-th nearest ancestor is k among all that are as near.

    Args: order (B, N): the distances of all nodes, or what rises with them; it is used up.
    Returns: of each node the sum of its ancestors' ranks (B,), and the mean of their precisions (B,), float64.
    """
    order[torch.arange(len(nodes), device=nodes.device), nodes] = torch.inf
    rows, ancestors = above.of(nodes)
    counts = torch.bincount(rows, minlength=len(nodes))
    width = int(counts.max())
    column = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    near = order.new_full((len(nodes), width), -torch.inf)  # those that are not there have no one before them
    near[rows, column] = order[rows, ancestors]
    near = near.sort(-1).values
    order[rows, ancestors] = torch.inf
    before = _before(order, near)
    there = near > -torch.inf
    place = there.cumsum(-1)
    rank_sum = torch.where(there, before + 1, 0).sum(-1)
    precision = torch.where(there, place / (place + before), 0).sum(-1) / counts.clamp_min(1)
    return rank_sum, precision


def _before(order: Tensor, near: Tensor) -> Tensor:
    """How many of each row of `order` (B, N) are at most each of its thresholds `near` (B, W), which rise: (B, W)."""
    row, column = (order <= near[:, -1:]).nonzero(as_tuple=True)
    if len(row) > order.numel() * _MANY:
        flags = torch.empty_like(order, dtype=torch.float32)
        counts = [torch.le(order, near[:, k : k + 1], out=flags).sum(-1) for k in range(near.shape[1])]
        return torch.stack(counts, -1).double()
    value = order[row, column]
    counts = [torch.bincount(row[value <= near[row, k]], minlength=len(order)) for k in range(near.shape[1])]
    return torch.stack(counts, -1).double()
