"""Lengths of premises and hypotheses by split (Patel et al., Figures 4 and 5)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scripts.drawing import canvas
from scripts.drawing.options import FigureOptions, Loader, unfit
from scripts.trained import Run, Trained

SIDES = ("premises", "hypotheses")
BINS = 40
Lengths = dict[str, np.ndarray]  # of each split


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Lengths of premises and hypotheses by split (HyperA, Figures 4 and 5), a file for each run."""
    files = []
    for run in runs:
        trained = load(run)
        splits = trained.data.splits()
        if not all(getattr(split, "lengths", torch.empty(0)).dim() == 2 for split in splits.values()):
            raise unfit(run, "has no pairs of sentences, whose lengths are shown.")
        panels = [
            (name, {split: pairs.lengths[side].numpy() for split, pairs in splits.items()})
            for side, name in enumerate(SIDES)
        ]
        figure = plot(panels, f"Lengths of sentences, {run.settings.get('task.name')}", foot(trained))
        files.append(options.for_run(run, runs).save(figure, "lengths", [run]))
    return files


def foot(trained: Trained) -> str:
    """Which words are counted, and how many sentences the data cut."""
    run = trained.run
    text = f"{run.title}. Words as the model sees them"
    if tokenizer := run.settings.get("task.data.tokenizer"):
        counts = trained.data.fingerprint()["counts"]
        cut = ", ".join(f"{count['cut']:,} of {split}" for split, count in counts.items() if "cut" in count)
        text += f" (tokenizer: {tokenizer}); sentences longer than {run.settings['task.data.max_length']} words are cut"
        text += f" ({cut})" if cut else ""
    return f"{text}."


def edges(lengths: Lengths) -> np.ndarray:
    """Borders of at most BINS + 1 bins of the same whole width that hold all lengths; a length stands in the middle of
    its bin where the width is 1."""
    low, high = min(int(v.min()) for v in lengths.values()), max(int(v.max()) for v in lengths.values())
    width = -(-(high - low + 1) // BINS)
    return np.arange(low, high + width + 1, width) - 0.5


def plot_panel(axis: Axes, title: str, lengths: Lengths) -> None:
    """A step for each split: the share of its sentences in each bin."""
    borders = edges(lengths)
    for i, (split, values) in enumerate(lengths.items()):
        share = np.histogram(values, borders)[0] / len(values)
        label = f"{split}: mean {values.mean():.1f}, median {np.median(values):.0f}, longest {values.max()}"
        axis.stairs(share, borders, label=label, linewidth=1.4, **canvas.line_style(i))
    width = borders[1] - borders[0]
    measure = "share of the sentences" + (f" ({width:.0f} lengths a step)" if width > 1 else "")
    axis.set(xlabel="tokens", ylabel=measure, xlim=(0, borders[-1] + 0.5), ylim=(0, None), title=title)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(visible=True)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))


def plot(panels: Sequence[tuple[str, Lengths]], title: str, foot: str) -> Figure:
    """A panel for each kind of sentence: (its name, lengths by split)."""
    with canvas.panels(plot_panel, panels, (4.6, 4.2), 0.0, title, foot) as (body, _):
        return body.figure
