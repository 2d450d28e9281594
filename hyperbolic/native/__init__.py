"""Kernels in C++ for CPUs, built by the machine's own compiler when they are first used.

``library("mlr")`` compiles ``mlr.cpp`` once (a few seconds) into ``$XDG_CACHE_HOME/hyperbolic`` (``~/.cache``), under
a name that follows from the source, the compiler and the processor, with its size and hash in a file beside it: what
differs from them is built again. The functions in it take addresses and sizes and know nothing of PyTorch but its
OpenMP, so each version has a build of its own; :func:`hyperbolic.native.build.build` makes all at once. Where there is
no compiler, or it fails, the kernels run on PyTorch operations; :mod:`hyperbolic.switch` turns these ones off.

Conventions of the sources: every exported function ends with the number of threads it may use; the formulas are those
of the Python file that calls it, which names them and has the version made of PyTorch operations.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import re
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hyperbolic import switch
from hyperbolic.native.signatures import C_TYPES, Pointers, signatures

FOLDER = Path(__file__).parent
SOURCES = FOLDER.parent  # where sources lie, at any depth
_FLAGS = ("-O3", "-march=native", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_X86 = ("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()
_PARALLEL = ("-fopenmp",)
_NO_OPENMP = re.compile(r"openmp|gomp|omp\.h|-l\w*omp|'omp'", re.IGNORECASE)  # in what a compiler says
_SUFFIX = {torch.float32: "_float", torch.float64: "_double"}  # of functions that there are of both dtypes
_NO_COMPILER = "there is no C++ compiler (g++, clang++ or $CXX)"
_load: dict[str, ctypes.CDLL | None] = {}
_running: set[subprocess.Popen[str]] = set()  # compilers


def usable(*tensors: Tensor | None) -> bool:
    """Whether a C++ kernel may read and write these tensors: :func:`readable` ones, contiguous.

    Not where something follows the operations, or tensors have no memory, see :func:`hyperbolic.switch.is_followed`.
    """
    present = [t for t in tensors if t is not None]
    for t in present:
        if not t.is_contiguous():
            return False
    return not switch.is_followed(*present) and readable(*present)


def readable(*tensors: Tensor | None) -> bool:
    """Whether C++ kernels are used, and these tensors are on a CPU, of one dtype (float32, float64), of any strides."""
    dtype = None
    for t in tensors:
        if t is not None:
            dtype = dtype or t.dtype
            if t.dtype is not dtype or not t.is_cpu or not switch.has_memory(t):
                return False
    if dtype not in (torch.float32, torch.float64):
        return False
    if not switch.native() and switch.fast():
        _give_up("", OSError(_NO_COMPILER))
    return switch.native()


def takes_index(index: Tensor) -> bool:
    """Whether a C++ kernel may take a tensor for numbers of rows."""
    return index.is_cpu and index.dtype in (torch.int64, torch.int32) and switch.has_memory(index)


def checked_index(index: Tensor, n: int, caller: str, things: str) -> Tensor:
    """The index as C++ reads it, contiguous int64.

    Raises:
        IndexError: a number that is not one of the n things.
    """
    low, high = (bound.item() for bound in torch.aminmax(index))
    if low < 0 or high >= n:
        raise IndexError(f"{caller}: index {low if low < 0 else high} of {n} {things}")
    return index.long().contiguous()


class Strided(NamedTuple):
    """A tensor that need not be contiguous, for a function that gets its strides besides."""

    tensor: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype


_Function = tuple[Callable[..., None], list[torch.dtype | Pointers | None]]  # with what its pointers point to
Argument = Tensor | Strided | Sequence[Any] | ctypes.Array[Any] | float | None


def check_shape(tensor: Tensor | None, shape: tuple[int, ...]) -> None:
    """Raises ValueError for a tensor of another shape."""
    if tensor is not None and tensor.shape != shape:
        raise ValueError(f"the kernels take a tensor of shape {tuple(shape)} here, got {tuple(tensor.shape)}")


def _pointer(argument: Any, target: torch.dtype | Pointers) -> Any:
    """What goes to C++ for an argument of :meth:`Library.run`."""
    if argument is None:
        return None
    tensor = argument.tensor if isinstance(argument, Strided) else argument
    if not isinstance(tensor, Tensor):
        return _array(tensor, target)
    if tensor.dtype is not target:
        raise TypeError(f"takes {target}, got a tensor of {tensor.dtype}, {tuple(tensor.shape)}")
    if not (tensor.is_cpu and (tensor is not argument or tensor.is_contiguous())):
        raise ValueError(
            f"takes contiguous tensors on a CPU, got {tensor.dtype}, {tuple(tensor.shape)} with strides "
            f"{tensor.stride()}, on {tensor.device}"
        )
    return tensor.data_ptr()


def _array(numbers: Any, target: torch.dtype | Pointers) -> ctypes.Array[Any]:
    kind = ctypes.c_void_p if isinstance(target, Pointers) else C_TYPES[target]
    if isinstance(numbers, ctypes.Array) and numbers._type_ is kind:
        return numbers
    if not isinstance(numbers, (tuple, list)):
        raise TypeError(f"takes a tensor or an array of {target}, got {numbers!r}")
    if isinstance(target, Pointers):
        numbers = [_pointer(n, target.dtype) for n in numbers]
    array: ctypes.Array[Any] = (kind * len(numbers))(*numbers)
    return array


def library(name: str) -> ctypes.CDLL | None:
    """The functions of ``name.cpp``; None where it cannot be built, which is warned of once."""
    if name not in _load:
        try:
            _load[name] = ctypes.CDLL(str(compile_source(name)))
        except (OSError, subprocess.SubprocessError) as error:
            _give_up(name, error)
    return _load[name]


def _give_up(name: str, error: Exception) -> None:
    """There is no library of this source, or of any where it has no name: the first time a warning says why."""
    first, _load[name] = None not in _load.values(), None
    if first:
        reason = (getattr(error, "stderr", None) or str(error)).strip()[-500:]
        warnings.warn(
            f"the C++ kernels{f' {name!r}' if name else ''} could not be built, PyTorch operations are used instead, "
            f"which are slower: {reason}; they need a C++ compiler (apt install g++, or $CXX) that works, and a folder "
            "that can be written (XDG_CACHE_HOME, else ~/.cache). HYPERBOLIC_KERNELS=plain does without them and "
            "without this warning, which comes once",
            RuntimeWarning,
            stacklevel=3,
        )


class Library:
    """The functions of ``name.cpp``, whose arguments :mod:`hyperbolic.native.signatures` reads in the source."""

    def __init__(self, name: str):
        self.name = name
        self.functions: dict[tuple[str, torch.dtype | None], _Function] = {}

    def usable(self, *tensors: Tensor | None) -> bool:
        """Whether there is the library, and it may read and write these tensors, see :func:`usable`."""
        return usable(*tensors) and library(self.name) is not None

    def readable(self, *tensors: Tensor | None) -> bool:
        """Whether there is the library, and it may read these tensors, given their strides; see :func:`readable`."""
        return readable(*tensors) and library(self.name) is not None

    def run(self, symbol: str, *arguments: Argument) -> None:
        """Calls a function, or, where there are two, that of the dtype of the first argument.

        Args: arguments: as the function has them, but for the number of threads, which is added. For a pointer: a
            contiguous tensor, a :class:`Strided` one, an array of ctypes, a tuple of numbers to read, or None; for a
            pointer to pointers a list of them.

        Raises:
            RuntimeError: the library cannot be built; :func:`library` says so before.
            TypeError: too many or too few arguments, numbers of another dtype, or what cannot stand for a pointer.
            ValueError: a tensor that is not on a CPU, or not contiguous and not :class:`Strided`.
        """
        key = (symbol, getattr(arguments[0], "dtype", None))
        function, targets = self.functions.get(key) or self._find(*key)
        if len(arguments) != len(targets):
            raise TypeError(f"{self.name}.cpp: {symbol} takes {len(targets)} arguments, got {len(arguments)}")
        try:
            values = [
                a if target is None
                else a.data_ptr() if isinstance(a, Tensor) and a.dtype is target and a.is_contiguous() and a.is_cpu
                else _pointer(a, target)
                for a, target in zip(arguments, targets)  # noqa: B905  as long, and in less time than with strict
            ]  # fmt: skip
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self.name}.cpp: {symbol} {error}") from error
        function(*values, torch.get_num_threads())

    def _find(self, symbol: str, dtype: torch.dtype | None) -> _Function:
        loaded = library(self.name)
        if loaded is None:
            raise RuntimeError(f"the C++ kernels {self.name!r} could not be built")
        exported = signatures(sources()[self.name])
        name = symbol if symbol in exported or dtype not in _SUFFIX else symbol + _SUFFIX[dtype]
        if name not in exported:
            raise TypeError(f"{self.name}.cpp has no function {symbol} for a first argument of dtype {dtype}")
        function, signature = getattr(loaded, name), exported[name]
        function.argtypes, function.restype = (*(p.c_type for p in signature), ctypes.c_int), None
        entry = self.functions[symbol, dtype] = (function, [parameter.target for parameter in signature])
        return entry


def sources() -> dict[str, Path]:
    """The C++ sources by name."""
    return {path.stem: path for path in sorted(SOURCES.rglob("*.cpp"))}


def compile_source(name: str) -> Path:
    """The shared object of a source, compiled unless it lies in the cache as it was written there."""
    compiler = switch.cpp_compiler()
    if compiler is None:
        raise OSError(_NO_COMPILER)
    target = target_of(name, machine_key(compiler))
    record = target.with_suffix(".sha256")
    if matches(target, record):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        built, new_record = Path(folder, target.name), Path(folder, record.name)
        command = [compiler, *_FLAGS, *_X86, f"-I{FOLDER}", str(sources()[name]), "-o", str(built)]
        try:
            _run([*command, *_PARALLEL, *_threads()])
        except subprocess.CalledProcessError as error:
            if not _NO_OPENMP.search(error.stderr or ""):  # broken, or killed
                raise
            _run(command)  # without OpenMP, as Apple's: one thread
        ctypes.CDLL(str(built))  # what a broken compiler writes is not kept
        new_record.write_text(_fingerprint(built))
        os.replace(built, target)
        os.replace(new_record, record)
    return target


def target_of(name: str, machine: str) -> Path:
    """Where the shared object of a source lies: what it was made from is in its name."""
    source = sources()[name]
    texts = [path.read_text() for path in (source, *sorted({*FOLDER.glob("*.h"), *source.parent.glob("*.h")}))]
    key = "\n".join([*texts, *_FLAGS, *_X86, machine])
    return cache_folder() / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"


def machine_key(compiler: str) -> str:
    """What a build depends on besides the sources: compiler, processor, PyTorch."""
    return "\n".join([_version(compiler), _processor(), torch.__version__])


def _fingerprint(path: Path) -> str:
    data = path.read_bytes()
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}"


def matches(target: Path, record: Path) -> bool:
    """Whether a library is what its record says. One that was cut short would end the process when it is called."""
    try:
        return record.read_bytes().decode("ascii", "replace") == _fingerprint(target)
    except OSError:
        return False


def _run(command: list[str]) -> str:
    """What a command prints; compilers' messages may be in another encoding than UTF-8."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, encoding="utf-8", errors="replace", process_group=0
    ) as process:
        _running.add(process)
        try:
            printed, message = process.communicate(timeout=300)
        except BaseException:
            _kill(process)
            raise
        finally:
            _running.discard(process)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, printed, message)
    return printed


def kill_compilers() -> None:
    """End the compilers that run, with the programs that they started."""
    for process in list(_running):
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):  # it has ended
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _threads() -> list[str]:
    """PyTorch's own OpenMP runtime, so that there is one pool of threads in the process."""
    folder = Path(torch.__file__).parent
    paths = [*folder.glob("lib/libgomp*.so*"), *folder.parent.glob("torch.libs/libgomp*.so*")]
    return [str(paths[0]), f"-Wl,-rpath,{paths[0].parent}"] if paths else []


def _version(compiler: str) -> str:
    return compiler + _run([compiler, "--version"])


def _processor() -> str:
    """What ``-march=native`` follows: a home may be shared by different machines."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    flags = [line for line in lines if line.startswith(("flags", "Features"))]
    return platform.machine() + platform.processor() + "".join(flags[:1])


def cache_folder() -> Path:
    """Where builds lie. Raises FileNotFoundError for a user without a home, as a container's may be."""
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise FileNotFoundError("this user has no home; set XDG_CACHE_HOME to a folder to keep them in") from error
    return Path(home, "hyperbolic")
