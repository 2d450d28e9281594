"""What the command line asks of figures, and what all of them say of a run."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from hyperbolic.manifolds import Manifold
from scripts.collect import write_atomically
from scripts.drawing import canvas
from scripts.trained import Run, Trained, short_hash
from tasks.errors import UserError


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for. labels: types or nodes to show, or None for the paper's. name: of the files, in
    the place of the runs' names. words: most words whose queries and keys are drawn. state: best or last. pairs: file
    of pairs of sentences, or None."""

    out: Path
    format: str
    labels: tuple[str, ...] | None
    name: str | None
    words: int
    state: str
    pairs: Path | None = None

    def path(self, figure: str, runs: Sequence[Run], suffix: str | None = None) -> Path:
        if len(runs) <= 2:
            stem = "-vs-".join(dict.fromkeys(run.stem for run in runs))
        else:
            stem = f"{runs[0].stem}-and-{len(runs) - 1}-more-{short_hash(' '.join(run.stem for run in runs))}"
        return self.out / f"{figure}-{self.name or stem}.{suffix or self.format}"

    def of_one(self, runs: Sequence[Run], run: Run) -> Wishes:
        """The same for files of one of the runs, whose names must differ."""
        alike = [other for other in runs if other.stem == run.stem]
        number = f"-{alike.index(run) + 1}" if len(alike) > 1 else ""
        if len(runs) == 1:
            return self
        return replace(self, name="-".join(filter(None, [self.name, run.stem])) + number)

    def save(self, drawn: Figure, figure: str, runs: Sequence[Run]) -> Path:
        return canvas.save(drawn, self.path(figure, runs))

    def write(self, text: str, figure: str, runs: Sequence[Run]) -> Path:
        path = self.path(figure, runs, "md")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
        return path


Models = Callable[[Run], Trained]


def caption(found: Trained, manifold: Manifold) -> str:
    return f"{found.run.title}\n{found.about(manifold)}"


def known(label: str, names: Sequence[str], found: Trained, what: str = "types") -> int:
    """The number of a type or entity. Raises UserError, with the nearest names, where there is none of this name."""
    index = {name: i for i, name in enumerate(names)}
    if label not in index:
        near = difflib.get_close_matches(label, names, n=5, cutoff=0.5)
        hint = f"Did you mean {', '.join(near)}?" if near else f"There are {', '.join(names[:5])}, ..."
        raise UserError(f"--labels: {label!r} is none of the {len(names):,} {what} of {found.run.title}. {hint}")
    return index[label]
