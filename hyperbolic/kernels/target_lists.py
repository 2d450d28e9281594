"""Lists of classes (B, L), filled up with -1, and where they are in a tile of rows x classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Lists:
    """Never waits for a GPU."""

    def __init__(self, targets: Tensor, classes: int, tile_rows: int, tile_classes: int):
        self.targets = targets

    def sign_change(self, rows: slice, columns: slice) -> Callable[[Tensor], object]:
        """A function that turns the sign of the targets' entries in the values of a tile, in place, exactly:
        ``v - 2v``."""
        column, last = self.targets[rows] - columns.start, columns.stop - columns.start - 1
        factor = ((column >= 0) & (column <= last)) * -2  # 0 where a target is not in the tile
        column = column.clamp(0, last)
        return lambda values: values.scatter_add_(1, column, values.gather(1, column).mul_(factor))


class SortedLists:
    """The same, sorted by tile first: less work where reading a number does not wait for a device."""

    def __init__(self, targets: Tensor, classes: int, tile_rows: int, tile_classes: int):
        row, column = (targets >= 0).nonzero(as_tuple=True)
        column = targets[row, column]
        across = -(-classes // tile_classes)
        tile, order = (row // tile_rows * across + column // tile_classes).sort()
        self.row, self.column = row[order], column[order]
        self.tile_rows, self.tile_classes, self.across = tile_rows, tile_classes, across
        tiles = -(-targets.shape[0] // tile_rows) * across
        self.bounds = torch.searchsorted(tile, torch.arange(tiles + 1)).tolist()

    def sign_change(self, rows: slice, columns: slice) -> Callable[[Tensor], object]:
        tile = rows.start // self.tile_rows * self.across + columns.start // self.tile_classes
        mine = slice(self.bounds[tile], self.bounds[tile + 1])
        places = (self.row[mine] - rows.start) * (columns.stop - columns.start) + (self.column[mine] - columns.start)
        return lambda values: values.view(-1).index_copy_(0, places, values.view(-1).index_select(0, places).neg_())


def dense_targets(targets: Tensor, n_classes: int) -> Tensor:
    """Lists of classes (B, L), filled up with -1, as a boolean matrix (B, n_classes)."""
    dense = torch.zeros(targets.shape[0], n_classes + 1, dtype=torch.bool, device=targets.device)
    dense.scatter_(1, targets.masked_fill(targets < 0, n_classes), True)
    return dense[:, :n_classes]
