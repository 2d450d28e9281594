"""Logits, lifts and pairwise distances by C++ passes against PyTorch operations."""

import pytest
import torch

from hyperbolic import switch
from hyperbolic.kernels import mlr, pairwise
from hyperbolic.kernels.distance_softmax import distance_softmax
from hyperbolic.kernels.pairwise import passes
from hyperbolic.kernels.pairwise.plain import LORENTZ, POINCARE
from hyperbolic.manifolds import Lorentz, PoincareBall
from tests.kernels.paths import assert_paths_agree, path, results

pytestmark = pytest.mark.skipif(switch.cpp_compiler() is None, reason="needs a C++ compiler")
F32, F64 = torch.float32, torch.float64
DTYPES = pytest.mark.parametrize(("dtype", "relative"), [(F32, 1e-5), (F64, 1e-12)], ids=["float32", "float64"])
C = torch.tensor(1.3, dtype=F64)  # curvature


@pytest.mark.parametrize(("batch", "classes"), [(0, 3), (1, 1), (1, 77), (37, 3), (270, 300)])
@DTYPES
def test_logits(batch, classes, dtype, relative, monkeypatch):
    monkeypatch.setattr(mlr.passes, "_ROWS", 200)
    monkeypatch.setattr(mlr.passes, "_COLUMNS", 170)
    x, w = torch.randn(batch, 6, dtype=dtype), torch.randn(classes, 6, dtype=dtype)
    assert_paths_agree(mlr.class_logits, [x, w, torch.rand(classes, dtype=dtype) + 0.5], relative)


@pytest.mark.parametrize("c", [400.0, 1200.0, 1e6])
def test_a_zero_normal_of_a_large_curvature(c):
    x, p = ((torch.rand(n, 3) - 0.5) / c**0.5 for n in (20, 2))
    a, c = torch.tensor([[0.0, 0, 0], [0.1, 0.2, 0]]), torch.tensor(c, dtype=F64)
    assert_paths_agree(lambda a: mlr.mlr_logits(x, p, a, c), [a], 1e-5)
    a.requires_grad_()
    logits = mlr.mlr_logits(x, p, a, c)
    (grad,) = torch.autograd.grad((logits * torch.randn_like(logits)).sum(), a)
    assert logits.isfinite().all()
    assert (grad != 0).all(-1).all()


def test_logits_with_some_gradients_and_strided_ones():
    x, w, scale = torch.randn(5, 3), torch.randn(80, 3), torch.rand(80)
    for learned in range(3):
        actual = []
        for mode in ("plain", "fast"):
            leaves = [t.clone().requires_grad_(k == learned) for k, t in enumerate((x, w, scale))]
            with path(mode):
                actual.append(torch.autograd.grad(mlr.class_logits(*leaves).sum(), leaves[learned])[0])
        torch.testing.assert_close(*actual, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (2, 3, 17), (2000, 33)])
@pytest.mark.parametrize("radius", [1e-20, 1e-3, 1.0, 12.0])
def test_lifted_points(shape, radius):
    x = PoincareBall(1.3).expmap0(
        radius * torch.nn.functional.normalize(torch.randn(shape, dtype=F64), dim=-1) / C.sqrt()
    )
    assert_paths_agree(mlr.lift_points, [x.float(), C], 2e-6)


@pytest.mark.parametrize("shape", [(0, 4), (1, 2), (3, 17), (2000, 33)])
@pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 1e6])
def test_lifted_hyperplanes(shape, size):
    p, a = PoincareBall(1.3).expmap0(torch.randn(shape, dtype=F64)).float(), size * torch.randn(shape)
    weights = torch.randn(shape[0], shape[1] + 1), torch.randn(shape[0])

    def lifted(p, a, c):
        w, scale = mlr.lift_hyperplanes(p, a, c)
        return torch.cat([w * weights[0], (scale * weights[1] / max(size, 1)).unsqueeze(-1)], -1)

    assert_paths_agree(lifted, [p, a, C], 3e-6)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_arsinh_of_the_ends_of_the_numbers(dtype):
    largest = torch.finfo(dtype).max
    z = torch.tensor([0.0, 1e-38, largest, -largest, torch.inf, torch.nan], dtype=dtype)
    with path("fast"):
        actual = mlr.class_logits(z.unsqueeze(-1), z.new_ones(1, 1), z.new_ones(1)).squeeze(-1)
    top = torch.tensor(largest, dtype=F64).log().item()
    expected = torch.tensor([0.0, 1e-38, top, -top, torch.inf, torch.nan], dtype=dtype)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=0, equal_nan=True)


SPACES = pytest.mark.parametrize(
    ("space", "distances"),
    [(PoincareBall, pairwise.poincare_pairwise), (Lorentz, pairwise.lorentz_pairwise)],
    ids=["poincare", "lorentz"],
)


@SPACES
@DTYPES
@pytest.mark.parametrize("refine", [True, False])
@pytest.mark.parametrize(
    ("radius", "sizes"),
    [
        *((1.0, sizes) for sizes in (((0, 5), (3, 5)), ((1, 1), (1, 1)), ((5, 9), (2, 7, 9)))),
        *((radius, ((190, 11), (203, 11))) for radius in (1e-12, 1.0, 8.0)),
    ],
)
def test_pairwise(space, distances, dtype, relative, refine, radius, sizes):
    manifold = space(1.3)
    draw = [torch.nn.functional.normalize(torch.randn(shape, dtype=F64), dim=-1) for shape in sizes]
    points = [manifold.expmap0(_tangents(manifold, u * radius / C.sqrt())).to(dtype) for u in draw]
    if refine and sizes[0] == (190, 11):  # pairs that are computed again
        points[1][7], points[1][8] = points[0][3], points[0][4] * (1 + 1e-6)
    assert_paths_agree(lambda x, y, c: distances(x, y, c, refine), [*points, C], 30 * relative)


def _tangents(manifold, u):
    return torch.nn.functional.pad(u, (1, 0)) if isinstance(manifold, Lorentz) else u


@SPACES
def test_factors_are_those_of_pytorch_operations(space, distances):
    """Also of points at the margin, whose gap has no gradient."""
    manifold, model = space(1.3), LORENTZ if space is Lorentz else POINCARE
    points = manifold.expmap0(_tangents(manifold, torch.randn(70, 9, dtype=F64))).float()
    if space is PoincareBall:
        points = torch.cat([points, torch.eye(9) / C.sqrt().float()])
    expected = [results("plain", lambda x, c, left=left: model.factors(x, c, left), [points, C]) for left in (True, False)]
    with path("fast"):
        factors = passes._Factors(model, points, points, C)
        *of_points, of_c = factors.grads(*(2 * value for value in factors.values))
    assert_close(of_c, expected[0][2] + expected[1][2])
    for pair in zip([*factors.values, *of_points], [e[k] for k in (0, 1) for e in expected], strict=True):
        assert_close(*pair)


def assert_close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * other.abs().max().item())


@pytest.mark.parametrize("temperature", [1.0, 0.4])
@pytest.mark.parametrize(("pairs", "drawn"), [(1, 1), (7, 0), (301, 131)])
def test_distance_softmax(temperature, pairs, drawn):
    excluded = torch.unique(torch.stack([torch.randint(pairs, (90,)), torch.randint(max(drawn, 1), (90,))]), dim=1)
    excluded = tuple(excluded[:, torch.randperm(excluded.shape[1])]) if drawn > 1 else (excluded[0, :0],) * 2
    points = [torch.randn(n, 3, dtype=F64) for n in (pairs, pairs, drawn)]
    assert_paths_agree(
        lambda x, y, z: distance_softmax(x, y, z, C, excluded, temperature),
        points, 1e-11,
    )  # fmt: skip
