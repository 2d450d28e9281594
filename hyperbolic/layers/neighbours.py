"""The neighbours of the nodes of a graph."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hyperbolic.kernels.neighbour_sum import NeighbourSum


class Neighbours(nn.Module):
    """Which of M nodes each of N nodes takes in: E pairs, sorted by the node that takes in.

    The N nodes are the first of the M; on a whole graph N = M. A module, so that it moves to a device with its model;
    it is no part of a checkpoint.

    Args:
        target, source: int64 (E,), the two ends of each pair, target sorted, 0 <= target < N, 0 <= source < M.
        n_targets: N. n_sources: M. share: of pairs that are a sample of a node's neighbours, how much each counts in
        their mean, float64 (E,); None: 1/n_i, as they are all.

    Raises:
        ValueError: other tensors, numbers out of range, or targets that are not sorted.
    """

    offsets: Tensor
    target: Tensor
    source: Tensor
    share: Tensor
    reverse_offsets: Tensor
    order: Tensor
    reverse_target: Tensor

    def __init__(self, target: Tensor, source: Tensor, n_targets: int, n_sources: int, share: Tensor | None = None):
        super().__init__()
        self.is_sample = share is not None
        for name, index, n in (("target", target, n_targets), ("source", source, n_sources)):
            if index.dtype not in (torch.int64, torch.int32) or index.shape != target.shape or index.dim() != 1:
                raise ValueError(
                    "neighbours: target and source must be whole numbers (int64) of one shape (E,), got "
                    f"{name} of {index.dtype} and shape {tuple(index.shape)}"
                )
            if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < n:
                raise ValueError(f"neighbours: {name} must lie in 0..{n - 1}, got {index.min()}..{index.max()}")
        target, source = target.long(), source.long()
        if (target.diff() < 0).any():
            raise ValueError("neighbours: target must be sorted")
        self.n_targets, self.n_sources = n_targets, n_sources
        counts = torch.bincount(target, minlength=n_targets)
        order = source.argsort(stable=True)
        buffers = {
            "offsets": _offsets(counts),
            "target": target,
            "source": source,
            "share": (1 / counts.clamp_min(1).double())[target] if share is None else share,
            "reverse_offsets": _offsets(torch.bincount(source, minlength=n_sources)),
            "order": order,
            "reverse_target": target[order],
        }
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor, persistent=False)

    def mean(self, x: Tensor) -> Tensor:
        """``sum_j share_ij x_j``, ``1/n_i sum_j x_j`` over the n_i sources j of each target i where they are all:
        (M, D) -> (N, D); 0 without any."""
        return self.sum(x, self.share.to(x.dtype))

    def sum(self, x: Tensor, weights: Tensor) -> Tensor:
        """``sum_j w_ij x_j``: x (M, D), weights (E,) -> (N, D)."""
        pairs = (self.target, self.source, self.offsets, self.reverse_offsets, self.reverse_target, self.order)
        y: Tensor = NeighbourSum.run(x, weights, *pairs, self.n_targets)
        return y

    def softmax(self, scores: Tensor) -> Tensor:
        """``exp(s_ij) / sum_k exp(s_ik)``, the weights of each target summing to 1: (E,) or (E, H). Of a sample each
        exponential counts with its share, so that both sums are unbiased, and equal scores give the mean."""
        if self.is_sample:
            scores = scores + self.share.log().to(scores.dtype).view(-1, *[1] * (scores.dim() - 1))
        shape = (self.n_targets, *scores.shape[1:])
        index = self.target.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores)
        highest = scores.new_full(shape, -torch.inf).scatter_reduce(0, index, scores.detach(), "amax")
        weights = (scores - highest[self.target]).exp()
        return weights / weights.new_zeros(shape).index_add(0, self.target, weights)[self.target]

    def extra_repr(self) -> str:
        return f"n_targets={self.n_targets}, n_sources={self.n_sources}, pairs={len(self.source)}"


def _offsets(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def with_themselves(pairs: Tensor, n: int) -> Neighbours:
    """The neighbours of n nodes by undirected edges (E, 2), and each node among its own, so that a node without an edge
    takes in itself alone."""
    nodes = torch.arange(n, device=pairs.device)
    target = torch.cat([pairs[:, 0], pairs[:, 1], nodes])
    source = torch.cat([pairs[:, 1], pairs[:, 0], nodes])
    order = (target * n + source).argsort()
    return Neighbours(target[order], source[order], n, n)
