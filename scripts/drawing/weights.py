"""What a hypothesis attends to in its premise: the weights of the premise's words, a strip of colours for each pair."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from scripts.drawing import canvas
from scripts.drawing.lettering import shortened
from scripts.drawing.options import FigureOptions, caption
from scripts.trained import Trained
from tasks.errors import UserError
from tasks.reading import open_bytes

SHOWN, SHORT = 6, (8, 16)  # pairs of the test split that are shown where no file is named; words of their premises
MOST_PAIRS = 12  # of a file
COLOURS = "Blues"
FEWEST, MOST = 24, 60  # words that a strip has room for
FOOT = (
    "Each column is a word of the premise, as the model reads it; the darker, the more weight it has in what the "
    "hypothesis takes from the premise. The weights of a row add up to 1. Above: the hypothesis, and in brackets its "
    "label where it is known; on the left: the answer, with its probability."
)
_WORD, _ROW = 0.19, 0.24  # inches


class Text(NamedTuple):
    premise: str
    hypothesis: str
    gold: str | None


@dataclass(frozen=True)
class Strip:
    """A premise with its hypothesis."""

    hypothesis: str
    gold: str | None  # its label
    tokens: tuple[str, ...]  # T words of the premise
    rows: tuple[tuple[str, np.ndarray], ...]  # of each run that has these words its answer, and the weights (T,)


def draw(models: Sequence[Trained], options: FigureOptions) -> Path:
    """One file with a strip for each pair of sentences, of models of such pairs."""
    first, name, title = models[0], "attention-pairs", "What hypotheses attend to in their premises"
    if options.pairs:
        name += f"-{options.pairs.stem}"
    pairs = strips(models, read_texts(first, options.pairs) if options.pairs else choose_texts(first))
    if len(models) == 1:
        title += f"\n{caption(first, first.model.manifold)}"
    return options.save(plot(pairs, title), name, [trained.run for trained in models])


def read_texts(trained: Trained, file: Path) -> list[Text]:
    """The first pairs of a file, as mode=predict reads it."""
    if (rows := trained.data.read_table(file)) is not None:
        pairs = [pair for pair, _ in rows]
    else:
        with open_bytes(file) as lines:
            pairs = list(trained.data.read_inputs(lines, str(file)))
    if len(pairs) > MOST_PAIRS:
        print(f"--pairs {file}: shown are the first {MOST_PAIRS} of {len(pairs):,} pairs.")
    return [Text(pair.premise, pair.hypothesis, None) for pair in pairs[:MOST_PAIRS]]


def choose_texts(trained: Trained) -> list[Text]:
    """The first pairs of the test split with a short premise, as many of each class."""
    split, names = trained.data.splits()["test"], trained.data.labels
    short = (split.lengths[0] >= SHORT[0]) & (split.lengths[0] <= SHORT[1])
    candidates = short if short.any() else torch.ones_like(short)
    index: list[int] = []
    for label in range(len(names)):
        index += torch.nonzero(candidates & (split.labels == label)).flatten()[: -(-SHOWN // len(names))].tolist()
    return [Text(*trained.data.texts("test", k), names[int(split.labels[k])]) for k in sorted(index)]


def strips(models: Sequence[Trained], texts: Sequence[Text]) -> list[Strip]:
    """For each pair the weights of the premise's words in all models; those that cut it into other words get strips of
    their own. Raises UserError where a model does not attend."""
    predictions = [_predict(trained, texts) for trained in models]
    result = []
    for text, answers in zip(texts, zip(*predictions, strict=True), strict=True):
        rows: dict[tuple[str, ...], list[tuple[str, np.ndarray]]] = {}
        for trained, prediction in zip(models, answers, strict=True):
            tokens, values = zip(*prediction["attention"], strict=True)
            answer = f"{prediction['label']} {prediction['probabilities'][prediction['label']]:.2f}"
            title = f"{trained.run.title}: " if len(models) > 1 else ""
            rows.setdefault(tokens, []).append((title + answer, np.array(values)))
        result += [Strip(text.hypothesis, text.gold, tokens, tuple(group)) for tokens, group in rows.items()]
    return result


def _predict(trained: Trained, texts: Sequence[Text]) -> list[dict[str, Any]]:
    lines = ["\t".join(" ".join(side.split()) for side in text[:2]).encode() for text in texts]
    split = trained.data.encode(list(trained.data.read_inputs(lines, "the pairs")))
    with torch.inference_mode():
        predictions = trained.task.predict(split[torch.arange(len(split))])
    if not all("attention" in prediction for prediction in predictions):
        encoder = trained.run.settings.get("encoder._target_", "its encoder").rpartition(".")[2]
        raise UserError(
            f"{trained.run.folder}: {encoder} does not attend to anything. Name a run of encoder=gru_attention or "
            "encoder=dan_attention."
        )
    return predictions


def plot_panel(axis: Axes, strip: Strip, scale: Normalize, columns: int) -> None:
    """A row for each run, a column for each word; a long premise is cut, with the weight of the rest in the title.

    columns: how many there is room for.
    """
    shown = np.stack([weights[:MOST] for _, weights in strip.rows])
    axis.imshow(shown, aspect="auto", cmap=COLOURS, norm=scale, interpolation="nearest")
    axis.set_xticks(range(shown.shape[1]), [shortened(token, 14) for token in strip.tokens[:MOST]], rotation=90)
    axis.set_yticks(range(len(shown)), [answer for answer, _ in strip.rows])
    axis.set_xlim(-0.5, columns - 0.5)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    for edge in np.arange(0.5, len(shown) - 1):
        axis.axhline(edge, color="white", linewidth=1.5)
    axis.vlines(np.arange(0.5, shown.shape[1] - 1), -0.5, len(shown) - 0.5, color="white", linewidth=0.5)
    rest = len(strip.tokens) - shown.shape[1]
    cut = f" ({rest} more words, weight {max(w[MOST:].sum() for _, w in strip.rows):.2f} at most)" if rest else ""
    gold = f" [{strip.gold}]" if strip.gold else ""
    axis.set_title(canvas.wrapped(f"{strip.hypothesis}{gold}{cut}", _WORD * columns, 9), loc="left")


def plot(strips: Sequence[Strip], title: str) -> Figure:
    """The strips from top to bottom, on one scale of colours."""
    rows = [row for strip in strips for row in strip.rows]
    scale = Normalize(0, max(float(weights[:MOST].max()) for _, weights in rows) or 1.0)
    columns = max(FEWEST, *(min(MOST, len(strip.tokens)) for strip in strips))
    width = 0.075 * max(len(answer) for answer, _ in rows) + 0.4 + _WORD * columns
    with canvas.canvas(width, 1.1 + 1.05 * len(strips) + _ROW * len(rows), title, FOOT) as body:
        heights = [len(strip.rows) for strip in strips]
        axes = body.subplots(len(strips), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axis, strip in zip(axes, strips, strict=True):
            plot_panel(axis, strip, scale, columns)
        body.colorbar(
            ScalarMappable(scale, COLOURS), ax=list(axes), location="bottom", fraction=0.03, aspect=40, label="weight"
        )
    return body.figure
