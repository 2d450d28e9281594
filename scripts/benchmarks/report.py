"""What a run of the benchmarks leaves: a table on the terminal, a JSON file, a bar chart."""

from __future__ import annotations

import datetime
import json
import os
import platform
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.box import SQUARE
from rich.console import Console
from rich.table import Table

from hyperbolic import switch
from scripts.benchmarks.measure import Timing
from scripts.benchmarks.row import Result, Verdict, thp_enabled
from tasks.folders import whole_file, write_text
from tasks.record import commit

SCHEMA = 1


def environment(threads: int, device: torch.device, quick: bool) -> dict[str, Any]:
    """Where and how a run was measured; no path and no name of the machine."""
    packages = {}
    for name in ("torch", "geoopt", "hypll"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = None
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **dict(zip(("commit", "dirty"), commit(), strict=True)),
        "mode": "quick" if quick else "full",
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "thp_mem_alloc_enable": thp_enabled(),
        "kernels": switch.mode(),
        "platform": platform.system(),
        "python": platform.python_version(),
        "packages": {**packages, "torch": torch.__version__},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def as_dict(results: list[Result], where: dict[str, Any]) -> dict[str, Any]:
    """The content of the JSON file."""
    return {"schema": SCHEMA, **where, "rows": [_row_dict(result) for result in results]}


def _row_dict(result: Result) -> dict[str, Any]:
    return {
        "name": result.row.name,
        "title": result.row.title,
        "dtype": result.dtype,
        "variants": [
            {"name": timing.name, "role": ("floor", "ours", "peer")[min(i, 2)], **asdict(timing)}
            for i, timing in enumerate(result.timings)
        ],
        "gates": [
            {"what": v.gate.what, "against": v.gate.against, "limit": v.limit, "value": v.value, "passed": v.passed}
            for v in result.verdicts
        ],
        "aim": result.row.aim,
        "kernels": list(result.row.kernels),
        "passed": result.passed,
        "measured_again": result.measured_again,
        "notes": result.notes,
        "parts": [asdict(part) for part in result.parts],
        **({} if result.launches is None else {"launches": result.launches}),
    }


def file_stem(where: dict[str, Any], dtypes: str, partial: bool) -> str:
    """The name of a run's files: device, dtypes, threads, allocator, kernels, mode."""
    parts = [where["device"], dtypes, f"{where['threads']}threads"]
    parts += ["thp"] if where["thp_mem_alloc_enable"] else []
    parts += ["plain"] if where["kernels"] == "plain" else []
    parts += ["quick"] if where["mode"] == "quick" else []
    parts += ["partial"] if partial else []
    return "-".join(parts)


def write(results: list[Result], where: dict[str, Any], folder: Path, stem: str) -> tuple[Path, Path]:
    """Writes the JSON file, whole or not at all, and the chart; returns their paths."""
    text = json.dumps(as_dict(results, where), indent=1, ensure_ascii=False, allow_nan=False)
    return write_text(folder / f"{stem}.json", text + "\n"), draw(results, where, folder / f"{stem}.png")


def print_table(results: list[Result], where: dict[str, Any], console: Console) -> None:
    """Prints what was measured, with the gates and the verdicts."""
    table = Table(box=SQUARE, show_lines=True, title=heading(where), title_justify="left")
    for name in ("work (floor = 1)", "floor", "ours", "peers", "peak memory", "gate", "aim", ""):
        table.add_column(name)
    for result in results:
        table.add_row(*_cells(result))
    console.print(table)
    for note in dict.fromkeys(note for result in results for note in result.notes):
        console.print(f"- {note}", markup=False, highlight=False)
    for result in results:
        if result.parts:
            console.print(f"- {_parts_text(result)}", markup=False, highlight=False)


def heading(where: dict[str, Any]) -> str:
    """One line that says where the numbers come from."""
    return (
        f"{where['device_name']}, {where['device']}, {where['threads']} threads, torch {where['packages']['torch']}, "
        f"THP_MEM_ALLOC_ENABLE={int(where['thp_mem_alloc_enable'])}, {where['kernels']} kernels, {where['mode']}, "
        f"{where['date'][:10]}"
    )


def _cells(result: Result) -> list[str]:
    floor, ours, *peers = result.timings
    gates = "\n".join(_gate_text(verdict) for verdict in result.verdicts) or "-"
    verdict = {True: "pass", False: "MISS", None: "-"}[result.passed]
    again = f"\n({result.measured_again + 1} tries)" if result.measured_again else ""
    return [
        f"{result.row.title}\n{result.row.name}, {result.dtype}",
        f"{floor.name}\n{_duration(floor.seconds)}",
        _ratio(ours),
        "\n".join(f"{peer.name} {_ratio(peer)}" for peer in peers) or "-",
        _memory(result),
        gates,
        result.row.aim or "-",
        verdict + again,
    ]


def _parts_text(result: Result) -> str:
    """Each part with the times of the floor and of ours, and what it adds to their difference."""
    parts = "; ".join(
        f"{part.name} {1e3 * part.floor_seconds:.3g} → {1e3 * part.ours_seconds:.3g} "
        f"({1e3 * (part.ours_seconds - part.floor_seconds):+.3g})"
        for part in result.parts
    )
    return f"{result.row.name} ({result.dtype}) part by part, {result.timings[0].name} → ours in ms: {parts}"


def _gate_text(verdict: Verdict) -> str:
    other = "" if verdict.gate.against == "floor" else f" {verdict.gate.against}"
    what = {"time": "", "memory": "memory ", "difference": "results that differ "}[verdict.gate.what]
    measured = "not measured" if verdict.value is None else _digits(verdict.value)
    return f"{what}≤ {_digits(verdict.limit)}{other}: {measured}"


def _memory(result: Result) -> str:
    named = [timing for timing in result.timings if timing.peak_bytes is not None]
    return "\n".join(f"{timing.name} {timing.peak_bytes / 2**20:.1f} MiB" for timing in named) or "-"


def _ratio(timing: Timing) -> str:
    low, high = timing.ratio_quartiles
    return f"{_digits(timing.ratio)} ({_digits(low)}-{_digits(high)})"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def draw(results: list[Result], where: dict[str, Any], path: Path) -> Path:
    """Bars of the ratios to the floor, one group for each row, logarithmic."""
    from matplotlib.figure import Figure

    bars = [(result, timing) for result in results for timing in result.timings[1:]]
    labels = [
        f"{result.row.name} ({result.dtype}): ours" if timing is result.ours else timing.name
        for result, timing in bars
    ]
    figure = Figure(figsize=(9, 1.2 + 0.22 * len(bars)), layout="constrained")
    axes = figure.add_subplot()
    places = []
    for i, (_, timing) in enumerate(bars):
        places.append(i + sum(t is r.ours for r, t in bars[: i + 1]) * 0.6)
        colour = "tab:blue" if timing.name.startswith("ours") else "tab:grey"
        low, high = timing.ratio_quartiles
        error = [[max(0.0, timing.ratio - low)], [max(0.0, high - timing.ratio)]]
        axes.barh(places[-1], timing.ratio - 1, left=1, color=colour, height=0.9)
        axes.errorbar(timing.ratio, places[-1], xerr=error, color="black", linewidth=0.8)
        end = max(high, timing.ratio, 1.0)
        axes.annotate(f" {_digits(timing.ratio)}", (end, places[-1]), va="center", fontsize=7)
    axes.set_yticks(places, labels, fontsize=7)
    axes.set_ylim(places[-1] + 1, places[0] - 1)
    axes.set_xscale("log")
    axes.margins(x=0.08)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("time, Euclidean floor = 1 (median, quartiles)")
    figure.suptitle(heading(where), fontsize=8, x=0.01, ha="left")
    axes.spines[["top", "right"]].set_visible(False)
    with whole_file(path) as part:
        figure.savefig(part, dpi=150)
    return path
