"""The signatures that are read from the C++ sources, and the calls that they refuse."""

import ctypes
import re
import subprocess

import pytest
import torch

from hyperbolic import native, switch
from hyperbolic.native.signatures import Pointers, signatures

needs_compiler = pytest.mark.skipif(switch.cpp_compiler() is None, reason="needs a C++ compiler")
_EXAMPLE = """
#include <cstdint>
template <class T> void add(const T *x, const T *y, T *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];
}
#define EXPORT(T)                                                   \\
    extern "C" void add_##T(const T *x, const T *y, T *out,         \\
                            int64_t n, int threads) {               \\
        add(x, y, out, n);                                          \\
    }

EXPORT(float)
EXPORT(double)

// One number of each row.
extern "C" void pick(const double *const *rows, const int64_t *places, double *out,
                     int n, double factor, int) {
    for (int i = 0; i < n; i++) out[i] = factor * rows[i][places[i]];
}
"""
_BARE = """
template <class T> struct Bare_ { using type = T; };
template <class T> struct Bare_<T *> { using type = typename Bare_<T>::type *; };
template <class T> struct Bare_<const T> { using type = typename Bare_<T>::type; };
template <class... A> struct Bare_<void (*)(A...)> { using type = void (*)(typename Bare_<A>::type...); };
template <class T> using Bare = typename Bare_<T>::type;
"""
F32, F64 = torch.float32, torch.float64


@pytest.fixture
def example(monkeypatch, tmp_path, native_kernels):
    (tmp_path / "example.cpp").write_text(_EXAMPLE)
    monkeypatch.setattr(native, "SOURCES", tmp_path)
    monkeypatch.setattr(native, "_load", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return native.Library("example")


@pytest.mark.parametrize("name", native.sources())
def test_every_exported_function_has_a_signature(name, native_kernels):
    """The symbols are those of the built library; how many parameters each has, the compiler says."""
    known = signatures(native.sources()[name])
    if switch.cpp_compiler() is None:
        return
    library = native.compile_source(name)
    symbols = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    exported = set(re.findall(r" T (\w+)$", symbols.stdout, re.M))
    assert {symbol for symbol in exported if not symbol.startswith("_")} == set(known)
    source = native.sources()[name]
    checks = (
        f"static_assert(std::is_same_v<Bare<decltype(&{symbol})>, void (*)({_c_types(signature)}int)>);"
        for symbol, signature in known.items()
    )
    text = f'#include <type_traits>\n#include "{source}"\n{_BARE}\n' + "\n".join(checks)
    command = [switch.cpp_compiler(), "-std=c++17", "-fsyntax-only", f"-I{native.FOLDER}", "-x", "c++", "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def _c_types(signature):
    names = {F32: "float", F64: "double", torch.int64: "int64_t", torch.bool: "bool"}
    numbers = {ctypes.c_int64: "int64_t", ctypes.c_int: "int", ctypes.c_double: "double"}
    names |= {Pointers(dtype): f"{name}*" for dtype, name in names.items()}
    return "".join(f"{names[to]}*, " if to else f"{numbers[number]}, " for number, to in signature)


def test_of_macros_and_several_lines(example):
    pick, float_add, double_add = signatures(native.sources()["example"]).values()
    assert _c_types(float_add) == "float*, float*, float*, int64_t, "
    assert _c_types(double_add) == "double*, double*, double*, int64_t, "
    assert _c_types(pick) == "double**, int64_t*, double*, int, double, "


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ('extern "C" int f(int threads) {', "an exported function is not"),
        ('extern "C" {\nvoid f(int threads) {}\n}', "an exported function is not"),
        ('extern "C" void f(float *x, int64_t threads) {', "f: the last parameter is not int threads"),
        ('extern "C" void f(const Shape *of, int threads) {', "f.const Shape [*]of.: a parameter that is neither"),
        ('extern "C" void f(float x, int threads) {', "is neither"),
        ('extern "C" void f(float ***x, int threads) {', "is neither"),
        ('extern "C" void f(std::function<void()> x, int threads) {', "an exported function is not"),
    ],
)
def test_other_forms_are_refused(tmp_path, function, message):
    (tmp_path / "odd.cpp").write_text(function)
    with pytest.raises(ValueError, match=message):
        signatures(tmp_path / "odd.cpp")


@needs_compiler
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_the_first_argument_says_which_of_two_functions_runs(example, dtype):
    x, y, out = torch.ones(3, dtype=dtype), torch.arange(3, dtype=dtype), torch.empty(3, dtype=dtype)
    example.run("add", x, y, out, 3)
    assert out.tolist() == [1, 2, 3]
    example.run("add", native.Strided(x[::2]), y[1:], out, 1)
    assert out.tolist() == [2, 2, 3]


@needs_compiler
def test_lists_of_tensors_and_of_numbers(example):
    rows, out = list(torch.arange(6.0, dtype=F64).view(2, 3)), torch.empty(2, dtype=F64)
    example.run("pick", rows, (2, 0), out, 2, 0.5)
    assert out.tolist() == [1, 1.5]
    array = (ctypes.c_double * 2)()
    example.run("pick", rows, (1, 1), array, 2, 1)
    assert list(array) == [1, 4]


@needs_compiler
@pytest.mark.parametrize(
    ("symbol", "arguments", "error", "message"),
    [
        ("add", "x, x, x", TypeError, "example.cpp: add takes 4 arguments, got 3"),
        ("add", "x, x, x, 3, 1", TypeError, "takes 4 arguments, got 5"),
        ("add", "x, x.double(), x, 3", TypeError, "example.cpp: add takes torch.float32, got a tensor of torch.float64"),
        ("add", "x.half(), x, x, 3", TypeError, "no function add for a first argument of dtype torch.float16"),
        ("add", "x, native.Strided(x.double()), x, 3", TypeError, "torch.float32, got a tensor of torch.float64"),
        ("add", "x, x.data_ptr(), x, 3", TypeError, r"an array of torch.float32, got \d+"),
        ("add", "x, (ctypes.c_double * 3)(), x, 3", TypeError, "an array of torch.float32"),
        ("add", "x, [x, x], x, 3", ValueError, "only one element"),
        ("add", "x, torch.ones(3, 3)[0::2].T, x, 3", ValueError, "takes contiguous tensors on a CPU"),
        ("add", "x, x.to('meta'), x, 3", ValueError, "on meta"),
        ("add", "x, x, x, 3.5", ctypes.ArgumentError, "argument 4"),
        ("add", "x, x, x, None", ctypes.ArgumentError, "argument 4"),
        ("pick", "x.double(), (0,), x.double(), 1, 1.0", TypeError, "takes Pointers.dtype=torch.float64.*got a tensor of torch.float64"),
        ("pick", "[x], (0,), x.double(), 1, 1.0", TypeError, "float64, got a tensor of torch.float32"),
        ("pick", "[x.double()], x, x.double(), 1, 1.0", TypeError, "takes torch.int64, got a tensor of torch.float32"),
        ("pick", "[x.double()], (0.5,), x.double(), 1, 1.0", TypeError, "int"),
        ("drop", "x, 3", TypeError, "no function drop"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(example, symbol, arguments, error, message):
    values = eval(f"({arguments})", {"x": torch.ones(3), "torch": torch, "ctypes": ctypes, "native": native})
    with pytest.raises(error, match=message):
        example.run(symbol, *values)
