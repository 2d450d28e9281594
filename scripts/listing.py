"""Cells of a table by their names, as the notes under it list them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from configs.cells import Place
from configs.tables import Layout


def listing(layout: Layout, remarks: Mapping[Place, str], filled: Collection[Place]) -> str:
    """The cells with remarks, such as " (seed 0)", by their names, each with its own; one that all have stands once.

    "all cells" are all that are filled; a row whose cells are all among them has one name.

    Args: remarks: by cell, or by row where a run fills one. filled: the cells of the table that have runs.
    """
    names = {place: name for name, place in layout.places}
    words: dict[str, str] = {}
    if len(remarks) > 1 and remarks.keys() == {*filled} and len({*remarks.values()}) == 1:
        words["all rows" if layout.whole_rows else "all cells"] = next(iter(remarks.values()))
    else:
        rows: dict[str, list[Place]] = defaultdict(list)
        for place in filled:
            rows[place[0]].append(place)
        for place in names:
            if place not in remarks:
                continue
            row, column = place
            same = {remarks.get(other) for other in rows[row]} == {remarks[place]}
            whole = column is not None and same and len(rows[row]) > 1
            words[f"{row}, all columns" if whole else names[place]] = remarks[place]
    return join_names(words.items())


def join_names(names: Iterable[tuple[str, str]]) -> str:
    """Names with their remarks, "a (seed 0); b (seed 1)", and with one that all have "a; b (seed 0 each)"."""
    pairs = [*names]
    if len(pairs) > 1 and len({remark for _, remark in pairs}) == 1 and (remark := pairs[0][1]):
        return f"{'; '.join(name for name, _ in pairs)}{remark.removesuffix(')')} each)"
    return "; ".join(name + remark for name, remark in pairs)
