"""What a hypothesis attends to in its premise: the weights of the premise's words, a strip of colours for each pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from scripts.drawing import canvas
from scripts.drawing.nearest import shortened

COLOURS = "Blues"
FEWEST, MOST = 24, 60  # words that a strip has room for
_WORD, _ROW = 0.19, 0.24  # inches


@dataclass(frozen=True)
class Pair:
    """A premise with its hypothesis. hypothesis: its text. gold: its label, or None. tokens: T words of the premise.
    rows: of each run that has these words what is said of it, and the weights (T,)."""

    hypothesis: str
    gold: str | None
    tokens: tuple[str, ...]
    rows: tuple[tuple[str, np.ndarray], ...]


def paint(axis: Axes, pair: Pair, scale: Normalize, columns: int) -> None:
    """A row for each run, a column for each word; a long premise is cut, and what the cut part weighs is told.

    columns: how many there is room for.
    """
    shown = np.stack([weights[:MOST] for _, weights in pair.rows])
    axis.imshow(shown, aspect="auto", cmap=COLOURS, norm=scale, interpolation="nearest")
    axis.set_xticks(range(shown.shape[1]), [shortened(token, 14) for token in pair.tokens[:MOST]], rotation=90)
    axis.set_yticks(range(len(shown)), [said for said, _ in pair.rows])
    axis.set_xlim(-0.5, columns - 0.5)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    for edge in np.arange(0.5, len(shown) - 1):
        axis.axhline(edge, color="white", linewidth=1.5)
    axis.vlines(np.arange(0.5, shown.shape[1] - 1), -0.5, len(shown) - 0.5, color="white", linewidth=0.5)
    lost = len(pair.tokens) - shown.shape[1]
    cut = f" ({lost} more words, weight {max(w[MOST:].sum() for _, w in pair.rows):.2f} at most)" if lost else ""
    gold = f" [{pair.gold}]" if pair.gold else ""
    axis.set_title(canvas.wrapped(f"{pair.hypothesis}{gold}{cut}", _WORD * columns, 9), loc="left")


def draw(pairs: Sequence[Pair], title: str) -> Figure:
    """The strips from top to bottom, on one scale of colours."""
    foot = (
        "Each column is a word of the premise, as the model reads it; the darker, the more weight it has in what the "
        "hypothesis takes from the premise. The weights of a row add up to 1. Above: the hypothesis, and in brackets "
        "its label where it is known; on the left: the answer, with its probability."
    )
    scale = Normalize(0, max(float(w[:MOST].max()) for pair in pairs for _, w in pair.rows) or 1.0)
    beside = 0.075 * max(len(said) for pair in pairs for said, _ in pair.rows)
    columns = max(FEWEST, *(min(MOST, len(pair.tokens)) for pair in pairs))
    rows = [len(pair.rows) for pair in pairs]
    with canvas.canvas(beside + 0.4 + _WORD * columns, 1.1 + sum(1.05 + _ROW * k for k in rows), title, foot) as body:
        axes = body.subplots(len(pairs), 1, squeeze=False, height_ratios=rows)[:, 0]
        for axis, pair in zip(axes, pairs, strict=True):
            paint(axis, pair, scale, columns)
        bar = body.colorbar(ScalarMappable(scale, COLOURS), ax=list(axes), location="bottom", fraction=0.03, aspect=40)
        bar.set_label("weight")
    return body.figure
