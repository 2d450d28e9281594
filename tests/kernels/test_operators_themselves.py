"""Operators called by their own names, as compiled and traced code does, and tensors that are no plain memory."""

import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

from hyperbolic.kernels.lorentz_rows import lift
from hyperbolic.kernels.neighbour_sum import neighbour_sum
from hyperbolic.operator import OPERATORS
from tests.kernels.test_operators import (
    EVERY,
    bare,
    direct,
    flat,
    function,
    outputs,
    replace,
    results,
    samples,
    weighted,
)


@EVERY
def test_one_argument_alone_has_its_gradient_and_all_others_without_it(name, native_kernels):
    arguments = samples(name)[0]
    call, inputs = function(name, arguments)
    whole = results(call, inputs)[-len(inputs) :]
    values = [*map(bare, flat(arguments))]
    free = [i for i, a in enumerate(flat(arguments)) if isinstance(a, Tensor) and a.requires_grad]
    for lone in free:
        for needy in ([lone], [i for i in free if i != lone]):
            given = [a.requires_grad_() if i in needy else a for i, a in enumerate(map(_copy, values))]
            total = weighted(direct(name, arguments)(*given))
            grads = torch.autograd.grad(
                total, [given[i] for i in needy], allow_unused=True, materialize_grads=True
            ) if needy else ()  # fmt: skip
            for i, grad in zip(needy, grads, strict=True):
                torch.testing.assert_close(grad, whole[free.index(i)])


def _copy(a: object) -> object:
    return a.clone() if isinstance(a, Tensor) else a


@EVERY
def test_vmap_and_gradients_that_come_together(name, native_kernels):
    arguments = samples(name)[0]
    op, values = direct(name, arguments), [*map(bare, flat(arguments))]
    i = next(i for i, a in enumerate(flat(arguments)) if isinstance(a, Tensor) and a.requires_grad and a.dim())
    several = torch.stack([values[i], 0.9 * values[i]])
    at = lambda t: tuple(outputs(op(*values[:i], t, *values[i + 1 :])))  # noqa: E731
    for actual, *expected in zip(torch.vmap(at)(several), *map(at, several), strict=True):
        torch.testing.assert_close(actual, torch.stack(expected))
    t = values[i].clone().requires_grad_()
    y = next(y for y in at(t) if y.requires_grad)
    weights = torch.stack([torch.ones_like(y), torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)])
    together = torch.autograd.grad(y, t, weights, is_grads_batched=True, retain_graph=True)[0]
    alone = [torch.autograd.grad(y, t, w, retain_graph=True)[0] for w in weights]
    torch.testing.assert_close(together, torch.stack(alone))


@EVERY
def test_operators_leave_autocast(name, native_kernels):
    """Both passes, and a backward pass that can be differentiated, of float32, which autocast would make bfloat16."""
    arguments = [_single(a) for a in samples(name)[0]]
    try:
        OPERATORS[name].plain(*flat(arguments))
    except RuntimeError:  # takes one dtype alone
        arguments = list(samples(name)[0])
    _, inputs = function(name, tuple(arguments))
    op = direct(name, tuple(arguments))
    call = lambda *t: op(*replace(flat(arguments), t))  # noqa: E731

    def everything(autocast: bool) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = outputs(call(*inputs))
            total = weighted(y)
            options = {"allow_unused": True, "materialize_grads": True, "retain_graph": True}
            grads = torch.autograd.grad(total, inputs, **options)
            again = torch.autograd.grad(total, inputs, create_graph=True, **options)
        return [*y, *grads, *again]

    for actual, expected in zip(everything(True), everything(False), strict=True):
        assert actual.dtype is expected.dtype
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def _single(a: object) -> object:
    if isinstance(a, list):
        return [_single(b) for b in a]
    is_wide = isinstance(a, Tensor) and a.dim() and a.dtype is torch.float64
    return a.detach().float().requires_grad_(a.requires_grad) if is_wide else a


@EVERY
def test_gradients_that_are_none_of_the_results_are_refused(name, native_kernels):
    arguments = samples(name)[0]
    values = [[b.detach() for b in a] if isinstance(a, list) else bare(a) for a in arguments]
    needs = [isinstance(a, Tensor) and a.requires_grad for a in flat(arguments)]
    grads = [torch.ones_like(y) for y in outputs(getattr(torch.ops.hyperbolic, name)(*values))]
    wrong = [torch.ones(2, *grads[0].shape, dtype=grads[0].dtype)]
    if OPERATORS[name].fits(*flat(tuple(values))):  # PyTorch's own operations cast gradients
        wrong.append(grads[0].to(torch.float16))
    op = getattr(torch.ops.hyperbolic, f"{name}_grad")
    for grad in wrong:
        with pytest.raises(RuntimeError):
            op(*values, [grad, *grads[1:]], needs)
    if OPERATORS[name].fits(*flat(tuple(values))):
        with pytest.raises(RuntimeError, match=f"hyperbolic::{name}_grad expects {len(grads)} gradients"):
            op(*values, grads[1:], needs)


def test_tensors_that_are_made_of_others_get_the_plain_formula(native_kernels):
    x, c = torch.randn(3, 4), torch.tensor(1.0, dtype=torch.float64)
    y = lift(TwoTensor(x, 2 * x), c)
    torch.testing.assert_close(y.a, lift(x, c))
    torch.testing.assert_close(y.b, lift(2 * x, c))
    x.requires_grad_()
    y, weights = lift(x, c), torch.randn(3, 5)
    (grad,) = torch.autograd.grad(y, x, TwoTensor(weights, weights), retain_graph=True)
    torch.testing.assert_close(grad.a, *torch.autograd.grad(y, x, weights))
    values = [*map(bare, flat(samples("table_rows")[0]))]
    i = next(i for i, a in enumerate(values) if isinstance(a, Tensor) and a.dtype is torch.int64)
    expected = OPERATORS["table_rows"].run(*values)
    values[i] = TwoTensor(values[i], values[i])
    torch.testing.assert_close(OPERATORS["table_rows"].run(*values).a, expected)


def test_lazy_negation_is_seen(native_kernels):
    x, c = torch.randn(3, 4, requires_grad=True), torch.tensor(1.0, dtype=torch.float64)
    torch.testing.assert_close(lift(torch._neg_view(-x.detach()), c), lift(x.detach(), c))
    y, weights = lift(x, c), torch.randn(3, 5)
    actual = torch.autograd.grad(y, x, torch._neg_view(-weights), retain_graph=True)
    torch.testing.assert_close(actual, torch.autograd.grad(y, x, weights))


def test_neighbours_that_are_none_are_refused_by_the_public_function(native_kernels):
    values = [bare(a) for a in samples("neighbour_sum")[0]]
    grad = torch.ones_like(neighbour_sum(*values))
    for wrong in (-1, 10**12):
        source = values[3].clone()
        source[0] = wrong
        with pytest.raises(IndexError, match=f"neighbour_sum: index {wrong} of"):
            neighbour_sum(*values[:3], source, *values[4:])
        with pytest.raises(IndexError, match=f"neighbour_sum: index {wrong} of"):
            torch.ops.hyperbolic.neighbour_sum_grad(*values[:3], source, *values[4:], [grad], [True] + [False] * 8)
