"""Points beyond a distance from the origin, and the same points drawn back to it, with their tangent vectors."""

import pytest
import torch
from torch.nn.functional import normalize

from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.manifolds.base import Manifold
from tests.tolerances import tolerance

F32, F64 = torch.float32, torch.float64
D = 4
SPACES = pytest.mark.parametrize(
    "make",
    [Euclidean, *(lambda kind=kind, c=c: kind(c) for kind in (PoincareBall, Lorentz, Klein) for c in (0.3, 2.5))],
    ids=["Euclidean", *(f"{kind}-{c}" for kind in ("PoincareBall", "Lorentz", "Klein") for c in (0.3, 2.5))],
)
DTYPES = pytest.mark.parametrize("dtype", [F32, F64], ids=str)


def unit(manifold) -> float:
    """1/sqrt(c), in flat space 1."""
    c = float(manifold.c.detach())
    return c**-0.5 if c else 1.0


def at(manifold, radii, dtype=F64):
    """Points at these distances, in units of 1/sqrt(c), in any directions."""
    lengths = unit(manifold) * radii.unsqueeze(-1) / (2 if isinstance(manifold, PoincareBall) else 1)
    return manifold.expmap0(lengths * normalize(torch.randn(*radii.shape, D, dtype=F64), dim=-1)).to(dtype)


def direction(manifold, x):
    return normalize(manifold.logmap0(x), dim=-1)


@SPACES
@DTYPES
def test_which_points_are_beyond(make, dtype):
    manifold = make()
    for radius in (1e-5, 1e-3, 0.3, 1.2, 4.0):
        x = at(manifold, radius * torch.tensor([[0.0, 0.5, 0.99], [1.01, 1.5, 1.6]]), dtype)
        beyond = manifold.beyond(x, radius * unit(manifold))
        assert beyond.tolist() == [[False] * 3, [True] * 3], radius


@SPACES
@DTYPES
@pytest.mark.parametrize("radius", [1e-3, 2.0])
def test_points_end_at_the_radius_on_their_way_to_the_origin(make, dtype, radius):
    manifold, same = make(), tolerance(dtype, "identity")
    radius *= unit(manifold)
    x = at(manifold, radius / unit(manifold) * torch.tensor([[1.01, 1.2, 2.0], [1.7, 3.0, 1.1]]), dtype)
    y, nothing = manifold.shorten(x, radius)
    assert nothing is None
    assert y.shape == x.shape
    assert y.dtype is dtype
    assert manifold.check_point_on_manifold(y)
    torch.testing.assert_close(manifold.dist0(y), torch.full((2, 3), radius, dtype=dtype), **same)
    torch.testing.assert_close(direction(manifold, y), direction(manifold, x), **same)
    torch.testing.assert_close(manifold.dist(x, y), manifold.dist0(x) - radius, **same | {"atol": 1e-6 * radius})
    again, _ = manifold.shorten(y, radius)
    torch.testing.assert_close(again, y, **same)


@SPACES
@DTYPES
@pytest.mark.parametrize("radius", [1e-3, 2.0])
def test_vectors_are_moved_in_parallel(make, dtype, radius):
    """They stay tangent, keep their length and the angles to the way, and are those of the general transport."""
    manifold, same = make(), tolerance(dtype, "identity")
    x = at(manifold, radius * torch.tensor([1.05, 1.5, 2.0, 2.5]), dtype)
    radius *= unit(manifold)
    u = manifold.transp0(x, torch.randn(4, D, dtype=dtype))
    u[0] = 0
    y, moved = manifold.shorten(x, radius, u)
    assert moved.dtype is dtype
    assert not moved[0].any()
    same["atol"] *= 50  # on the hyperboloid vectors at x have coordinates up to cosh(5) times their length
    assert manifold.check_vector_on_tangent(y, moved, **same)
    torch.testing.assert_close(manifold.norm(y, moved), manifold.norm(x, u), **same)
    torch.testing.assert_close(moved, manifold.transp(x, y, u), **same)
    outward, still = (-normalize(manifold.logmap(p, manifold.origin(D, dtype=dtype)), dim=-1) for p in (x, y))
    angles = [manifold.inner(p, v, w) / manifold.norm(p, w) for p, v, w in ((x, u, outward), (y, moved, still))]
    torch.testing.assert_close(*angles, **same)


@DTYPES
@pytest.mark.parametrize("c", [0.3, 2.5])
@pytest.mark.parametrize("radius", [1e-4, 0.08, 1.2, 6.0])
def test_the_closed_forms_of_the_hyperboloid_are_the_general_ones(c, radius, dtype):
    manifold, same = Lorentz(c), tolerance(dtype, "identity")
    x = at(manifold, radius * torch.tensor([0.7, 0.98, 1.02, 1.3]), dtype)
    radius *= unit(manifold)
    assert torch.equal(manifold.beyond(x, radius), Manifold.beyond(manifold, x, radius))
    u = manifold.transp0(x, torch.randn(4, D, dtype=dtype))
    far = slice(2, 4)
    for a, b in zip(
        manifold.shorten(x[far], radius, u[far]),
        Manifold.shorten(manifold, x[far], radius, u[far]),
        strict=True,
    ):
        torch.testing.assert_close(a, b, **same | {"atol": same["atol"] * float(b.abs().max())})


@pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein])
def test_a_learned_curvature_counts(kind):
    manifold = kind(1.0, learn_c=True)
    x = at(manifold, torch.tensor([1.5, 3.0])).detach()
    assert manifold.beyond(x, 2.0).tolist() == [False, True]
    with torch.no_grad():
        manifold.free_c += 1.0
    x = manifold.projx(x).detach()
    y, _ = manifold.shorten(x, 0.7)
    torch.testing.assert_close(
        manifold.dist0(y).detach(), torch.full((2,), 0.7, dtype=F64), **tolerance(F64, "identity")
    )
