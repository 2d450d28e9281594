"""What all figures share: colours, head and foot lines, panels, legends, the rim of the disk, and files."""

import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from torch import Tensor

from tasks.folders import whole_file
from tasks.reading import brief

# Okabe & Ito (2008), told apart also by the colour-blind. The first three are the red, blue and green of the paper.
RED, BLUE, GREEN, ORANGE, PURPLE, SKY, GREY = (
    "#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#6E6E6E",
)  # fmt: skip
COLOURS = (RED, BLUE, GREEN, ORANGE, PURPLE, SKY, "#000000", GREY)
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
MARKERS = (
    "o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "*", "d", "h", (4, 1, 0),
    ((-1, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)), ((-1, -1), (-1, 1), (1, -1), (1, 1), (-1, -1)),
)  # fmt: skip
WASH = 0.12  # opacity of an area behind points and curves
FORMATS = ("png", "svg", "pdf")
# For characters that DejaVu Sans lacks, where they are installed.
FURTHER_FONTS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "WenQuanYi Zen Hei", "Droid Sans Fallback",
    "Hiragino Sans", "PingFang SC", "Microsoft YaHei", "Arial Unicode MS", "Noto Sans",
)  # fmt: skip
STYLE = {
    "font.family": ["DejaVu Sans", *(name for name in FURTHER_FONTS if name in font_manager.get_font_names())],
    "font.size": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "hyperbolic",  # the same picture gives the same file
    "svg.fonttype": "none",
    "text.parse_math": False,  # texts of the data have dollars
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
        body, bottom = figure.subfigures(2, 1, height_ratios=[height, below])
        body.suptitle(wrapped(title, width, 11), fontsize=11)
        bottom.text(0.12 / width, 1, small, fontsize=7, color="#444444", ha="left", va="top", linespacing=1.25)
        yield body


@contextmanager
def panels(
    plot_panel: Callable[..., None], contents: Sequence[tuple], size: tuple[float, float], extra: float, title: str,
    foot: str, least: float = 0.0, most: int = 3,
) -> Iterator[tuple[SubFigure, list[Axes]]]:  # fmt: skip
    """A canvas with a panel for each of the contents, `plot_panel(axis, *content)`, at most `most` in a row.

    size: of a panel, in inches. extra: height for a legend or bar. least: width of the canvas in any case.
    """
    rows = [contents[k : k + most] for k in range(0, len(contents), most)]
    with canvas(max(least, size[0] * len(rows[0])), extra + size[1] * len(rows), title, foot) as body:
        yield body, plot_rows(body, plot_panel, rows)


def plot_rows(
    body: SubFigure, plot_panel: Callable[..., None], rows: Sequence[Sequence[tuple]], **style: Any
) -> list[Axes]:
    """Rows of panels, `plot_panel(axis, *content)`; where a row is shorter than others, its end stays empty."""
    grid = body.subplots(len(rows), max(map(len, rows)), squeeze=False, **style)
    axes = []
    for line, row in zip(grid, rows, strict=True):
        for axis in line[len(row) :]:
            axis.set_axis_off()
        for axis, content in zip(line, row, strict=False):
            plot_panel(axis, *content)
            axes.append(axis)
    return axes


def line_style(k: int) -> dict[str, Any]:
    """Colour and dashes of the k-th line of a picture."""
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": DASHES[k % len(DASHES)]}


def legend(body: SubFigure, axes: Iterable[Axes], **style: Any) -> Legend:
    """One legend for all axes, in which each label stands once."""
    handles: dict[str, Artist] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    return body.legend(handles.values(), handles, **style)


def dot(colour: Any, label: str, marker: str = "o", size: float = 4) -> Line2D:
    """The mark of points in a legend."""
    return Line2D([], [], ls="", marker=marker, markersize=size, color=colour, label=label)


def wrapped(text: str, width: float, size: float) -> str:
    """`text` in lines that fit into `width` inches of letters of `size` points; line ends of its own stay."""
    letters = max(20, int((width - 0.3) * _LETTERS_PER_INCH * 7 / size))
    return "\n".join("\n".join(textwrap.wrap(line, letters)) for line in text.splitlines())


def frame(axis: Axes, extent: float) -> None:
    """The origin, and what a picture of the whole plane stands in: the unit circle where `extent` is 0 (hyperbolic), or
    square axes from -extent to extent (flat); at the top of its place, where the layout keeps room for a title."""
    side = extent or 1.04
    axis.set(xlim=(-side, side), ylim=(-side, side), aspect="equal", anchor="N")
    axis.plot([0], [0], "+", color="#999999", markersize=6, zorder=1)
    if extent:
        axis.grid(visible=True)
    else:
        axis.add_patch(Circle((0, 0), 1, fill=False, edgecolor="#999999", linewidth=1.0, zorder=1))
        axis.set_axis_off()


def boundary(axis: Axes, x: Tensor, y: Tensor, values: Tensor, color: str, linestyle: Any = "-") -> bool:
    """A light wash where values on a grid (R, A) are positive, and the curve where they are 0, if there is one."""
    low, high = float(values.min()), float(values.max())
    grid = [each.numpy() for each in (x, y, values)]
    if high > 0:
        axis.contourf(*grid, levels=[0, high], colors=[color], alpha=WASH, zorder=0)
    if high > 0 > low:
        axis.contour(*grid, levels=[0], colors=[color], linestyles=[linestyle], linewidths=1.8, zorder=3)
    return high > 0 > low


def save(figure: Figure, path: Path) -> Path:
    """Write the figure whole or not at all; its format is the suffix of `path`."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    with warnings.catch_warnings(record=True) as raised, whole_file(path) as part, matplotlib.rc_context(STYLE):
        warnings.simplefilter("always", UserWarning)
        figure.savefig(part, dpi=160, metadata=metadata)
    glyphs: dict[str, None] = {}  # that no font has
    for warning in raised:
        if match := re.match(r"Glyph (\d+) ", str(warning.message)):
            glyphs[chr(int(match[1]))] = None
        else:
            warnings.warn(warning.message, stacklevel=2)
    if characters := "".join(glyphs):
        print(
            f"note: {path.name}: no font here has {brief(characters[:20])}, drawn as boxes. Install one that has them, "
            "as Noto Sans CJK.",
            file=sys.stderr,
        )
    return path
