"""Builds the C++ kernels before they are needed, several at once: ``python -m hyperbolic.native`` does, and a run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from hyperbolic import native, switch

# Those that take the compiler longest, which begin first.
_LONGEST = ("riemannian_steps", "recurrent", "losses", "mobius")
_TOGETHER_S = 25.0  # that one core took for all of them


def missing() -> list[str]:
    """The sources that are not built yet; none where the switch is off or there is no compiler."""
    compiler = switch.cpp_compiler()
    if compiler is None or not switch.native():
        return []
    try:
        machine = native.machine_key(compiler)
        targets = {name: native.target_of(name, machine) for name in sorted(native.sources())}
    except (OSError, subprocess.SubprocessError):  # which `native.library` warns of
        return []
    return [name for name, target in targets.items() if not native.matches(target, target.with_suffix(".sha256"))]


def broken_compiler() -> str:
    """What is wrong with the compiler that there is, which cannot say its version; empty if nothing."""
    compiler = switch.cpp_compiler()
    try:
        if compiler is not None:
            native.machine_key(compiler)
    except (OSError, subprocess.SubprocessError) as error:
        return " ".join(f"the C++ compiler {compiler} does not work: {error}".split())
    return ""


def build(say: Callable[[str], None]) -> int:
    """Build what is missing, one on each core at a time; returns how many were built.

    A source that does not compile is left to :func:`hyperbolic.native.library`, which warns when it is used. Processes
    that start together do not build twice. say: is given a line about what is going on, and one each time that another
    quarter is done.
    """
    if not missing():
        return 0
    with _alone():
        names = sorted(missing(), key=lambda name: _LONGEST.index(name) if name in _LONGEST else len(_LONGEST))
        cores = min(
            len(names), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
        if not names:
            return 0
        say(
            f"compiling {len(names)} C++ kernels, once on this machine: "
            f"about {max(1, round(_TOGETHER_S / cores))} s on {cores} idle core{'s' * (cores > 1)}"
        )
        start, quarters, built = time.perf_counter(), 0, 0
        with _compilations(names, cores) as jobs:
            for n, job in enumerate(as_completed(jobs), 1):
                built += job.result()
                if n * 4 // len(names) > quarters:
                    quarters = n * 4 // len(names)
                    failed = f" ({n - built} could not be)" if n > built else ""
                    say(f"compiled {built} of {len(names)}{failed} in {time.perf_counter() - start:.0f} s")
    return built


@contextlib.contextmanager
def _compilations(names: list[str], cores: int) -> Iterator[list[Future[bool]]]:
    """What compiles each source, so many at a time; upon Ctrl-C, or a signal that is handled as it is, all end."""
    pool, jobs = ThreadPoolExecutor(cores), []
    try:
        jobs += [pool.submit(_compile, name) for name in names]
        yield jobs
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        while not all(job.done() for job in jobs):
            native.kill_compilers()
            time.sleep(0.05)
        raise
    pool.shutdown()


def _compile(name: str) -> bool:
    """Whether it could be built."""
    try:
        native.compile_source(name)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other process builds; where files cannot be locked, do not wait."""
    try:
        import fcntl

        native.cache_folder().mkdir(parents=True, exist_ok=True)
        lock = (native.cache_folder() / ".lock").open("a")
        fcntl.flock(lock, fcntl.LOCK_EX)
    except (ImportError, OSError):
        yield
        return
    with lock:
        yield


def main() -> int:
    """Build all and say how many; the exit code is 1 where some could not be built."""
    if switch.cpp_compiler() is None or not switch.native():
        print("There is no C++ compiler (g++, clang++ or $CXX), or HYPERBOLIC_KERNELS=plain: PyTorch's operations run.")
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        n = build(lambda line: print(line, flush=True))
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 130
    if reason := broken_compiler():
        print(f"error: {reason}; PyTorch's operations run.", file=sys.stderr)
        return 1
    if names := missing():
        print(f"error: could not be built: {', '.join(names)}; a run that needs them says why.", file=sys.stderr)
        return 1
    result = f"{n} C++ kernels were compiled." if n else "The C++ kernels are there."
    print(f"{result} They are in {native.cache_folder()}.")
    return 0
