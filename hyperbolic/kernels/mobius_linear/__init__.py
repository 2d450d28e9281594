"""Möbius linear layers, and Möbius sums of several of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hyperbolic.kernels.mobius_linear.passes import MobiusAffine


def mobius_affine(
    xs: Sequence[Tensor],
    weights: Sequence[Tensor],
    c: Tensor,
    points: Tensor | None = None,
    factors: Tensor | None = None,
) -> Tensor:
    """``((W_1 (x) x_1 (+) W_2 (x) x_2) (+) ...) (+) b_1 (+) ... (+) f_1 (x) b_{P-P'+1} (+) ...``, summed from the left
    (Ganea et al. 2018, Eq. 26, Lemma 6 and the end of section 3.2).

    Args:
        xs: ball points (..., D_i), at least one tensor. weights: (D, D_i) for each. c: curvature.
        points: (P, D) ball points. factors: (..., P') Möbius factors of the last P' points.
    Returns: (..., D), inside the boundary margin.
    """
    inputs = [*xs] if factors is None else [*xs, factors]
    lead = inputs[0].shape[:-1] if len(inputs) == 1 else torch.broadcast_shapes(*(x.shape[:-1] for x in inputs))
    flat = [_flat(x, lead) for x in inputs]
    factors = None if factors is None else flat.pop()
    out: Tensor = MobiusAffine.run(c, points, factors, *flat, *weights)
    return out if len(lead) == 1 else out.view(*lead, weights[0].shape[0])


def _flat(x: Tensor, lead: torch.Size) -> Tensor:
    """The rows of x (..., D) with these leading axes, (N, D), contiguous: other strides would be compiled anew."""
    return x.expand(*lead, x.shape[-1]).reshape(-1, x.shape[-1]).contiguous()
