"""The peers: the published formulas of HyFi and HyboNet written out plainly, and geoopt's and HypLL's own operations.

HyFi (Lopez & Strube 2020) and the geoopt linear layer use geoopt's functions, as HyFi's code does. HypLL is optional.
Everything here is at curvature -1, where HyboNet's formulas hold.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from geoopt.manifolds.stereographic import math as gmath
from torch import Tensor


def hypll() -> SimpleNamespace | None:
    """HypLL's modules that are measured, and its ball of curvature -1; None where HypLL is not installed."""
    try:
        from hypll import nn, optim, tensors
        from hypll.manifolds import poincare_ball
    except ImportError:
        return None
    curvature = poincare_ball.Curvature(1.0, constraining_strategy=lambda value: value)
    return SimpleNamespace(nn=nn, optim=optim, tensors=tensors, ball=poincare_ball.PoincareBall(curvature))


def minus_one(x: Tensor) -> Tensor:
    """geoopt's curvature, on the device of x."""
    return torch.tensor(-1.0, dtype=x.dtype, device=x.device)


def hyfi_logits(x: Tensor, p: Tensor, a: Tensor) -> Tensor:
    """Ganea et al. 2018, Eq. 23, a Möbius sum for every pair of point and class: x (B, d), p and a (K, d) -> (B, K)."""
    k = minus_one(x)
    moved = gmath.mobius_add(-p, x.unsqueeze(-2), k=k)
    norm = a.norm(dim=-1)
    along = 2 * (moved * a).sum(-1) / ((1 - moved.square().sum(-1)) * norm)
    return 2 * norm * gmath.arsinh(along)


def hyfi_gru(x: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor) -> Tensor:
    """Möbius GRU gate by gate and step by step: x (B, T, D), weights (3, H, .), bias (3, H) in the order r, z, new."""
    k = minus_one(x)

    def affine(gate: int, h: Tensor, x_t: Tensor) -> Tensor:
        hidden = gmath.mobius_matvec(weight_hh[gate], h, k=k)
        outer = gmath.mobius_matvec(weight_ih[gate], x_t, k=k)
        return gmath.mobius_add(gmath.mobius_add(hidden, outer, k=k), bias[gate], k=k)

    h, states = x.new_zeros(x.shape[0], bias.shape[-1]), []
    for x_t in x.unbind(1):
        r, z = (torch.sigmoid(gmath.logmap0(affine(gate, h, x_t), k=k)) for gate in (0, 1))
        new = affine(2, gmath.mobius_pointwise_mul(r, h, k=k), x_t)
        step = gmath.mobius_pointwise_mul(z, gmath.mobius_add(-h, new, k=k), k=k)
        h = gmath.mobius_add(h, step, k=k)
        states.append(h)
    return torch.stack(states, 1)


def geoopt_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Möbius linear layer of geoopt's functions, projected at the end as its examples do."""
    k = minus_one(x)
    return gmath.project(gmath.mobius_add(gmath.mobius_matvec(weight, x, k=k), bias, k=k), k=k)


def hybonet_linear(x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
    """Lorentz linear layer as in HyboNet's translation code: the bias counts in the time coordinate, no activation."""
    y = torch.nn.functional.linear(x, weight, bias)
    time = y[..., :1].sigmoid() * scale.exp() + 1.1
    space = y[..., 1:]
    stretch = (time * time - 1) / (space * space).sum(-1, keepdim=True).clamp_min(1e-8)
    return torch.cat([time, space * stretch.sqrt()], -1)


def minkowski_product(x: Tensor, y: Tensor) -> Tensor:
    """``<x, y>_L`` of all pairs, (..., N, D) and (..., M, D) -> (..., N, M), as in HyboNet's translation code."""
    negated = torch.cat([-x[..., :1], x[..., 1:]], -1)
    return negated @ y.transpose(-1, -2)


def hybonet_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """HyboNet, Eq. 5 and 6: weights from ``(2 + 2<q, k>_L) / scale``, then the Lorentz centroid of the values."""
    weights = torch.softmax((2 + 2 * minkowski_product(q, k)) / scale, -1)
    mean = weights @ v
    norm = -(mean[..., 1:].square().sum(-1, keepdim=True) - mean[..., :1].square())
    return mean / norm.abs().clamp_min(1e-8).sqrt()


def hybonet_products(h: Tensor, table: Tensor) -> Tensor:
    """``<h, t>_L`` as in HyboNet's knowledge graph code, coordinate by coordinate for every pair: (..., D), (N, D)."""
    product = h.unsqueeze(-2) * table
    return product[..., 1:].sum(-1) - product[..., 0]
