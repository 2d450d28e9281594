"""Rows of a table against indexing: values, gradients of every order, and the ways of PyTorch to differentiate."""

import pytest
import torch
from geoopt import ManifoldParameter
from torch.nn import functional as F

from hyperbolic.kernels.table_rows import table_rows
from hyperbolic.manifolds import Lorentz
from tests.tolerances import tolerance

F64 = torch.float64
INDICES = [[], [3], [0, 4, 4, 2, 4], [[1, 1], [3, 0]], [[[2]]]]
SIZES = pytest.mark.parametrize("d", [1, 3])


def table(d, dtype=F64):
    return torch.randn(5, d, dtype=dtype, requires_grad=True)


def long(index) -> torch.Tensor:
    return torch.tensor(index, dtype=torch.long)


@SIZES
@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
def test_values_and_gradients_are_those_of_indexing(d, index, sparse, dtype):
    weight, index = table(d, dtype), long(index)
    rows, expected = table_rows(weight, index, sparse), weight[index]
    assert torch.equal(rows, expected)
    assert rows.shape == (*index.shape, d)
    cotangent = torch.randn_like(rows)
    (gradient,), (other,) = (torch.autograd.grad((v * cotangent).sum(), weight) for v in (rows, expected))
    assert gradient.is_sparse == sparse
    if sparse:
        assert gradient.coalesce().indices()[0].tolist() == index.unique().tolist()
    torch.testing.assert_close(gradient.to_dense(), other, **tolerance(dtype, "identity"))


@SIZES
def test_derivatives_of_both_orders(d):
    weight, index = table(d), long([[0, 2], [2, 2]])
    assert torch.autograd.gradcheck(lambda w: table_rows(w, index), weight)
    assert torch.autograd.gradgradcheck(lambda w: table_rows(w, index).pow(3), weight)


@SIZES
@pytest.mark.parametrize("transform", ["grad", "hessian", "jvp", "vmap", "vmap of grad"])
def test_transforms_of_functions_are_those_of_torchs_embedding(d, transform):
    weight, index = table(d).detach(), long([[0, 2], [2, 2]])
    many, twice = torch.stack([weight, -weight]), torch.stack([index, index.T])

    def actual(rows):
        def f(w, i=index):
            return rows(w, i).pow(3).sum()

        return {
            "grad": lambda: torch.func.grad(f)(weight),
            "hessian": lambda: torch.func.hessian(f)(weight),
            "jvp": lambda: torch.func.jvp(f, (weight,), (many[1],))[1],
            "vmap": lambda: torch.func.vmap(rows)(many, twice),
            "vmap of grad": lambda: torch.func.vmap(torch.func.grad(f))(many, twice),
        }[transform]()

    torch.testing.assert_close(actual(table_rows), actual(lambda w, i: F.embedding(i, w)), **tolerance(F64, "identity"))


def test_rows_of_points_are_plain_tensors_and_the_table_gets_its_gradient():
    manifold = Lorentz(2.0)
    points = ManifoldParameter(manifold.random(5, 3, dtype=F64), manifold=manifold)
    for sparse in (False, True):
        points.grad = None
        rows = table_rows(points, long([1, 1, 4]), sparse)
        assert type(rows) is torch.Tensor
        rows.sum().backward()
        expected = torch.zeros(5, 4, dtype=F64)
        expected[[1, 4]] = torch.tensor([[2.0], [1.0]], dtype=F64)
        assert torch.equal(points.grad.to_dense().as_subclass(torch.Tensor), expected)


@SIZES
def test_indices_of_32_bits(d):
    weight, index = table(d), torch.tensor([0, 4, 4], dtype=torch.int32)
    (gradient,) = torch.autograd.grad(table_rows(weight, index).sum(), weight)
    assert gradient[:, 0].tolist() == [1, 0, 0, 0, 2]


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_that_are_not_there(sparse):
    for index in (5, -1):
        with pytest.raises(IndexError, match="index out of range"):
            table_rows(table(3), long([0, index]), sparse)


def test_no_gradient_is_asked_for():
    weight = table(2)
    with torch.no_grad():
        assert not table_rows(weight, long([1])).requires_grad
    assert not table_rows(weight.detach(), long([1])).requires_grad


@pytest.mark.filterwarnings("ignore")  # what the compiler looks at on its way warns
def test_traced_code_has_the_same_gradient():
    weight, index = table(3), long([0, 4, 4])
    traced = torch.compile(lambda w: table_rows(w, index).square().sum(), backend="aot_eager", fullgraph=True)
    (gradient,) = torch.autograd.grad(traced(weight), weight)
    (expected,) = torch.autograd.grad(weight[index].square().sum(), weight)
    torch.testing.assert_close(gradient, expected, **tolerance(F64, "identity"))
