"""A loss of the products ``x w^T`` and its gradients, one tile of rows x classes after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hyperbolic.kernels import losses_native
from hyperbolic.kernels.poincare_fc import arsinh_
from hyperbolic.kernels.tile_losses import TileLoss


class Classes(NamedTuple):
    """Some of the classes, and what belongs to them: rows of w and of its gradient, entries of the others, or None."""

    columns: slice
    w: Tensor
    grad_w: Tensor | None
    scale: Tensor | None
    bias: Tensor | None
    grad_scale: Tensor | None
    grad_bias: Tensor | None
    factors: Tensor  # of the derivatives in the gradient of x


class Tiles:
    """The loss by PyTorch operations.

    Args:
        x: (B, e). w: (K, e). scale, bias: (K,) or None. loss: see :mod:`hyperbolic.kernels.tile_losses`.
        grads: of x, w, scale and bias, to be written, or None; those of scale and bias are 0.
    """

    def __init__(
        self,
        x: Tensor,
        w: Tensor,
        scale: Tensor | None,
        bias: Tensor | None,
        loss: TileLoss,
        learned: bool,
        grads: Sequence[Tensor | None],
    ):
        self.x, self.w, self.scale, self.bias, self.loss, self.learned = x, w, scale, bias, loss, learned
        self.grad_x, self.grad_w, self.grad_scale, self.grad_bias = grads
        self.total = torch.zeros((), dtype=torch.float64, device=x.device)

    def run(self) -> Tensor:
        """The loss; writes the gradients."""
        self.start()
        for r in range(0, len(self.x), self.most_rows):
            rows = slice(r, min(r + self.most_rows, len(self.x)))
            x, grad_x = self.x[rows], None if self.grad_x is None else self.grad_x[rows]
            for part in self.parts:
                slope = self.slope(x, rows, part)
                if grad_x is not None:
                    grad_x.addmm_(slope, part.factors, beta=0 if part.columns.start == 0 else 1)
                if part.grad_w is not None:
                    part.grad_w.addmm_(slope.T, x, beta=0 if r == 0 else 1)
        return self.end()

    def start(self) -> None:
        self.bounded = self.scale is not None and _bounded(self.x, self.w)
        factors = self.w if self.scale is None else self.w * self.scale.unsqueeze(-1)
        self.divide(self.loss.tile_shape(in_cpp=False), factors, 2 if self.scale is None else 4)

    def divide(self, shape: tuple[int, int], factors: Tensor, buffers: int) -> None:
        """Into tiles of this shape, for which there are so many buffers."""
        self.most_rows, step = shape
        tensors = (self.w, self.grad_w, self.scale, self.bias, self.grad_scale, self.grad_bias, factors)
        columns = [slice(k, min(k + step, len(self.w))) for k in range(0, len(self.w), step)]
        pieces = (itertools.repeat(None) if t is None else t.split(step) for t in tensors)
        self.parts = [Classes(*part) for part in zip(columns, *pieces, strict=False)]
        self.buffers = list(self.x.new_empty(buffers, min(self.most_rows, len(self.x)) * min(step, len(self.w))))
        self.tiles: dict[tuple[int, int], list[Tensor]] = {}

    def tile(self, rows: slice, columns: slice) -> list[Tensor]:
        """The buffers in the shape of a tile."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        if shape not in self.tiles:
            self.tiles[shape] = [buffer[: math.prod(shape)].view(shape) for buffer in self.buffers]
        return self.tiles[shape]

    def slope(self, x: Tensor, rows: slice, part: Classes) -> Tensor:
        """The derivative by the products over the scale; adds the loss and the gradients of scale and bias."""
        z, spare, *others = self.tile(rows, part.columns)
        torch.mm(x, part.w.T, out=z) if part.bias is None else torch.addmm(part.bias, x, part.w.T, out=z)
        slope = z
        if part.scale is not None:
            root, slope = others
            arsinh_(z, root, spare, slope, self.bounded)
            torch.mul(z, part.scale, out=slope)
        self.total += self.loss.on_tile(slope, spare, rows, part.columns, self.learned)
        if part.grad_scale is not None:
            part.grad_scale.add_(torch.mul(slope, z, out=spare).sum(0))
        if others and self.learned:
            slope.div_(root)
        if part.grad_bias is not None:
            part.grad_bias.add_(slope.sum(0))
        return slope

    def end(self) -> Tensor:
        if self.scale is not None and self.grad_w is not None:
            self.grad_w.mul_(self.scale.unsqueeze(-1))
        for grad in (self.grad_x, self.grad_w, self.grad_scale, self.grad_bias):
            if grad is not None:
                grad.mul_(self.loss.factor)
        return self.total * self.loss.factor


class TilesInCpp(Tiles):
    """The loss by one pass in C++ between the products; its derivatives have the scale and the factor."""

    def start(self) -> None:
        self.divide(self.loss.tile_shape(in_cpp=True), self.w, 1)

    def slope(self, x: Tensor, rows: slice, part: Classes) -> Tensor:
        (z,) = self.tile(rows, part.columns)
        torch.mm(x, part.w.T, out=z)
        tile = losses_native.Tile(z, part.scale, part.bias, part.grad_scale, part.grad_bias, self.total)
        self.loss.in_cpp(tile, rows, part.columns)
        return z

    def end(self) -> Tensor:
        return self.total * self.loss.factor


def _bounded(x: Tensor, w: Tensor) -> bool:
    """Whether the squares of all products are finite numbers, where knowing it saves time."""
    if x.device.type != "cpu" or not len(x):
        return False
    longest: Iterator[float] = (float(torch.linalg.vector_norm(t, dim=-1).amax()) for t in (x, w))
    return math.prod(longest) < math.sqrt(torch.finfo(x.dtype).max) / 2
