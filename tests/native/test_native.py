"""How C++ kernels are built and found."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from hyperbolic import native, switch
from hyperbolic.native import build
from tests.cli import ROOT

_SOURCE = """
#include <cstdint>
extern "C" void doubled(double *x, int64_t n, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < n; i++) x[i] *= 2;
}
"""
needs_compiler = pytest.mark.skipif(switch.cpp_compiler() is None, reason="needs a C++ compiler")


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path, native_kernels):
    """Sources and cache of each test are its own."""
    monkeypatch.setattr(native, "FOLDER", tmp_path)
    monkeypatch.setattr(native, "SOURCES", tmp_path)
    monkeypatch.setattr(native, "_load", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@needs_compiler
def test_a_kernel_is_built_once_and_called(tmp_path, monkeypatch):
    (tmp_path / "twice.cpp").write_text(_SOURCE)
    x = torch.arange(5.0, dtype=torch.float64)
    native.Library("twice").run("doubled", x, 5)
    assert x.tolist() == [0, 2, 4, 6, 8]
    (built,) = (tmp_path / "cache" / "hyperbolic").glob("*.so")
    monkeypatch.setattr(native, "_load", {})
    ran, run = [], native._run
    monkeypatch.setattr(native, "_run", lambda command: ran.append(command[1]) or run(command))
    assert native.compile_source("twice") == built
    assert ran == ["--version"]


def _damage(library, content):
    library.unlink()  # not written over: this process has it loaded, and would crash when it ends
    library.write_bytes(content)


@needs_compiler
@pytest.mark.parametrize("damage", ["no record", "other record", "a record that is a folder", "longer"])
def test_a_library_that_is_not_what_its_record_says_is_built_again(tmp_path, monkeypatch, damage):
    (tmp_path / "twice.cpp").write_text(_SOURCE)
    built = native.compile_source("twice")
    whole, record = built.read_bytes(), built.with_suffix(".sha256")
    if damage == "longer":
        _damage(built, whole + b"0")
    else:
        record.unlink()
    if damage == "other record":
        record.write_text(f"{len(whole)} {'0' * 64}")
    elif damage == "a record that is a folder":
        record.mkdir()
        with pytest.warns(RuntimeWarning, match="could not be built"):
            assert native.library("twice") is None
        return
    assert native.compile_source("twice") == built
    assert (built.read_bytes(), record.read_text()) == (whole, native._fingerprint(built))


@needs_compiler
def test_a_library_that_was_cut_short_ends_no_process(tmp_path):
    (tmp_path / "twice.cpp").write_text(_SOURCE)
    built = native.compile_source("twice")
    _damage(built, built.read_bytes()[:4096])
    script = f"""
import pathlib, torch
from hyperbolic import native
native.FOLDER = pathlib.Path({str(tmp_path)!r})
native.SOURCES = native.FOLDER
x = torch.arange(5.0, dtype=torch.float64)
native.Library("twice").run("doubled", x, 5)
print(x.tolist())
"""
    result = subprocess.run([sys.executable, "-W", "error:the C", "-c", script], capture_output=True, text=True)
    assert (result.returncode, result.stdout.strip()) == (0, "[0.0, 2.0, 4.0, 6.0, 8.0]"), result.stderr


@needs_compiler
def test_a_changed_source_is_another_kernel(tmp_path):
    (tmp_path / "twice.cpp").write_text(_SOURCE)
    first = native.compile_source("twice")
    (tmp_path / "twice.cpp").write_text(_SOURCE.replace("*= 2", "*= 3"))
    second = native.compile_source("twice")
    (tmp_path / "rows.h").write_text("// new")
    assert len({first, second, native.compile_source("twice")}) == 3


@needs_compiler
def test_without_openmp_it_is_built_for_one_thread(tmp_path, monkeypatch):
    (tmp_path / "twice.cpp").write_text(_SOURCE)
    monkeypatch.setattr(native, "_PARALLEL", ("-fopenmp-no-such-option",))
    x = torch.ones(3, dtype=torch.float64)
    native.Library("twice").run("doubled", x, 3)
    assert x.tolist() == [2, 2, 2]


@needs_compiler
def test_a_source_that_does_not_compile_is_warned_of_once_and_leaves_nothing(tmp_path, recwarn):
    (tmp_path / "broken.cpp").write_text("int f( {")
    with pytest.warns(RuntimeWarning, match=r"'broken' could not be built, PyTorch operations are used.*broken.cpp"):
        assert native.library("broken") is None
    with pytest.raises(RuntimeError, match="'broken' could not be built"):
        native.Library("broken").run("f", 1)
    recwarn.clear()
    assert native.library("broken") is None
    assert not recwarn.list
    assert not list((tmp_path / "cache" / "hyperbolic").iterdir())


def test_a_compiler_whose_messages_are_no_utf8(tmp_path, monkeypatch):
    compiler = tmp_path / "compiler"
    compiler.write_bytes(b"#!/bin/sh\nprintf 'erreur: caract\\350re \\377' >&2\ntest \"$1\" = --version\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(switch, "cpp_compiler", lambda: str(compiler))
    (tmp_path / "twice.cpp").write_text(_SOURCE)
    with pytest.warns(RuntimeWarning, match="'twice' could not be built.*erreur: caract.re"):
        assert native.library("twice") is None


def test_building_all_says_that_the_compiler_is_broken(tmp_path, monkeypatch, capsys):
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(switch, "cpp_compiler", lambda: str(compiler))
    monkeypatch.setattr(build.signal, "signal", lambda *_: None)  # of this process
    (tmp_path / "twice.cpp").write_text(_SOURCE)
    assert build.main() == 1
    assert f"error: the C++ compiler {compiler} does not work" in capsys.readouterr().err


def test_what_a_broken_compiler_writes_is_not_kept(tmp_path, monkeypatch):
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do test "$1" = -o && echo junk > "$2"; shift; done\n')
    compiler.chmod(0o755)
    monkeypatch.setattr(switch, "cpp_compiler", lambda: str(compiler))
    (tmp_path / "twice.cpp").write_text(_SOURCE)
    with pytest.warns(RuntimeWarning, match=r"'twice' could not be built.*twice-.*\.so"):
        assert native.library("twice") is None
    assert not list((tmp_path / "cache" / "hyperbolic").iterdir())


@needs_compiler
def test_several_that_cannot_be_built_are_one_warning(tmp_path, recwarn):
    for name in ("broken", "bad"):
        (tmp_path / f"{name}.cpp").write_text("int f( {")
        assert native.library(name) is None
    assert len(recwarn.list) == 1


@needs_compiler
@pytest.mark.parametrize(
    "message",
    ["g++: fatal error: Killed signal terminated program cc1plus", "-fopenmp: unknown", "ld: cannot find -lomp: No such"],
)
def test_only_a_compiler_without_openmp_is_asked_again(tmp_path, monkeypatch, message):
    """Of one that was killed, a library without threads would stay in the cache."""
    (tmp_path / "twice.cpp").write_text(_SOURCE)
    run, asked = native._run, []

    def fail_first(command):
        asked.append(command)
        if len(asked) == 2:  # after --version
            raise subprocess.CalledProcessError(1, command, stderr=message)
        return run(command)

    monkeypatch.setattr(native, "_run", fail_first)
    if "Killed" in message:
        with pytest.warns(RuntimeWarning, match="Killed signal.*that works"):
            assert native.library("twice") is None
        assert not list((tmp_path / "cache" / "hyperbolic").iterdir())
    else:
        assert native.library("twice") is not None
        assert "-fopenmp" not in asked[2]


@needs_compiler
def test_all_are_built_at_once_with_a_count_and_only_once(tmp_path, monkeypatch):
    for name in ("one", "two", "three", "four"):
        (tmp_path / f"{name}.cpp").write_text(_SOURCE)
    (tmp_path / "broken.cpp").write_text("int f( {")
    lines = []
    assert build.build(lines.append) == 4
    assert re.match(r"compiling 5 C\+\+ kernels, once on this machine: about \d+ s", lines[0])
    assert re.match(r"compiled 4 of 5 \(1 could not be\) in \d+ s", lines[-1])
    assert build.missing() == ["broken"]  # which `library` warns of when it is used
    (tmp_path / "broken.cpp").unlink()
    monkeypatch.setattr(native, "_run", lambda command: "" if command[1] == "--version" else pytest.fail("built again"))
    monkeypatch.setattr(native, "matches", lambda target, record: True)
    assert build.build(lines.append) == 0
    assert len(lines) <= 5
    switch.use_kernels("plain")
    monkeypatch.setattr(native, "matches", lambda target, record: False)
    assert build.missing() == []


_START = """
import pathlib, sys, torch
from hyperbolic import native
from hyperbolic.native import build
folder = pathlib.Path(sys.argv[1])
native.FOLDER = native.SOURCES = folder
print("ready", flush=True)
sys.stdin.readline()
print("built", build.build(lambda line: None) if sys.argv[2] == "build" else "when used")
x = torch.ones(3, dtype=torch.float64)
native.Library("twice").run("doubled", x, 3)
assert x.tolist() == [2, 2, 2]
"""


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("how", ["build", "use"])
def test_two_processes_at_once(tmp_path, how):
    """Both have a whole kernel; where they build before they use it, it is compiled by one of them."""
    folder = tmp_path / "sources"  # not that of the cache, whose temporary folders come and go
    folder.mkdir()
    (folder / "twice.cpp").write_text(_SOURCE)
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _START, folder, how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert sorted(out for out, _ in outputs) == (
        ["built 0\n", "built 1\n"] if how == "build" else ["built when used\n"] * 2
    )
    left = sorted(path.suffix for path in (tmp_path / "cache" / "hyperbolic").iterdir() if path.name != ".lock")
    assert left == [".sha256", ".so"]


def test_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(switch, "cpp_compiler", lambda: None)
    (tmp_path / "twice.cpp").write_text(_SOURCE)
    with pytest.warns(RuntimeWarning, match=r"no C\+\+ compiler"):
        assert native.library("twice") is None


def test_no_compiler_where_kernels_are_wanted_is_one_warning(monkeypatch, recwarn):
    monkeypatch.setattr(switch, "cpp_compiler", lambda: None)
    switch.use_kernels("plain")
    assert not native.readable(torch.ones(2))
    assert not recwarn.list
    switch.use_kernels("fast")
    for _ in range(2):
        assert not native.readable(torch.ones(2))
    (warning,) = recwarn.list
    assert re.search(r"no C\+\+ compiler.*apt install g\+\+.*HYPERBOLIC_KERNELS=plain", str(warning.message))


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "twice.cpp").write_text(_SOURCE)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="could not be built"):
        assert native.library("twice") is None


def test_a_compiler_that_never_ends(tmp_path, monkeypatch):
    (tmp_path / "twice.cpp").write_text(_SOURCE)

    def hang(command):
        raise subprocess.TimeoutExpired(command, 300)

    monkeypatch.setattr(native, "_run", hang)
    with pytest.warns(RuntimeWarning, match="timed out"):
        assert native.library("twice") is None


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_compilers(tmp_path, monkeypatch, number):
    """A compiler that starts a program of its own, as g++ does, which writes its number and would run on."""
    compiler = tmp_path / "slow"
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exit 0\nsh -c "echo \\$\\$ > {tmp_path}/\\$\\$.pid; exec sleep 60" &\nwait\n'
    )
    compiler.chmod(0o755)
    environment = {**os.environ, "CXX": str(compiler), "HYPERBOLIC_KERNELS": "fast"}
    run = subprocess.Popen(
        [sys.executable, "-m", "hyperbolic.native"], env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        until = time.monotonic() + 60
        while not (numbers := list(tmp_path.glob("*.pid"))):
            assert run.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        run.send_signal(number)
        _, said = run.communicate(timeout=10)
    finally:
        run.kill()
    assert (run.returncode, said.strip()) == (130, "Interrupted.")
    for path in numbers:  # gone, or a zombie that nobody has waited for
        state = Path("/proc", path.stem, "stat")
        assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
    assert not [*(tmp_path / "cache" / "hyperbolic").glob("tmp*")]


@needs_compiler
def test_which_tensors_a_kernel_takes():
    x = torch.ones(4, 3)
    assert native.usable(x, None, x[:2])
    assert not native.usable(x.T)
    assert not native.usable(x, x.double())
    assert not native.usable(x.half())
    assert not native.usable(x.to("meta"))
    assert torch.func.vmap(lambda row: row * native.usable(row))(x).sum() == 0
    switch.use_kernels("plain")
    assert not native.usable(x)


def test_tensors_of_a_shape():
    x = torch.ones(4, 3)
    native.check_shape(x, (4, 3))
    native.check_shape(None, (4, 3))
    with pytest.raises(ValueError, match=r"a tensor of shape \(4, 3\) here, got \(3, 3\)"):
        native.check_shape(x[:3], (4, 3))


def test_the_cache_folder(monkeypatch, tmp_path):
    assert native.cache_folder() == tmp_path / "cache" / "hyperbolic"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert native.cache_folder() == native.Path(os.path.expanduser("~"), ".cache", "hyperbolic")


@needs_compiler
def test_a_user_without_a_home_has_plain_formulas_and_is_told(monkeypatch, tmp_path):
    def home():
        raise RuntimeError("Could not determine home directory.")

    (tmp_path / "twice.cpp").write_text(_SOURCE)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(native.Path, "home", home)
    with pytest.warns(RuntimeWarning, match="'twice' could not be built.*this user has no home; set XDG_CACHE_HOME"):
        assert native.library("twice") is None
