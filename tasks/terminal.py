"""Tables on the terminal, those that are too wide for it in parts below each other."""

import sys
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH = 160  # of a terminal that is none
_BORDER = 3  # of a cell; a table has one more


def show_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: Sequence[bool],
    fixed: int = 1,
    footer: Sequence[Sequence[str]] = (),
    width: int | None = None,
) -> None:
    """Print a table. Where its columns do not fit, the first `fixed` of them stand in each of several parts.

    rows: of text, a line or several in a cell. numeric: which columns are numbers. footer: rows of a section below the
    first part, of two cells each. width: of the terminal, if it is not to be looked up.
    """
    console = Console(width=width or (None if sys.stdout.isatty() else WIDTH))
    widths = [_width(column) for column in zip(header, *rows, strict=True)]
    for place, cells in enumerate(zip(*footer, strict=True)):
        widths[place] = max(widths[place], _width(cells))
    parts = _parts(widths, fixed, console.width - 1)
    if title:
        # The table's own title is wrapped to its width; in text brackets are no markup.
        console.print(Text(title, style="italic"), soft_wrap=True)
    for number, columns in enumerate(parts):
        table = Table()
        for column in columns:
            table.add_column(Text(header[column]), justify="right" if numeric[column] else "left", overflow="fold")
        for row in rows:
            if number == 0 or any(row[column] for column in columns[fixed:]):
                table.add_row(*(Text(row[column]) for column in columns))
        if number == 0 and footer:
            table.add_section()
            for row in footer:
                table.add_row(*map(Text, row))
        console.print(table)


def _width(column: Sequence[str]) -> int:
    return max(cell_len(line) for cell in column for line in cell.split("\n")) + _BORDER


def _parts(widths: Sequence[int], fixed: int, room: int) -> list[list[int]]:
    """Numbers of columns, those of each part: as many as fit beside the fixed ones, one at least."""
    first = list(range(fixed))
    room -= sum(widths[:fixed])
    parts, used = [list(first)], 0
    for column in range(fixed, len(widths)):
        if len(parts[-1]) > fixed and used + widths[column] > room:
            parts.append(list(first))
            used = 0
        parts[-1].append(column)
        used += widths[column]
    return parts
