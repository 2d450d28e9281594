"""Products with some rows of a table against the rows themselves, on both paths."""

import pytest
import torch
from geoopt import ManifoldParameter

from hyperbolic.kernels.table_products import plain, table_products
from hyperbolic.manifolds import Lorentz
from tests.kernels.paths import assert_paths_agree
from tests.tolerances import tolerance

F64 = torch.float64
ROWS = 9


@pytest.fixture(autouse=True)
def _paths(each_path):
    """Every test runs in C++ and on PyTorch operations."""


def case(n, m, d, dtype=F64, bias=True):
    x, table, shift = (torch.randn(*size, dtype=dtype, requires_grad=True) for size in ((n, d), (ROWS, d), (ROWS, 1)))
    return x, table, torch.randint(ROWS, (n, m)), shift if bias else None


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("n", "m", "d"), [(4, 3, 5), (1, 1, 1), (3, 20, 33), (0, 3, 2), (2, 0, 2), (400, 30, 4)])
def test_values_and_gradients_are_those_of_the_rows(n, m, d, bias, dtype):
    x, table, index, shift = case(n, m, d, dtype, bias)
    leaves = [leaf for leaf in (x, table, shift) if leaf is not None]
    actual, expected = table_products(x, table, index, shift), (x.unsqueeze(1) * table[index]).sum(-1)
    expected = expected if shift is None else expected + shift[index].squeeze(-1)
    torch.testing.assert_close(actual, expected, **tolerance(dtype, "identity"))
    weight = torch.randn(m, n, dtype=dtype).T  # not contiguous
    for one, other in zip(*(torch.autograd.grad(v, leaves, weight) for v in (actual, expected)), strict=True):
        torch.testing.assert_close(one, other, **tolerance(dtype, "identity"))


def test_rows_that_are_chosen_often_and_never():
    x, table, _, shift = case(3, 4, 2)
    index = torch.full((3, 4), 7)
    grads = torch.autograd.grad(table_products(x, table, index, shift).sum(), (table, shift))
    torch.testing.assert_close(grads[0][7], 4 * x.detach().sum(0), **tolerance(F64, "identity"))
    assert grads[1][7] == 12
    for grad in grads:
        assert not grad[torch.arange(ROWS) != 7].any()


def test_only_what_is_asked_for_gets_a_gradient():
    x, table, index, shift = case(3, 4, 2)
    for leaf in (x, table, shift):
        others = [t if t is leaf else t.detach() for t in (x, table, shift)]
        (actual,) = torch.autograd.grad(table_products(others[0], others[1], index, others[2]).sum(), leaf)
        (expected,) = torch.autograd.grad(plain.products(x, table, index, shift).sum(), leaf)
        torch.testing.assert_close(actual, expected, **tolerance(F64, "identity"))


def test_sparse_gradients_have_the_rows_used():
    x, table, _, shift = case(2, 3, 2)
    index = torch.tensor([[0, 4, 4], [8, 0, 4]])
    grads = torch.autograd.grad(table_products(x, table, index, shift, sparse=True).sum(), (table, shift))
    dense = torch.autograd.grad(table_products(x, table, index, shift).sum(), (table, shift))
    for grad, expected in zip(grads, dense, strict=True):
        assert grad.is_sparse
        assert grad.coalesce().indices()[0].tolist() == [0, 4, 8]
        torch.testing.assert_close(grad.to_dense(), expected, **tolerance(F64, "identity"))


def test_a_table_of_points_gets_a_plain_gradient():
    manifold = Lorentz(2.0)
    points = ManifoldParameter(manifold.random(ROWS, 3, dtype=F64), manifold=manifold)
    x, index = torch.randn(2, 4, dtype=F64), torch.tensor([[1, 1], [0, 3]], dtype=torch.int32)
    products = table_products(x, points, index)
    assert type(products) is torch.Tensor
    products.sum().backward()
    assert points.grad.shape == points.shape
    torch.testing.assert_close(points.grad.as_subclass(torch.Tensor)[1], 2 * x[0], **tolerance(F64, "identity"))


@pytest.mark.parametrize("wrong", [-1, ROWS])
def test_rows_that_are_not_there(wrong):
    x, table, index, shift = case(2, 3, 2)
    index[1, 2] = wrong
    with pytest.raises(IndexError, match=f"index {wrong} |out of range"):
        table_products(x, table, index, shift)


@pytest.mark.parametrize(
    ("x", "table", "index", "bias"),
    [
        ((2, 6), (3, 4), (2, 2), None),
        ((1, 4), (3, 4), (5, 2), None),
        ((2, 4), (3, 4), (2,), None),
        ((2, 4), (3, 4), (2, 2), (2, 1)),
        ((2, 4), (3, 4), (2, 2), (3,)),
    ],
)
def test_sizes_that_do_not_fit(x, table, index, bias):
    bias = None if bias is None else torch.zeros(bias)
    with pytest.raises(ValueError, match=r"takes x \(B, D\), .* got \(" + ", ".join(map(str, x))):
        table_products(torch.zeros(x), torch.zeros(table), torch.zeros(index, dtype=torch.long), bias)


def test_an_index_of_fractions():
    x, table, index, _ = case(2, 3, 4)
    with pytest.raises(RuntimeError, match="Long|Int"):
        table_products(x, table, index + 0.7)


def test_threads_change_nothing():
    x, table, _, shift = case(400, 1, 4)
    index = torch.randint(ROWS, (400, 30))
    assert_paths_agree(lambda *leaves: table_products(*leaves[:2], index, leaves[2]), [x, table, shift], 1e-12)


def test_functions_that_are_transformed():
    x, table, index, _ = case(2, 3, 4)

    def f(x):
        return table_products(x, table.detach(), index).square().sum()

    (expected,) = torch.autograd.grad(f(x), x)
    torch.testing.assert_close(torch.func.grad(f)(x.detach()), expected, **tolerance(F64, "identity"))
