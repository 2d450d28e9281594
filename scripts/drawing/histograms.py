"""Lengths of premises and hypotheses by split (Patel et al., Figures 4 and 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.drawing import canvas

BINS = 40
Lengths = dict[str, np.ndarray]  # of each split


def edges(lengths: Lengths) -> np.ndarray:
    """Borders of at most BINS + 1 bins of the same whole width that hold all lengths; a length stands in the middle of
    its bin where the width is 1."""
    low, high = min(int(v.min()) for v in lengths.values()), max(int(v.max()) for v in lengths.values())
    width = -(-(high - low + 1) // BINS)
    return np.arange(low, high + width + 1, width) - 0.5


def paint(axis: Axes, lengths: Lengths, title: str) -> None:
    """A step for each split: the share of its sentences in each bin."""
    borders = edges(lengths)
    for i, (split, values) in enumerate(lengths.items()):
        share = np.histogram(values, borders)[0] / len(values)
        label = f"{split}: mean {values.mean():.1f}, median {np.median(values):.0f}, longest {values.max()}"
        style = {"color": canvas.COLOURS[i % len(canvas.COLOURS)], "linestyle": canvas.DASHES[i % len(canvas.DASHES)]}
        axis.stairs(share, borders, label=label, linewidth=1.4, **style)
    axis.set_xlabel("tokens")
    wide = borders[1] - borders[0]
    axis.set_ylabel("share of the sentences" + (f" ({wide:.0f} lengths a step)" if wide > 1 else ""))
    axis.set(xlim=(0, borders[-1] + 0.5), ylim=(0, None), title=title)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(visible=True)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))


def draw(panels: Sequence[tuple[str, Lengths]], title: str, foot: str) -> Figure:
    """A panel for each kind of sentence: (its name, lengths by split)."""
    with canvas.canvas(4.6 * len(panels), 4.2, title, foot) as body:
        for axis, (name, lengths) in zip(canvas.grid(body, len(panels)), panels, strict=True):
            paint(axis, lengths, name)
    return body.figure
