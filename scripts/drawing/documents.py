"""What documents are made from, in the disk: their words, sentences and themselves (Zhang & Gao, Figure 5), and their
sentences by the Lorentz factor (Figure 6)."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from hyperbolic.encoders.han import Trace
from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, charts
from scripts.drawing.hover import Mark, Panel, page
from scripts.drawing.lettering import shortened
from scripts.drawing.options import FigureOptions, Loader, caption, unfit
from scripts.trained import Run, Trained
from tasks.document_classification.model import DocumentClassifier
from tasks.errors import UserError
from tasks.ragged import FIRST, length_mask
from tasks.text import UNK

DOCUMENTS = 64  # of the test split, drawn by chance
CHOSEN = 3  # sentences of each class whose text is shown
BESIDE = 6  # classes whose marks are listed beside the disk of sentences
NEAR = 0.09  # of two of them in the disk, whose numbers would cover each other
LEVELS_FOOT = "\nPoints of the levels before stand in grey; the page of the same name shows the text of each point."
FACTORS_FOOT = (
    "\nLorentz factor γ = cosh(√c d): 1 at the origin; the larger a sentence's, the more it counts in the midpoint "
    "that is its document, at the same attention weight. [unknown]: words without a row in the vocabulary."
)
_DISK, _LINE = 4.4, 0.155  # inches: of the disk of a figure of factors, of a line of its title and texts


@dataclass(frozen=True)
class Level:
    """Points on paper: xy (N, 2); classes, factors and weights (N,): numbers of the gold class, Lorentz factors,
    attention weights (of documents, 1); and what is said of each."""

    name: str
    xy: Tensor
    classes: Tensor
    factors: Tensor
    weights: Tensor
    texts: list[str]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Levels:
    """Words, sentences and documents of a run, in one plane."""

    title: str
    parts: tuple[Level, Level, Level]
    names: tuple[str, ...]
    space: Manifold
    share: float

    @property
    def extent(self) -> float:
        """See `canvas.frame`."""
        return 0.0 if self.space.is_curved else 1.08 * max(float(part.xy.abs().max()) for part in self.parts)


def draw_accumulation(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Words, sentences and documents in one disk, also as a page with their texts (Hype-HAN, Figure 5)."""
    rows = [levels(load(run), options.words) for run in runs]
    figure = plot_accumulation(rows)
    panels = [
        Panel(f"{row.title}: {part.name}", _marks(row, k), row.extent)
        for row in rows
        for k, part in enumerate(row.parts)
    ]
    text = page("From words to documents", _note(rows), panels, _classes(rows))
    return [options.save(figure, "accumulation", runs), options.write(text, "accumulation", runs, "html")]


def draw_factors(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Sentences by their Lorentz factors, some with their text, also as a page with all texts (Hype-HAN, Figure 6)."""
    rows = [levels(load(run), options.words) for run in runs]
    for run, row in zip(runs, rows, strict=True):
        if not row.space.is_curved:
            raise UserError(
                f"{run.folder}: its attention is in flat space, where there are no Lorentz factors; name a run with "
                "geometry=hype_han, or draw accumulation."
            )
    figure = plot_factors(rows)
    panels = [Panel(row.title, _marks(row, 1), row.extent) for row in rows]
    text = page("Sentences by their Lorentz factors", _note(rows) + FACTORS_FOOT, panels, _classes(rows))
    return [options.save(figure, "factors", runs), options.write(text, "factors", runs, "html")]


@torch.no_grad()
def levels(trained: Trained, most_words: int, seed: int = 0) -> Levels:
    """The states of the words (at most so many, by chance), the sentences and the documents of `DOCUMENTS` documents of
    the test split, the same for every run of one seed.

    Raises UserError where the run is on no documents, or its encoder does not read their sentences.
    """
    model = trained.model
    if not isinstance(model, DocumentClassifier) or not model.reads_sentences:
        raise unfit(trained.run, "has no encoder of documents; name a run of encoder=han.")
    generator = torch.Generator().manual_seed(seed)
    split = trained.data.splits()["test"]
    examples = torch.randperm(len(split), generator=generator)[:DOCUMENTS].sort().values
    batch = split[examples]
    _, trace = model.encode(batch["words"], batch["lengths"], batch["sentences"])
    if trace is None:
        raise unfit(trained.run, "has an encoder that attends to no sentences and words; name a run of encoder=han.")
    vocabulary = trained.data.prepared().words
    texts = [
        [vocabulary[row - FIRST] if row != UNK else "[unknown]" for row in rows[:n]]
        for rows, n in zip(batch["words"].tolist(), batch["lengths"].tolist(), strict=True)
    ]
    return _levels(trained, trace, texts, batch["sentences"], batch["labels"], most_words, generator)


def _levels(
    trained: Trained, trace: Trace, texts: list[list[str]], sentences: Tensor, labels: Tensor, most: int,
    generator: torch.Generator,
) -> Levels:  # fmt: skip
    lengths = torch.tensor([len(words) for words in texts])
    real = length_mask(lengths, trace.word_weights.shape[1])
    inside = length_mask(sentences, trace.sentence_weights.shape[1])
    rows = torch.randperm(int(real.sum()), generator=generator)[:most].sort().values
    of_sentences = labels.repeat_interleave(sentences)
    all_words = [word for sentence in texts for word in sentence]
    spellings = [all_words[k] for k in rows.tolist()]
    joined = [" ".join(sentence) for sentence in texts]
    ends = [0, *sentences.cumsum(0).tolist()]
    whole = [" ".join(joined[a:b]) for a, b in itertools.pairwise(ends)]
    words, states, documents = trace.words[real][rows], trace.sentences[inside], trace.documents
    upper = torch.cat([states, documents])
    same = words.shape[-1] == upper.shape[-1]
    plane = charts.plane_of(trace.space, torch.cat([words, upper]) if same else upper)
    word_plane = plane if same else charts.plane_of(trace.space, words)

    def level(
        name: str, points: Tensor, plane: charts.Basis, classes: Tensor, weights: Tensor, texts: list[str]
    ) -> Level:
        xy = charts.flatten(trace.space, points, plane)
        return Level(name, xy, classes, trace.lorentz_factors(points), weights, texts)

    of_words = of_sentences.repeat_interleave(lengths)[rows]
    parts = (
        level("words", words, word_plane, of_words, trace.word_weights[real][rows], spellings),
        level("sentences", states, plane, of_sentences, trace.sentence_weights[inside], joined),
        level("documents", documents, plane, labels, torch.ones(len(documents)), whole),
    )
    share = min(plane.share, word_plane.share)
    return Levels(caption(trained, trace.space), parts, tuple(trained.task.classes), trace.space, share)


def plot_accumulation(rows: Sequence[Levels]) -> Figure:
    """Three panels for each run, from the words to the documents."""
    foot = _note(rows) + LEVELS_FOOT
    title = "From words to documents: their states, by the class of the document"
    with canvas.canvas(11.4, 0.9 + 4.1 * len(rows), title, foot) as body:
        axes = canvas.plot_rows(body, _plot_level, [[(row, k) for k in range(3)] for row in rows])
        canvas.legend(body, axes, loc="outside lower center", ncols=5, markerscale=2)
    return body.figure


def _plot_level(axis: Axes, row: Levels, k: int) -> None:
    for before in row.parts[:k]:
        axis.scatter(*before.xy.T.numpy(), s=5, color="#D0D0D0", alpha=0.6, linewidths=0, zorder=2)
    part = row.parts[k]
    for number, name in enumerate(row.names):
        xy = part.xy[part.classes == number]
        colour, marker = canvas.COLOURS[number % len(canvas.COLOURS)], canvas.MARKERS[number % len(canvas.MARKERS)]
        size = (6, 14, 30)[k]
        axis.scatter(*xy.T.numpy(), s=size, color=colour, marker=marker, alpha=0.7, linewidths=0, label=name, zorder=3)
    canvas.frame(axis, row.extent)
    factor = f", mean γ {float(part.factors.mean()):.2f}" if row.space.is_curved else ""
    first = f"{canvas.wrapped(row.title, 10, 9)}\n" if k == 1 else ""
    axis.set_title(f"{first}{len(part):,} {part.name}{factor}")


def plot_factors(rows: Sequence[Levels]) -> Figure:
    """A panel for each run, with the texts of the sentences of each class with the largest Lorentz factors, and of the
    one with the smallest."""
    foot = _note(rows) + FACTORS_FOOT
    high = max(float(row.parts[1].factors.max()) for row in rows)
    scale = Normalize(1, max(high, 1.01))
    heads, texts = [_head(row) for row in rows], [_texts(row) for row in rows]
    # Each row has room for its title, and below for the disk with its bar or for the texts.
    heights = [
        0.3 + _LINE * (1 + head.count("\n")) + max(_DISK + 0.8, _LINE * (1 + text.count("\n")))
        for head, text in zip(heads, texts, strict=True)
    ]
    with canvas.canvas(11.4, 0.4 + sum(heights), "Sentences by their Lorentz factors", foot) as body:
        grid = body.subplots(len(rows), 2, squeeze=False, width_ratios=[1, 1.5], height_ratios=heights)
        for (axis, beside), row, head, text in zip(grid, rows, heads, texts, strict=True):
            _plot_sentences(axis, row, head, scale)
            beside.set_axis_off()
            beside.text(0, 1, text, fontsize=8, va="top", linespacing=1.35, transform=beside.transAxes)
    return body.figure


def _head(row: Levels) -> str:
    return canvas.wrapped(row.title, 4.4, 9)


def _texts(row: Levels) -> str:
    """The texts of the chosen sentences, by their numbers."""
    part, lines = row.parts[1], []
    for number, k in enumerate(choose(row), start=1):
        head = f"{number}  γ {float(part.factors[k]):.2f}, {row.names[int(part.classes[k])]}: "
        lines.append(canvas.wrapped(head + shortened(part.texts[k], 220), 6.2, 8))
    return "\n".join(lines)


def choose(row: Levels) -> list[int]:
    """The numbers of the sentences whose texts are shown: of each class those with the largest Lorentz factors, then
    the one with the smallest of all."""
    part = row.parts[1]
    order = part.factors.argsort(descending=True, stable=True).tolist()
    largest = [k for c in range(len(row.names)) for k in [k for k in order if part.classes[k] == c][:CHOSEN]]
    return list(dict.fromkeys([*largest, order[-1]]))


def neighbours(xy: Tensor) -> list[list[int]]:
    """The numbers of points (N, 2) of the disk in groups that share a label, each near the first of its group."""
    groups: list[list[int]] = []
    for k, point in enumerate(xy):
        near = [group for group in groups if float((xy[group[0]] - point).norm()) < NEAR]
        near[0].append(k) if near else groups.append([k])
    return groups


def spans(numbers: Sequence[int]) -> str:
    """Numbers in ascending order as text, as in "1–3, 7"."""
    runs = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ends = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in ends)


def _plot_sentences(axis: Axes, row: Levels, head: str, scale: Normalize) -> None:
    """The sentences, numbers beside the chosen ones, and a bar of the colours under the disk."""
    part = row.parts[1]
    for number, name in enumerate(row.names):
        one = part.classes == number
        marker = canvas.MARKERS[number % len(canvas.MARKERS)]
        axis.scatter(
            *part.xy[one].T.numpy(), c=part.factors[one].numpy(), norm=scale, cmap="viridis_r", s=18, marker=marker,
            linewidths=0, label=name, zorder=2,
        )  # fmt: skip
    xy = part.xy[choose(row)]
    axis.plot(*xy.T.numpy(), "o", markersize=7, markerfacecolor="none", markeredgecolor="black", zorder=4)
    for numbers in neighbours(xy):
        x, y = xy[numbers[0]].tolist()
        text = axis.annotate(
            spans([k + 1 for k in numbers]), (x, y), (-5 if x > 0 else 5, 4), textcoords="offset points",
            ha="right" if x > 0 else "left", fontsize=8, weight="bold", zorder=5,
        )  # fmt: skip
        text.set_path_effects([patheffects.withStroke(linewidth=2, foreground="white")])
    canvas.frame(axis, row.extent)
    axis.set_title(head)
    kinds = [canvas.dot(canvas.GREY, name, canvas.MARKERS[k % len(canvas.MARKERS)]) for k, name in enumerate(row.names)]
    if len(kinds) > BESIDE:  # below the bar, where the longer list of texts leaves room
        legend = axis.legend(handles=kinds, loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2)
        legend.set_in_layout(False)
    else:
        axis.legend(handles=kinds, loc="upper left", bbox_to_anchor=(-0.1, 1.02))
    bar = axis.inset_axes((0.1, -0.06, 0.8, 0.03))
    colours = ScalarMappable(scale, "viridis_r")
    axis.figure.colorbar(colours, cax=bar, orientation="horizontal", label="Lorentz factor γ")


def _marks(row: Levels, k: int) -> list[Mark]:
    """The points of a level for a page, each with its text and numbers."""
    part, marks = row.parts[k], []
    numbers = zip(part.xy.tolist(), part.classes.tolist(), part.factors.tolist(), part.weights.tolist(), strict=True)
    for ((x, y), number, factor, weight), text in zip(numbers, part.texts, strict=True):
        said = [row.names[number]]
        if row.space.is_curved:
            said.append(f"γ {factor:.3g}")
        if k < 2:
            said.append(f"weight {weight:.3g}")
        marks.append(Mark(x, y, canvas.COLOURS[number % len(canvas.COLOURS)], f"{text}\n({', '.join(said)})"))
    return marks


def _classes(rows: Sequence[Levels]) -> dict[str, str]:
    """The colours of the classes."""
    return {name: canvas.COLOURS[k % len(canvas.COLOURS)] for row in rows for k, name in enumerate(row.names)}


def _note(rows: Sequence[Levels]) -> str:
    return charts.notes([(row.space, row.share) for row in rows])
