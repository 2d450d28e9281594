"""The one switch between eager and compiled kernels.

``HYPERBOLIC_COMPILE=0|1|auto`` in the environment, or :func:`use_compile` in code; off by default. The first training
step then waits about a minute for the compiler (PyTorch keeps the result in its cache on disk). On CPU a C++ compiler
is needed; ``auto`` compiles where one is found. Both paths compute the same formulas and differ in the last bits.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path

import torch

_MODES = {"0": False, "1": True, "auto": "auto", "false": False, "true": True}
_state: dict[str, bool] = {}
_compiled: dict[Callable, tuple[int, Callable]] = {}


def compiler_found() -> bool:
    """Whether torch.compile can build kernels here: a C++ compiler, and Python's headers."""
    names = (os.environ.get("CXX", ""), "g++", "clang++")
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return headers.exists() and any(name and shutil.which(name) for name in names)


def use_compile(mode: bool | str) -> bool:
    """Sets the switch to true, false or "auto"; returns whether kernels are compiled from now on.

    Raises:
        ValueError: unknown mode. RuntimeError: true, where no compiler is found.
    """
    value = _MODES.get(str(mode).lower())
    if value is None:
        raise ValueError(f"compile must be true, false or auto, got {mode!r}")
    if value is True and not compiler_found():
        raise RuntimeError("compile=true needs a C++ compiler (g++, clang++ or $CXX) and none was found; use auto")
    _compiled.clear()  # so that the batch size of the next run counts
    _state["on"] = compiler_found() if value == "auto" else value
    return _state["on"]


def compiling() -> bool:
    """Whether kernels are compiled."""
    if "on" not in _state:
        use_compile(os.environ.get("HYPERBOLIC_COMPILE", "0"))
    return _state["on"]


def maybe_compiled(function: Callable, batch: int) -> Callable:
    """``function``, or its compiled version when the switch is on.

    Compiled code is made for one batch size, the first one seen; an incomplete last batch runs eagerly, which is
    faster than compiling once more.
    """
    if not compiling():
        return function
    if function not in _compiled:
        _compiled[function] = (batch, torch.compile(function, fullgraph=True, dynamic=False))
    size, fast = _compiled[function]
    return fast if size == batch else function
