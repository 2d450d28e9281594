"""Cells of a table by their names, as the notes under it list them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from configs.cells import Place
from configs.tables import Layout


def listing(layout: Layout, remarks: Mapping[Place, str], runs: Mapping[Place, Sequence[Any]]) -> str:
    """The cells with remarks, such as " (seed 0)", by their names, each with its own; one that all have stands once.

    All that have runs are "all cells"; a row of which every cell is among them has one name.

    Args: remarks: by cell, or by row where a run fills one. runs: of all cells.
    """
    names = {place: name for name, place in layout.places}
    words: dict[str, str] = {}
    if len(remarks) > 1 and remarks.keys() == {p for p in runs if runs[p]} and len({*remarks.values()}) == 1:
        words["all rows" if layout.whole_rows else "all cells"] = next(iter(remarks.values()))
    else:
        rows: dict[str, list[Place]] = defaultdict(list)
        for place in names:
            rows[place[0]].append(place)
        for place in filter(remarks.__contains__, names):
            row = place[0]
            whole = len(rows[row]) > 1 and {remarks.get(other) for other in rows[row]} == {remarks[place]}
            words[f"{row}, all columns" if whole else names[place]] = remarks[place]
    return join_names(words.items())


def join_names(names: Iterable[tuple[str, str]]) -> str:
    """Names with their remarks, "a (seed 0); b (seed 1)", and with one that all have "a; b (seed 0 each)"."""
    pairs = [*names]
    if len(pairs) > 1 and len({remark for _, remark in pairs}) == 1 and (remark := pairs[0][1]):
        return f"{'; '.join(name for name, _ in pairs)}{remark.removesuffix(')')} each)"
    return "; ".join(name + remark for name, remark in pairs)
