"""Times variants of one piece of work against each other: alternating in one process, medians and quartiles."""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

_SAMPLE_SECONDS = 0.005  # a shorter piece of work is repeated until one sample takes this long
_LONG_SECONDS = 1.0
_LONG_SECONDS_BRIEF = 0.2


@dataclass
class Variant:
    """One way to do the work.

    Args:
        name: "ours", or that of the floor or of a peer.
        run: does the work once.
        value: a result that all variants of the row with a value agree on, for the tests.
        share: part of the work that `run` does; times are divided by it. tolerance: of `value`, relative.
    """

    name: str
    run: Callable[[], object]
    value: Callable[[], torch.Tensor] | None = None
    share: float = 1.0
    tolerance: float = 1e-4


@dataclass
class Case:
    """The variants of a row at one size, dtype and device, and what a reader should know of them.

    Args:
        difference: counts where the results of ours and the floor differ, in rows that have a gate on it.
        parts: makes the floor and ours of each part of the work, which are timed apart.
    """

    floor: Variant
    ours: Variant
    peers: Sequence[Variant] = ()
    notes: Sequence[str] = ()
    difference: Callable[[], float] | None = None
    parts: Callable[[], dict[str, tuple[Callable[[], object], Callable[[], object]]]] | None = None

    @property
    def variants(self) -> list[Variant]:
        return [self.floor, self.ours, *self.peers]


@dataclass
class Effort:
    """How long to measure: at least `rounds`, of peers at least `peer_rounds`, then on until `seconds` are over.

    Args: brief: long work is warmed up once only, and peak memory is that of the floor and ours.
    """

    rounds: int
    seconds: float
    peer_rounds: int = 1
    most: int = 400
    brief: bool = False

    def times(self, factor: int) -> Effort:
        most, peers = self.most * factor, self.peer_rounds * factor
        return replace(self, rounds=self.rounds * factor, seconds=self.seconds * factor, peer_rounds=peers, most=most)


@dataclass
class Timing:
    """Seconds of a variant and its ratios to the floor, each with quartiles; a ratio is one of medians."""

    name: str
    seconds: float
    seconds_quartiles: tuple[float, float]
    ratio: float
    ratio_quartiles: tuple[float, float]
    rounds: int
    peak_bytes: int | None = None


@dataclass
class Part:
    """Median seconds of a part of the work, of the floor and of ours."""

    name: str
    floor_seconds: float
    ours_seconds: float


def measure_parts(case: Case, effort: Effort, device: torch.device) -> list[Part]:
    """Times the parts of a case one after the other; empty where it has none."""
    parts = []
    for name, runs in (case.parts() if case.parts else {}).items():
        pair = (Variant(label, run) for label, run in zip(("floor", "ours"), runs, strict=True))
        floor, ours = measure(Case(*pair), effort, device)
        parts.append(Part(name, floor.seconds, ours.seconds))
    return parts


def measure(case: Case, effort: Effort, device: torch.device, memory: bool = False) -> list[Timing]:
    """Runs the variants in turn, each round from the next one on, so that each follows each other; slow peers stop once
    they have `effort.peer_rounds`.

    Returns: timings in the order floor, ours, peers. The quartiles of a ratio are those of the ratios within rounds.
    """
    variants = case.variants
    loops = [_warm_up(variant, device, effort.brief) for variant in variants]
    samples: list[dict[int, float]] = [{} for _ in variants]
    started, turn = time.perf_counter(), 0
    gc.collect()
    gc.disable()
    try:
        while turn < effort.rounds or (time.perf_counter() - started < effort.seconds and turn < effort.most):
            for i in ((turn + place) % len(variants) for place in range(len(variants))):
                spent = sum(samples[i].values()) * loops[i] * variants[i].share
                if i < 2 or turn < effort.peer_rounds or spent < effort.seconds / len(variants):
                    samples[i][turn] = _sample(variants[i], loops[i], device)
            turn += 1
    finally:
        gc.enable()
    timings = [_timing(v.name, times, samples[0]) for v, times in zip(variants, samples, strict=True)]
    if memory:
        profiled = variants[:2] if effort.brief else variants
        for timing, variant in zip(timings, profiled, strict=False):
            if variant.share == 1:
                timing.peak_bytes = peak_memory(variant.run, device)
    return timings


def _warm_up(variant: Variant, device: torch.device, brief: bool) -> int:
    """Runs the work three times, or twice where it takes long (caches, compilation, optimiser state).

    Args: brief: once less.
    Returns: how often a sample repeats it.
    """
    first = _sample(variant, 1, device) * variant.share
    if brief and first > _LONG_SECONDS_BRIEF:
        return 1
    if not brief and first < _LONG_SECONDS:
        variant.run()
    seconds = _sample(variant, 1, device) * variant.share
    return max(1, round(_SAMPLE_SECONDS / max(seconds, 1e-7)))


def _sample(variant: Variant, loops: int, device: torch.device) -> float:
    start = time.perf_counter()
    for _ in range(loops):
        variant.run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / loops / variant.share


def _timing(name: str, times: dict[int, float], floor: dict[int, float]) -> Timing:
    seconds = list(times.values())
    median = statistics.median(seconds)
    ratios = [value / floor[turn] for turn, value in times.items()]
    same_rounds = statistics.median(floor[turn] for turn in times)
    return Timing(name, median, _quartiles(seconds), median / same_rounds, _quartiles(ratios), len(seconds))


def _quartiles(values: list[float]) -> tuple[float, float]:
    low, high = np.quantile(values, (0.25, 0.75)).tolist()
    return low, high


def peak_memory(run: Callable[[], object], device: torch.device) -> int:
    """Most bytes of tensors that `run` held at once, on top of what was held before it (gradients of its last time are
    dropped with its `clear`)."""
    getattr(run, "clear", lambda: None)()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    cpu = torch.profiler.ProfilerActivity.CPU
    with _quiet(), torch.profiler.profile(activities=[cpu], profile_memory=True, acc_events=True) as profile:
        run()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    level = top = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        level = max(0, level + event.nbytes())  # what was there before may be freed as well
        top = max(top, level)
    return top


def launches(variant: Variant, device: torch.device) -> int | None:
    """How many kernels the whole work launches on a GPU, without copies and fills; None on a CPU, and where the
    profiler sees none."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    with _quiet(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        variant.run()
        torch.cuda.synchronize(device)
    kernels = [
        event
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
        and not getattr(event, "is_user_annotation", False)  # a range of launches, as of an optimiser's step
        and not event.name.startswith(("Memcpy", "Memset"))
    ]
    return round(len(kernels) / variant.share) or None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Closes the process's error stream, on which the profiler writes of every start and end."""
    stream, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(stream, 2)
        os.close(stream)
        os.close(nothing)
