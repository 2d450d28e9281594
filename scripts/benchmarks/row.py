"""A row of the table: what is measured, at which sizes, and which ratio it must reach."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from scripts.benchmarks.measure import Case, Effort, Part, Timing, launches, measure, measure_parts

_CHANCE = 1.5  # a row this many times above its gate has not missed it by chance


@dataclass(frozen=True)
class Setting:
    """Where and how the rows of a run are measured.

    Args: parts: rows that have parts are timed part by part as well.
    """

    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    quick: bool = False
    tiny: bool = False
    parts: bool = False

    @property
    def placed(self) -> dict[str, Any]:
        """Keywords of tensor constructors."""
        return {"dtype": self.dtype, "device": self.device}

    @property
    def compiles(self) -> bool:
        """Whether whole models are measured compiled as well: on a GPU, where eager code waits for launches."""
        return self.device.type == "cuda"

    @property
    def effort(self) -> Effort:
        if self.tiny:
            return Effort(1, 0.0)
        if self.quick:
            return Effort(5, 0.4, brief=True)
        return Effort(9, 1.0 if self.device.type == "cuda" else 5.0, 5)  # milliseconds of work on a GPU

    def gates(self, row: Row) -> list[Gate]:
        """The gates of a row that apply here; they are for float32, in others ratios are reported without a verdict."""
        return [gate for gate in row.gates if self.dtype is torch.float32 and gate.device == self.device.type]


@dataclass(frozen=True)
class Gate:
    """A limit of ours against the floor or a peer.

    Args:
        limit: ours must not be above this many times the other. against: name of a variant of the row, or "floor".
        what: "time"; "memory" for peak memory; or "difference", the number of results that differ from the floor's.
        thp: the limit instead where THP_MEM_ALLOC_ENABLE=1. device: the kind of device that it is for.
    """

    limit: float
    against: str = "floor"
    what: str = "time"
    thp: float | None = None
    device: str = "cpu"

    def here(self) -> float:
        return self.thp if self.thp is not None and thp_enabled() else self.limit


@dataclass(frozen=True)
class Row:
    """An entry of the table.

    Args:
        name: what `--rows` matches. title: the work, with its sizes. build: `(setting, **sizes) -> Case`.
        sizes, tiny: sizes of the table, and those of the tests. gates: all for the device must hold.
        aim: where we want to end. memory: peak memory is measured as well.
        kernels: what the row shows the worth of: names of C++ sources, of operators, and of the Triton modules of a
            folder ("recurrent.triton"); none where PyTorch's operations do.
    """

    name: str
    title: str
    build: Callable[..., Case]
    sizes: dict[str, Any]
    tiny: dict[str, Any]
    gates: Sequence[Gate] = ()
    aim: str = ""
    memory: bool = False
    kernels: tuple[str, ...] = ()


@dataclass
class Verdict:
    """A gate and what was measured; `value` and `passed` are None where the peer was not there."""

    gate: Gate
    limit: float
    value: float | None
    passed: bool | None


@dataclass
class Result:
    """What came out of a row. launches: kernels of a step of ours, on a GPU."""

    row: Row
    dtype: str
    timings: list[Timing]
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    measured_again: int = 0
    parts: list[Part] = field(default_factory=list)
    launches: int | None = None

    @property
    def ours(self) -> Timing:
        return self.timings[1]

    @property
    def passed(self) -> bool | None:
        """None where no gate applies."""
        outcomes = [verdict.passed for verdict in self.verdicts if verdict.passed is not None]
        return all(outcomes) if outcomes else None


def thp_enabled() -> bool:
    """Whether PyTorch asks for transparent huge pages, which makes large CPU tensors cheaper."""
    return os.environ.get("THP_MEM_ALLOC_ENABLE", "0") == "1"


def run_row(row: Row, setting: Setting, again: int = 0) -> Result:
    """Measures a row.

    Args:
        again: how often a row that misses a gate by little is measured once more, each time for longer; the last one
            counts.
    """
    torch.manual_seed(0)
    case = row.build(setting, **(row.tiny if setting.tiny else row.sizes))
    effort, attempt = setting.effort, 0
    timings = measure(case, effort, setting.device, row.memory)
    gates = setting.gates(row)
    verdicts = judge(gates, case, timings)
    while attempt < again and _by_chance(verdicts):
        attempt += 1
        timings = _again(case, timings, verdicts, effort.times(1 + attempt), setting.device)
        verdicts = judge(gates, case, timings)
    launched = launches(case.ours, setting.device)
    parts = measure_parts(case, effort, setting.device) if setting.parts else []
    name = str(setting.dtype).removeprefix("torch.")
    return Result(row, name, timings, verdicts, list(case.notes), attempt, parts, launched)


def _by_chance(verdicts: list[Verdict]) -> bool:
    """Whether a gate is missed, and each that is may be met the next time: one of time, by a factor up to 1.5."""
    missed = [verdict for verdict in verdicts if verdict.passed is False]
    return bool(missed) and all(v.gate.what == "time" and v.value <= _CHANCE * v.limit for v in missed)


def _again(
    case: Case, timings: list[Timing], verdicts: list[Verdict], effort: Effort, device: torch.device
) -> list[Timing]:
    """The timings with those of the floor, ours and the peers of missed gates measured anew; peak memory stays."""
    needed = {verdict.gate.against for verdict in verdicts if verdict.passed is False}
    fewer = replace(case, peers=[peer for peer in case.peers if peer.name in needed])
    names = [variant.name for variant in fewer.variants]
    new = dict(zip(names, measure(fewer, effort, device), strict=True))
    return [replace(new.get(old.name, old), peak_bytes=old.peak_bytes) for old in timings]


def judge(gates: Sequence[Gate], case: Case, timings: list[Timing]) -> list[Verdict]:
    """The verdict on each of the gates."""
    by_name = {timing.name: timing for timing in timings[2:]} | {"floor": timings[0]}
    verdicts = []
    for gate in gates:
        other = by_name.get(gate.against)
        value = None
        if gate.what == "difference":
            value = case.difference()
        elif other is not None:
            value = _quotient(timings[1], other, gate.what)
        limit = gate.here()
        verdicts.append(Verdict(gate, limit, value, None if value is None else value <= limit))
    return verdicts


def _quotient(ours: Timing, other: Timing, what: str) -> float | None:
    if what == "time":
        return ours.ratio / other.ratio
    return ours.peak_bytes / other.peak_bytes if ours.peak_bytes is not None and other.peak_bytes else None
