"""Dependency trees as arcs over the words of a sentence: the gold tree, and the one that a probe recovers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc

from scripts.drawing import canvas
from scripts.drawing.options import FigureOptions, Loader, unfit
from scripts.trained import Run, Trained
from tasks.errors import UserError
from tasks.probing.data import ProbingData
from tasks.probing.metrics import root
from tasks.probing.task import ProbingTask
from tasks.probing.trees import spanning_trees

SENTENCES = 3  # drawn where none is chosen: the first of the test split with so many words
WORDS = range(8, 17)
_LETTER, _BLANK = 0.085, 2  # inches a letter; letters between words
_GAP = 0.35  # from the middle of the words to the ends of arcs
FOOT = (
    "Arcs above: the gold tree. Below: the minimum spanning tree of the probe's distances, in the layer that was best "
    "on the validation split. Punctuation (grey) has no part in either; a word below punctuation hangs on another one. "
    "Bars mark roots: black the gold one, blue or orange the word nearest to the origin."
)


@dataclass(frozen=True)
class Picture:
    """A sentence on paper. gold, predicted: edges (E, 2) as pairs of words. roots: the gold one and the predicted."""

    words: tuple[str, ...]
    punctuation: np.ndarray
    gold: np.ndarray
    predicted: np.ndarray
    roots: tuple[int, int]

    @property
    def right(self) -> np.ndarray:
        """(E,) bool: which of the predicted edges the gold tree has."""
        return np.array([edge in self.gold.tolist() for edge in self.predicted.tolist()], bool)


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Dependency trees that a probe recovers, with the gold ones (Chen et al. 2021); --labels: numbers of them."""
    panels = []
    for run in runs:
        trained = load(run)
        if not isinstance(trained.task, ProbingTask) or not isinstance(trained.data, ProbingData):
            raise unfit(run, "recovers no trees; name a run of task=probing.")
        layer = trained.task.layers[int(trained.task.best)]
        for number, picture in pictures(trained, options.labels):
            panels.append((f"{run.title}: sentence {number} of test, layer {layer}", picture))
    return [options.save(plot(panels), "trees", runs)]


@torch.no_grad()
def pictures(trained: Trained, labels: Sequence[str] | None) -> list[tuple[int, Picture]]:
    """Sentences of the test split by their numbers, from 1. labels: which ones.

    Raises UserError where there is no such sentence, or the probed model cannot read it.
    """
    task, data = trained.task, trained.data
    assert isinstance(task, ProbingTask)
    assert isinstance(data, ProbingData)
    sentences = data.trees()["test"].sentences
    numbers = _chosen(labels, [len(sentence.words) for sentence in sentences])
    drawings = []
    for number in numbers:
        split = data.read([sentences[number - 1]])
        if not len(split):
            raise UserError(f"--labels: the probed model of {trained.run.title} cannot read sentence {number}.")
        batch = split[torch.zeros(1, dtype=torch.long)]
        distances, depths = (x[0].double().numpy() for x in task.model(batch["states"])[int(task.best)])
        counted = ~batch["punctuation"][0].numpy()
        both = np.stack([batch["distances"][0].numpy(), distances])
        gold, predicted = (np.argwhere(tree) for tree in spanning_trees(both, np.stack([counted, counted])))
        roots = int(batch["depths"][0].argmin()), root(depths, counted)
        drawings.append((number, Picture(sentences[number - 1].words, ~counted, gold, predicted, roots)))
    return drawings


def _chosen(labels: Sequence[str] | None, lengths: Sequence[int]) -> list[int]:
    if labels is None:
        fitting = [k for k, n in enumerate(lengths, start=1) if n in WORDS]
        return fitting[:SENTENCES] or [1]
    for label in labels:
        if not label.isdecimal() or not 1 <= int(label) <= len(lengths):
            raise UserError(f"--labels: {label!r} is no number of a sentence of test, from 1 to {len(lengths)}.")
    return [int(label) for label in labels]


def plot(panels: Sequence[tuple[str, Picture]]) -> Figure:
    """One panel for each sentence of each run: (title, picture)."""
    width = max(6.0, max(_LETTER * float(_places(picture.words)[-1]) + 1 for _, picture in panels))
    with canvas.panels(plot_panel, panels, (width, 3.0), 0.5, "Dependency trees", FOOT, most=1) as (body, _):
        handles = [
            canvas.dot(colour, label, "s")
            for colour, label in (("black", "gold"), (canvas.BLUE, "recovered"), (canvas.RED, "not in the gold tree"))
        ]
        body.legend(handles=handles, loc="outside lower center", ncols=3)
    return body.figure


def plot_panel(axis: Axes, title: str, picture: Picture) -> None:
    """Words in a row, gold arcs above and predicted ones below."""
    places = _places(picture.words)
    for k, word in enumerate(picture.words):
        colour = canvas.GREY if picture.punctuation[k] else "black"
        axis.text(places[k], 0, word, ha="center", va="center", color=colour, fontsize=9)
    right = picture.right
    for edges, colours, side in (
        (picture.gold, ["black"] * len(picture.gold), 1),
        (picture.predicted, [canvas.BLUE if r else canvas.RED for r in right], -1),
    ):
        for (a, b), colour in zip(edges.tolist(), colours, strict=True):
            angles = (0, 180) if side > 0 else (180, 360)
            middle, span = (places[a] + places[b]) / 2, places[b] - places[a]
            arc = Arc((middle, side * _GAP), span, 2 * _height(b - a), theta1=angles[0], theta2=angles[1])
            arc.set(color=colour, linewidth=1.2)
            axis.add_patch(arc)
    root_colour = canvas.BLUE if picture.roots[0] == picture.roots[1] else canvas.RED
    for k, side, colour in zip(picture.roots, (1, -1), ("black", root_colour), strict=True):
        half = 0.5 * len(picture.words[k])
        axis.plot([places[k] - half, places[k] + half], [side * 0.6 * _GAP] * 2, color=colour, linewidth=1.6)
    reach = _GAP + _height(max((b - a for a, b in [*picture.gold, *picture.predicted]), default=1)) + 0.1
    axis.set(xlim=(-len(picture.words[0]), places[-1] + len(picture.words[-1])), ylim=(-reach, reach))
    axis.set_axis_off()
    axis.set_title(f"{title}, {right.sum()} of {len(picture.gold)} edges")


def _places(words: Sequence[str]) -> np.ndarray:
    """Where the middle of each word stands, in letters."""
    lengths = np.array([max(3, len(word)) for word in words], float)
    return lengths.cumsum() - lengths / 2 + _BLANK * np.arange(len(words)) - lengths[0] / 2


def _height(words: int) -> float:
    """Of an arc that spans so many words."""
    return 0.35 + 0.3 * (words - 1) ** 0.8
