"""A comparison as a table: its header, rows and notes, on the terminal and in Markdown, and as numbers for CSV."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tasks.comparison import FEW, Comparison, PairedTest, Setting, mean_and_deviation
from tasks.comparison_labels import ABSENT
from tasks.errors import readable
from tasks.terminal import show_table

MOST_COLUMNS = 4  # settings that differ; more of them stand in one column below each other


class Grid(NamedTuple):
    """Lines of text for each cell of a table; the cells of `numeric` columns are numbers."""

    title: str
    header: list[str]
    rows: list[list[list[str]]]
    numeric: list[bool]
    notes: list[str]


def grid(comparison: Comparison, with_test: bool = True) -> Grid:
    """The table: rank, the settings that differ, how many seeds, the selecting metric, and `with_test` the test metrics
    and how each setting differs from one of them (`Comparison.reference`)."""
    settings, metrics = comparison.settings, [comparison.metric]
    metrics += comparison.test_metrics() if with_test else []
    tests = comparison.tests() if with_test and len(settings) > 1 else []
    keys, wide = comparison.keys, len(comparison.keys) > MOST_COLUMNS
    labels = ["settings"] if wide else keys or ["runs"]
    header = ["rank", *labels, "seeds", *metrics, *([f"difference from {1 + comparison.reference}"] if tests else [])]
    rows = []
    for rank, (setting, test) in enumerate(zip(settings, tests or [None] * len(settings), strict=True), start=1):
        lines = [setting.name, *(f"{key}={value}" for key, value in setting.labels.items() if value != ABSENT)]
        names = [lines] if wide else [[value] for value in setting.labels.values()] or [[setting.name]]
        difference = [["" if test is None else _difference(test)]] if tests else []
        values = [[_spread(setting, metric)] for metric in metrics]
        rows.append([[str(rank)], *names, [str(len(setting.records))], *values, *difference])
    numeric = [True, *[False] * len(labels), *[True] * (len(header) - 1 - len(labels))]
    return Grid(comparison.title, header, rows, numeric, _notes(comparison, [t for t in tests if t is not None]))


def show(comparisons: Sequence[Comparison], with_test: bool = True) -> None:
    """Print a table for each comparison."""
    for comparison in comparisons:
        show_grid(grid(comparison, with_test))


def show_grid(content: Grid) -> None:
    """Print a table and its notes."""
    rows = [["\n".join(cell) for cell in row] for row in content.rows]
    n_labels = 1 + content.numeric[1:].index(True) if True in content.numeric[1:] else len(content.header)
    show_table(content.title, content.header, rows, content.numeric, fixed=n_labels)
    for note in content.notes:
        print(f"- {note}")


def markdown(comparisons: Sequence[Comparison]) -> str:
    """A Markdown table for each comparison, under its title."""
    return "\n".join(line for content in map(grid, comparisons) for line in as_markdown(content))


def as_markdown(content: Grid) -> list[str]:
    """The lines of a table with its title and notes."""
    head = [f"## {content.title}", "", _row([[name] for name in content.header])]
    head.append(f"|{'|'.join('---:' if numeric else '---' for numeric in content.numeric)}|")
    return [*head, *map(_row, content.rows), "", *(f"- {note}" for note in content.notes), ""]


def numbers(comparisons: Sequence[Comparison]) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of one table of all comparisons, for programs: a row for each setting, its seeds, and mean and
    standard deviation of the selecting and of every test metric, of groups too. What there is not is empty."""
    keys = list(dict.fromkeys(key for each in comparisons for key in each.keys))
    metrics = list(dict.fromkeys(m for each in comparisons for m in (each.metric, *each.test_metrics(grouped=True))))
    ends = [f"{metric} {part}" for metric in metrics for part in ("mean", "sd")]
    test = ["difference from rank", "difference", "difference sd", "common seeds", "p (Holm)"]
    rows = []
    for each in comparisons:
        for rank, (setting, result) in enumerate(zip(each.settings, each.tests(), strict=True), start=1):
            moments = [_moments(setting, metric) for metric in metrics]
            rows.append([
                each.title, rank, setting.name, *(setting.labels.get(key, "").removeprefix(ABSENT) for key in keys),
                len(setting.records), " ".join(map(str, setting.records)),
                *(number for pair in moments for number in pair),
                None if result is None else 1 + each.reference,
                *((result.mean, result.deviation, result.n, result.p) if result and result.n else [None] * 4),
            ])  # fmt: skip
    return ["data", "rank", "name", *keys, "seeds", "seed_list", *ends, *test], rows


def _notes(comparison: Comparison, tests: Sequence[PairedTest]) -> list[str]:
    better = "higher" if comparison.mode == "max" else "lower"
    notes = [
        f"Ranked by {comparison.metric}, the {better} the better; mean ± standard deviation over seeds.",
        *comparison.notes,
    ]
    if len(comparison.settings) > 1 and comparison.settings[0].values(comparison.metric):
        folders = [str(file.parent) for file in comparison.settings[0].files.values()]
        more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
        notes.append(f"Rank 1 is {readable(folders[0])}{more}.")
    if any(comparison.metric not in r["metrics"] for each in comparison.settings for r in each.records.values()):
        notes.append(f"Runs without {comparison.metric} come last, or do not count in its mean.")
    tested = [test for test in tests if test.p is not None]
    if tests:
        text = f"Difference: of {comparison.tested} over common seeds, mean ± standard deviation"
        correction = f", with Holm's correction for {len(tested)} of them" if len(tested) > 1 else ""
        notes.append(text + (f"; p of a two-sided paired t-test{correction}." if tested else "."))
    if few := sorted({test.n for test in tested if test.n < FEW}):
        many = " or ".join(map(str, few))
        notes.append(f"With {many} pairs of seeds the test finds large differences only: a high p shows no equality.")
    if tests and not tested:
        reason = "it needs at least two seeds that both settings have, as in seed=0,1,2"
        if any(test.n > 1 for test in tests):
            reason = "the difference of two settings is the same with every seed"
        notes.append(f"There is no test: {reason}.")
    return notes


def _moments(setting: Setting, metric: str) -> tuple[float | None, float | None]:
    values = setting.values(metric).values()
    return mean_and_deviation(values) if values else (None, None)


def _spread(setting: Setting, metric: str) -> str:
    mean, deviation = _moments(setting, metric)
    return "" if mean is None else number(mean) + ("" if deviation is None else f" ± {number(deviation)}")


def _difference(test: PairedTest) -> str:
    if not test.n:
        return "no common seed"
    text = f"{'−' if test.mean < 0 else '+'}{number(abs(test.mean))}"
    if test.deviation is None:
        return f"{text} (1 seed)"
    p = "" if test.p is None else ", p < 0.001" if test.p < 0.001 else f", p = {test.p:.2g}"
    return f"{text} ± {number(test.deviation)}{p}"


def number(value: float) -> str:
    """A metric with four decimals, or one where it is large."""
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.1f}"


def _row(cells: Sequence[Sequence[str]]) -> str:
    return "| " + " | ".join("<br>".join(cell).replace("|", "\\|") for cell in cells) + " |"
