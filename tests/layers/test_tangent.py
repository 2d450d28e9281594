"""The tangent family on every manifold: exp_0 of a Euclidean layer of log_0, and the manifold's own distances."""

import pytest
import torch
from torch import nn

from hyperbolic.layers import euclidean, tangent
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall

F64 = torch.float64
FLAT = Euclidean()


@pytest.fixture(params=[(kind, c) for kind in (PoincareBall, Lorentz, Klein) for c in (0.1, 2.0)], ids=str)
def manifold(request):
    kind, c = request.param
    return kind(c)


def vectors(*size: int) -> torch.Tensor:
    return 0.4 * torch.randn(*size, dtype=F64)


def pair(name: str, manifold, *sizes, **options):
    """A tangent layer and the Euclidean one with the same random parameters."""
    curved, flat = (
        getattr(tangent, name)(manifold, *sizes, **options),
        getattr(euclidean, name)(FLAT, *sizes, **options),
    )
    with torch.no_grad():
        for p in curved.parameters():
            p.normal_(std=0.5)
    curved, flat = curved.double(), flat.double()
    flat.load_state_dict(curved.inner.state_dict())
    return curved, flat


@pytest.mark.parametrize("name", ["Linear", "RNNCell", "GRUCell", "Concat"])
def test_layers_of_vectors(manifold, name):
    u, v = vectors(5, 3), vectors(5, 2)
    sizes, inputs = (
        ((3, 2), (u,)) if name == "Linear" else (((3, 2), 4), (u, v)) if name == "Concat" else ((3, 2), (u, v))
    )
    options = {"n_features": 2} if name == "Concat" else {}
    curved, flat = pair(name, manifold, *sizes, **options)
    features = {"features": torch.rand(5, 2, dtype=F64)} if name == "Concat" else {}
    result = curved(*(manifold.expmap0(w) for w in inputs), **features)
    torch.testing.assert_close(result, manifold.expmap0(flat(*inputs, **features)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["RNN", "GRU"])
@pytest.mark.parametrize(
    "options", [{}, {"nonlinearity": "identity"}, {"bidirectional": True}, {"streams": 2}], ids=str
)
def test_layers_of_sequences(manifold, name, options):
    curved, flat = pair(name, manifold, 3, 4, **options)
    lead = (2, 3) if options.get("streams") else (3,)
    u, lengths = vectors(*lead, 5, 3), torch.tensor([5, 1, 3]).expand(lead)
    assert curved.d_out == flat.d_out == (8 if options.get("bidirectional") else 4)
    for result, expected in zip(curved(manifold.expmap0(u), lengths), flat(u, lengths), strict=True):
        torch.testing.assert_close(result, manifold.expmap0(expected), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("fn", ["identity", "tanh", "relu", "sigmoid"])
def test_activation(manifold, fn):
    u = vectors(5, 3)
    expected = manifold.expmap0(euclidean.Activation(FLAT, fn)(u))
    torch.testing.assert_close(tangent.Activation(manifold, fn)(manifold.expmap0(u)), expected, rtol=1e-9, atol=1e-12)


def test_embedding_and_logits(manifold):
    table, flat = pair("Embedding", manifold, 6, 3)
    index = torch.tensor([[0, 5], [2, 2]])
    torch.testing.assert_close(table(index), manifold.expmap0(flat(index)))
    u = vectors(5, 3)
    for scale in (1.0, 4.0):
        logits, flat = pair("Logits", manifold, 3, 4, scale=scale)
        expected = scale * ((u.unsqueeze(-2) - flat.p) * flat.a).sum(-1)
        torch.testing.assert_close(logits(manifold.expmap0(u)), expected, rtol=1e-9, atol=1e-12)


def test_dropout(manifold):
    layer, u = tangent.Dropout(manifold, 0.25), 1 + torch.rand(2000, 3, dtype=F64)
    dropped = manifold.logmap0(layer(manifold.expmap0(u)))
    remaining = dropped.abs() > 1e-12
    assert remaining.double().mean().item() == pytest.approx(0.75, abs=0.03)
    torch.testing.assert_close(dropped[remaining], u[remaining] / 0.75, rtol=1e-6, atol=0)
    x = manifold.expmap0(u)
    torch.testing.assert_close(layer.eval()(x), x)


def test_attention(manifold):
    """``softmax(-beta d(q_i, k_i))`` with the manifold's distance and centroid; positions add in the tangent space."""
    layer = tangent.Attention(manifold, 3, n_positions=4).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(std=0.5)
    u, position = vectors(2, 4, 3), torch.tensor([[3, 1, 0, 2], [0, 0, 2, 3]])
    moved = u + layer.positions.inner.weight[position]
    q, k = (
        manifold.expmap0(nn.functional.linear(moved, m.inner.weight, m.inner.bias)) for m in (layer.query, layer.key)
    )
    score = torch.exp(-layer.beta * manifold.dist(q, k))
    weights = score / score.sum(-1, keepdim=True)
    x = manifold.expmap0(u)
    result, results = layer(x, position)
    torch.testing.assert_close(results, weights, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(result, manifold.centroid(x, weights), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("kind", "factor"), [(PoincareBall, 2), (Lorentz, 1), (Klein, 1)])
def test_the_flat_limit(kind, factor):
    """For c to 0 the distances are the Euclidean ones, those of the ball twice that."""
    manifold = kind(1e-12)
    curved, flat = tangent.Attention(manifold, 3).double(), euclidean.Attention(FLAT, 3).double()
    with torch.no_grad():
        curved.beta.fill_(0.7)
        for p, q in zip(flat.parameters(), curved.parameters(), strict=True):
            p.copy_(q)
        flat.beta.mul_(factor)
    u = vectors(2, 4, 3)
    result, weights = curved(manifold.expmap0(u))
    expected, flat_weights = flat(u)
    torch.testing.assert_close(weights, flat_weights, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(manifold.logmap0(result), expected, rtol=1e-6, atol=1e-9)


def test_parameters_are_euclidean(manifold):
    for layer in (tangent.Linear(manifold, 3, 2), tangent.Embedding(manifold, 4, 3), tangent.GRU(manifold, 3, 2)):
        assert not any(hasattr(p, "manifold") for p in layer.parameters())
