"""Some neighbours of some nodes, drawn anew in every step, for graphs that are too large to be computed whole."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hyperbolic.kernels.neighbours import Neighbours


def sampled_neighbours(whole: Neighbours, nodes: Tensor, fanouts: Sequence[int]) -> tuple[Tensor, list[Neighbours]]:
    """The nodes that reach `nodes` through one layer for each fanout, and whom each takes in, for each layer from the
    first one on (Hamilton et al. 2017).

    Of each node's neighbours so many are drawn, with replacement, besides itself, which counts once with all others:
    a node with n neighbours, itself among them, has itself with weight 1/n and the k drawn ones with (n - 1) / (n k)
    each, so that the mean over the draws is the mean over the neighbours. A node that is drawn twice is there twice.

    nodes: (N,), each once. fanouts: from the last layer to the first.
    Returns: nodes (M,), whose first ones are `nodes`, and the blocks; the targets of each block are the first of its
    sources, which are the targets of the one before.
    """
    blocks: list[Neighbours] = []
    for k in fanouts:
        counts = whole.offsets[nodes + 1] - whole.offsets[nodes]
        place = (
            torch.rand(len(nodes), k, device=nodes.device, dtype=torch.float64) * (counts - 1).unsqueeze(-1)
        ).long()
        drawn = whole.source[whole.offsets[nodes].unsqueeze(-1) + place]
        # a node's own place among its neighbours, which are sorted, is passed over: the last one stands in its place
        last = whole.source[whole.offsets[nodes + 1] - 1].unsqueeze(-1)
        drawn = torch.where(drawn == nodes.unsqueeze(-1), last.expand_as(drawn), drawn)
        others = torch.unique(drawn)
        others = others[~torch.isin(others, nodes)]
        sources = torch.cat([nodes, others])
        position = torch.empty(whole.n_sources, dtype=torch.long, device=nodes.device)
        position[sources] = torch.arange(len(sources), device=nodes.device)
        own = torch.arange(len(nodes), device=nodes.device)
        target = own.repeat_interleave(k + 1)
        source = torch.cat([own.unsqueeze(-1), position[drawn]], -1).reshape(-1)
        block = Neighbours(target, source, len(nodes), len(sources))
        weight = ((counts - 1).double() / (counts * k).double()).unsqueeze(-1).expand(-1, k)
        block.share = torch.cat([(1 / counts.double()).unsqueeze(-1), weight], -1).reshape(-1)
        blocks.insert(0, block)
        nodes = sources
    return nodes, blocks
