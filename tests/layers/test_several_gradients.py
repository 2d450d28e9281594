"""Gradients of several directions at once, which come as tensors without memory: for every layer and distance."""

import pytest
import torch

from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.layers import lorentz, mobius
from hyperbolic.manifolds import Lorentz, PoincareBall
from scripts.subjects import subjects


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's own attention under vmap
@pytest.mark.parametrize("name", GEOMETRIES)
def test_they_are_those_of_one_direction_after_another(name, native_kernels):
    manifold, family = GEOMETRIES[name]
    geometry = make_geometry(name, manifold, family, c=None if manifold == "Euclidean" else 1.3)
    for layer, make in subjects(geometry).items():
        if layer not in geometry.family.layers and not layer.islower():
            continue
        function, tensors = make().differentiable()
        leaves = [t.clone().requires_grad_() for t in tensors]
        y = function(*leaves)
        directions = torch.randn(2, *y.shape, dtype=y.dtype)
        options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
        batched = torch.autograd.grad(y, leaves, directions, is_grads_batched=True, **options)
        mapped = torch.vmap(lambda v, y=y, leaves=leaves, options=options: torch.autograd.grad(y, leaves, v, **options))
        for k, direction in enumerate(directions):
            for several in (batched, mapped(directions)):
                for a, e in zip(several, torch.autograd.grad(y, leaves, direction, **options), strict=True):
                    torch.testing.assert_close(a[k], e, rtol=1e-7, atol=1e-9, msg=lambda m, layer=layer: f"{layer}: {m}")


@pytest.mark.parametrize("make", [lambda: mobius.Logits(PoincareBall(), 3, 5), lambda: lorentz.Logits(Lorentz(), 3, 5)])
def test_losses_over_classes_take_them_too(make, native_kernels):
    logits = make()
    x = logits.manifold.random(4, 3).detach().requires_grad_()
    targets = torch.tensor([0, 4, 2, 2])
    for loss in (logits.cross_entropy, lambda x, targets: logits.bce(x, torch.nn.functional.one_hot(targets, 5).float())):
        value = loss(x, targets)
        (one,) = torch.autograd.grad(value, x, retain_graph=True)
        (several,) = torch.autograd.grad(value, x, torch.tensor([1.0, -2.0]), is_grads_batched=True)
        torch.testing.assert_close(several, torch.stack([one, -2 * one]), rtol=1e-4, atol=1e-6)


def test_rows_that_are_many_enough_for_c_take_them_too(native_kernels):
    ball = PoincareBall()
    x, y = (ball.random(3000, 20).detach().requires_grad_() for _ in range(2))
    distance = ball.dist(x, y)
    directions = torch.randn(2, 3000)
    several = torch.autograd.grad(distance, x, directions, is_grads_batched=True, retain_graph=True)[0]
    for k, direction in enumerate(directions):
        (one,) = torch.autograd.grad(distance, x, direction, retain_graph=True)
        torch.testing.assert_close(several[k], one, rtol=1e-4, atol=1e-6)
