"""The options of the command line that figures take, the files they write, and what all of them say of a run."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from matplotlib.figure import Figure
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas
from scripts.trained import Run, Trained, short_hash
from tasks.errors import UserError
from tasks.folders import write_text
from tasks.reading import brief

FIGURES = "figures"  # in the folder of the first run
MOST_BYTES = 160  # of the runs' names in that of a file
Loader = Callable[[Run], Trained]


@dataclass(frozen=True)
class FigureOptions:
    """Options of the command line."""

    out: Path | None  # folder of the files; None: that of the first run
    format: str
    labels: tuple[str, ...] | None  # types, entities or nodes to show; None: the paper's
    name: str | None  # of the files, in the place of the runs' names
    words: int  # most words whose queries and keys are drawn
    state: str  # best or last
    pairs: Path | None = None  # file of pairs of sentences
    titles: Mapping[str, str] = field(default_factory=dict)  # of entities and nodes, by name
    data: Path | None = None  # the user's own data, where they have moved

    def path(self, figure: str, runs: Sequence[Run], suffix: str | None = None) -> Path:
        if len(runs) <= 2:
            stem = "-vs-".join(dict.fromkeys(run.stem for run in runs))
        else:
            stem = f"{runs[0].stem}-and-{len(runs) - 1}-more-{short_hash(' '.join(run.stem for run in runs))}"
        if len(stem.encode()) > MOST_BYTES:
            stem = f"{stem.encode()[:MOST_BYTES].decode(errors='ignore')}-{short_hash(stem)}"
        return (self.out or runs[0].folder / FIGURES) / f"{figure}-{self.name or stem}.{suffix or self.format}"

    def for_run(self, run: Run, runs: Sequence[Run]) -> FigureOptions:
        """The same for files of one of the runs, whose names must differ."""
        if len(runs) == 1:
            return self
        namesakes = [other for other in runs if other.stem == run.stem]
        number = str(namesakes.index(run) + 1) if len(namesakes) > 1 else None
        return replace(self, name="-".join(filter(None, [self.name, run.stem, number])))

    def titled(self, names: Sequence[str], run: Run, kind: str) -> Sequence[str]:
        """What the entities or nodes of a run are called, by number: their titles, or where they have none their names.
        Says how many have one. Raises UserError where there are titles, and none of the names has one."""
        if not self.titles:
            return names
        count = sum(name in self.titles for name in names)
        if not count:
            raise UserError(
                f"--titles: none of the {len(names):,} {kind} of {run.title} (as {names[0]!r}) has a title; the files "
                f"have titles of {len(self.titles):,} names, as {next(iter(self.titles))!r}."
            )
        print(f"titles: of {count:,} of the {len(names):,} {kind} of {run.title}", flush=True)
        return [self.titles.get(name, name) for name in names]

    def save(self, figure: Figure, name: str, runs: Sequence[Run]) -> Path:
        return canvas.save(figure, self.path(name, runs))

    def write(self, text: str, name: str, runs: Sequence[Run], suffix: str = "md") -> Path:
        return write_text(self.path(name, runs, suffix), text)


def caption(trained: Trained, manifold: Manifold) -> str:
    return f"{trained.run.title}\n{trained.about(manifold)}"


def unfit(run: Run, reason: str) -> UserError:
    """The error that a figure does not fit the task of a run; `reason` follows the task's name."""
    return UserError(f"{run.folder}: the task {run.settings.get('task.name')} {reason}")


def number_of(label: str, names: Sequence[str], trained: Trained, kind: str = "types") -> int:
    """The number of a type, entity or node. Raises UserError, with the nearest names, where none has this name."""
    if label not in names:
        near = difflib.get_close_matches(label, names, n=5, cutoff=0.5)
        known = ", ".join(map(brief, near or names[:5]))
        hint = f"Did you mean {known}?" if near else f"There are {known}, ..."
        raise UserError(f"--labels: {label!r} is none of the {len(names):,} {kind} of {trained.run.title}. {hint}")
    return names.index(label)


def check_plane(run: Run, manifold: Manifold, points: Tensor) -> None:
    """Raises UserError unless the points (N, D) of a run have two dimensions."""
    d = manifold.intrinsic_dim(points.shape[-1])
    if d != 2:
        raise UserError(f"{run.folder}: its points have {d} dimensions; name runs with task.dim=2.")
