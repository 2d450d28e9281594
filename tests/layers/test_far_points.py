"""Every layer on points at the origin, at every radius and at the boundary: results are points, gradients finite."""

import pytest
import torch
from torch import nn

from hyperbolic.geometry import GEOMETRIES, make_geometry

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
CURVED = [name for name, (manifold, _) in GEOMETRIES.items() if manifold != "Euclidean"]
N, STEPS, D = 8, 6, 3


def geometry(name: str, c: float):
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=c, learn_c=True)


def points(manifold, *size: int, dtype) -> torch.Tensor:
    """Intrinsic lengths 0, tiny, ordinary, near and beyond the largest radius."""
    with torch.no_grad():
        lengths = torch.tensor([0.0, 1e-30, 1e-8, 0.3, 2.0, 0.4, 0.999, 30.0], dtype=dtype)
        lengths[5:] *= manifold.max_radius(dtype)
        pick = torch.randint(len(lengths), (*size[:-1], 1))
        pick.view(-1)[: len(lengths)] = torch.arange(len(lengths))[: pick.numel()]
        return manifold.expmap0(lengths[pick] * nn.functional.normalize(torch.randn(*size, dtype=dtype), dim=-1))


def layers(g):
    """Modules and the shapes of the points they take."""
    single, sequence = (N, D), (N, STEPS, D)
    return {
        "linear": (g.linear(D, 4), [single]),
        "activation": (g.activation("tanh"), [single]),
        "dropout": (g.dropout(0.4), [single]),
        "rnn": (g.rnn(D, 4, bidirectional=True), [sequence]),
        "gru": (g.gru(D, 4, bidirectional=True), [sequence]),
        "rnn_cell": (g.family.layers["RNNCell"](g.manifold, D, D, "tanh"), [single, single]),
        "gru_cell": (g.family.layers["GRUCell"](g.manifold, D, D, "tanh"), [single, single]),
        "concat": (g.concat((D, D), 4), [single, single]),
        "attention": (g.attention(D), [sequence]),
        "centroid": (g.centroid(), [sequence]),
        "logits": (g.logits(D, 3), [single]),
    }


@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("c", [0.1, 2.0])
@DTYPES
def test_results_are_points_and_gradients_finite(name, c, dtype):
    g = geometry(name, c)
    for key, (module, shapes) in layers(g).items():
        module.to(dtype)
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter is not g.manifold.free_c and hasattr(parameter, "manifold"):
                    *lead, coordinates = parameter.shape
                    space = parameter.manifold
                    size = (*lead, space.intrinsic_dim(coordinates))
                    parameter.copy_(space.random(*size, std=0.5 / c**0.5, dtype=dtype))
        inputs = [points(g.manifold, *shape, dtype=dtype).requires_grad_() for shape in shapes]
        results = module(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        for number, result in enumerate(results):
            assert result.dtype == dtype, key
            assert torch.isfinite(result).all(), key
            if key != "logits" and not (key == "attention" and number == 1):
                fine, why = g.manifold.check_point_on_manifold(result.detach(), atol=2e-6, rtol=1e-6, explain=True)
                assert fine, f"{key}: {why}"
        loss = sum((result * torch.randn_like(result)).sum() for result in results)
        tensors = [*inputs, *module.parameters()]
        for tensor, grad in zip(tensors, torch.autograd.grad(loss, tensors, allow_unused=True), strict=True):
            assert grad is None or torch.isfinite(grad).all(), (key, tuple(tensor.shape))


@pytest.mark.parametrize("name", CURVED)
@DTYPES
def test_a_point_at_the_origin_can_be_learned_away_from_it(name, dtype):
    """No dead gradients at 0: embedding, linear layer and logits with everything at its start."""
    g = geometry(name, 2.0)
    table, linear, logits = (m.to(dtype) for m in (g.embedding(4, D), g.linear(D, D), g.logits(D, 3)))
    weight = next(p for p in table.parameters() if p.dim() == 2)
    with torch.no_grad():
        weight.copy_(g.manifold.origin(4, D) if name == "lorentz" else torch.zeros(4, D))
    loss = nn.functional.cross_entropy(logits(linear(table(torch.arange(4)))), torch.tensor([0, 1, 2, 0]))
    (grad,) = torch.autograd.grad(loss, weight)
    assert torch.isfinite(grad).all()
    assert (grad.norm(dim=-1) > 1e-4).all()
