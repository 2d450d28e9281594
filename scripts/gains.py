"""How much like a tree each graph of a table is, beside the gain of its hyperbolic model."""

import statistics
from pathlib import Path

from configs.cells import TableError
from configs.tables import Layout
from scripts.hyperbolicity import COMMAND, FILE, read
from scripts.records import Record


def gain_lines(layout: Layout, cells: dict[tuple[str, str | None], list[Record]], file: Path = FILE) -> list[str]:
    """For each column with a `graph` its delta, and how many points the first row of `gain` is above the second, in the
    paper and in ours, of so many seeds; none where the table has no `gain`. Raises TableError where a graph was not
    measured, and UserError where the file of what was measured is missing or damaged.

    cells: those with runs of all the data.
    """
    if layout.gain is None:
        return []
    measured = read(file)["graphs"]
    high, low = layout.gain
    parts = []
    for column, spec in layout.columns.items():
        graph = measured.get(spec["graph"])
        if graph is None:
            raise TableError(
                f"{file.name} lacks the graph {spec['graph']} of the column {column} of {layout.title}; measure it: "
                f"{COMMAND} {file}"
            )
        theirs = [layout.published.get((row, column)) for row in (high, low)]
        ours = [[run["metrics"][layout.metrics[column]] for run in cells.get((row, column), [])] for row in (high, low)]
        gains = []
        if theirs[0] is not None and theirs[1] is not None:
            gains.append(f"paper {layout.scale * (theirs[0] - theirs[1]):+.1f}")
        if all(ours):
            gain = layout.scale * (statistics.fmean(ours[0]) - statistics.fmean(ours[1]))
            gains.append(f"ours {gain:+.1f} (seeds: {len(ours[0])} and {len(ours[1])})")
        delta = f"{graph['delta_max']:g} (mean {graph['delta_mean']:.2f}, diameter seen {graph['diameter']})"
        parts.append(f"{column} {delta}: {', '.join(gains) or 'not run'}")
    what = f"beside {high} above {low} in points"
    return [f"δ-hyperbolicity of each graph (0: a tree), measured on sampled quadruples, {what}: {'; '.join(parts)}"]
