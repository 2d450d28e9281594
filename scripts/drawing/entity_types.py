"""The types of entity typing runs: their names, granularities, points, and which of them a figure shows."""

from collections.abc import Sequence
from typing import Any

from scripts.drawing.options import FigureOptions, unfit
from scripts.trained import Trained
from tasks.base import Points
from tasks.errors import UserError

# Lopez & Strube 2020: Table 2 and Figure 4 show these three, Table 9 a chain from each of the other coarse types.
TABLE_2 = ("person", "artist", "musician")
TABLE_9 = ("organization", "group", "location", "place", "event", "time", "object", "entity")
GRANULARITIES = ("coarse", "fine", "ultrafine")


def inventory(trained: Trained) -> Any:
    """The types of the run's data. Raises UserError where it is no entity typing run."""
    if (inventory := trained.data.model_sizes.get("types")) is None:
        raise unfit(trained.run, "has no types; this figure shows entity typing runs.")
    return inventory


def types(trained: Trained) -> tuple[Sequence[str], list[str]]:
    """Names of the types, and the granularity of each."""
    types = inventory(trained)
    return types.names, [GRANULARITIES[i] for i in types.granularity.tolist()]


def class_points(trained: Trained) -> Points:
    """The points of the classifier's classes. Raises UserError where it has none."""
    inventory(trained)
    points = getattr(trained.model, "class_points", None)
    if points is None or points.x is None:
        raise UserError(
            f"{trained.run.folder}: the classifier of {type(trained.model).__name__} has no class points, which this "
            "figure shows. Name a run of another model; boundaries, norms and curves need none."
        )
    return points


def labels(trained: Trained, options: FigureOptions) -> tuple[str, ...]:
    """The types to show: those of --labels, or the paper's, or where the run lacks some of these its first three."""
    names, _ = types(trained)
    if options.labels is None and not set(TABLE_2) <= set(names):
        first = ", ".join(names[:3])
        absent = ", ".join(name for name in TABLE_2 if name not in names)
        print(f"{trained.run.title}: no types {absent}; shown are {first} (--labels chooses).")
        return tuple(names[:3])
    return options.labels or TABLE_2
