"""Softmax over distances, of pairs of points against one draw of others (Nickel & Kiela 2017, Eq. 5).

For points x_i, their partners y_i and P others z_j, with T the temperature, the mean over i of

    -log( exp(-d(x_i, y_i) / T) / (exp(-d(x_i, y_i) / T) + sum_j exp(-d(x_i, z_j) / T)) )

without the pairs (i, j) that are excluded. ``sinh^2(sqrt(c) d/2)`` of all pairs is one product, and ``exp(-d)`` an
algebraic function of it; the gradient is made in the same pass, over blocks of rows that stay in the cache, so no
matrix of distances is kept. On a CPU one pass in C++ works on a block between its products.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.kernels.table_products import refuse_graph
from hyperbolic.manifolds import sheet
from hyperbolic.numerics import asinhc, safe_sqrt, sqnorm, wide_curvature
from hyperbolic.typing import Context, Function

_BLOCK = 1 << 16  # float64 entries that are worked on at a time, half a megabyte
_CLOSE = 1e-6  # part of its terms below which sinh^2(sqrt(c) d/2) of a pair is computed again from the difference
_LEAST = 1e-12  # least sinh^2(sqrt(c) d/2) of the others; of the pairs, which are exact, the square of it
_LEAST_WEIGHT = 1e-300  # of a pair; smaller ones, of points more than 690 T apart, would be 0
_LIBRARY = native.Library("distance_softmax", distance_softmax="pppppnndd")
Pairs = tuple[Tensor, Tensor]


def distance_softmax(x: Tensor, y: Tensor, z: Tensor, c: Tensor, excluded: Pairs, temperature: float = 1.0) -> Tensor:
    """The loss above, a float64 scalar.

    Args:
        x, y: (B, d) and z: (P, d), space coordinates of points of the hyperboloid, float64. c: scalar.
        excluded: rows and columns (K,) of the pairs (i, j) that do not count, none twice.
        temperature: positive.
    """
    c = wide_curvature(c).to(x.device)
    if c.requires_grad:
        return distance_softmax_reference(x, y, z, c, excluded, temperature)
    left, right = _factors(x, torch.cat([y, z]), c)
    near, right = right[: len(y)], right[len(y) :]
    h = (left * near).sum(-1)
    close = (h <= _CLOSE * (left[:, -2:] * near[:, -2:]).sum(-1)).nonzero().squeeze(1)
    if len(close):  # the terms cancel
        h = h.index_put((close,), sheet.half_sinh_square(x[close], y[close], c, careful=False).squeeze(-1))
    return _Loss.apply(left, right, h, excluded, 2 / (float(c) ** 0.5 * temperature))


def distance_softmax_reference(
    x: Tensor, y: Tensor, z: Tensor, c: Tensor, excluded: Pairs, temperature: float = 1.0
) -> Tensor:
    """:func:`distance_softmax` by way of the matrix of distances."""
    c = wide_curvature(c).to(x.device)
    return softmax_of_distances(
        _length(sheet.half_sinh_square(x, y, c), c), _length(sheet.half_sinh_square(x.unsqueeze(1), z, c), c),
        excluded, temperature,
    )  # fmt: skip


def softmax_of_distances(near: Tensor, others: Tensor, excluded: Pairs, temperature: float) -> Tensor:
    """The loss from the distances ``d(x_i, y_i)`` (B,) and ``d(x_i, z_j)`` (B, P) of any space."""
    score = (-others / temperature).index_put(excluded, others.new_full((), -torch.inf))
    return (torch.cat([-near.unsqueeze(1) / temperature, score], 1).logsumexp(1) + near / temperature).mean()


def cosh_products(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
    """``cosh(sqrt(c) d) = c (t_x t_y - <x, y>)`` of all pairs, which sorts them by distance.

    Args: x (B, d), y (N, d): space coordinates on the hyperboloid, float64. c: scalar. Returns: (B, N), float64.
    """
    c = wide_curvature(c).to(x.device)
    return torch.cat([-c * x, c * sheet.time(x, c)], -1) @ torch.cat([y, sheet.time(y, c)], -1).T


def _factors(x: Tensor, z: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Rows whose inner products are ``sinh^2(sqrt(c) d/2) = (c (t_x t_z - <x, z>) - 1) / 2``, with the times t as what
    they are above ``1/sqrt(c)``, so that near the origin nothing cancels."""
    root = c.sqrt()
    rise_x, rise_z = (sqnorm(s) / (sheet.time(s, c) + 1 / root) for s in (x, z))
    left = torch.cat([-c / 2 * x, (c * rise_x + root) / 2, root / 2 * rise_x], -1)
    return left, torch.cat([z, rise_z, torch.ones_like(rise_z)], -1)


def _length(h: Tensor, c: Tensor) -> Tensor:
    """``2/sqrt(c) arsinh(sqrt(h))`` (...) of h (..., 1)."""
    return (2 / c.sqrt() * safe_sqrt(h) * asinhc(h)).squeeze(-1)


class _Loss(Function[Tensor]):
    """The loss from ``h = sinh^2(sqrt(c) d/2)``: (B,) of the pairs, ``left right^T`` (B, P) of the others.

    ``exp(-d/T) = exp(-power arsinh(sqrt(h)))`` with ``power = 2 / (sqrt(c) T)``, see :func:`_weights`.
    """

    @staticmethod
    def forward(ctx: Context, left: Tensor, right: Tensor, h: Tensor, excluded: Pairs, power: float) -> Tensor:
        n = len(left)
        near, slope = _weights(h.clamp_min(_LEAST**2), power)
        near.clamp_min_(_LEAST_WEIGHT)
        rows, columns = excluded
        order = rows.argsort()
        rows, columns = rows[order], columns[order]
        bounds = torch.searchsorted(rows, torch.arange(n + 1, device=rows.device))
        step = max(1, _BLOCK // max(len(right), 1)) if left.device.type == "cpu" else max(n, 1)
        derive = _derive_in_cpp if _LIBRARY.usable(left, right) else _derive
        grad_left, grad_right, sums = torch.empty_like(left), torch.zeros_like(right), torch.empty_like(near)
        for start in range(0, n, step):
            some, ends = slice(start, start + step), bounds[start : start + step + 1]
            slopes = left[some] @ right.T
            derive(slopes, near[some], sums[some], rows - start, columns, ends, power)
            torch.mm(slopes, right, out=grad_left[some])
            grad_right.addmm_(slopes.T, left[some])
        total, grad_near = (sums / near).log().sum(), 1 - near / sums
        ctx.save_for_backward(grad_left / n, grad_right / n, grad_near.mul_(slope).div_(n))
        return total / n

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        refuse_graph("a softmax of distances")
        return *(grad * saved for saved in ctx.saved_tensors), None, None


def _derive(h: Tensor, near: Tensor, sums: Tensor, rows: Tensor, columns: Tensor, ends: Tensor, power: float) -> None:
    """Of a block of h (n, P) the derivatives of ``log(sums / near)`` in its place, and the sums (n,) of all weights.

    Args: near: (n,), the weights of the pairs. rows, columns: pairs that are excluded, sorted by row; those of this
        block's row r are from ``ends[r]`` on and before ``ends[r + 1]``.
    """
    weights, slopes = _weights(h.clamp_(_LEAST), power)
    mine = slice(int(ends[0]), int(ends[-1]))
    weights[rows[mine], columns[mine]] = 0
    torch.add(weights.sum(1), near, out=sums)
    weights.div_(sums.unsqueeze(1)).mul_(slopes).neg_()


def _derive_in_cpp(
    h: Tensor, near: Tensor, sums: Tensor, rows: Tensor, columns: Tensor, ends: Tensor, power: float
) -> None:
    _LIBRARY.run("distance_softmax", h, near, sums, ends, columns, *h.shape, _LEAST, power)


def _weights(h: Tensor, power: float) -> tuple[Tensor, Tensor]:
    """``exp(-power arsinh(sqrt(h))) = (1 + 2h + 2 sqrt(h (1 + h)))^(-power/2)``, and the derivative of ``power
    arsinh(sqrt(h))``, ``power / (2 sqrt(h (1 + h)))``; the weights take the place of h."""
    root = torch.addcmul(h, h, h).sqrt_()
    weights = h.mul_(2).add_(1).add_(root, alpha=2).reciprocal_()
    return weights if power == 2 else weights.pow_(power / 2), root.reciprocal_().mul_(power / 2)
