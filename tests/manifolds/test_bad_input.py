"""Wrong arguments are refused with an error that says which and what to do instead."""

import geoopt
import numpy as np
import pytest
import torch

from hyperbolic.kernels.recurrent import mobius_cell
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.manifolds.charts import convert
from hyperbolic.manifolds.lorentz import lorentz_products
from tests.manifolds.sampling import FUNCTIONS, MANIFOLDS, sample

KINDS = [PoincareBall, Lorentz, Klein]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("c", [0, 0.0, -1, -0.5, float("nan"), float("inf"), True, "1", None, [1.0]])
def test_curvature_has_to_be_a_positive_number(kind, c):
    with pytest.raises(ValueError, match=rf"{kind.name}: c must be a positive number.*Euclidean"):
        kind(c)


def test_curvature_may_be_a_number_of_numpy():
    assert float(PoincareBall(np.float32(0.5)).c) == 0.5


@pytest.mark.parametrize(("name", "function"), [(n, f) for n in MANIFOLDS for f in FUNCTIONS[n] if f != "proju"])
def test_half_precision_and_whole_numbers_are_refused(name, function):
    """1 - c|x|^2 and <x, x>_L have no correct digit in half precision, and a distance that is cut to a whole number is
    none: no function takes them silently."""
    values = sample(name, 1.0, torch.float32, "moderate", 2)
    spec = FUNCTIONS[name][function]
    for dtype in (torch.float16, torch.bfloat16, torch.int64):
        points = [values[letter].to(dtype) for letter in spec.arguments]
        with pytest.raises(TypeError, match=r"float32 or float64.*Cast the module"):
            spec.call(MANIFOLDS[name](1.0), function, *points)


@pytest.mark.parametrize("name", MANIFOLDS)
def test_a_centroid_needs_a_weight_for_each_point(name):
    manifold = MANIFOLDS[name](1.0)
    x = manifold.expmap0(torch.randn(4, 5, 3))
    assert manifold.centroid(x, torch.ones(5, dtype=torch.long)).shape == x.shape[::2]
    for shape in ((4, 5, 1), (5, 1), (1,), ()):
        with pytest.raises(ValueError, match=r"centroid: takes points \(\.\.\., N, D\) and weights \(\.\.\., N\), got the shapes \(4, 5, "):
            manifold.centroid(x, torch.ones(shape))
    with pytest.raises(ValueError, match=r"got the shapes \(400, 50, 30\) and \(400, 1\)"):
        manifold.centroid_exp0(torch.randn(400, 50, 30), torch.ones(400, 1))


def test_what_is_no_manifold_is_named():
    ball = PoincareBall(1.0)
    with pytest.raises(TypeError, match=r"convert: takes manifolds of hyperbolic\.manifolds.*got"):
        convert(ball.random(2, 3), geoopt.PoincareBall(), ball)
    with pytest.raises(TypeError, match="twin: takes a class of curved manifolds.*Euclidean"):
        ball.twin(Euclidean)


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_projection_is_refused(kind):
    with pytest.raises(TypeError, match="float32 or float64"):
        kind(1.0).projx(torch.zeros(2, 3, dtype=torch.bfloat16))


@pytest.mark.parametrize("kind", KINDS)
def test_casting_a_model_leaves_the_curvature_alone(kind):
    """``model.float()`` and ``model.half()`` reach the manifold too, where 0.1 must stay 0.1."""
    for learn_c in (False, True):
        for cast in (torch.nn.Module.half, torch.nn.Module.float, torch.nn.Module.double):
            manifold = cast(kind(0.1, learn_c=learn_c))
            assert manifold.c.dtype == torch.float64
            if not learn_c:
                assert manifold.c.item() == 0.1


@pytest.mark.parametrize("kind", [PoincareBall, Klein, Lorentz])
def test_a_manifold_without_memory_has_its_radius(kind):
    assert kind(0.3).to("meta").max_radius() == pytest.approx(kind(0.3).max_radius())


def test_flat_space_has_the_shapes_and_dtypes_of_the_others():
    x, u = torch.zeros(3, 1, 4), torch.zeros(4, 4)
    weights = torch.ones(3, 1, dtype=torch.float64)
    for manifold in (Euclidean(), PoincareBall(1.0)):
        assert manifold.egrad2rgrad(x, u).shape == (3, 4, 4)
        assert manifold.centroid(x, weights).dtype is torch.float32


def test_functions_of_points_leave_autocast():
    """As the layers do: products in bfloat16 have two digits."""
    ball, space = PoincareBall(1.0), Lorentz(1.0)
    x, y, weight = ball.random(5, 4), space.random(5, 4), torch.randn(3, 4)
    cell = x, ball.random(5, 3), torch.randn(1, 3, 4), torch.randn(1, 3, 3), torch.zeros(1, 3), ball.c

    def results():
        return ball.mobius_matvec(weight, x), lorentz_products(y, y), mobius_cell(*cell)

    expected = results()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = results()
        assert ball.mobius_matvec(weight, x.bfloat16()).dtype is torch.float32, "as the layers cast it"
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype is torch.float32
        assert torch.equal(one, other)
