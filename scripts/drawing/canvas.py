"""What all figures share: colours, the head and foot lines, the rim of the disk, and files written whole."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Circle

# Okabe & Ito (2008), told apart also by the colour-blind. The first three are the red, blue and green of the paper.
RED, BLUE, GREEN, ORANGE, PURPLE, SKY, GREY = (
    "#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#6E6E6E",
)  # fmt: skip
COLOURS = (RED, BLUE, GREEN, ORANGE, PURPLE, SKY, "#000000", GREY)
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
FORMATS = ("png", "svg", "pdf")
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "hyperbolic",  # the same picture gives the same file
    "svg.fonttype": "none",
}
_LETTERS_PER_INCH, _LINE = 18.0, 0.135  # of the small print; inches a line


@contextmanager
def canvas(width: float, height: float, title: str, foot: str) -> Iterator[SubFigure]:
    """A body of so many inches under a head line, above small print of as many lines as it needs; with its style set
    inside `with`. The whole is `body.figure`."""
    small = wrapped(foot, width, 7)
    below = _LINE * (1 + small.count("\n")) + 0.12
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height + below), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
        body, print_ = figure.subfigures(2, 1, height_ratios=[height, below])
        body.suptitle(wrapped(title, width, 11), fontsize=11)
        print_.text(0.12 / width, 1, small, fontsize=7, color="#444444", ha="left", va="top", linespacing=1.25)
        yield body


def grid(body: SubFigure, n: int, most: int = 3) -> list[Axes]:
    """Axes for n panels, at most `most` in a row; the rest of the last row stays empty."""
    columns = min(most, n)
    axes = list(body.subplots(-(-n // columns), columns, squeeze=False).flat)
    for axis in axes[n:]:
        axis.set_axis_off()
    return axes[:n]


def wrapped(text: str, width: float, size: float) -> str:
    """`text` in lines that fit into `width` inches of letters of `size` points; line ends of its own stay."""
    letters = max(20, int((width - 0.3) * _LETTERS_PER_INCH * 7 / size))
    return "\n".join("\n".join(textwrap.wrap(line, letters)) for line in text.splitlines())


def disk(axis: Axes, rim: str = "#999999") -> None:
    """The unit circle and the origin on axes without frame; the picture of the whole hyperbolic plane."""
    axis.add_patch(Circle((0, 0), 1, fill=False, edgecolor=rim, linewidth=1.0, zorder=1))
    axis.plot([0], [0], "+", color=rim, markersize=6, zorder=1)
    axis.set(xlim=(-1.04, 1.04), ylim=(-1.04, 1.04))
    axis.set_aspect("equal")
    axis.set_axis_off()


def plain(axis: Axes, extent: float) -> None:
    """Square axes from -extent to extent with the origin marked: the picture of a flat plane."""
    axis.set(xlim=(-extent, extent), ylim=(-extent, extent))
    axis.set_aspect("equal")
    axis.plot([0], [0], "+", color="#999999", markersize=6, zorder=1)
    axis.grid(visible=True)


def save(figure: Figure, path: Path) -> Path:
    """Write the figure whole or not at all; its format is the suffix of `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.removeprefix(".")
    part = path.with_name(f".{path.name}.part")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    try:
        with matplotlib.rc_context(STYLE):
            figure.savefig(part, format=kind, dpi=160, metadata=metadata)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path
