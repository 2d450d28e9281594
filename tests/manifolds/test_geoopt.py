"""geoopt 0.5.1 as an independent implementation, where it is right: float64, moderate radii, c away from 1.

Its curvature is given as a float64 tensor: it would keep a Python float in float32.
"""

import geoopt
import pytest
import torch

from hyperbolic.manifolds import Lorentz, PoincareBall
from tests.tolerances import tolerance

D, N, DTYPE = 4, 30, torch.float64
CURVATURES = [0.3, 1.0, 2.5]


def close(actual, expected):
    """geoopt adds 1e-15 under its square roots and clamps at 1e-15, which leaves about 1e-8 of relative error."""
    torch.testing.assert_close(actual, expected, rtol=1e-7, atol=tolerance(DTYPE, "identity")["atol"] * 1e3)


def sample(manifold, c):
    x, y = manifold.random(2, N, D, std=0.5 / c**0.5, dtype=DTYPE)
    u, v = (manifold.transp0(x, torch.randn(N, D, dtype=DTYPE)) for _ in range(2))
    return x, y, u, v


@pytest.mark.parametrize("c", CURVATURES)
def test_ball(c):
    ours, theirs = PoincareBall(c), geoopt.PoincareBall(c=torch.tensor(c, dtype=DTYPE))
    x, y, u, v = sample(ours, c)
    a, weight = torch.randn(N, D, dtype=DTYPE) / (2 * c**0.5), torch.randn(D, D, dtype=DTYPE) / D
    close(ours.dist(x, y), theirs.dist(x, y))
    close(ours.dist2(x, y), theirs.dist2(x, y))
    close(ours.dist0(x), theirs.dist0(x))
    close(ours.inner(x, u, v, keepdim=True), theirs.inner(x, u, v, keepdim=True))
    close(ours.norm(x, u, keepdim=True), theirs.norm(x, u, keepdim=True))
    close(ours.expmap(x, u), theirs.expmap(x, u))
    close(ours.logmap(x, y), theirs.logmap(x, y))
    close(ours.expmap0(a), theirs.expmap0(a))
    close(ours.logmap0(x), theirs.logmap0(x))
    close(ours.transp(x, y, u), theirs.transp(x, y, u))
    close(ours.transp0(y, a), theirs.transp0(y, a))
    close(ours.egrad2rgrad(x, a), theirs.egrad2rgrad(x, a))
    close(ours.mobius_add(x, y), theirs.mobius_add(x, y))
    close(ours.mobius_scalar(0.7, x), theirs.mobius_scalar_mul(torch.tensor(0.7, dtype=DTYPE), x))
    close(ours.mobius_matvec(weight, x), theirs.mobius_matvec(weight, x))
    weights = torch.rand(N, dtype=DTYPE)
    close(ours.centroid(x, weights), theirs.weighted_midpoint(x, weights))


@pytest.mark.parametrize("c", CURVATURES)
def test_hyperboloid(c):
    """geoopt's ``k`` is the squared radius: 1/c. Its maps at the origin take ambient vectors."""
    ours, theirs = Lorentz(c), geoopt.Lorentz(k=torch.tensor(1 / c, dtype=DTYPE))
    x, y, u, v = sample(ours, c)
    a = torch.randn(N, D, dtype=DTYPE)
    ambient = torch.cat([torch.zeros(N, 1, dtype=DTYPE), a], -1)
    close(ours.dist(x, y), theirs.dist(x, y))
    close(ours.dist0(x), theirs.dist0(x))
    close(ours.inner(x, u, v), theirs.inner(x, u, v))
    close(ours.norm(x, u), theirs.norm(u))
    close(ours.expmap(x, u), theirs.expmap(x, u))
    close(ours.logmap(x, y), theirs.logmap(x, y))
    close(ours.expmap0(a), theirs.expmap0(ambient))
    close(ours.logmap0(x), theirs.logmap0(x)[..., 1:])
    close(ours.transp(x, y, u), theirs.transp(x, y, u))
    close(ours.transp0(y, a), theirs.transp0(y, ambient))
    close(ours.proju(x, ambient), theirs.proju(x, ambient))
    close(ours.egrad2rgrad(x, ambient), theirs.egrad2rgrad(x, ambient.clone()))
    close(ours.projx(x + 0.1), theirs.projx(x + 0.1))


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz])
def test_a_parameter_on_the_manifold_trains_with_geoopt(kind):
    """The interface is geoopt's: ManifoldParameter and its optimisers work unchanged."""
    manifold = kind(0.8)
    goal = manifold.expmap0(torch.tensor([0.3, -0.2, 0.5], dtype=DTYPE))
    point = geoopt.ManifoldParameter(manifold.origin(3, dtype=DTYPE), manifold=manifold)
    optimiser = geoopt.optim.RiemannianSGD([point], lr=0.2)
    for _ in range(60):
        optimiser.zero_grad()
        (manifold.dist2(point, goal) / 2).backward()
        optimiser.step()
    torch.testing.assert_close(point.detach(), goal, rtol=1e-4, atol=1e-5)
    assert manifold.check_point_on_manifold(point.detach())
