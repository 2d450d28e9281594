"""Losses of a tile of products in one C++ pass: :mod:`hyperbolic.kernels.losses` on a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hyperbolic import native
from hyperbolic.native import address

LIBRARY = native.Library("losses", bce="pnnppppppnpnnpnpd", cross_entropy="pnnpppppppd")


@dataclass
class Tile:
    """Products z (R, C), which become the derivative of the loss by them.

    Args:
        scale: (C,), where the logits are ``scale arsinh(z + bias)``; None where they are ``z + bias``. bias: (C,) or
            None. grad_scale, grad_bias: (C,) or None, to which their derivatives, sums over rows, are added.
        total: float64 scalar, to which the loss is added.
    """

    z: Tensor
    scale: Tensor | None
    bias: Tensor | None
    grad_scale: Tensor | None
    grad_bias: Tensor | None
    total: Tensor

    def arguments(self) -> tuple[int | None, ...]:
        columns = (self.scale, self.bias, self.grad_scale, self.grad_bias)
        numbers = (address(t, self.z.shape[1:]) for t in columns)
        return address(self.z), *self.z.shape, *numbers, address(self.total)


def bce(
    tile: Tile,
    dense: Tensor | None,
    lists: Tensor | None,
    first: int,
    weights: Tensor | None,
    groups: Tensor | None,
    factor: float,
) -> None:
    """Binary cross entropy of each logit; derivatives are multiplied by the factor, the loss is not.

    Args:
        dense: y (R, C) with adjacent columns, of the dtype of z; or lists: long (R, L), contiguous, the classes with
            y = 1, of which the tile has those from ``first`` on.
        weights: (R, G), contiguous, of that dtype, or None; of column k that of ``groups[k]``, or the first of one.
    """
    columns = (None, 0) if dense is None else (dense.data_ptr(), dense.stride(0))
    listed = (lists, 0 if lists is None else lists.shape[1], first)
    weighted = (weights, 0 if weights is None else weights.shape[1], address(groups, tile.z.shape[1:]))
    LIBRARY.run("bce", *tile.arguments(), *columns, *listed, *weighted, factor, dtype=tile.z.dtype)


def cross_entropy(tile: Tile, target: Tensor, weights: Tensor, smoothing: float) -> None:
    """Softmax cross entropy of each row (of all classes), weighted; target: long (R,). weights: (R,)."""
    rows = (address(t, tile.z.shape[:1]) for t in (target, weights))
    LIBRARY.run("cross_entropy", *tile.arguments(), *rows, smoothing, dtype=tile.z.dtype)
