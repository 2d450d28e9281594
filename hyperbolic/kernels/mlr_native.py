"""The lifts and ``s arsinh(z)`` of :mod:`hyperbolic.kernels.mlr` in C++ passes on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperbolic import native
from hyperbolic.numerics import BALL_EPS

LIBRARY = native.Library(
    "mlr",
    arsinh="pnnp",
    slopes="ppnpnnppp",
    lift_points="pppnndd",
    lift_points_grad="pppppnndd",
    lift_hyperplanes="pppppppnndd",
    lift_hyperplanes_grad="ppppppppppnndd",
)
_ROWS, _COLUMNS = 128, 1024  # of a tile of slopes
_FLOOR = BALL_EPS[torch.float32] / 4  # of gaps


def liftable(*tensors: Tensor) -> bool:
    """Whether the lifts can be used: of float32, whose row numbers are plain float64."""
    return tensors[0].dtype is torch.float32 and LIBRARY.usable(*tensors)


def scaled_arsinh_(z: Tensor, scale: Tensor) -> None:
    """``z <- scale arsinh(z)`` in place, for z (B, K) and scale (K,)."""
    LIBRARY.run("arsinh", z, *z.shape, native.address(scale, z.shape[1:]), dtype=z.dtype)


def logit_grads(
    x: Tensor, w: Tensor, scale: Tensor, logits: Tensor, grad: Tensor, needs: tuple[bool, bool, bool]
) -> tuple[Tensor | None, ...]:
    """Gradients of x, w and the scale in ``s arsinh(x w^T)``, by tiles of slopes that stay in the cache.

    Args: x (B, e), w (K, e), scale (K,), logits and grad (B, K). needs: which of the gradients.
    """
    inverse, grad_scale = 1 / scale, torch.zeros_like(scale)
    grad_x, grad_w = (torch.zeros_like(t) if need else None for t, need in zip((x, w), needs[:2], strict=True))
    rows, columns = min(_ROWS, len(x)), min(_COLUMNS, len(w))
    buffer = x.new_empty(rows * columns)
    for r in range(0, len(x), max(rows, 1)):
        some, x_here = slice(r, r + rows), x[r : r + rows]
        for k in range(0, len(w), columns):
            n = min(columns, len(w) - k)
            slope = buffer[: len(x_here) * n].view(len(x_here), n)
            entries, numbers = (t[r:, k:].data_ptr() for t in (logits, grad)), (scale[k:], inverse[k:], grad_scale[k:])
            LIBRARY.run("slopes", *entries, len(w), slope, *slope.shape, *numbers, dtype=x.dtype)
            if grad_x is not None:
                grad_x[some].addmm_(slope, w[k : k + n])
            if grad_w is not None:
                grad_w[k : k + n].addmm_(slope.T, x_here)
    return grad_x, grad_w, grad_scale if needs[2] else None


def lift_points(x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The lifts (..., d+1) and the gaps (..., 1), of x (..., d)."""
    d = x.shape[-1]
    out, gap = x.new_empty(*x.shape[:-1], d + 1), x.new_empty(*x.shape[:-1], 1, dtype=torch.float64)
    LIBRARY.run("lift_points", x, out, gap, gap.numel(), d, float(c), _FLOOR)
    return out, gap


def lift_points_grad(grad: Tensor, x: Tensor, c: Tensor, gap: Tensor, needs_c: bool) -> tuple[Tensor, Tensor | None]:
    grad_x, rows = torch.empty_like(x), torch.empty_like(gap) if needs_c else None
    LIBRARY.run("lift_points_grad", grad, x, gap, grad_x, rows, gap.numel(), x.shape[-1], float(c), _FLOOR)
    return grad_x, None if rows is None else rows.sum()


def lift_hyperplanes(p: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """W (K, d+1), the scales (K,), and of each row gap, shift and norm (K, 1)."""
    n, d = a.shape
    w, scale = a.new_empty(n, d + 1), a.new_empty(n)
    numbers = a.new_empty(3, n, 1, dtype=torch.float64).unbind()
    LIBRARY.run("lift_hyperplanes", native.address(p, (n, d)), a, w, scale, *numbers, n, d, float(c), _FLOOR)
    return w, scale, *numbers


def lift_hyperplanes_grad(
    grad_w: Tensor, grad_s: Tensor, p: Tensor, a: Tensor, c: Tensor, numbers: list[Tensor], needs_c: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    n, d = a.shape
    grad_p, grad_a = torch.empty_like(p), torch.empty_like(a)
    rows = a.new_empty(n, dtype=torch.float64) if needs_c else None
    tensors = (grad_w, grad_s, p, a, *numbers, grad_p, grad_a, rows)
    LIBRARY.run("lift_hyperplanes_grad", *tensors, n, d, float(c), _FLOOR)
    return grad_p, grad_a, None if rows is None else rows.sum()
