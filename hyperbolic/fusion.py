"""Formulas of many small operations, fused where each operation is a launch: in eager code on a GPU.

There :class:`Fusion` gives a formula to ``torch.compile``, which makes a few kernels of it for each direction. One
compilation serves tensors of one structure (dtypes, numbers of axes, which are missing or need a gradient, and the
numbers among the arguments); when a size changes, a second one serves every size. Where PyTorch cannot compile, as
without Triton or on a GPU that is too old for it, the formula runs operation by operation.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor

from hyperbolic import switch
from hyperbolic.typing import Context

DEVICES = ("cuda",)  # kinds of devices on which eager code gets formulas compiled
BACKEND = "inductor"  # of torch.compile
# Inductor's limits of concatenations that get a kernel of their own, the second not in PyTorch 2.11: with 0 the kernels
# that make the parts write them into the result; for a lift, the kernel of the sums of its rows.
OPTIONS = {"max_pointwise_cat_inputs": 0, "max_complex_pointwise_cat_inputs": 0}
# Of float64 points: no product is contracted with a sum, or the rounding errors that `numerics.ball_gap` adds up would
# be those of other products. On a GPU this was not measured.
EXACT = {"emulate_precision_casts": True}
VERSIONS = 64  # structures of its arguments that a formula is compiled for: numbers may come in any number
_messages: list[str] = []  # the one that :func:`warn_of_gpu` has shown
Formula = Callable[..., Any]  # of tensors, None and numbers; to a tensor or a tuple of them
Called = TypeVar("Called", bound=Formula)


def compiles(*tensors: Tensor) -> bool:
    """Whether eager code gets formulas of these tensors compiled."""
    return tensors[0].device.type in DEVICES and switch.fast() and not switch.is_followed(*tensors)


class Fusion:
    """A formula of tensors, None and numbers as compiled kernels, with gradients of both orders.

    Args: name: that a warning and a profile show. plain: the formula, of out-of-place PyTorch operations. settings: of
    Inductor, besides OPTIONS.
    """

    compiled: ClassVar[dict[Fusion, dict[Hashable, Formula]]] = {}  # by structure of the arguments
    broken: ClassVar[set[Fusion]] = set()  # what cannot be compiled

    def __init__(self, name: str, plain: Formula, settings: Mapping[str, Any] | None = None):
        self.name, self.plain, self.settings = name, plain, settings or {}

    def __call__(self, *arguments: Any) -> Any:
        if self in self.broken:
            return self.plain(*arguments)
        if torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in arguments):
            return _Fused.apply(self, *arguments)  # type: ignore[no-untyped-call]  # torch's has no types
        return self.value([_bare(a) for a in arguments])

    def value(self, arguments: Sequence[Any]) -> Any:
        """The formula of bare tensors, compiled; it leaves a graph for gradients of first order where they need one."""
        structure = tuple(
            (a.dtype, a.dim(), a.device, a.requires_grad) if isinstance(a, Tensor) else (type(a), a) for a in arguments
        )
        versions = self.compiled.setdefault(self, {})
        compiled = versions.get(structure)
        if compiled is None:
            if len(versions) == VERSIONS:
                return self.plain(*arguments)
            compiled = versions[structure] = _compile(self, arguments)
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        try:
            return compiled(*tensors)
        except torch._dynamo.exc.FailOnRecompileLimitHit:  # more versions than PyTorch keeps: those there are, or plain
            compiled = versions[structure] = torch._dynamo.run(compiled)
            return compiled(*tensors)
        except torch._dynamo.exc.TorchDynamoException as error:
            result = self.plain(*arguments)  # raises where the arguments are wrong
            self.give_up(error)
            return result

    def give_up(self, error: Exception) -> None:
        """From now on the plain formula."""
        self.broken.add(self)
        reason = " ".join(str(error).partition("\n\n")[0].split())[:300]
        warn_of_gpu(
            f"operators on a GPU are not compiled, PyTorch operations take their place: {self.name} failed with "
            f"{type(error).__name__}: {reason}; install the Triton that belongs to this PyTorch (pip install "
            "triton), on a GPU of compute capability 7.0 or more. HYPERBOLIC_KERNELS=plain does without "
            "compilation and without this warning"
        )


def warn_of_gpu(message: str) -> None:
    """Warns of something that PyTorch operations take the place of on a GPU: the first time, which stands for all."""
    if not _messages:
        _messages.append(message)
        warnings.warn(message, RuntimeWarning, stacklevel=3)


def fuse(formula: Called) -> Called:
    """Decorator of a formula of a tensor and others, None and numbers: eager code on a GPU gets it compiled.

    It is for what layers compute around operators, as a check of indices or a logarithm.
    """
    fusion, signature = Fusion(formula.__name__, formula), inspect.signature(formula)

    @functools.wraps(formula)
    def call(*arguments: Any, **named: Any) -> Any:
        if named:
            arguments = signature.bind(*arguments, **named).args
        if compiles(*(a for a in arguments if isinstance(a, Tensor))):
            return fusion(*arguments)
        return formula(*arguments)

    return cast(Called, call)


def _compile(fusion: Fusion, arguments: Sequence[Any]) -> Formula:
    """The formula as a compiled function of the tensors among the arguments, the others fixed."""
    plain, fixed = fusion.plain, [None if isinstance(a, Tensor) else (a,) for a in arguments]

    def formula(*tensors: Tensor) -> Any:
        rest = iter(tensors)
        return plain(*(next(rest) if other is None else other[0] for other in fixed))

    # PyTorch counts versions by code: each structure of the arguments has one of its own
    formula.__code__ = formula.__code__.replace(co_name=fusion.name)
    settings = None
    if BACKEND == "inductor":  # another backend knows none of them
        is_wide = any(isinstance(a, Tensor) and a.dtype is torch.float64 and a.dim() > 0 for a in arguments)
        settings = options(fusion, EXACT if is_wide else {})
    return torch.compile(formula, fullgraph=True, backend=BACKEND, options=settings)


def options(fusion: Fusion, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """OPTIONS, the formula's own settings and others, those that this PyTorch has."""
    from torch._inductor import config  # a second that only those pay who compile

    settings = {**OPTIONS, **fusion.settings, **(more or {})}
    return {name: value for name, value in settings.items() if hasattr(config, name)}


class _Fused(torch.autograd.Function):
    """The value of a compiled formula, and the gradient from the graph that it leaves: a compiled one of first order,
    which serves once, else that of the plain formula."""

    @staticmethod
    def forward(ctx: Context, fusion: Fusion, *arguments: Any) -> Any:
        ctx.set_materialize_grads(False)
        needs = ctx.needs_input_grad[1:]
        inputs = [
            _bare(a).detach().requires_grad_(n) if isinstance(a, Tensor) else a
            for a, n in zip(arguments, needs, strict=True)
        ]
        with torch.enable_grad():
            out = fusion.value(inputs)
        outs = [out] if isinstance(out, Tensor) else list(out)
        tensors, ctx.others = part(arguments)
        ctx.save_for_backward(*tensors)
        ctx.fusion, ctx.inputs = fusion, [a for a, n in zip(inputs, needs, strict=True) if n]
        # not the results themselves, whose memory may be wanted back before
        ctx.edges = [torch.autograd.graph.get_gradient_edge(o) if o.requires_grad else None for o in outs]
        return out.detach() if isinstance(out, Tensor) else tuple(o.detach() for o in outs)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        needs, tensors = ctx.needs_input_grad[1:], ctx.saved_tensors
        keeps = torch.is_grad_enabled() or torch._C._autograd._get_current_graph_task_keep_graph()
        if not keeps and not switch.is_batched(grads):
            pairs = [(e, g) for e, g in zip(ctx.edges, grads, strict=True) if e is not None and g is not None]
            edges, weights = [e for e, _ in pairs], [g for _, g in pairs]
            inputs, ctx.inputs, ctx.edges = ctx.inputs, None, None  # memory that the loss would keep
            try:
                values = iter(_first_order(edges, inputs, weights, whole=len(grads) == 1))
                return None, *(next(values) if n else None for n in needs)
            except torch._dynamo.exc.TorchDynamoException as error:  # what could not be compiled before
                ctx.fusion.give_up(error)
        return None, *gradients(ctx.fusion.plain, merge(tensors, ctx.others), grads, needs)


def _first_order(
    edges: list[torch.autograd.graph.GradientEdge], inputs: list[Tensor], weights: list[Tensor], whole: bool
) -> Sequence[Tensor | None]:
    """``torch.autograd.grad``, or where the compiled graph is one node of one result, a call of that node: a backward
    pass inside of another costs a sixth of a small formula's time.

    Args: whole: the graph has no other results.
    """
    node: Any = edges[0].node if whole and edges else None
    if type(node).__name__ != "CompiledFunctionBackward":
        return torch.autograd.grad(edges, inputs, weights, allow_unused=True)
    leaves = [id(function.variable) for function, _ in node.next_functions if function is not None]
    values = [value for value, need in zip(node.apply(*weights), node.needs_input_grad, strict=True) if need]
    by_leaf = dict(zip(leaves, values, strict=True))
    return [by_leaf.get(id(leaf)) for leaf in inputs]


def _bare(a: Any) -> Any:
    """A tensor without the class of its parameters, such as geoopt's, whose methods compilation would follow."""
    return a.as_subclass(Tensor) if isinstance(a, Tensor) and type(a) is not Tensor else a


def part(arguments: Sequence[Any]) -> tuple[list[Tensor | None], list[Any]]:
    """The tensors among the arguments, which autograd has to save, and the others; both as long as the arguments."""
    tensors = [a if isinstance(a, Tensor) else None for a in arguments]
    return tensors, [None if isinstance(a, Tensor) else a for a in arguments]


def merge(tensors: Sequence[Tensor | None], others: Sequence[Any]) -> list[Any]:
    """The arguments of which :func:`part` made these."""
    return [other if tensor is None else tensor for tensor, other in zip(tensors, others, strict=True)]


def gradients(plain: Formula, arguments: Sequence[Any], grads: Sequence[Tensor | None], needs: Sequence[bool]) -> Any:
    """Of the plain formula by each argument that needs one; they can be differentiated again where grad mode is on."""
    if switch.is_transformed():
        return _pulled_back(plain, arguments, grads, needs)
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = [
            a.view_as(a).requires_grad_() if n and isinstance(a, Tensor) else a
            for a, n in zip(arguments, needs, strict=True)
        ]
        out = plain(*inputs)
        outs = [out] if isinstance(out, Tensor) else list(out)
        pairs = [(o, g) for o, g in zip(outs, grads, strict=True) if o.requires_grad and g is not None]
        leaves = [a for a, n in zip(inputs, needs, strict=True) if n]
        values = iter(
            torch.autograd.grad(
                [o for o, _ in pairs], leaves, [g for _, g in pairs], create_graph=again, allow_unused=True
            )
        )
    return tuple(next(values) if n else None for n in needs)


def _pulled_back(
    plain: Formula, arguments: Sequence[Any], grads: Sequence[Tensor | None], needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The same inside of ``torch.func``, which does not let a tensor require a gradient."""
    places = [k for k, need in enumerate(needs) if need and isinstance(arguments[k], Tensor)]

    def formula(*tensors: Tensor) -> Any:
        given = dict(zip(places, tensors, strict=True))
        return plain(*(given.get(k, a) for k, a in enumerate(arguments)))

    results: Any = torch.func.vjp(formula, *(arguments[k] for k in places))
    out, pull_back = results
    whole = [out] if isinstance(out, Tensor) else list(out)
    filled = [torch.zeros_like(o) if g is None else g for o, g in zip(whole, grads, strict=True)]
    by_place = dict(zip(places, pull_back(filled[0] if isinstance(out, Tensor) else tuple(filled)), strict=True))
    return tuple(by_place.get(k) for k in range(len(needs)))
