"""What the cells of a table and the notes under it say, from the published values and the records of our runs."""

import math
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from configs.cells import Place
from configs.tables import SPREADS, Layout
from hyperbolic.optim.roles import ROLES
from scripts.budgets import budget_lines, edge_lines, is_solved, rising_lines
from scripts.gains import gain_lines
from scripts.listing import listing
from scripts.orderings import LEGEND, ROUNDING, ordering_lines, quantile, seeds
from scripts.records import Record, RecordError
from tasks.settings import flat

MOST_HELD_OUT = 0.94  # of the paper's training data: a run that selects on 5 % of them has nearly as much as the paper
COLUMNS_OF_A_BLOCK = 6  # so that a block with its row names fits into 150 characters

Cells = dict[Place, list[Record]]


@dataclass(frozen=True)
class Block:
    """A part of a table that is printed as one: rows[i][j] are the lines of a cell; **bold** as in Markdown."""

    header: list[str]
    rows: list[list[list[str]]]


def blocks(layout: Layout, cells: Cells) -> list[Block]:
    """The table, as one block, or as several below each other where it is too wide for a terminal."""
    names, parts = list(layout.columns), []
    if not layout.whole_rows:
        rows = [[[row], *(cell_lines(layout, row, n, cells.get((row, n), [])) for n in names)] for row in layout.rows]
        return [Block(["", *names], rows)]
    sizes = bool(layout.parameters or any(cells.values()))
    for start in range(0, len(names), COLUMNS_OF_A_BLOCK):
        columns = names[start : start + COLUMNS_OF_A_BLOCK]
        last = sizes and start + COLUMNS_OF_A_BLOCK >= len(names)
        rows = [row_lines(layout, row, columns, cells.get((row, None), []), last) for row in layout.rows]
        parts.append(Block(["", "", *columns, *(["parameters"] if last else [])], rows))
    return parts


def cell_lines(layout: Layout, row: str, column: str, runs: list[Record]) -> list[str]:
    """What a cell says, line by line: the paper's value, ours, the difference in points, the paper's protocol."""
    value, metric = layout.published.get((row, column)), layout.metrics[column]
    lines = [f"{layout.of_paper} {_quote(layout, row, column)}"]
    if not runs:
        return [*lines, _why_empty(layout, row)]
    values = [layout.scale * run["metrics"][metric] for run in runs]
    mean = statistics.fmean(values)
    lines.append(f"**ours {_mean(values, layout.spread, max(2, layout.digits))}** ({seeds(runs)})")
    if value is not None and layout.is_compared:
        lines.append(f"difference {mean - layout.scale * value:+.2f}")
    if layout.best_of_three and len(runs) >= 3:
        best = layout.scale * best_of_three(runs, metric)["metrics"][metric]
        gain = "" if value is None or not layout.is_compared else f" ({best - layout.scale * value:+.2f})"
        lines.append(f"best validation of 3: {best:.2f}{gain}")
    return lines + _partial(layout, runs)


def row_lines(layout: Layout, row: str, columns: list[str], runs: list[Record], sizes: bool) -> list[list[str]]:
    """The cells of a row that one run fills: its name, what each line is, then a number a line in every cell.

    sizes: with a last cell for the number of parameters.
    """
    paper = any((row, column) in layout.published for column in layout.columns)
    labels = [layout.of_paper if paper else "not in the paper"]
    cells = [[_quote(layout, row, column)] for column in columns]
    size = layout.parameters.get(row)
    sizes_cell = ["–" if size is None else f"{size / 1e6:.1f}M"]
    if not runs:
        labels.append(_why_empty(layout, row))
    else:
        labels.append(f"**ours** ({seeds(runs)})")
        compare = paper and layout.is_compared
        labels += ["difference"] if compare else []
        for cell, column in zip(cells, columns, strict=True):
            values = [layout.scale * run["metrics"][layout.metrics[column]] for run in runs]
            cell.append(f"**{_mean(values, layout.spread, max(2, layout.digits))}**")
            if compare:
                value = layout.published.get((row, column))
                gap = None if value is None else statistics.fmean(values) - layout.scale * value
                cell.append("–" if gap is None else f"{gap:+.{max(2, layout.digits)}f}")
        labels += _partial(layout, runs)
        count = runs[0]["parameters"]
        sizes_cell.append(f"{count:,}" if isinstance(count, int) else "–")
    return [[row], labels, *cells, *([sizes_cell] if sizes else [])]


def best_of_three(runs: list[Record], metric: str) -> Record:
    """Of the runs with the three lowest seeds, the one with the best validation value of `metric`."""
    validation = "val/" + metric.removeprefix("test/")
    three = sorted(runs, key=lambda run: run["seed"])[:3]
    if lacking := [f"{run['experiment']} with seed {run['seed']}" for run in three if validation not in run["metrics"]]:
        raise RecordError(f"No metric {validation}, by which the best of 3 runs is chosen, in: {', '.join(lacking)}")
    return max(three, key=lambda run: run["metrics"][validation])


def notes(layout: Layout, cells: Cells) -> list[str]:
    """The lines under a table: the paper's protocol, then our settings, each with the cells it made."""
    lines = [layout.protocol if layout.again else f"Paper: {layout.protocol}"]
    if None in layout.published.values():
        lines.append("A value shown as ? is in the paper, but cannot be read in the copy that was at hand.")
    remarks: dict[str, dict[Place, str]] = defaultdict(dict)
    for _, place in layout.places:
        by_settings: dict[str, list[int]] = defaultdict(list)
        for run in cells.get(place, []):
            by_settings[settings_line(run)].append(run["seed"])
        for settings, numbers in by_settings.items():
            plural = "seed" if len(numbers) == 1 else "seeds"
            remarks[settings][place] = f" ({plural} {', '.join(map(str, numbers))})"
    lines += [f"Ours, {settings}: {listing(layout, where, cells)}" for settings, where in remarks.items()]
    lines += [*budget_lines(layout, cells), *edge_lines(layout, cells), *rising_lines(layout, cells)]
    whole = {place: runs for place, runs in cells.items() if runs and not _partial(layout, runs)}
    orderings = [line for ordering in layout.orderings for line in ordering_lines(layout, ordering, whole)]
    lines += [*orderings, LEGEND] if orderings else []
    lines += contest_lines(layout, whole)
    lines += gain_lines(layout, whole)
    lines.append(f"Ours: {SPREADS[layout.spread]}; one record for each seed in results/runs/.")
    return lines


def contest_lines(layout: Layout, cells: Cells) -> list[str]:
    """Of the rows that are compared, how often each is the highest, in the paper and in ours; ours where all of them
    have runs. Rows of different contests are counted together by their place in it, as "HYP" of "mammal, HYP"; where
    several are as high, none is the highest. Where ± is a confidence interval: also how often that of the highest
    overlaps no other's."""
    if not layout.contests:
        return []
    theirs, ours = [], []
    confident = layout.spread == "confidence"
    for contest in layout.contests:
        names = [row.rpartition(", ")[2] for row in contest]
        for column in layout.columns:
            metric = layout.metrics[column]
            values = [value for row in contest if (value := layout.published.get((row, column))) is not None]
            if len(values) == len(contest):
                theirs.append(_highest(names, values, [layout.intervals.get((row, column)) for row in contest]))
            runs = [cells.get((row, column), []) for row in contest]
            if all(runs):
                scores = [[run["metrics"][metric] for run in some] for some in runs]
                widths = [_plus_minus(some, layout.spread) for some in scores]
                ours.append(_highest(names, [statistics.fmean(some) for some in scores], widths))

    def counted(winners: list[tuple[str, bool | None]]) -> str:
        parts = []
        for name, n in Counter(name for name, _ in winners).most_common():
            distinct = [apart for winner, apart in winners if winner == name and apart is not None]
            of = "" if len(distinct) == n else f" of {len(distinct)} with intervals"
            parts.append(f"{name} {n}" + (f" ({sum(distinct)} apart{of})" if distinct and confident else ""))
        return f"{', '.join(parts)} of {len(winners)}"

    in_ours = f"; in ours {counted(ours)}" if ours else ""
    rivals = ", ".join(row.rpartition(", ")[2] for row in layout.contests[0])
    counts = f"in the paper {counted(theirs)}{in_ours}"
    legend = ". Apart: its 95 % interval overlaps none of the others'" if " apart" in counts else ""
    return [f"How often each of {rivals} is the highest: {counts}{legend}"]


def _highest(names: list[str], means: list[float], widths: list[float | None]) -> tuple[str, bool | None]:
    """Which mean is the highest, and whether it, less its half width, is above every other plus its own half width.

    Intervals that touch overlap. None: nothing is the highest alone, or a half width is not known.
    """
    best = max(means)
    if means.count(best) > 1:
        return "none alone", None
    place = means.index(best)
    half = [width for width in widths if width is not None]
    if len(half) < len(widths):
        return names[place], None
    ends = [mean + width for k, (mean, width) in enumerate(zip(means, half, strict=True)) if k != place]
    return names[place], all(best - half[place] - end > ROUNDING for end in ends)


def settings_line(run: Record) -> str:
    """How a run was made, from its record: data, length, batch, precision, optimiser, choice of the epoch."""
    config, optim = flat(run["config"]), run["config"]["optim"]
    epochs, steps, precision = (config.get(f"trainer.{key}") for key in ("max_epochs", "max_steps", "precision"))
    parts = []
    if names := sources(run):
        parts.append(f"trained on {', '.join(names)}")
    files = run["data"]["files"]
    if isinstance(files, dict) and "vectors" in files:
        parts.append(f"word vectors {files['vectors']}")
    solved, tokens = is_solved(config), config.get("task.data.batch_tokens")
    unit = "starts" if optim.get("rule") == "lbfgs" else "epochs"  # a start of L-BFGS is an epoch
    parts += [f"{epochs} {unit}"] if epochs not in (None, -1) and not solved else []
    parts += [f"at most {steps} steps"] if steps not in (None, -1) else []
    if not solved:
        parts.append(f"batches of {tokens} tokens" if tokens else f"batches of {config.get('task.data.batch_size')}")
    parts.append({"32-true": "float32", "64-true": "float64"}.get(str(precision), str(precision)))
    parts += ["solved by scikit-learn"] if solved else _optimiser(optim)
    if isinstance(run["selection"], dict) and run["selection"].get("metric"):
        parts.append(f"tested at the best {run['selection']['metric']}")
    elif isinstance(run["selection"], dict) and (n := run["selection"].get("average_last")):
        parts.append(f"tested with the mean of the weights after the last {n} epochs")
    if run["data"].get("selection") == "test":
        parts.append("the test set selects")
    parts.append(f"fidelity {run['fidelity']}")
    if run["dirty"] is not False or not run["commit"]:
        parts.append("code with uncommitted changes")
    return ", ".join(parts)


def _optimiser(optim: dict[str, Any]) -> list[str]:
    parts = [f"{optim.get('rule')} with learning rate {optim.get('lr')}"]
    for role in ROLES:
        own = {key: value for key, value in (optim.get(role) or {}).items() if value is not None}
        parts += [f"{role}: {' '.join(f'{key} {value}' for key, value in own.items())}"] if own else []
    if optim.get("weight_decay"):
        parts.append(f"weight decay {optim['weight_decay']}")
    if optim.get("max_grad_norm") is not None:
        parts.append(f"gradient norm at most {optim['max_grad_norm']} ({optim.get('clip')})")
    return parts


def sources(run: Record) -> list[str]:
    """The parts of the training data that a run had, where its record names them; else none."""
    return [name for name in run["data"].get("sources") or () if name not in ("dev", "test")]


def _quote(layout: Layout, row: str, column: str) -> str:
    if (row, column) not in layout.published:
        return "–"
    value, interval = layout.published[row, column], layout.intervals.get((row, column))
    around = "" if interval is None else f" ± {layout.scale * interval:.{layout.digits}f}"
    return "?" if value is None else f"{layout.scale * value:.{layout.digits}f}{around}"


def _mean(values: list[float], spread: str, digits: int = 2) -> str:
    width = _plus_minus(values, spread)
    return f"{statistics.fmean(values):.{digits}f}" + ("" if width is None else f" ± {width:.{digits}f}")


def _plus_minus(values: list[float], spread: str) -> float | None:
    """What stands behind ± for these values, a key of SPREADS; None for a single one."""
    if len(values) == 1:
        return None
    deviation = statistics.stdev(values)
    if spread == "confidence":
        deviation *= quantile(len(values)) / math.sqrt(len(values))
    return deviation


def _why_empty(layout: Layout, row: str) -> str:
    return "quoted, not built" if row in layout.quoted else "not run"


def _partial(layout: Layout, runs: list[Record]) -> list[str]:
    data = runs[0]["data"]
    share, of_paper = data["share"], (data.get("paper") or {}).get("share")
    lines = [f"partial: {100 * share:.3g} % of the data"] if share < 1 else []
    if of_paper is not None and of_paper < MOST_HELD_OUT and not layout.again:  # whose label says what data it has
        lines.append(f"partial: {100 * of_paper:.3g} % of the paper's training data")
    missing = [name for name in layout.sources if name not in sources(runs[0])]
    return lines + (["partial: without", ", ".join(missing)] if missing else [])
