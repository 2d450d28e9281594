"""Every function of every model of the space against 120-digit arithmetic on the same input bits.

Normwise relative errors, at most ``tolerance(dtype, "formula")``. In float64, where no wider type is left to work in,
some functions cannot reach that everywhere: their value changes by more than that when the last bit of an argument
does. Those are named below with the reason, and their error is held to ``SLACK`` roundings times the condition number
at the very arguments. float32 has no such exceptions: everything that cancels is computed in float64 there.
"""

import itertools

import numpy as np
import pytest
import torch

from hyperbolic import manifolds
from scripts.exactness import arithmetic
from scripts.exactness import spaces as oracle
from tests.manifolds.sampling import (
    CURVATURES,
    DTYPES,
    FUNCTIONS,
    MANIFOLDS,
    RADIUS,
    REGIMES,
    WITHOUT_ORACLE,
    at_radius,
    row,
    sample,
    space,
    tangent,
    unit,
)
from tests.tolerances import tolerance

ROWS = 2
SLACK = 64  # roundings of float64

OUTWARDS = (
    "far out, coordinates along the ray are cosh(r) times longer than the vector: what a vector has across the ray is "
    "a difference of long coordinates"
)
BACKWARDS = "a long step back towards the origin ends at the small difference of vectors exp(step) times as long"
NEIGHBOURS = "rounding a coordinate moves a point by u sinh(r): much, measured by the distance of near neighbours"
DISK = "rounding a coordinate moves a point of the Klein disk by u cosh(r)^2"
CONDITIONED = {
    ("Lorentz", "inner"): OUTWARDS,
    ("Lorentz", "norm"): OUTWARDS,
    ("Lorentz", "transp"): OUTWARDS,
    ("Lorentz", "expmap"): BACKWARDS,
    ("PoincareBall", "expmap"): BACKWARDS,
    ("Lorentz", "dist"): NEIGHBOURS,
    ("Lorentz", "dist2"): NEIGHBOURS,
    ("Lorentz", "logmap"): NEIGHBOURS,
    ("Klein", "dist"): DISK,
    ("Klein", "dist2"): DISK,
    ("Klein", "inner"): DISK,
    ("Klein", "norm"): DISK,
    ("Klein", "logmap"): DISK,
    ("Klein", "transp"): DISK,
}


def misses(name, c, dtype, function, values, rows):
    """Every row whose error is over its bound, in words."""
    manifold, exact = space(name, c)
    spec = FUNCTIONS[name][function]
    actual = spec.call(manifold, function, *[values[letter] for letter in spec.arguments])
    assert actual.dtype == dtype
    bound = tolerance(dtype, "formula")["rtol"]
    for i in range(rows):
        arguments = row(values, spec.arguments, i)
        reference = getattr(exact, function)
        expected = reference(*arguments)
        if spec.gives == "point":  # results beyond the stated radius are pulled back to it
            expected = exact.clip(expected, manifold.max_radius(dtype))
        error = arithmetic.relative_error(actual[i], expected)
        allowed = bound
        if error > bound and dtype is torch.float64 and (name, function) in CONDITIONED:
            allowed = SLACK * torch.finfo(dtype).eps / 2 * arithmetic.condition(
                arithmetic.jacobian(reference, arguments), arguments, reference(*arguments)
            )
        if not error <= allowed:
            where = ", ".join(f"{letter} {values[letter][i].tolist()}" for letter in spec.arguments if letter != "M")
            yield f"c {c}: error {error:.1e}, allowed {allowed:.1e}, at {where}"


def test_every_registered_manifold_has_exact_formulas_or_a_reason():
    for name in manifolds.MANIFOLDS:
        assert name in MANIFOLDS or name in WITHOUT_ORACLE, (
            f"{name} has no exact formulas: add them as a class of the oracle's SPACES, with its radii in RADIUS and its "
            "points in at_radius and tangent of tests/manifolds/sampling.py; or say in WITHOUT_ORACLE why it needs none"
        )
    assert all((name, dtype) in RADIUS for name in MANIFOLDS for dtype in DTYPES)


EVERY = [(n, f) for n in MANIFOLDS for f in FUNCTIONS[n]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "function"), EVERY)
def test_value(name, function, dtype):
    results = [
        f"{regime}: {miss}"
        for regime in REGIMES
        for c in CURVATURES
        for miss in misses(name, c, dtype, function, sample(name, c, dtype, regime, ROWS), ROWS)
    ]
    assert not results, "\n".join(results)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "function"), EVERY)
def test_other_dimensions(name, function, dtype):
    for d, regime in ((2, "far_apart"), (7, "boundary"), (64, "near_each_other"), (64, "moderate")):
        assert not [*misses(name, 0.7, dtype, function, sample(name, 0.7, dtype, regime, 1, d=d), 1)]


@pytest.mark.every_case
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MANIFOLDS)
def test_steps_back_through_the_origin(name, dtype, monkeypatch):
    """What ends near the origin, or on its other side, is a small difference of vectors that are long."""
    monkeypatch.setitem(RADIUS, ("Lorentz", torch.float32), 19.9)
    rng = np.random.default_rng(3)
    for share, length in itertools.product((0.3, 0.6, 0.9), (0.9, 1.3, 2.0)):
        radius, ray = share * RADIUS[name, dtype], unit(rng, 2, 3)
        x = at_radius(name, 1.0, np.full((2, 1), radius), ray)
        u = tangent(name, 1.0, x, length * radius * (0.3 * np.exp(-radius) * rng.standard_normal((2, 3)) - ray))
        values = {"x": torch.tensor(x, dtype=dtype), "u": torch.tensor(u, dtype=dtype)}
        assert not [*misses(name, 1.0, dtype, "expmap", values, 2)], (share, length)


@pytest.mark.parametrize("function", list(FUNCTIONS["Lorentz"]))
def test_float32_hyperboloid_up_to_its_stated_radius(function, monkeypatch):
    """12 is what is asked for in float32; the hyperboloid states 20, where float64 has three digits left of t - |s|."""
    monkeypatch.setitem(RADIUS, ("Lorentz", torch.float32), 19.9)
    for regime in ("far_apart", "opposite", "boundary", "boundary_and_inside"):
        values = sample("Lorentz", 1.0, torch.float32, regime, 3)
        assert not [*misses("Lorentz", 1.0, torch.float32, function, values, 3)]


@pytest.mark.parametrize(("distance", "bound"), [(8.0, 4e-15), (12.0, 4e-13), (16.0, 1e-10), (20.0, 1e-9)])
@pytest.mark.parametrize("angle", [1e-6, 1e-4])
def test_centroid_of_points_in_almost_the_same_direction(distance, bound, angle):
    """In float64, far out, the part of one across the other has few digits; this is what is stated."""
    rng = np.random.default_rng(4)
    ray, across = np.linalg.qr(rng.standard_normal((3, 2)))[0].T
    rays = np.stack([ray, np.cos(angle) * ray + np.sin(angle) * across])
    x = torch.tensor(at_radius("Lorentz", 1.0, np.array([[distance], [0.9 * distance]]), rays), dtype=torch.float64)
    exact = oracle.Lorentz(1).centroid(arithmetic.exact(x), [1, 1])
    assert arithmetic.relative_error(manifolds.Lorentz().centroid(x), exact) < bound


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("chart", "source", "method"),
    [
        ("poincare_to_lorentz", "PoincareBall", "to_lorentz"),
        ("poincare_to_klein", "PoincareBall", "to_klein"),
        ("klein_to_lorentz", "Klein", "to_lorentz"),
        ("klein_to_poincare", "Klein", "to_poincare"),
        ("lorentz_to_poincare", "Lorentz", "to_poincare"),
        ("lorentz_to_klein", "Lorentz", "to_klein"),
    ],
)
def test_chart(chart, source, method, dtype):
    from hyperbolic.manifolds import charts

    target = {"poincare": "PoincareBall", "lorentz": "Lorentz", "klein": "Klein"}[chart.split("_")[-1]]
    for c in CURVATURES:
        limit = space(target, c)[0].max_radius(dtype)
        _, exact = space(source, c)
        goal = oracle.SPACES[target](c)
        for regime in ("near_zero", "moderate", "far_apart", "boundary"):
            x = sample(source, c, dtype, regime, ROWS)["x"]
            actual = getattr(charts, chart)(x, c)
            tensor_c = getattr(charts, chart)(x, torch.full((ROWS, 1), c, dtype=torch.float64))
            torch.testing.assert_close(tensor_c, actual, rtol=0, atol=0)
            for i in range(ROWS):
                expected = goal.clip(getattr(exact, method)(arithmetic.exact(x[i])), limit)
                assert arithmetic.relative_error(actual[i], expected) <= tolerance(dtype, "formula")["rtol"]


@pytest.mark.parametrize(("space_name", "radius"), [("PoincareBall", 8), ("Klein", 4), ("Lorentz", 8)])
def test_oracle_agrees_with_itself(space_name, radius):
    """Two textbook definitions each: distances by arcosh, logarithms as inverse, charts as isometries."""
    values = sample(space_name, 1.0, torch.float64, "moderate", 3)
    exact, lorentz = oracle.SPACES[space_name](1.0), oracle.SPACES["Lorentz"](1.0)
    for i in range(3):
        x, y, u, v, g = row(values, "xyuvg", i)
        same = arithmetic.mp.mpf(10) ** -90
        there = [p if space_name == "Lorentz" else exact.to_lorentz(p) for p in (x, y)]
        assert abs(exact.dist(x, y) - lorentz.dist(*there)) < same
        assert abs(exact.norm(x, exact.logmap(x, y)) - exact.dist(x, y)) < same
        assert abs(exact.inner(y, exact.transp(x, y, u), exact.transp(x, y, v)) - exact.inner(x, u, v)) < same
        v = exact.push(x, v) if space_name == "Lorentz" else v
        assert abs(exact.inner(x, exact.egrad2rgrad(x, g), v) - arithmetic.dot(g, v)) < same * arithmetic.norm(g)
        end = exact.expmap(x, u)
        assert abs(exact.dist(x, end) - exact.norm(x, u)) < same
        assert radius > exact.dist0(end)
