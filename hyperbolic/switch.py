"""The one switch between kernels made of PyTorch operations and compiled ones, and CUDA graphs for recurrent layers.

``HYPERBOLIC_COMPILE=0|native|1|auto`` in the environment, or :func:`use_compile` in code:

- ``0``: PyTorch operations alone.
- ``native``, the default: on a CPU the C++ kernels of :mod:`hyperbolic.native`, built in a few seconds when
  they are first used and kept; where there is no C++ compiler, as ``0``.
- ``1``: those, and ``torch.compile`` for the rest; the first training step waits up to a minute for it (PyTorch keeps
  the result in its cache on disk). Needs a C++ compiler and Python's headers.
- ``auto``: as ``1`` where that can be, else as ``native``.

All compute the same formulas and differ in the last bits. On a GPU, :func:`use_cuda_graphs` replays a layer as one
graph instead; it needs no compiler.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sysconfig
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

_MODES = {"0": "0", "false": "0", "native": "native", "1": "1", "true": "1", "auto": "auto"}
_MAX_VERSIONS = 7  # PyTorch gives up at 8 versions of one function
Kernel = TypeVar("Kernel", bound=Callable[..., object])


class _Switch:
    """What is in force, and what torch.compile has made in this process."""

    def __init__(self) -> None:
        self.mode = ""  # "0", "native" or "1"; empty until something asks
        self.native = False
        self.batches: dict[Hashable, int] = {}  # function and other sizes -> the batch size that is compiled
        self.compiled: dict[Hashable, Any] = {}  # function -> its compiled version
        self.versions: dict[Hashable, set[Hashable]] = {}  # function -> batch and other sizes it was compiled for


_switch = _Switch()


def cpp_compiler() -> str | None:
    """The C++ compiler of this machine: ``$CXX``, g++ or clang++."""
    names = (os.environ.get("CXX", ""), "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def compiler_found() -> bool:
    """Whether torch.compile can build kernels here: a C++ compiler, and Python's headers."""
    return Path(sysconfig.get_path("include"), "Python.h").exists() and cpp_compiler() is not None


def use_compile(mode: bool | str) -> bool:
    """Sets the switch to false, "native", true or "auto"; returns whether torch.compile is used from now on.

    Raises:
        ValueError: unknown mode. RuntimeError: true, where no compiler is found.
    """
    value = _MODES.get(str(mode).lower())
    if value is None:
        raise ValueError(f"compile must be false, native, true or auto, got {mode!r}")
    if value == "1" and not compiler_found():
        raise RuntimeError("compile=true needs a C++ compiler (g++, clang++ or $CXX) and none was found; use auto")
    _switch.batches.clear()  # so that the batch size of the next run counts
    _switch.native = value != "0" and cpp_compiler() is not None
    compiles = compiler_found() if value == "auto" else value == "1"
    _switch.mode = "1" if compiles else "native" if value == "auto" else value
    return compiles


def mode() -> str:
    """What is in force, a value for :func:`use_compile`: "0", "native" or "1"."""
    if not _switch.mode:
        use_compile(os.environ.get("HYPERBOLIC_COMPILE", "native"))
    return _switch.mode


def compiling() -> bool:
    """Whether ``torch.compile`` is used."""
    return mode() == "1"


def native() -> bool:
    """Whether C++ kernels are used on CPUs: the switch says so, and there is a compiler."""
    return mode() != "0" and _switch.native


def maybe_compiled(function: Kernel, batch: int, *sizes: Hashable) -> Kernel:
    """``function``, or its compiled version when the switch is on.

    Compiled code is made for one batch size for each combination of the other ``sizes`` (all that decides about the
    shapes, dtypes and branches in the function), the first one seen; an incomplete last batch runs eagerly, which is
    faster than compiling once more. So does what would be the eighth version of a function.
    """
    if not compiling():
        return function
    if _switch.batches.setdefault((function, sizes), batch) != batch:
        return function
    versions = _switch.versions.setdefault(function, set())
    if (batch, sizes) not in versions:
        if len(versions) == _MAX_VERSIONS:
            return function
        versions.add((batch, sizes))
    if function not in _switch.compiled:
        _switch.compiled[function] = torch.compile(function, fullgraph=True, dynamic=False)
    compiled: Kernel = _switch.compiled[function]
    return compiled


def fast() -> bool:
    """Whether operators use more than their plain formulas."""
    return mode() != "0"


def is_transformed() -> bool:
    """Whether ``torch.func`` or forward-mode differentiation follows the operations that run: they need plain ones."""
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def is_traced(tensors: Iterable[Tensor]) -> bool:
    """Whether the operations on these tensors are recorded, or the tensors have no memory.

    So for ``torch.compile``, ``torch.export``, ``torch.jit.trace``, ``make_fx`` and other dispatch modes, and for fake
    and meta tensors.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or any(t.is_meta or isinstance(t, FakeTensor) for t in tensors)
    )


def is_followed(*tensors: Tensor) -> bool:
    """Whether :func:`is_traced` or :func:`is_transformed`: no autograd function of ours, and no address of a tensor."""
    return is_traced(tensors) or is_transformed()


def use_cuda_graphs(layer: nn.Module, *sample: Tensor) -> nn.Module:
    """Records the forward and backward pass of ``layer`` as CUDA graphs and replays them from then on, in place.

    A loop of many small kernels, as a recurrent layer is, otherwise waits for their launches.

    Args:
        layer: a module on a GPU, in training mode, without hooks, whose arguments are tensors (such as an RNN or GRU).
        sample: arguments of the shapes, dtypes and needs of a gradient that it will get. Others, and evaluation, run
            eagerly.

    Raises:
        ValueError: an argument is not on a GPU. RuntimeError: kernels are compiled, which graphs do not go with.
    """
    if not sample or not all(tensor.is_cuda for tensor in sample):
        devices = ", ".join(str(tensor.device) for tensor in sample) or "none"
        raise ValueError(f"CUDA graphs need sample arguments on a GPU, got {devices}")
    if compiling():
        raise RuntimeError("CUDA graphs replay eager kernels: set compile=false (HYPERBOLIC_COMPILE=0) first")
    eager, expected = layer.forward, [_properties(tensor) for tensor in sample]
    torch.cuda.make_graphed_callables(layer, sample)
    graphed = layer.forward

    @functools.wraps(eager)
    def forward(*args: Any, **kwargs: Any) -> Any:
        fits = layer.training and torch.is_grad_enabled() and not kwargs and [_properties(a) for a in args] == expected
        return (graphed if fits else eager)(*args, **kwargs)

    layer.forward = forward
    return layer


def _properties(argument: Tensor | None) -> Hashable:
    return argument if argument is None else (argument.shape, argument.dtype, argument.device, argument.requires_grad)


with contextlib.suppress(ValueError):  # which is raised when something asks
    mode()  # now, as torch.compile cannot follow it
