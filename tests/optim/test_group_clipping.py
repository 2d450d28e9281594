"""Gradients clipped by the norm of their group, against a computation by hand."""

import pytest
import torch
from geoopt import ManifoldParameter
from torch import nn

from hyperbolic.manifolds import PoincareBall
from hyperbolic.optim import RiemannianSGD


def steps(max_norm: float, clip: str) -> list[list[float]]:
    """Steps of SGD with lr 1 for the gradients (3, 4), (0, 12) and (0.6, 0.8); the first two are one group."""
    gradients = ([3.0, 4.0], [0.0, 12.0], [0.6, 0.8])
    p, q, r = (nn.Parameter(torch.zeros(2, dtype=torch.float64)) for _ in gradients)
    for parameter, gradient in zip((p, q, r), gradients, strict=True):
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
    unused = nn.Parameter(torch.ones(1))
    groups = [{"params": [p, q]}, {"params": [r]}, {"params": [unused]}]
    RiemannianSGD(groups, lr=1.0, max_grad_norm=max_norm, clip=clip).step()
    assert unused.item() == 1
    return [(-parameter.detach()).tolist() for parameter in (p, q, r)]


def test_each_group_has_its_own_norm():
    first = [3 * 2 / 13, 4 * 2 / 13], [0, 12 * 2 / 13]  # the norm of (3, 4, 0, 12) is 13
    for actual, expected in zip(steps(2.0, "group"), [*first, [0.6, 0.8]], strict=True):
        assert actual == pytest.approx(expected)
    half = steps(0.5, "group")
    assert half[2] == pytest.approx([0.3, 0.4])
    assert half[0] == pytest.approx([3 * 0.5 / 13, 4 * 0.5 / 13])
    assert steps(20.0, "group") == steps(20.0, "global")
    assert steps(2.0, "global")[2] != pytest.approx([0.6, 0.8])


def test_points_are_clipped_apart_from_other_parameters():
    ball = PoincareBall(c=1.0)
    x = ManifoldParameter(torch.zeros(1, 2, dtype=torch.float64), manifold=ball)
    w = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    x.grad, w.grad = torch.tensor([[3.0, 0.0]], dtype=torch.float64), torch.tensor([4.0], dtype=torch.float64)
    RiemannianSGD([{"params": [x]}, {"params": [w]}], lr=0.1, max_grad_norm=1.0, clip="group").step()
    assert w.item() == pytest.approx(-0.1)
    assert ball.dist0(x.detach()).item() == pytest.approx(0.1 * 0.25 * 2), "the metric at the origin is 4"
