"""Distance attention in all families: its two scores, the queries and keys it shows, and its errors."""

import pytest
import torch

from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.layers.guard import validate_points
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from hyperbolic.manifolds.charts import convert
from tests.tolerances import tolerance

F64 = torch.float64
IDENTITY = tolerance(F64, "identity")
C = 0.7


def layer(name: str, score: str):
    manifold, family = GEOMETRIES[name]
    g = make_geometry(name, manifold, family, c=None if manifold == "Euclidean" else C)
    attention = g.attention(4, n_positions=6, score=score).double()
    if score == "distance":
        attention.beta.data.fill_(0.8)
    return attention, g.manifold


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("score", ["distance", "squared"])
def test_weights_are_the_softmax_of_the_score_of_the_pairs(name, score):
    """-beta d(q, k), or -d^2(q, k)/sqrt(n); in the Lorentz family d^2 is the squared Lorentz distance."""
    attention, space = layer(name, score)
    x, positions = space.random(3, 5, 4, std=0.6, dtype=F64), torch.arange(1, 6)
    q, k = attention.pairs(x, positions)
    assert space.check_point_on_manifold(q)
    assert space.check_point_on_manifold(k)
    if score == "distance":
        logits = -0.8 * space.dist(q, k)
    elif name == "lorentz":
        logits = (2 / C + 2 * ((q * k)[..., 1:].sum(-1) - q[..., 0] * k[..., 0])) / 2
    elif isinstance(space, Klein) and name == "klein":  # computed in the ball of the same space
        ball = PoincareBall(C)
        logits = -(ball.dist(convert(q, space, ball), convert(k, space, ball)) ** 2) / 2
    else:
        logits = -(space.dist(q, k) ** 2) / 2
    out, weights = attention(x, positions)
    torch.testing.assert_close(weights, torch.softmax(logits, -1), **IDENTITY)
    torch.testing.assert_close(out, space.centroid(x, weights), **IDENTITY)
    assert weights.std() > 1e-4


@pytest.mark.parametrize("name", GEOMETRIES)
def test_the_squared_score_has_no_beta_and_is_smooth_where_query_and_key_agree(name):
    attention, space = layer(name, "squared")
    assert attention.beta is None
    assert not any("beta" in key for key in attention.state_dict())
    inner = getattr(attention, "inner", attention)
    inner.key.load_state_dict(inner.query.state_dict())
    x = space.random(2, 3, 4, std=0.5, dtype=F64).requires_grad_()
    out, weights = attention(x, torch.arange(3))
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 3), **IDENTITY)
    out.sum().backward()
    assert x.grad.isfinite().all()


def test_squared_lorentz_distance_of_neighbours_is_exact():
    """``4/c sinh^2(sqrt(c) d / 2)`` far out, where -2/c - 2 <q, k> would cancel."""
    attention, space = layer("lorentz", "squared")
    tangent = torch.tensor([[9.0, 0.0, 0.0, 0.0]], dtype=F64)
    q, k = space.expmap0(tangent), space.expmap0(tangent * (1 + 1e-9))
    distance = 9e-9
    results = attention.squared_distance(q, k)
    torch.testing.assert_close(results, torch.tensor([distance**2], dtype=F64), rtol=1e-4, atol=0)


def test_an_unknown_score_is_named():
    for name in GEOMETRIES:
        with pytest.raises(ValueError, match=r"Attention.score: unknown value 'cosine'; available: distance, squared"):
            layer(name, "cosine")


def test_lorentz_pairs_have_a_time_coordinate():
    attention, _ = layer("lorentz", "distance")
    q, _ = attention.pairs(Lorentz(C).random(2, 4, dtype=F64))
    assert q.shape == (2, 5)


@pytest.mark.parametrize("name", sorted(GEOMETRIES))
def test_points_of_positions_are_checked_as_others(name):
    attention, space = layer(name, "distance")
    x, index = space.random(2, 3, 4, std=0.5, dtype=F64), torch.arange(3)
    expected = attention(x, index)[0]
    validate_points(attention)
    torch.testing.assert_close(attention(x, index)[0], expected, **IDENTITY)
