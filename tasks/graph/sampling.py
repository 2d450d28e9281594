"""Some neighbours of some nodes, drawn anew in every step, for graphs that are too large to be computed whole."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hyperbolic.layers.neighbours import Neighbours


def sampled_neighbours(
    whole: Neighbours, nodes: Tensor, fanouts: Sequence[int], draws: torch.Generator | None = None
) -> tuple[Tensor, list[Neighbours]]:
    """The nodes that reach `nodes` through one layer for each fanout, and whom each takes in, for each layer from the
    first one on (Hamilton et al. 2017).

    Of each node's neighbours so many are drawn, with replacement, besides itself, which counts once with all others:
    a node with n neighbours, itself among them, has itself with weight 1/n and the k drawn ones with (n - 1) / (n k)
    each, so that the mean over the draws is the mean over the neighbours; attention weighs by the same shares. A node
    that is drawn twice is there twice.

    What a node draws in a layer follows from its number and from one number that `draws` gives: of several processes
    with the same generator, which have other nodes, each draws the same for a node.

    nodes: (N,), each once. fanouts: from the last layer to the first. draws: a generator; None: PyTorch's own.
    Returns: nodes (M,), whose first ones are `nodes`, and the blocks; the targets of each block are the first of its
    sources, which are the targets of the one before.
    """
    blocks: list[Neighbours] = []
    keys = torch.randint(2**62, (len(fanouts),), device=nodes.device, generator=draws)
    for k, key in zip(fanouts, keys, strict=True):
        counts = whole.offsets[nodes + 1] - whole.offsets[nodes]
        place = (_uniform(key, nodes, k) * (counts - 1).unsqueeze(-1)).long()
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
        weight = ((counts - 1).double() / (counts * k).double()).unsqueeze(-1).expand(-1, k)
        share = torch.cat([(1 / counts.double()).unsqueeze(-1), weight], -1).reshape(-1)
        blocks.insert(0, Neighbours(target, source, len(nodes), len(sources), share))
        nodes = sources
    return nodes, blocks


def _uniform(key: Tensor, nodes: Tensor, k: int) -> Tensor:
    """For each node (N,) k numbers from [0, 1) that follow from its number and the key: (N, k) float64, by SplitMix64
    (Steele et al. 2014), in whole numbers modulo 2^64."""
    z = key + (nodes.unsqueeze(-1) * k + torch.arange(1, k + 1, device=nodes.device)) * -0x61C8864680B583EB
    z = (z ^ (z >> 30 & (1 << 34) - 1)) * -0x40A7B892E31B1A47
    z = (z ^ (z >> 27 & (1 << 37) - 1)) * -0x6B2FB644ECCEEE15
    z = z ^ (z >> 31 & (1 << 33) - 1)
    return (z >> 11 & (1 << 53) - 1).double() * 2.0**-53
