"""The one switch between the plain formulas of operators and their kernels.

``HYPERBOLIC_KERNELS=plain|fast`` in the environment, or :func:`use_kernels` in code:

- ``fast``, the default: on a CPU the C++ kernels of :mod:`hyperbolic.native`, built in a few seconds when they are
  first used and kept; on a GPU those in Triton, and plain formulas that ``torch.compile`` has fused. Where there is no
  compiler, no Triton or no kernel for an argument, as plain.
- ``plain``: PyTorch operations alone (row sums of large float32 tensors, :mod:`hyperbolic.rows`, in blocks of them).

Both compute the same formulas, and results differ by about what rounding the points that go in is worth. That is much,
relative to the result, where these points cancel: in a Möbius linear layer whose bias takes its points back to the
origin, and in long steps of an optimiser that go back through it. Optimiser steps of Lorentz points that lie farther
than 11 / sqrt(c) from the origin and move by more than that differ: kernels cut them there, and inward ones with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

MODES = ("plain", "fast")
_is_compiling, _forward_ad = torch.compiler.is_compiling, torch.autograd.forward_ad
_tracing_state, _dispatch_modes = torch._C._get_tracing_state, torch._C._len_torch_dispatch_stack
_functorch_active = torch._C._are_functorch_transforms_active
_is_batched = torch._C._functorch.is_legacy_batchedtensor


class _Switch:
    """What is in force, and whether there was a compiler when it was set; empty until something asks."""

    mode = ""
    native = False


_switch = _Switch()


def cpp_compiler() -> str | None:
    """The C++ compiler of this machine: ``$CXX``, g++ or clang++."""
    names = (os.environ.get("CXX", ""), "g++", "clang++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def use_kernels(mode: str) -> None:
    """Sets the switch to "plain" or "fast".

    Raises:
        ValueError: another word.
    """
    if mode not in MODES:
        raise ValueError(f"kernels must be plain or fast, got {mode!r}")
    _switch.mode, _switch.native = mode, mode == "fast" and cpp_compiler() is not None


def mode() -> str:
    """What is in force, "plain" or "fast"."""
    if not _switch.mode:
        word = os.environ.get("HYPERBOLIC_KERNELS", "fast")
        if word not in MODES:
            raise ValueError(f"HYPERBOLIC_KERNELS must be plain or fast, got {word!r}")
        use_kernels(word)
    return _switch.mode


def native() -> bool:
    """Whether C++ kernels are used on CPUs: the switch says so, and there is a compiler."""
    if not _switch.mode:
        mode()
    return _switch.native


def fast() -> bool:
    """Whether operators use more than their plain formulas."""
    return mode() == "fast"


def is_transformed() -> bool:
    """Whether ``torch.func`` or forward-mode differentiation follows the operations that run: they need plain ones."""
    return _functorch_active() or is_forward_mode()


def is_forward_mode() -> bool:
    """Whether forward-mode differentiation follows the operations that run."""
    return bool(_forward_ad._current_level >= 0)


def is_batched(tensors: Iterable[Tensor | None]) -> bool:
    """Whether gradients come several at once (``is_grads_batched=True``, ``jacobian(vectorize=True)``, ``vmap`` over a
    backward pass): PyTorch then hands on tensors without memory."""
    if _functorch_active():
        return True
    for t in tensors:  # noqa: SIM110 - as below
        if t is not None and _is_batched(t):
            return True
    return False


def is_traced(tensors: Iterable[Tensor]) -> bool:
    """Whether the operations on these tensors are recorded, or the tensors have no memory.

    So for ``torch.compile``, ``torch.export``, ``torch.jit.trace``, ``make_fx`` and other dispatch modes, and for fake
    and meta tensors.
    """
    if _is_compiling() or _tracing_state() is not None or _dispatch_modes() > 0:
        return True
    for t in tensors:  # noqa: SIM110 - half of the time of any(), and this is asked for every small operation
        if t.is_meta or isinstance(t, FakeTensor):
            return True
    return False


def has_memory(t: Tensor) -> bool:
    """Whether a tensor has its numbers at its address: a sparse one, one that is made of others (``DTensor``, a nested
    one), one that is negated lazily and a zero that is none yet have not."""
    is_own = type(t).__torch_dispatch__ is Tensor.__torch_dispatch__  # the class has no operations of its own
    return is_own and t.layout is torch.strided and not t.is_neg() and not t._is_zerotensor()


def is_followed(*tensors: Tensor) -> bool:
    """Whether :func:`is_traced` or :func:`is_transformed`: no autograd function of ours, and no address of a tensor."""
    return is_traced(tensors) or is_transformed()


with contextlib.suppress(ValueError):  # which is raised when something asks
    mode()  # now, as torch.compile cannot follow it
