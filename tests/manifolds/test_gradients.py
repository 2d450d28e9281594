"""Gradients of every function, by every argument and by a learned ``c``, against derivatives of the 120-digit oracle.

The gradient of ``<w, f(arguments)>`` for a fixed random w is compared, normwise for each argument, at the relative
tolerance of ``tolerance(dtype, "gradient")``. Two terms are added to the bound, neither larger than rounding errors:

* ``SLACK`` units of the dtype times ``|w||f|`` over the natural length of the argument (``1/sqrt(c)``, or its own
  length where that is more): a derivative below it moves no digit of the value;
* where even so the bound is missed, as many units of float64 times what a relative change of the arguments makes of
  the derivative itself (its condition number). It is a second derivative, and large only near the boundary.
"""

import pytest
import torch

from hyperbolic.manifolds import Lorentz
from scripts.exactness import arithmetic
from scripts.exactness import spaces as oracle
from tests.manifolds.sampling import CURVATURES, DTYPES, FUNCTIONS, MANIFOLDS, RADIUS, REGIMES, row, sample, space
from tests.tolerances import tolerance

SLACK = 64
ZERO = 1e-25  # what central differences leave of a derivative that is 0
# W (x) x multiplies matrices in the dtype of W, so that its unit of rounding is that of the dtype
ROUNDED = {"mobius_matvec"}
# not differentiable there; the gradient is 0 by convention
KINKS = {("dist", "xy", "origin"), ("dist", "xy", "equal"), ("dist0", "x", "origin")}
KINKS |= {("norm", "u", "origin"), ("norm", "u", "equal")}


# float64 radii of these samples. Farther out the values still hold (test_accuracy), but the backward pass, plain
# float64 like the forward, adds derivatives by coordinates and by c that are e^r times larger than their sum.
FLOAT64_RADIUS = {"PoincareBall": 18.0, "Lorentz": 18.0, "Klein": 9.0}


def weights_like(output: torch.Tensor) -> torch.Tensor:
    """Fixed random numbers that both dtypes represent exactly."""
    return torch.randn(output.shape, generator=torch.Generator().manual_seed(5)).double()


def check(name, c, dtype, function, values, rows, kinks=""):
    manifold, _ = space(name, c, learn_c=True)
    exact_c = float(manifold.c.detach())
    spec = FUNCTIONS[name][function]
    arguments = [values[letter].clone().requires_grad_() for letter in spec.arguments]
    output = spec.call(manifold, function, *arguments)
    assert output.isfinite().all()
    w = weights_like(output)
    for i in range(rows):
        got = torch.autograd.grad(
            (output[i].double() * w[i]).sum(),
            [*arguments, manifold.free_c],
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        exact_w = arithmetic.flat(arithmetic.exact(w[i]))

        def scalar(*parameters, exact_w=exact_w):
            *rest, curvature = parameters
            value = getattr(oracle.SPACES[name](curvature), function)(*rest)
            return arithmetic.dot(exact_w, arithmetic.flat(value))

        point = [*row(values, spec.arguments, i), arithmetic.mp.mpf(exact_c)]
        value = getattr(oracle.SPACES[name](exact_c), function)(*point[:-1])
        size = arithmetic.norm(arithmetic.flat(value))
        exact = oracle.SPACES[name](exact_c)
        if spec.gives == "point" and exact.clip(value, 0.999 * manifold.max_radius(dtype)) is not value:
            continue  # pulled back to the stated radius: another function there
        for number, letter in enumerate([*spec.arguments, "c"]):
            actual = got[number] if letter in "Mc" else got[number][i]
            if letter == "c":
                actual = actual / torch.sigmoid(manifold.free_c.detach())
            where = f"d{function}/d{letter}, row {i}, c {c}, at {point}"
            assert actual.isfinite().all(), where
            if letter in kinks:
                assert not actual.any(), where
            else:
                compare(actual, scalar, point, number, letter, function, float(w[i].norm()) * size, dtype, where)


def compare(actual, scalar, point, number, letter, function, size, dtype, where):
    expected = arithmetic.flat(arithmetic.slopes(scalar, point, number))
    error = float(arithmetic.norm(arithmetic.add(arithmetic.flat(arithmetic.exact(actual)), expected, -1)))
    own = point[-1] if letter == "c" else 1 if letter == "r" else arithmetic.norm(arithmetic.flat(point[number]))
    scale = own if letter in "cr" else max(own, 1 / arithmetic.mp.sqrt(point[-1]))
    unit = torch.finfo(dtype).eps / 2
    bound = tolerance(dtype, "gradient")["rtol"] * float(arithmetic.norm(expected)) + ZERO
    bound += SLACK * unit * float(size / scale)
    if error > bound:
        unit = torch.finfo(dtype if function in ROUNDED else torch.float64).eps / 2
        second = arithmetic.jacobian(lambda *a: arithmetic.slopes(scalar, a, number), point)
        bound += SLACK * unit * arithmetic.sensitivity(second, point)
    assert error <= bound, f"{where}: error {error:.2e}, allowed {bound:.2e}"


EVERY = [(n, f) for n in MANIFOLDS for f in FUNCTIONS[n]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "function"), EVERY)
def test_gradient(name, function, dtype, monkeypatch):
    monkeypatch.setitem(RADIUS, (name, torch.float64), FLOAT64_RADIUS[name])
    for number, regime in enumerate(REGIMES):
        c = CURVATURES[number % len(CURVATURES)]
        check(name, c, dtype, function, sample(name, c, dtype, regime, 2, d=2, seed=1), 2)


def special(name: str, c: float, dtype: torch.dtype, place: str) -> dict:
    """Arguments where formulas divide by zero: all at the origin with zero vectors, x = y, or y = -x."""
    values = sample(name, c, dtype, "moderate", 2, d=2)
    manifold, _ = space(name, c)
    if place == "origin":
        values["x"] = manifold.origin(2, 2, dtype=dtype)
    values["y"] = values["x"].clone()
    if place == "opposite":
        values["y"][..., 1 if name == "Lorentz" else 0 :] *= -1
    values["u"], values["a"] = torch.zeros_like(values["u"]), torch.zeros_like(values["a"])
    values["P"] = torch.stack([values["x"], values["y"], values["x"]], -2)
    return values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "function"), EVERY)
def test_gradient_where_formulas_degenerate(name, function, dtype):
    for place in ("origin", "equal", "opposite"):
        kinks = "".join(letters for f, letters, where in KINKS if (f, where) == (function, place))
        check(name, 2.5, dtype, function, special(name, 2.5, dtype, place), 1, kinks)


@pytest.mark.parametrize(("name", "function"), EVERY)
def test_gradcheck(name, function):
    """Autograd against finite differences of the function itself, for all entries of the Jacobian at once."""
    manifold, _ = space(name, 0.8, learn_c=True)
    spec = FUNCTIONS[name][function]
    values = sample(name, 0.8, torch.float64, "moderate", 2, d=2)
    arguments = [values[letter].requires_grad_() for letter in spec.arguments]

    def call(free_c, *rest):
        return torch.func.functional_call(Call(manifold, function), {"manifold.free_c": free_c}, rest)

    assert torch.autograd.gradcheck(call, (manifold.free_c, *arguments), atol=1e-6)


class Call(torch.nn.Module):
    """A method as a module, so that its curvature can be an argument."""

    def __init__(self, manifold, function):
        super().__init__()
        self.manifold, self.function = manifold, function

    def forward(self, *arguments):
        return getattr(self.manifold, self.function)(*arguments)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("c", [0.01, 1.0, 25.0])
@pytest.mark.parametrize("name", MANIFOLDS)
def test_nothing_is_infinite_up_to_the_stated_radius(name, c, dtype):
    """Values and gradients, from zero vectors to the very edge, for every pair of points and with steps up to 40."""
    manifold, _ = space(name, c, learn_c=True)
    radii = torch.tensor([0, 1e-30, 1e-12, 1e-6, 1e-2, 1, 3, manifold.max_radius(dtype) * c**0.5], dtype=dtype)
    lengths = radii / c**0.5 / (2 if name == "PoincareBall" else 1)
    for d in (1, 2, 5):
        direction = torch.nn.functional.normalize(torch.ones(d, dtype=dtype), dim=0)
        points = manifold.projx(manifold.expmap0(torch.cat([lengths, -lengths])[:, None] * direction)).detach()
        n = len(points)
        x, y = points.repeat_interleave(n, 0), points.repeat(n, 1)
        steps = (torch.tensor([0, 1e-30, 1e-6, 1, 40], dtype=dtype) / c**0.5)[:, None] * direction.roll(1)
        values = {
            "x": x,
            "y": y,
            "a": steps.repeat(len(x) // len(steps) + 1, 1)[: len(x)],
            "r": torch.full((len(x), 1), -0.5, dtype=dtype),
            "M": torch.ones(2, d, dtype=dtype),
            "P": torch.stack([x, y, x], -2),
            "w": torch.ones(len(x), 3, dtype=dtype),
        }
        values["u"] = manifold.transp0(x, values["a"]).detach()
        values["v"] = values["g"] = values["u"].flip(0)
        for function, spec in FUNCTIONS[name].items():
            arguments = [values[letter].clone().requires_grad_() for letter in spec.arguments]
            output = spec.call(manifold, function, *arguments)
            assert output.isfinite().all(), f"{function}, d {d}"
            gradients = torch.autograd.grad(
                output.sum(), [*arguments, manifold.free_c], allow_unused=True, materialize_grads=True
            )
            for letter, gradient in zip([*spec.arguments, "c"], gradients, strict=True):
                assert gradient.isfinite().all(), f"d{function}/d{letter}, d {d}"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MANIFOLDS)
def test_a_step_of_any_length_stops_at_the_stated_radius(name, dtype):
    """cosh overflows at 710; a training step with too large a rate goes farther than that."""
    manifold, _ = space(name, 1.0)
    x = sample(name, 1.0, dtype, "moderate", 6)["x"]
    limit = manifold.max_radius(dtype)
    for length in (50.0, 100.0, 800.0, 1e5, 1e15):
        vector = length * torch.nn.functional.normalize(torch.ones(6, 3, dtype=dtype))
        step = manifold.transp0(x, vector).detach()
        for move, arguments in ((manifold.expmap, (x, step)), (manifold.expmap0, (vector,))):
            arguments = [argument.clone().requires_grad_() for argument in arguments]
            y = move(*arguments)
            reached = manifold.dist0(y)
            assert (reached < limit + 0.05).all()
            assert (reached > limit - 0.05 - (manifold.dist0(x) if move == manifold.expmap else 0)).all()
            assert all(slope.isfinite().all() for slope in torch.autograd.grad(y.sum(), arguments))


@pytest.mark.parametrize("name", MANIFOLDS)
def test_gradient_descent_on_a_learned_curvature(name):
    """c comes back from distances measured at another c."""
    target, _ = space(name, 0.6)
    manifold, _ = space(name, 1.4, learn_c=True)
    vectors = torch.randn(2, 64, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = target.dist(target.expmap0(vectors[0]), target.expmap0(vectors[1]))
    optimiser = torch.optim.LBFGS(manifold.parameters(), line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        inputs = manifold.dist(manifold.expmap0(vectors[0]), manifold.expmap0(vectors[1]))
        loss = (inputs - expected).square().mean()
        loss.backward()
        return loss

    for _ in range(5):
        optimiser.step(closure)
    assert float(manifold.c.detach()) == pytest.approx(0.6, rel=1e-4)


def test_egrad2rgrad_leaves_its_argument_alone():
    """geoopt 0.5.1 negates the time coordinate of the gradient it is given."""
    manifold = Lorentz(1.3)
    x = manifold.random(3, 2, dtype=torch.float64)
    gradient = torch.ones_like(x)
    manifold.egrad2rgrad(x, gradient)
    assert torch.equal(gradient, torch.ones_like(x))
