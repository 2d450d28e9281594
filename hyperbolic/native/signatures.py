"""The arguments of the functions that C++ sources export, read from the sources themselves.

An exported function is ``extern "C" void name(parameters, int threads) {``, written out or by a macro of the same file,
used alone in a line, as ``EXPORT(float)``. A parameter is a number (``int64_t``, ``int``, ``double``), a pointer to
numbers (``float``, ``double``, ``int64_t``, ``bool``) or a pointer to such pointers (``float *const *``).
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch

C_TYPES: dict[torch.dtype, Any] = {
    torch.float32: ctypes.c_float,
    torch.float64: ctypes.c_double,
    torch.int64: ctypes.c_int64,
    torch.bool: ctypes.c_bool,
}
_ELEMENTS = {"float": torch.float32, "double": torch.float64, "int64_t": torch.int64, "bool": torch.bool}
_NUMBERS = {"int64_t": ctypes.c_int64, "int": ctypes.c_int, "double": ctypes.c_double}


class Pointers(NamedTuple):
    """What a pointer to pointers to numbers of this dtype points to."""

    dtype: torch.dtype


class Parameter(NamedTuple):
    """Of a function: its type in C, and what a pointer points to; None for a number."""

    c_type: Any
    target: torch.dtype | Pointers | None = None


Signature = tuple[Parameter, ...]


def signatures(source: Path) -> dict[str, Signature]:
    """By function, its parameters before the number of threads.

    Raises:
        ValueError: an exported function is not of the form above.
    """
    text = re.sub(r"//.*", "", source.read_text()).replace("\\\n", " ")
    macros = re.findall(r"^#define (\w+)\(([\w, ]*)\)(.*)", text, re.M)
    text = re.sub(r"^#.*", "", text, flags=re.M)
    for name, parameters, body in macros:
        for values in re.findall(rf"^{name}\((.*)\)$", text, re.M):
            used = body
            for parameter, value in zip(parameters.split(", "), values.split(", "), strict=True):
                used = re.sub(rf"\b{parameter}\b", value, used)
            text += used.replace("##", "")
    functions = re.findall(r'extern "C"\s+void (\w+)\(([^()]*)\) \{', text)
    if text.count('extern "C"') != len(functions):
        raise ValueError(f'{source}: an exported function is not `extern "C" void name(parameters, int threads) {{`')
    return {name: _signature(f"{source.name}: {name}", parameters) for name, parameters in functions}


def _signature(function: str, parameters: str) -> Signature:
    *ours, threads = (_parameter(function, " ".join(text.split())) for text in parameters.split(","))
    if threads.c_type is not ctypes.c_int:
        raise ValueError(f"{function}: the last parameter is not int threads")
    return tuple(ours)


def _parameter(function: str, text: str) -> Parameter:
    match = re.fullmatch(r"(?:const )?(\w+)( \*(?:const \*)?)?(?: ?\w+)?", text)
    kind, pointer = match.groups() if match else ("", None)
    if kind not in (_ELEMENTS if pointer else _NUMBERS):
        raise ValueError(f"{function}({text}): a parameter that is neither a number nor a pointer to numbers")
    if pointer:
        dtype = _ELEMENTS[kind]
        return Parameter(ctypes.c_void_p, dtype if pointer == " *" else Pointers(dtype))
    return Parameter(_NUMBERS[kind])
