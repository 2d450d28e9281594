"""Products with a matrix of each relation against the plain version, on both paths."""

import pytest
import torch

from hyperbolic.kernels import relation_linear as kernel
from hyperbolic.kernels.relation_linear import relation_linear
from tests.tolerances import tolerance

F64 = torch.float64
R, OUT, IN = 5, 4, 3
BATCHES = pytest.mark.parametrize(
    "r", [[], [2], [4, 1, 4, 0, 1, 4], [3, 3, 3], [0, 1, 2, 3, 4]], ids=lambda r: f"r={r}"
)


@pytest.fixture(params=["gathered", "relation by relation"])
def path(request, monkeypatch):
    """Both paths; every batch is small enough for the first one."""
    if request.param != "gathered":
        monkeypatch.setattr(kernel, "GATHERED", 0)
    return request.param


def by_loop(x, weight, r):
    return torch.einsum("boi,bi->bo", weight[r], x)


def drawn(r, dtype=F64):
    x = torch.randn(len(r), IN, dtype=dtype, requires_grad=True)
    weight = torch.randn(R, OUT, IN, dtype=dtype, requires_grad=True)
    return x, weight, torch.tensor(r, dtype=torch.long)


@BATCHES
@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
@pytest.mark.parametrize("sparse", [False, True])
def test_values_and_gradients_are_the_references(path, r, dtype, sparse):
    x, weight, r = drawn(r, dtype)
    y, expected = relation_linear(x, weight, r, sparse), by_loop(x, weight, r)
    same = tolerance(dtype, "identity")
    assert y.shape == (len(r), OUT)
    assert y.dtype is dtype
    torch.testing.assert_close(y, expected, **same)
    cotangent = torch.randn_like(y)
    of_x, of_weight = torch.autograd.grad((y * cotangent).sum(), [x, weight])
    for actual, other in zip(
        (of_x, of_weight.to_dense()), torch.autograd.grad((expected * cotangent).sum(), [x, weight]), strict=True
    ):
        torch.testing.assert_close(actual, other, **same)
    assert of_weight.is_sparse == sparse
    if sparse:
        assert of_weight.is_coalesced()
        assert of_weight.indices()[0].tolist() == r.unique().tolist()


def test_relations_are_the_references_written_out(path):
    x, weight, r = drawn([4, 0, 4])
    y = relation_linear(x, weight, r)
    for row, relation in enumerate(r.tolist()):
        torch.testing.assert_close(y[row], weight[relation] @ x[row], **tolerance(F64, "identity"))


@pytest.mark.parametrize("r", [[2], [4, 1, 4, 0]], ids=str)
def test_gradcheck(path, r):
    x, weight, r = drawn(r)
    assert torch.autograd.gradcheck(lambda x, weight: relation_linear(x, weight, r), (x, weight))


def test_one_gradient_without_the_other(path):
    x, weight, r = drawn([1, 3, 1])
    expected = torch.autograd.grad(by_loop(x, weight, r).sum(), [x, weight])
    for place, arguments in enumerate([(x, weight.detach()), (x.detach(), weight)]):
        (actual,) = torch.autograd.grad(relation_linear(*arguments, r).sum(), arguments[place])
        torch.testing.assert_close(actual, expected[place], **tolerance(F64, "identity"))


def test_inputs_and_weights_of_any_strides(path):
    r = torch.tensor([1, 3, 1])
    strided = torch.randn(IN, 3, dtype=F64, requires_grad=True)
    turned = torch.randn(R, IN, OUT, dtype=F64, requires_grad=True)
    y, expected = (f(strided.T, turned.mT, r) for f in (relation_linear, by_loop))
    torch.testing.assert_close(y, expected, **tolerance(F64, "identity"))
    for actual, other in zip(
        *(torch.autograd.grad(v.square().sum(), [strided, turned]) for v in (y, expected)), strict=True
    ):
        torch.testing.assert_close(actual, other, **tolerance(F64, "identity"))


def test_sparse_gradients_of_two_calls_add_up(path):
    x, weight, _ = drawn([0, 0])
    first, second = torch.tensor([1, 3]), torch.tensor([3, 3])
    total = relation_linear(x, weight, first, True).sum() + relation_linear(x, weight, second, True).sum()
    (actual,) = torch.autograd.grad(total, weight)
    plain = by_loop(x, weight, first).sum() + by_loop(x, weight, second).sum()
    (expected,) = torch.autograd.grad(plain, weight)
    assert actual.is_sparse
    torch.testing.assert_close(actual.to_dense(), expected, **tolerance(F64, "identity"))


def test_the_size_decides_the_path(monkeypatch):
    """Gathered matrices have B d_out d_in entries; more than the limit of them are never made."""
    x, weight, r = drawn([1, 3])
    calls = []
    bmm = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda *args: calls.append(1) or bmm(*args))
    for limit, gathered in ((2 * OUT * IN, True), (2 * OUT * IN - 1, False)):
        calls.clear()
        monkeypatch.setattr(kernel, "GATHERED", limit)
        relation_linear(x, weight, r)
        assert bool(calls) == gathered


@pytest.mark.parametrize("sparse", [False, True])
def test_second_derivatives(path, sparse):
    """Of products times a function of the rows, so that a branch that is lost would be no error."""
    x, weight, r = drawn([1, 3])
    seconds = []
    for function in (lambda *arguments: relation_linear(*arguments, sparse), by_loop):
        loss = (function(x, weight, r).pow(3) * x.sum(-1, keepdim=True)).sum()
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        seconds.append(torch.autograd.grad(gradient.sum(), [x, weight]))
    assert seconds[0][1].is_sparse == sparse
    for actual, expected in zip(*seconds, strict=True):
        torch.testing.assert_close(actual.to_dense(), expected)


def test_as_an_operator(path):
    """Traced code keeps the path of the sizes, and so makes no matrix for every row where there are many."""
    x, weight, r = drawn([1, 3, 1])
    torch.library.opcheck(torch.ops.hyperbolic.relation_linear.default, (x, weight, r))
    torch._dynamo.reset()
    compiled = torch.compile(relation_linear, fullgraph=True, backend="aot_eager")
    for function in (compiled, relation_linear):
        x.grad = weight.grad = None
        function(x, weight, r).square().sum().backward()
        gradients = torch.autograd.grad(by_loop(x, weight, r).square().sum(), [x, weight])
        for leaf, expected in zip((x, weight), gradients, strict=True):
            torch.testing.assert_close(leaf.grad, expected, **tolerance(F64, "identity"))


@pytest.mark.parametrize("sparse", [False, True])
def test_under_autocast(path, sparse):
    x, weight, r = drawn([1, 3, 1], torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y = relation_linear(x.bfloat16(), weight, r, sparse)
    torch.testing.assert_close(y.float(), by_loop(x, weight, r), rtol=0.05, atol=0.05)
    y.float().sum().backward()
    assert weight.grad.dtype is x.grad.dtype is torch.float32


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("wrong", [-1, R])
def test_matrices_that_are_not_there(path, wrong, sparse):
    x, weight, _ = drawn([0, 0])
    with pytest.raises(IndexError, match="out of"):
        relation_linear(x, weight, torch.tensor([0, wrong]), sparse)


@pytest.mark.parametrize(
    ("x", "weight", "r"), [((3, 6), (4, 5, 6), (1,)), ((2, 3), (4, 5, 6), (2,)), ((2, 6), (5, 6), (2,)), ((6,), (4, 5, 6), ())]
)
def test_sizes_that_do_not_fit(path, x, weight, r):
    with pytest.raises(ValueError, match=r"takes x \(B, d_in\), .* got \(" + ", ".join(map(str, x))):
        relation_linear(torch.zeros(x), torch.zeros(weight), torch.zeros(r, dtype=torch.long))
