"""The trials of a search: their settings as parallel coordinates, and how much each setting matters."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from scripts.drawing import canvas
from tasks import search
from tasks.errors import UserError

ABSENT = "–"
LOG_FROM = 20  # an axis of numbers is logarithmic where the largest is so many times the smallest
_OVER = {"boxstyle": "square,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}  # values, over lines


def draw(folder: Path, out: Path, suffix: str, name: str = "") -> list[Path]:
    """The settings of a search's trials as parallel coordinates, the best in red, and the importance of each setting.

    name: what the files are called after the figure's name.

    Raises UserError where there are fewer than two trials with a value, or nothing differs between them.
    """
    result = search.read(folder)
    complete = [trial for trial in result.ranked() if trial.value is not None]
    if len(complete) < 2 or not result.different():
        raise UserError(f"{folder} has fewer than two trials with a value, or all have the same settings.")
    end = f"{name and '-'}{name}.{suffix}"
    files = [parallel(result, complete, out / f"parallel{end}")]
    if weights := search.importance(result):
        files.append(importance(result, weights, out / f"importance{end}"))
    else:
        print(
            f"left out importance: {folder} has fewer than {search.FEWEST} trials that did not fail, too few to say "
            "how much each setting matters. Give the search more by hydra.sweeper.n_trials.",
            file=sys.stderr,
        )
    return files


def parallel(result: search.Search, trials: Sequence[search.Trial], file: Path) -> Path:
    """An axis for each setting and one for the metric; a line for each trial with a value."""
    keys = result.different()
    foot = (
        f"A line for each of {len(trials)} trials; red: the best by {result.metric}, {trials[0].value:.4f} "
        f"(trial {trials[0].number}). {ABSENT}: the setting is the task's own (trial 0), or does not count."
    )
    with canvas.canvas(1.5 + 1.15 * (len(keys) + 1), 3.8, result.name, foot) as body:
        axis = body.subplots()
        columns = [places([trial.settings.get(key, ABSENT) for trial in trials], axis, x) for x, key in enumerate(keys)]
        columns.append(places([f"{trial.value:.4g}" for trial in trials], axis, len(keys), is_metric=True))
        for k in reversed(range(len(trials))):
            is_best = k == 0
            style = (canvas.RED, 2.0, 1.0) if is_best else (canvas.BLUE, 0.9, 0.2 + 0.5 * (1 - k / len(trials)))
            heights = [column[k] for column in columns]
            axis.plot(range(len(columns)), heights, color=style[0], linewidth=style[1], alpha=style[2])
        names = search.short_names(keys)
        axis.set_xticks(range(len(columns)), [*names, result.metric], rotation=20, ha="right")
        axis.set_yticks([])
        axis.set_xlim(-0.2, len(columns) - 0.3)
        for side in ("left", "bottom"):
            axis.spines[side].set_visible(False)
        return canvas.save(body.figure, file)


def places(values: Sequence[str], axis: Axes, x: int, is_metric: bool = False) -> list[float]:
    """The height of each value on an axis from 0 to 1, which is drawn at x: numbers by their size, words in steps."""
    numbers = [search.float_or_none(value) for value in values]
    known = [number for number in numbers if number is not None and math.isfinite(number)]
    words = sorted({value for value, number in zip(values, numbers, strict=True) if number is None})
    is_scale = len(set(known)) > 4 or is_metric
    axis.axvline(x, color=canvas.GREY, linewidth=0.8, alpha=0.6, zorder=0)
    if not is_scale or not known:
        order = sorted(set(values), key=_key)
        heights = {value: k / max(1, len(order) - 1) for k, value in enumerate(order)}
        labels = heights
        result = [heights[value] for value in values]
    else:
        is_log = min(known) > 0 and max(known) / min(known) >= LOG_FROM
        scaled = [math.log(n) if is_log else n for n in known]
        low, high = min(scaled), max(scaled)
        floor = 0.12 if words else 0.0  # words, as that a setting does not count, stand below the numbers

        def height(number: float) -> float:
            share = ((math.log(number) if is_log else number) - low) / ((high - low) or 1.0)
            return floor + (1 - floor) * share

        result = [0.0 if number is None else height(number) for number in numbers]
        labels = {f"{end:g}": height(end) for end in (min(known), max(known))} | dict.fromkeys(words, 0.0)
    for text, place in labels.items():
        axis.annotate(
            text, (x, place), xytext=(4, 0), textcoords="offset points", fontsize=7, va="center", bbox=_OVER, zorder=5
        )
    return result


def importance(result: search.Search, weights: dict[str, float], file: Path) -> Path:
    """A bar for each setting (`tasks.search.importance`)."""
    foot = (
        "Share of the variance of the trials' ranks that lies between the values of a setting (epsilon², at least 0), "
        "each setting alone; diverged trials rank last."
    )
    with canvas.canvas(5.2, 1.4 + 0.28 * len(weights), result.name, foot) as body:
        axis = body.subplots()
        names, values = list(weights)[::-1], list(weights.values())[::-1]
        axis.barh(names, values, color=canvas.BLUE)
        for k, value in enumerate(values):
            axis.annotate(f"{value:.2f}", (value, k), (3, 0), textcoords="offset points", fontsize=7, va="center")
        axis.set_xlim(0, max(1.0, *values))
        axis.set_xlabel("importance")
        return canvas.save(body.figure, file)


def _key(value: str) -> tuple[bool, bool, float, str]:
    """Sorts the values of an axis: none at its foot, then numbers by their size, then words."""
    number = search.float_or_none(value)
    return (value != ABSENT, number is None, number or 0.0, "" if number is not None else value)
