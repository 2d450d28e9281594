"""The mechanism by which a hot operation is an operator of PyTorch, ``torch.ops.hyperbolic.<name>``.

An operation is a class with two implementations: ``plain``, made of PyTorch operations, the one home of its formula,
which serves every device, dtype and transform; and the passes ``forward`` and ``backward`` of an autograd function,
which serve the tensors that ``fits`` accepts. :attr:`Operator.run` decides between them; a layer may choose between
operators where the sizes make another way through the formula quicker, as HyboNet's scorer does:

=======================================  ===============================================================================
the call comes from                      what runs
=======================================  ===============================================================================
``torch.func``, forward-mode gradients   ``plain``
``torch.compile``, export, ``jit.trace``,  on a CPU the operator, which they see by its schema and the shapes of its
``make_fx``, fake and meta tensors       results; elsewhere ``plain``, which they go on to compile, but for operators
                                         that have passes there; ``plain`` of those that are not ``opaque``
eager code                               with ``HYPERBOLIC_KERNELS=plain`` ``plain``; else
                                         the passes, called without the dispatcher, where they fit, else ``plain``; on a
                                         GPU passes for it (``cuda``), else ``plain`` as compiled kernels, see
                                         :mod:`hyperbolic.fusion`
a second derivative, or several          ``plain``, differentiated twice or by several gradients
gradients at once (``is_grads_batched``)
=======================================  ===============================================================================

The compiled operator knows no intermediate results: its gradient runs the forward pass again. Under autocast operators
keep the dtype of their arguments: points in half precision have no correct digit near the boundary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch._library.autograd import Info, make_autograd_impl

from hyperbolic import fusion, switch
from hyperbolic.autocast import autocast_device, without_autocast

Arguments = tuple[Any, ...]
NAMESPACE = "hyperbolic"
OPERATORS: dict[str, type[Operator]] = {}
_library = torch.library.Library(NAMESPACE, "FRAGMENT")
_KEYS = torch._C.DispatchKey
_AUTOGRAD = (_KEYS.AutogradFunctionality, _KEYS.AutogradOther, _KEYS.ADInplaceOrView)


class _Pass:
    """What a forward pass leaves to the backward pass of a compiled operator."""

    def __init__(self, needs: Sequence[bool]):
        self.needs_input_grad, self.saved_tensors = tuple(needs), ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        self.saved_tensors = tensors  # type: ignore[assignment]


class _Own:
    """The context of an autograd function, with those of its tensors that a forward pass has saved."""

    def __init__(self, ctx: Any, saved_tensors: tuple[Tensor | None, ...]):
        self.ctx, self.saved_tensors = ctx, saved_tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ctx, name)


class Operator(torch.autograd.Function):
    """Base class of the operations, which :func:`operator` decorates; see the module's documentation.

    Subclasses have the static methods ``plain`` and ``fits``, which take the arguments of the schema (without
    ``fits`` all do), beside ``forward`` and ``backward``, which write into none of their arguments. ``fake`` makes
    results of the right shapes, dtypes and device, where that is less work than ``plain``. ``check`` raises where
    whoever calls the operator itself has not checked what the passes rely on, as indices. A forward pass may leave
    its gradients in the list ``ctx.own_grads``, which the backward pass gives away and clears: of a second one it
    is run again. ``cuda`` has the passes for tensors on a GPU, where they are others; ``anywhere`` is true where
    the same serve any device. ``fuses`` is false where there are such passes, or the formula is a loop over steps
    or one operation: it is not compiled there. ``opaque`` is false where compiled code does better with the
    formula, which its compiler makes one pass of. ``settings`` of Inductor are the compiled formula's own.
    """

    name: ClassVar[str]
    run: ClassVar[Callable[..., Any]]  # the operation, by the implementation that serves its arguments
    plain: ClassVar[Callable[..., Any]]
    fits: ClassVar[Callable[..., bool]] = staticmethod(lambda *_: True)
    check: ClassVar[Callable[..., None]] = staticmethod(lambda *_: None)
    fake: ClassVar[Callable[..., Any] | None] = None
    cuda: ClassVar[Any] = None  # a module or class with fits, forward and backward
    anywhere: ClassVar[bool] = False
    fuses: ClassVar[bool] = True
    opaque: ClassVar[bool] = True
    settings: ClassVar[Mapping[str, Any]] = {}
    _forward: ClassVar[Callable[..., Any]]
    _backward: ClassVar[Callable[..., Any]]


def operator(schema: str) -> Callable[[type[Operator]], type[Operator]]:
    """Makes a class the operator with this schema, such as ``"dual(Tensor q, Tensor factor) -> Tensor"``.

    Its arguments are of type Tensor, Tensor?, float, int or bool; the last may be ``Tensor[]``: then the passes,
    ``plain`` and ``fits`` take its tensors one by one.
    """

    def define(cls: type[Operator]) -> type[Operator]:
        _define(cls, schema)
        return cls

    return define


def _define(cls: type[Operator], schema: str) -> None:
    """Registers an operator and its gradient with PyTorch, and makes its `run`."""
    match = re.fullmatch(r"(\w+)\((.*)\) -> (.*)", schema)
    if match is None:
        raise ValueError(f"not the schema of an operator: {schema!r}")
    cls.name, inputs, output = match.groups()
    grad = f"{cls.name}_grad"
    _library.define(schema)
    _library.define(f"{grad}({inputs}, Tensor[] grads_out, bool[] needs) -> Tensor[]")
    OPERATORS[cls.name] = cls
    if cls.cuda is not None:
        for part in ("fits", "forward", "backward"):
            setattr(cls, part, staticmethod(_by_device(getattr(cls, part), getattr(cls.cuda, part))))
    on_gpu = cls.anywhere or cls.cuda is not None
    cls.fuses = cls.fuses and not on_gpu
    _keep_arguments(cls)
    types = [part.split()[0] for part in inputs.split(", ")]
    n_fixed = len(types) - 1 if types[-1] == "Tensor[]" else None
    kernels = _Kernels(cls, n_fixed, output == "Tensor")
    cls.run = staticmethod(_runner(cls, n_fixed, ("cpu", "meta", "cuda") if on_gpu else ("cpu", "meta")))
    _library.impl(cls.name, kernels.results, "CompositeExplicitAutograd")
    _library.impl(grad, kernels.gradients, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{cls.name}", kernels.fake_results, lib=_library)
    torch.library.register_fake(f"{NAMESPACE}::{grad}", kernels.fake_gradients, lib=_library)
    _library.impl(cls.name, _autograd_kernel(cls, n_fixed), "Autograd", with_keyset=True)
    _library.impl(cls.name, _plainly(cls, n_fixed), "FuncTorchBatched")


def _pack(arguments: Arguments, n_fixed: int | None) -> Arguments:
    """The arguments of an operator as its schema has them: those from number `n_fixed` on are a list."""
    return arguments if n_fixed is None else (*arguments[:n_fixed], list(arguments[n_fixed:]))


def _unpack(arguments: Arguments, n_fixed: int | None) -> Arguments:
    return arguments if n_fixed is None else (*arguments[:-1], *arguments[-1])


def _plainly(cls: type[Operator], n_fixed: int | None) -> Callable[..., Any]:
    """The plain formula of the arguments that the operator has, in their own dtype."""

    def formula(*arguments: Any) -> Any:
        flat = _unpack(arguments, n_fixed)
        with without_autocast(*flat):
            return cls.plain(*flat)

    return formula


class _Kernels:
    """What PyTorch's dispatcher runs for an operator and its gradient, below autograd and under fake tensors."""

    def __init__(self, cls: type[Operator], n_fixed: int | None, single: bool):
        self.cls, self.n_fixed, self.single = cls, n_fixed, single

    def results(self, *arguments: Any) -> Any:
        cls, flat = self.cls, _unpack(arguments, self.n_fixed)
        cls.check(*flat)
        with torch.no_grad(), without_autocast(*flat):
            fits = switch.fast() and cls.fits(*flat)
            out = cls._forward(_Pass([False] * len(flat)), *flat) if fits else cls.plain(*flat)
        # Compiled code relies on the strides of the fake results and on results that share no memory.
        return _fresh(out, flat) if self.single else tuple(_fresh(o, flat) for o in out)

    def fake_results(self, *arguments: Any) -> Any:
        flat = _unpack(arguments, self.n_fixed)
        check_devices(self.cls.name, flat)
        out = (self.cls.fake or self.cls.plain)(*flat)
        return _empty(out) if self.single else tuple(map(_empty, out))

    def gradients(self, *arguments: Any) -> list[Tensor]:
        *inputs, grads, needs = arguments
        cls, flat = self.cls, _unpack(tuple(inputs), self.n_fixed)
        grads = [g.contiguous() for g in grads]
        cls.check(*flat)
        with _autograd(), torch.no_grad(), without_autocast(*flat):
            if switch.fast() and cls.fits(*flat):
                step = _Pass(needs)
                out = cls._forward(step, *flat)
                _check_grads(cls.name, [out] if self.single else out, grads)
                values = cls._backward(step, *grads)
            else:
                values = fusion.gradients(cls.plain, flat, grads, needs)
        return [
            (torch.zeros_like(a) if g is None else _fresh(g, (*flat, *grads)).to(a.dtype))
            for a, g, need in zip(flat, values, needs, strict=True)
            if need
        ]

    def fake_gradients(self, *arguments: Any) -> list[Tensor]:
        *inputs, _, needs = arguments
        flat = _unpack(tuple(inputs), self.n_fixed)
        return [_empty(a) for a, need in zip(flat, needs, strict=True) if need]


def _autograd_kernel(cls: type[Operator], n_fixed: int | None) -> Callable[..., Any]:
    """The derivative for those who call the operator itself, as compiled code does."""
    op = getattr(torch.ops.hyperbolic, cls.name).default
    grad_op = getattr(torch.ops.hyperbolic, f"{cls.name}_grad").default

    def keep(ctx: Any, inputs: Arguments, output: Any) -> None:
        flat = _unpack(inputs, n_fixed)
        tensors, ctx.others = fusion.part(flat)
        ctx.save_for_backward(*tensors)
        # PyTorch counts the tensors of a list one by one here, and more arguments of its own after ours
        wants = ctx.needs_input_grad[: len(flat)]
        ctx.needs = [w and isinstance(a, Tensor) for w, a in zip(wants, flat, strict=True)]

    def backward(ctx: Any, *grads: Tensor) -> Any:
        flat = fusion.merge(ctx.saved_tensors, ctx.others)
        if not torch.compiler.is_compiling() and (torch.is_grad_enabled() or switch.is_batched(grads)):
            with without_autocast(*grads):
                result = fusion.gradients(cls.plain, flat, list(grads), ctx.needs)
        else:
            values = iter(grad_op(*_pack(tuple(flat), n_fixed), list(grads), ctx.needs))
            result = tuple(next(values) if need else None for need in ctx.needs)
        return _pack(tuple(result), n_fixed)

    plainly = _plainly(cls, n_fixed)
    differentiable = make_autograd_impl(op, Info(backward, keep))  # what torch.library.register_autograd registers

    def of_transforms(keys: Any, *arguments: Any) -> Any:
        """PyTorch's kernel of `backward` has no forward-mode derivative."""
        if switch.is_transformed():
            return plainly(*arguments)
        return differentiable(keys, *arguments)

    return of_transforms


def _runner(cls: type[Operator], n_fixed: int | None, devices: Sequence[str]) -> Callable[..., Any]:
    """The operation, by the implementation that serves its arguments; on these devices the operator is traced whole."""
    op = getattr(torch.ops.hyperbolic, cls.name).default
    # Dynamo reads no attribute of an autograd function.
    name, plain, fits, may_fuse, is_opaque = cls.name, cls.plain, cls.fits, cls.fuses, cls.opaque
    fused = fusion.Fusion(cls.name, cls.plain, cls.settings)
    apply: Callable[..., Any] = cls.apply

    def run(*arguments: Any) -> Any:
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        kind = tensors[0].device.type
        if autocast_device(*tensors) is not None:
            with without_autocast(*tensors):
                return run(*arguments)
        if not torch.compiler.is_compiling() and switch.is_transformed():
            return plain(*arguments)
        fuses = may_fuse and kind in fusion.DEVICES
        if torch.compiler.is_compiling() or switch.is_traced(tensors):
            if not torch.compiler.is_compiling():
                check_devices(name, arguments)
            whole = is_opaque and kind in devices and not fuses and switch.fast()
            return op(*_pack(arguments, n_fixed)) if whole else plain(*arguments)
        if fuses and switch.fast():
            return fused(*arguments)
        if not switch.fast() or not fits(*arguments):
            return plain(*arguments)
        if not torch.is_grad_enabled():  # or ctx.needs_input_grad is true of what requires one
            arguments = tuple(a.detach() if isinstance(a, Tensor) and a.requires_grad else a for a in arguments)
        return apply(*arguments)

    return run


def _by_device(passes: Callable[..., Any], cuda: Callable[..., Any]) -> Callable[..., Any]:
    """The first function, or for tensors on a GPU the second."""

    def choose(*arguments: Any) -> Any:
        first = next(a for a in arguments if isinstance(a, Tensor))
        return (cuda if first.is_cuda else passes)(*arguments)

    return choose


def _keep_arguments(cls: type[Operator]) -> None:
    """The passes of the autograd function, with a second derivative by the plain formula."""
    forward, backward = cls.forward, cls.backward
    cls._forward, cls._backward = staticmethod(forward), staticmethod(backward)

    def keeping(ctx: Any, *arguments: Any) -> Any:
        out = forward(ctx, *arguments)
        own = getattr(ctx, "to_save", None) or ()
        # With what the passes keep, so that PyTorch lets go of both as soon as the backward pass has run.
        tensors, ctx.others = fusion.part(arguments)
        ctx.save_for_backward(*own, *tensors)
        ctx.n_own = len(own)
        return out

    def differentiable(ctx: Any, *grads: Tensor) -> Any:
        if autocast_device(*grads) is not None:
            with without_autocast(*grads):
                return differentiable(ctx, *grads)
        saved = ctx.saved_tensors
        readable = all(g is None or switch.has_memory(g) for g in grads)
        if torch.is_grad_enabled() or switch.is_batched(grads) or not readable:
            arguments = fusion.merge(saved[ctx.n_own :], ctx.others)
            return fusion.gradients(cls.plain, arguments, grads, ctx.needs_input_grad)
        if getattr(ctx, "own_grads", None) == []:
            step = _Pass(ctx.needs_input_grad)
            forward(step, *fusion.merge(saved[ctx.n_own :], ctx.others))
            return backward(step, *grads)
        return backward(_Own(ctx, saved[: ctx.n_own]), *grads)

    cls.forward, cls.backward = staticmethod(keeping), staticmethod(differentiable)  # type: ignore[method-assign]


def check_devices(name: str, arguments: Sequence[Any]) -> None:
    """Raises RuntimeError where tensors lie on different devices; numbers may lie on the CPU."""
    kinds = {a.device for a in arguments if isinstance(a, Tensor) and (a.dim() or a.device.type != "cpu")}
    if len(kinds) > 1:
        names = ", ".join(sorted(map(str, kinds)))
        raise RuntimeError(f"{NAMESPACE}::{name} expects all tensors on the same device, and they are on {names}")


def _check_grads(name: str, results: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
    """Raises RuntimeError where a gradient is none of the result in its place, as passes rely on."""
    if len(grads) != len(results):
        raise RuntimeError(f"{NAMESPACE}::{name}_grad expects {len(results)} gradients, got {len(grads)}")
    for k, (result, grad) in enumerate(zip(results, grads, strict=True)):
        if (grad.shape, grad.dtype, grad.device) != (result.shape, result.dtype, result.device):
            raise RuntimeError(
                f"{NAMESPACE}::{name}_grad expects a gradient of {result.dtype}, {tuple(result.shape)} on "
                f"{result.device} for result {k}, got {grad.dtype}, {tuple(grad.shape)} on {grad.device}"
            )


def _autograd() -> Any:
    """A context in which autograd follows operations: passes make gradients of their parts by it, and a dispatch mode,
    as FlopCounterMode, calls an operator where it does not."""
    include, exclude = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    for key in _AUTOGRAD:
        exclude = exclude.remove(key)
    return torch._C._ForceDispatchKeyGuard(include, exclude)


def _empty(like: Tensor) -> Tensor:
    return like.new_empty(like.shape)


def _fresh(x: Tensor, arguments: Sequence[Any]) -> Tensor:
    """x, contiguous, and a copy where it shares memory with an argument."""
    x = x.contiguous()
    place = x.untyped_storage().data_ptr()
    shares = any(isinstance(a, Tensor) and a.untyped_storage().data_ptr() == place for a in arguments)
    return x.clone() if shares or x.untyped_storage().nbytes() != x.numel() * x.element_size() else x
