"""Names beside points of a picture: as many of the most important ones as there is room for."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import patheffects
from matplotlib.axes import Axes
from torch import Tensor

LETTER, LINE, DOT = 0.036, 0.042, 0.035  # sizes of names and points, in halves of the panel's side

Box = tuple[float, float, float, float]  # left, bottom, right, top, in halves of the panel's side
Fit = tuple[int, str, bool]  # the number of a point, its name, whether it stands on the left


def fitting(
    xy: Tensor, named: Sequence[tuple[int, str]], most: int, extent: float, boxes: Sequence[Box] = ()
) -> list[Fit]:
    """Of the named points (number, name) of xy (N, 2) the first `most` whose names fit beside each other and the boxes.

    extent: half the panel's side. The most important come first.
    """
    taken, kept = list(boxes), []
    for place, name in named:
        x, y = (xy[place] / extent).tolist()
        dot = (x - DOT, y - DOT, x + DOT, y + DOT)
        long = DOT + LETTER * len(name)
        for left in (x > 0, x <= 0):
            text = (x - long, y - LINE, x - DOT, y + LINE) if left else (x + DOT, y - LINE, x + long, y + LINE)
            inside = text[0] > -1.05 and text[2] < 1.05
            free = not any(_meet(one, other) for one in (dot, text) for other in taken)
            if len(kept) < most and inside and free:
                taken += [dot, text]
                kept.append((place, name, left))
                break
    return kept


def write(axis: Axes, xy: Tensor, fits: Sequence[Fit]) -> None:
    """The names, each beside a ring about its point."""
    for place, name, left in fits:
        x, y = xy[place].tolist()
        axis.plot(x, y, "o", markersize=5, markerfacecolor="none", markeredgecolor="black", zorder=5)
        text = axis.annotate(
            name, (x, y), (-5 if left else 5, 0), textcoords="offset points", ha="right" if left else "left",
            va="center", fontsize=7, zorder=6,
        )  # fmt: skip
        text.set_path_effects([patheffects.withStroke(linewidth=2, foreground="white")])


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
