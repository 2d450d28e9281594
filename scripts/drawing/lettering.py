"""Names beside points of a picture: as many of the most important ones as there is room for."""

from collections.abc import Sequence

from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox
from torch import Tensor

LETTER, LINE, DOT = 0.036, 0.042, 0.035  # sizes of names and points, in halves of the panel's side

Fit = tuple[int, str, bool]  # the number of a point, its name, whether it stands on the left


def shortened(name: str, letters: int = 19) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def fitting(
    xy: Tensor, named: Sequence[tuple[int, str]], most: int, extent: float, boxes: Sequence[Bbox] = ()
) -> list[Fit]:
    """Of the named points (number, name) of xy (N, 2) the first `most` whose names fit beside each other and the boxes.

    extent: half the panel's side, the unit of the boxes. The most important come first.
    """
    occupied, fits = list(boxes), []
    for place, name in named:
        x, y = (xy[place] / extent).tolist()
        dot = Bbox.from_extents(x - DOT, y - DOT, x + DOT, y + DOT)
        for left in (x > 0, x <= 0):
            start = x - DOT - LETTER * len(name) if left else x + DOT
            end = start + LETTER * len(name)
            text = Bbox.from_extents(start, y - LINE, end, y + LINE)
            free = not (dot.count_overlaps(occupied) or text.count_overlaps(occupied))
            if len(fits) < most and start > -1.05 and end < 1.05 and free:
                occupied += [dot, text]
                fits.append((place, name, left))
                break
    return fits


def write(
    axis: Axes, xy: Tensor, named: Sequence[tuple[int, str]], most: int, extent: float, boxes: Sequence[Bbox] = ()
) -> None:
    """The names that fit, see `fitting`, each beside a ring about its point."""
    for place, name, left in fitting(xy, named, most, extent, boxes):
        x, y = xy[place].tolist()
        axis.plot(x, y, "o", markersize=5, markerfacecolor="none", markeredgecolor="black", zorder=5)
        text = axis.annotate(
            name, (x, y), (-5 if left else 5, 0), textcoords="offset points", ha="right" if left else "left",
            va="center", fontsize=7, zorder=6,
        )  # fmt: skip
        text.set_path_effects([patheffects.withStroke(linewidth=2, foreground="white")])
