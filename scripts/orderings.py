"""Whether one row or column of a table is above another in our runs, tested over their seeds."""

import math
import statistics
from collections import defaultdict

from scipy.special import stdtrit

from configs.cells import Place
from configs.tables import Layout, Ordering
from scripts.records import Record, RecordError

LEGEND = (
    "Orderings: the difference ± half of its 95 % interval, by a paired t-test where both have the same seeds, else by "
    "one with the variances of both and the degrees of freedom of the fewer seeds; undecided where 0 is in the "
    "interval. One seed tests nothing, and the number of comparisons is not corrected for."
)

ROUNDING = 1e-9  # values that are no further apart are alike


def quantile(n: int) -> float:
    """97.5 % quantile of Student's t with n - 1 degrees of freedom."""
    return float(stdtrit(n - 1, 0.975))


def difference(high: dict[int, float], low: dict[int, float]) -> tuple[float, float | None]:
    """The difference of the means of two models, each with a value by seed, and half of its 95 % interval; None where
    one has a single seed.

    With the same n seeds ``d_s = high_s - low_s`` and the half is ``t_{n-1} sd(d) / sqrt(n)`` (paired t-test), else
    ``t_{min(n, m)-1} sqrt(var(high) / n + var(low) / m)`` (Welch's, with the fewest degrees of freedom it can have).
    """
    gain = statistics.fmean(high.values()) - statistics.fmean(low.values())
    n = min(len(high), len(low))
    if n < 2:
        return gain, None
    if high.keys() == low.keys():
        return gain, quantile(n) * statistics.stdev(high[seed] - low[seed] for seed in high) / math.sqrt(n)
    return gain, quantile(n) * math.sqrt(sum(statistics.variance(x.values()) / len(x) for x in (high, low)))


def verdict(gain: float, half: float) -> str:
    """holds | fails | undecided, by the interval ``gain ± half``."""
    return "undecided" if abs(gain) <= half + ROUNDING else "holds" if gain > 0 else "fails"


def ordering_lines(layout: Layout, ordering: Ordering, cells: dict[Place, list[Record]]) -> list[str]:
    """What is said of two rows for ours, column by column, or of two columns, row by row: whether it holds.

    cells: those with runs of all the data. Only where both have some; no line where there are none. Raises RecordError
    as `require_same_data`.
    """
    parts: dict[str, list[str]] = defaultdict(list)
    for name, *pair in ordering.pairs:
        runs = [cells.get((row, None if layout.whole_rows else column), []) for row, column in pair]
        if not all(runs):
            continue
        require_same_data(*runs)
        metrics = [layout.metrics[column] for _, column in pair]
        high, low = (
            {run["seed"]: layout.scale * run["metrics"][key] for run in some}
            for key, some in zip(metrics, runs, strict=True)
        )
        gain, half = difference(high, low)
        if half is None:
            few = "1 seed each" if len(high) == len(low) else f"{seeds(high)} against {seeds(low)}"
            parts[f"not tested, {few}:"].append(f"{name} {gain:+.2f}")
        else:
            parts[f"{verdict(gain, half)} for"].append(f"{name} {gain:+.2f} ± {half:.2f}")
    if not parts:
        return []
    places = {place for _, *pair in ordering.pairs for place in pair}
    who = "The paper's numbers have" if places <= set(layout.published) else "Expected, not in the paper:"
    if any(layout.published.get(place, 0) is None for place in places):
        who = "Expected, as the paper's values cannot all be read here:"
    said = "; ".join(f"{word} {', '.join(parts[word])}" for word in sorted(parts, key=_order))
    return [f"{who} {ordering.higher} above {ordering.lower}. Ours, difference{layout.unit}: {said}"]


def require_same_data(ours: list[Record], theirs: list[Record]) -> None:
    """Raise RecordError where two runs of one seed were not measured on the same data."""
    others = {run["seed"]: run for run in theirs}
    for run in ours:
        shas = run["data"]["sha256"], others.get(run["seed"], run)["data"]["sha256"]
        if split := next((s for s in ("dev", "test") if len({sha[s] for sha in shas if s in sha}) > 1), None):
            names = " and ".join(str(each["experiment"]) for each in (run, others[run["seed"]]))
            raise RecordError(
                f"{names}, seed {run['seed']}: data.sha256.{split} of their records differ, so they were measured on "
                "other data and cannot be compared. Run one of them again."
            )


def seeds(runs: dict[int, float] | list[Record]) -> str:
    return f"{len(runs)} seed{'s' if len(runs) > 1 else ''}"


def _order(word: str) -> tuple[int, str]:
    return ("holds", "fails", "undecided", "not").index(word.partition(" ")[0].partition(",")[0]), word
