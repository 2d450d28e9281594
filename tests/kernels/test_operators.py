"""Every operator, by PyTorch's own checks: schema, fake results, gradients of both orders, compiled and exported code.

The arguments are those of the modules ``samples_*`` beside this one.
"""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import hyperbolic.encoders.relational
import hyperbolic.kernels
from hyperbolic import switch
from hyperbolic.operator import OPERATORS, Operator

for package in (hyperbolic.kernels, hyperbolic.encoders.relational):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith(".triton"):
            importlib.import_module(module.name)

SAMPLES = {}
for file in sorted(Path(__file__).parent.glob("samples_*.py")):
    SAMPLES |= importlib.import_module(f"tests.kernels.{file.stem}").SAMPLES
EVERY = pytest.mark.parametrize("name", sorted(OPERATORS))


def samples(name: str) -> list[tuple]:
    """Arguments as the registered operator takes them: the tensors of a list together."""
    torch.manual_seed(0)
    cls = OPERATORS[name]
    schema = getattr(torch.ops.hyperbolic, name).default._schema
    n = len(schema.arguments)
    if str(schema.arguments[-1].type) != "List[Tensor]":
        return list(SAMPLES[name]())
    return [(*a[: n - 1], list(a[n - 1 :])) for a in SAMPLES[name]()] if issubclass(cls, Operator) else []


def flat(arguments: tuple) -> list:
    return [b for a in arguments for b in (a if isinstance(a, list) else [a])]


def function(name: str, arguments: tuple):
    """The operator of those arguments that need a gradient, and these."""
    values = flat(arguments)
    free = [i for i, a in enumerate(values) if isinstance(a, Tensor) and a.requires_grad]

    def call(*tensors: Tensor):
        given = list(values)
        for i, t in zip(free, tensors, strict=True):
            given[i] = t
        return OPERATORS[name].run(*given)

    return call, tuple(values[i].detach().requires_grad_() for i in free)


def outputs(result) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def bare(a: object) -> object:
    return a.detach() if isinstance(a, Tensor) else a


def replace(values: list, tensors: tuple) -> list:
    rest = iter(tensors)
    return [next(rest) if isinstance(a, Tensor) and a.requires_grad else a for a in values]


def direct(name: str, arguments: tuple):
    """The registered operator, of the arguments one by one."""
    op = getattr(torch.ops.hyperbolic, name)
    if not isinstance(arguments[-1], list):
        return op
    n = len(arguments) - 1
    return lambda *values: op(*values[:n], list(values[n:]))


def weighted(result) -> Tensor:
    y = outputs(result)
    weights = [torch.linspace(-1, 1, t.numel(), dtype=t.dtype, device=t.device).view(t.shape) for t in y]
    return sum((t * w).sum() for t, w in zip(y, weights, strict=True))


def results(call, inputs) -> list[Tensor]:
    y = outputs(call(*inputs))
    return [*y, *torch.autograd.grad(weighted(y), inputs, allow_unused=True, materialize_grads=True)]


def test_every_operator_has_samples_and_none_is_left_over():
    assert set(SAMPLES) == set(OPERATORS)


@EVERY
def test_opcheck(name, native_kernels):
    op = getattr(torch.ops.hyperbolic, name).default
    for arguments in samples(name):
        torch.library.opcheck(op, arguments, test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))


@pytest.mark.slow
@EVERY
def test_opcheck_of_compiled_gradients(name, native_kernels):
    op = getattr(torch.ops.hyperbolic, name).default
    for arguments in samples(name):
        torch.library.opcheck(op, arguments)


@EVERY
def test_opcheck_of_gradients(name, native_kernels):
    op = getattr(torch.ops.hyperbolic, f"{name}_grad").default
    for arguments in samples(name):
        values = [[b.detach() for b in a] if isinstance(a, list) else bare(a) for a in arguments]
        grads = [torch.ones_like(y) for y in outputs(getattr(torch.ops.hyperbolic, name)(*values))]
        needs = [isinstance(a, Tensor) and a.requires_grad for a in flat(arguments)]
        torch.library.opcheck(op, (*values, grads, needs), test_utils=("test_schema", "test_faketensor"))


@EVERY
def test_gradients_where_a_mode_sees_every_operation(name, native_kernels):
    """Autograd does not follow what happens within an operator that a dispatch mode calls."""
    for arguments in samples(name):
        call, inputs = function(name, arguments)
        with FlopCounterMode(display=False):
            actual = results(call, inputs)
        torch.testing.assert_close(actual, results(call, inputs))


@EVERY
@pytest.mark.usefixtures("each_path")
def test_gradients_of_both_orders(name):
    for arguments in samples(name):
        call, inputs = function(name, arguments)
        assert torch.autograd.gradcheck(call, inputs, fast_mode=True, atol=1e-5)
        assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True, atol=1e-4, rtol=1e-2)


@EVERY
def test_passes_are_the_plain_formula_in_both_dtypes(name, native_kernels):
    for arguments in samples(name):
        for dtype, close in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
            cast = [
                a.detach().to(dtype).requires_grad_() if isinstance(a, Tensor) and a.dim() and a.requires_grad else a
                for a in flat(arguments)
            ]
            if not OPERATORS[name].fits(*cast):
                continue
            runs = []
            for chosen in ("fast", "plain"):
                switch.use_kernels(chosen)
                call, inputs = function(name, tuple(cast))
                if chosen == "plain":
                    values = list(cast)
                    call = lambda *t, f=OPERATORS[name].plain, v=values: f(*replace(v, t))  # noqa: E731
                runs.append(results(call, inputs))
            switch.use_kernels("fast")
            for actual, expected in zip(*runs, strict=True):
                torch.testing.assert_close(actual, expected, rtol=close, atol=close)


@EVERY
def test_a_second_gradient_after_the_first_was_changed_in_place(name, native_kernels):
    for arguments in samples(name):
        call, inputs = function(name, arguments)
        total = sum(t.sum() for t in outputs(call(*inputs)))
        grads = []
        for _ in range(2):
            total.backward(retain_graph=True)
            grads.append([t.grad.clone() for t in inputs if t.grad is not None])
            for t in inputs:
                if t.grad is not None:
                    t.grad.data.zero_()
        for first, second in zip(*grads, strict=True):
            assert torch.equal(first, second)


@EVERY
def test_what_is_no_number_is_not_hidden(name, native_kernels):
    """NaN for an argument is in the results where the plain formula has it, and somewhere."""
    for arguments in samples(name):
        whole = [bare(a) for a in flat(arguments)]
        for i, a in enumerate(whole):
            if not (isinstance(a, Tensor) and a.is_floating_point() and a.numel()):
                continue
            other = torch.full_like(a, torch.nan)
            actual, expected = (
                [t.isnan() for t in outputs(call(*whole[:i], other, *whole[i + 1 :]))]
                for call in (OPERATORS[name].run, OPERATORS[name].plain)
            )
            assert any(t.any() for t in expected)
            assert all(map(torch.equal, actual, expected))


def variants(a: Tensor) -> list[Tensor]:
    """Tensors of other sizes, axes and dtypes."""
    others = [a.unsqueeze(0), a.unsqueeze(-1)]
    for axis, n in enumerate(a.shape):
        others += [a.narrow(axis, 0, max(n - 1, 0)), a.narrow(axis, 0, 0)]
        others += [torch.cat([a, a.narrow(axis, 0, 1)], axis), a.select(axis, 0)] if n else []
    dtypes = (torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.bool)
    if not a.dim():  # a number: the plain formula rounds it to half precision where the passes do not
        dtypes = (torch.float64, torch.float32)
    return others + [a.to(dtype) for dtype in dtypes if dtype is not a.dtype]


@EVERY
@pytest.mark.filterwarnings("ignore:The use of `x.T` on tensors:UserWarning")  # PyTorch, of what has other axes
def test_arguments_that_do_not_fit_are_those_of_the_plain_formula(name, native_kernels):
    """Of other sizes, axes and dtypes: the result is its own, or what is wrong is said, and not by the C++ layer."""
    for arguments in samples(name):
        for dtype in (torch.float64, torch.float32):
            whole = [bare(a) for a in flat(arguments)]
            whole = [a.to(dtype) if isinstance(a, Tensor) and a.dim() and a.is_floating_point() else a for a in whole]
            for i, a in enumerate(whole):
                for other in variants(a) if isinstance(a, Tensor) else ():
                    check_agreement(name, [*whole[:i], other, *whole[i + 1 :]])


def check_agreement(name: str, arguments: list) -> None:
    actual, message = attempt(OPERATORS[name].run, arguments)
    expected, said_by_plain = attempt(OPERATORS[name].plain, arguments)
    assert message == said_by_plain or not re.search(r"\.cpp|unpack|has no attribute", message)
    assert actual is None or expected is not None, said_by_plain
    assert expected is None or actual is not None, message
    if actual is not None and expected is not None:
        torch.testing.assert_close(actual, expected, rtol=2e-4, atol=2e-4, equal_nan=True)


def attempt(call, arguments: list) -> tuple[list[Tensor] | None, str]:
    """The results, or None and what is wrong."""
    try:
        return outputs(call(*arguments)), ""
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        return None, str(error)


@pytest.mark.parametrize("name", ["streamed_bce", "streamed_cross_entropy", "distance_softmax"])
def test_losses_are_compiled_once_for_all_batches_and_classes(name, native_kernels):
    torch._dynamo.reset()
    arguments, n = samples(name)[0], 0
    rows = [i for i in ((0, 2) if name == "distance_softmax" else (0, 4, 5)) if arguments[i] is not None]
    classes = [i for i in ((1,) if name == "distance_softmax" else (1, 2, 3)) if arguments[i] is not None]

    def call(*some: Tensor) -> Tensor:
        values, given = list(arguments), iter(some)
        for i in (*rows, *classes):
            values[i] = next(given)
        return OPERATORS[name].run(*values)

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        nonlocal n
        n += 1
        return graph

    compiled = torch.compile(call, fullgraph=True, backend=count)
    for times in (1, 2, 3, 4):
        some = [bare(arguments[i]).repeat(times, *[1] * (arguments[i].dim() - 1)) for i in (*rows, *classes)]
        torch.testing.assert_close(compiled(*some), call(*some))
    assert n <= 2


def test_weights_of_rows_have_no_gradient(native_kernels):
    """Of the operator itself, as of the public function."""
    *arguments, weights, groups = next(a for a in samples("streamed_bce") if a[5] is not None)
    weights = weights.detach().requires_grad_()
    for kernels in ("fast", "plain"):
        switch.use_kernels(kernels)
        torch.ops.hyperbolic.streamed_bce(*arguments, weights, groups).backward()
        assert weights.grad is None or not weights.grad.any()


@EVERY
def test_tensors_without_memory_do_not_mix_with_others(name, native_kernels):
    """The memory of the result would hold anything."""
    whole = [bare(a) for a in flat(samples(name)[0])]
    places = [i for i, a in enumerate(whole) if isinstance(a, Tensor) and a.dim()]
    for i in places if len(places) > 1 else ():
        with pytest.raises(RuntimeError, match=f"hyperbolic::{name} expects all tensors on the same device"):
            OPERATORS[name].run(*whole[:i], whole[i].to("meta"), *whole[i + 1 :])


@EVERY
def test_forward_mode_of_the_operator_itself(name, native_kernels):
    """Without `run`, which has other ways for transforms; PyTorch's own kernel would give tangents of 0."""
    arguments = samples(name)[0]
    call, inputs = function(name, arguments)
    op = direct(name, arguments)
    inputs = tuple(t.detach() for t in inputs)
    tangents = tuple(torch.linspace(0.1, 0.2, t.numel(), dtype=t.dtype).view(t.shape) for t in inputs)
    itself = lambda *t: tuple(outputs(op(*replace(flat(arguments), t))))  # noqa: E731
    _, actual = torch.func.jvp(itself, inputs, tangents)
    _, expected = torch.func.jvp(lambda *t: tuple(outputs(call(*t))), inputs, tangents)
    assert any(t.abs().max() > 0 for t in expected)
    torch.testing.assert_close(actual, expected)


def test_neighbours_that_are_none_are_refused(native_kernels):
    values = [bare(a) for a in samples("neighbour_sum")[0]]
    for i in range(2, 8):
        for wrong in (-1, 1000):
            index = values[i].clone()
            index[0] = wrong
            with pytest.raises(IndexError, match=f"neighbour_sum: index {wrong} of"):
                torch.ops.hyperbolic.neighbour_sum(*values[:i], index, *values[i + 1 :])


@EVERY
def test_compiled_as_one_graph(name, native_kernels):
    torch._dynamo.reset()
    arguments = samples(name)[-1]
    call, inputs = function(name, arguments)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for actual, expected in zip(results(compiled, inputs), results(call, inputs), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@EVERY
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # float64 points: as many sums as coordinates
def test_traced_and_without_memory(name, native_kernels):
    """A trace gives the numbers of other inputs; meta tensors give shapes and no address reaches C++."""
    call, inputs = function(name, samples(name)[0])
    inputs = tuple(t.detach() for t in inputs)
    traced = torch.jit.trace(call, inputs, check_trace=False)
    other = tuple(t * 0.9 if t.dim() else t for t in inputs)
    for actual, expected in zip(outputs(traced(*other)), outputs(call(*other)), strict=True):
        torch.testing.assert_close(actual, expected)
    values = [a.detach().to("meta") if isinstance(a, Tensor) else a for a in flat(samples(name)[0])]
    shapes = [t.shape for t in outputs(OPERATORS[name].run(*values))]
    assert shapes == [t.shape for t in outputs(call(*inputs))]
