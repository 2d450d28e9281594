"""A run as it lies in its folder: what it is called, its history, and its trained model with the data."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from configs.build import rebuild
from hyperbolic.geometry import GEOMETRIES
from hyperbolic.manifolds import Manifold
from tasks import resume, search
from tasks.base import Task, TaskData
from tasks.checkpoints import AVERAGE, BEST, LAST
from tasks.comparison_labels import different, effective
from tasks.errors import UserError
from tasks.reading import brief
from tasks.settings import NAME, flat, settings_of

STATES = {"best": (AVERAGE, BEST), "last": (LAST,)}  # the first that is there; the mean of epochs is what was tested
_LEFT_OUT = re.compile(r"\.(_target_|_partial_)$|^geometry\.parts\.\w+\.(manifold|layers)$")  # from others that follow
_GEOMETRY = "geometry.name"
_MOST_SETTINGS = 3  # of a note
_LETTERS = 60  # of a note in a file's name


def short_hash(text: str) -> str:
    """Six letters that differ where texts do."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]


@dataclass(frozen=True)
class Run:
    """A run's folder. settings: of its configuration, by dotted key. selection: how its best state was chosen, or None.
    history: a row of numbers for each validation or epoch, those that were not measured left out. note: what tells it
    from others of its name, see `read_runs`."""

    folder: Path
    name: str
    settings: dict[str, Any]
    selection: dict[str, Any] | None
    history: list[dict[str, float]]
    note: str = ""

    @property
    def seed(self) -> int:
        return self.settings["seed"]

    @property
    def title(self) -> str:
        return ", ".join(filter(None, [self.name, self.note, f"seed {self.seed}"]))

    @property
    def stem(self) -> str:
        """Part of the name of a file that shows this run."""
        note = re.sub(r"[^\w.=-]+", "_", self.note)
        if len(note) > _LETTERS:
            note = f"{note[:_LETTERS]}-{short_hash(self.note)}"
        return re.sub(r"[^\w .,=+-]", "_", "-".join(filter(None, [self.name, note, f"seed{self.seed}"])))

    @property
    def geometry(self) -> str:
        """As "poincare (classifier: euclidean)"."""
        parts = [f"{component}: {part['name']}" for component, part in self._parts.items()]
        name = self.settings.get("geometry.name", "no geometry")
        return name + (f" ({', '.join(parts)})" if parts else "")

    @property
    def space(self) -> str:
        """Geometry and c, as the settings have them: "poincare, c = 1"."""
        main = {key: self.settings.get(f"geometry.{key}") for key in ("name", "manifold")}
        pairs = [GEOMETRIES.get(part["name"], (part.get("manifold"),)) for part in (main, *self._parts.values())]
        is_flat = all(pair[0] in (None, "Euclidean") for pair in pairs)
        c = "c = 0" if is_flat else f"c = {self.settings.get('geometry.c'):g}"
        return f"{self.geometry}, {c}" + (" at the start, learned" if self.settings.get("geometry.learn_c") else "")

    @property
    def _parts(self) -> dict[str, dict[str, str]]:
        """Of each component with a geometry of its own its `name`, and where it is not registered its `manifold`."""
        parts: dict[str, dict[str, str]] = {}
        for key, value in self.settings.items():
            if key.startswith("geometry.parts."):
                component, _, entry = key.removeprefix("geometry.parts.").partition(".")
                parts.setdefault(component, {})[entry or "name"] = value
        return parts

    def column(self, name: str) -> list[tuple[float, float]]:
        """(epoch, value) of a column of the history; a validation within an epoch lies at its part of the epoch."""
        return [(row["step"] / self._steps_per_epoch, row[name]) for row in self.history if name in row]

    @property
    def best_epoch(self) -> float | None:
        """Where the selected state lies among the epochs of `column`."""
        step = (self.selection or {}).get("step")
        return None if step is None else step / self._steps_per_epoch

    def epoch_of(self, step: int) -> int:
        """The epoch, from 1, that a state after so many steps is in or ends."""
        return max(1, math.ceil(step / self._steps_per_epoch - 1e-6))

    @property
    def _steps_per_epoch(self) -> float:
        return max((row["step"] / row["epoch"] for row in self.history), default=1.0)


class Trained(NamedTuple):
    """A run's task and model with the weights of a checkpoint, in evaluation mode; its data; the weights' epoch."""

    run: Run
    task: Task
    model: nn.Module
    data: TaskData
    epoch: int

    def about(self, manifold: Manifold) -> str:
        """Geometry, the c of the manifold that is shown, and the epoch: "poincare, c = 1, epoch 12"."""
        c = float(manifold.c.detach())
        return f"{self.run.geometry}, c = {c:.4g}, epoch {self.epoch}"


def read_run(folder: Path) -> Run:
    """The run in a folder that run.py made; the folder of a run that was interrupted will do.

    Raises UserError where it is none; where it holds runs, their folders are named.
    """
    if folder.is_file():
        raise UserError(f"{folder} is a file; name the folder of a run, as in outputs/<name>/<time>-seed0.")
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}. Runs are in outputs/<name>/<time>-seed<n>, see their last line.")
    if (folder / "record.json").is_file():
        record = _json(folder / "record.json")
        settings, selection = flat(record["config"]), record.get("selection")
        experiment = record.get("experiment")
        name = experiment or folder.resolve().parent.name  # which a user may have given any name
        is_named = experiment is None or NAME.fullmatch(str(experiment))
        if not is_named or not isinstance(selection, dict | None) or not _has_seed(settings):
            raise UserError(f"{folder / 'record.json'} is not the record of a run of this program. Run it again.")
    elif file := next((f for f in (folder / "checkpoints" / n for n in (LAST, BEST)) if f.is_file()), None):
        checkpoint = resume.read(file, str(folder))
        settings, selection = settings_of(checkpoint["config"], checkpoint["data"]), None
        if not _has_seed(settings):
            raise UserError(f"{file} has no whole number as its seed; it is no checkpoint of a run. Use another one.")
        name = folder.resolve().parent.name
    else:
        inside = sorted({f.parent for name in ("record.json", "checkpoints") for f in folder.glob(f"*/{name}")})
        hint = f"It holds {len(inside)} run(s), as {inside[-1]}; name one." if inside else "Name the folder of a run."
        if (folder / search.SUMMARY).is_file():
            hint += f" The search itself is drawn by: python scripts/figures.py search {shlex.quote(str(folder))}"
        raise UserError(f"{folder} is not the folder of a run: it has neither a record.json nor a checkpoint. {hint}")
    run = Run(folder, name, settings, selection, _history(folder / "history.csv"))
    try:
        _ = run.title, run.space, run.best_epoch, run.epoch_of(1)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        fault = f"{type(error).__name__}: {brief(str(error))}"
        raise UserError(f"{folder}: its record.json or history.csv is damaged ({fault}). Run it again.") from error
    return run


def _has_seed(settings: Mapping[str, Any]) -> bool:
    """Whether there is a seed, which is part of the names of files."""
    seed = settings.get("seed")
    return isinstance(seed, int) and not isinstance(seed, bool)


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in folders, see `read_run`; those of one name have a note: the settings that differ among them, the seed
    apart, and where that does not tell them apart, what their folders are called."""
    runs = [read_run(folder) for folder in folders]
    notes: dict[Path, str] = {}
    for name in {run.name for run in runs}:
        notes |= _notes([run for run in runs if run.name == name])
    with_notes = [replace(run, note=notes[run.folder]) for run in runs]
    return [
        replace(run, note=", ".join(filter(None, [run.note, run.folder.resolve().name])))
        if len({other.folder.resolve() for other in with_notes if other.stem == run.stem}) > 1
        else run
        for run in with_notes
    ]


def _notes(runs: Sequence[Run]) -> dict[Path, str]:
    """What tells runs of one name apart, by folder: the settings with an effect on results that differ."""
    notes = {}
    settings = different([effective(run.settings) for run in runs])
    for run, own in zip(runs, settings, strict=True):
        keys = [key for key in own if not _LEFT_OUT.search(key)]
        if _GEOMETRY in keys:  # its name says the rest, but where runs of that name differ
            same = [other for other in settings if other[_GEOMETRY] == own[_GEOMETRY]]
            free = {key for key in keys if any(other[key] != own[key] for other in same)}
            keys = [_GEOMETRY, *(key for key in keys if key in free or not key.startswith("geometry."))]
        words = [f"{key.removesuffix('.name')}={_word(own[key])}" for key in keys[:_MOST_SETTINGS]]
        notes[run.folder] = ", ".join(words + ["..."] * (len(keys) > _MOST_SETTINGS))
    return notes


def _word(value: Any) -> str:
    """As on the command line."""
    return value if isinstance(value, str) else json.dumps(value)


def load(run: Run, state: str = "best", data_dir: Path | None = None) -> Trained:
    """The trained model of a run. state: "best", which was tested, or "last". data_dir: where its own data lie now.

    Raises UserError where the checkpoint is missing, the model cannot be built again from the run's settings, or the
    data that are there have other types or words than those it was trained with.
    """
    place = run.folder / "checkpoints"
    there = {k: file for k, names in STATES.items() for name in reversed(names) if (file := place / name).is_file()}
    if state not in there:
        other = next(iter(there), None)
        remedy = f"Draw its {other} state: --state {other}." if other else "Run it again, or name another folder."
        if (mode := run.settings.get("mode", "fit")) != "fit":
            remedy = f"It is one of mode={mode}; name the run that trained the model: {run.settings.get('checkpoint')}."
        raise UserError(f"{run.folder}: the run has no checkpoint checkpoints/{STATES[state][-1]}. {remedy}")
    return restore(run, resume.read(there[state], str(run.folder)), data_dir=data_dir)


def restore(
    run: Run, checkpoint: dict[str, Any], portable: bool = False, data_dir: Path | None = None
) -> Trained:
    """The trained model of a run with the weights of a checkpoint, from `tasks.resume.read`; portable: without its
    data, as far as the checkpoint keeps them. What its training said of the data is not said again. Raises UserError as
    `load` does."""
    with contextlib.redirect_stdout(io.StringIO()):
        task, data = rebuild(checkpoint, portable, data_dir)
    if unequal := resume.differences(checkpoint, task.origin, ("data",)):
        raise UserError(
            f"{run.folder}: its model was trained with {'; '.join(unequal)}, so that names would be wrong. Put back "
            "the data that it was trained with (HYPERBOLIC_DATA names their folder), or name another run."
        )
    task.to(resume.dtype_of(run.settings.get("trainer.precision")))
    resume.load_weights(task, checkpoint, str(run.folder))
    return Trained(run, task.eval(), task.model, data, run.epoch_of(checkpoint.get("global_step", 0)))


def _json(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(record, dict) or not isinstance(record.get("config"), dict):
            raise ValueError("it has no configuration")
    except (ValueError, OSError, RecursionError) as error:
        raise UserError(f"{file} is not the record of a run ({error}). Run it again.") from error
    return record


def _history(file: Path) -> list[dict[str, float]]:
    if not file.is_file():
        return []
    rows, number = [], 1
    with file.open(newline="", encoding="utf-8", errors="replace") as stream:
        try:
            for number, row in enumerate(csv.DictReader(stream), start=2):  # noqa: B007 - for the message
                rows.append({k: float(v) for k, v in row.items() if v not in ("", None)})
                if not rows[-1]["epoch"] > 0 <= rows[-1]["step"]:
                    raise ValueError("its epoch or step is no number of one")
        except (csv.Error, ValueError, TypeError, KeyError) as error:
            reason = brief(str(error))
            raise UserError(f"{file}, line {number}: no row of a run's history ({reason}). Run it again.") from error
    return rows
