"""Which columns of a table with unknown names hold the fields that are needed: a guess, for messages."""

from collections.abc import Mapping, Sequence

LONGEST = 200  # characters of names in a message
MOST = 30  # columns that a message lists


def guess_columns(
    columns: Mapping[str, Sequence[str]], fields: Mapping[str, Sequence[str]], others: Sequence[str] = ()
) -> dict[str, str] | None:
    """The name of a column for each field; None where there are too few, or what stands there is no name, but too long
    or not printable. A field has the column of one of its names, where there is one; else "label" has the one with the
    fewest values, and the texts have the longest of the others.

    columns: by name the cells of the first rows. fields: the names of "label" and of each text. others: names of
    columns that are no field.
    """
    known = {field: next((name for name in names if name in columns), None) for field, names in fields.items()}
    free = [name for name in columns if name not in (*others, *known.values())]
    missing = [field for field, name in known.items() if name is None and field != "label"]
    if known["label"] is None:
        values = {name: len({*columns[name]}) for name in free}
        # a column with one value tells no classes apart; of several with as few, a short one without digits is likelier
        digits = {name: sum(any(map(str.isdigit, cell)) for cell in columns[name]) for name in values}
        lengths = {name: sum(map(len, columns[name])) for name in values}
        order = {name: (values[name] < 2, values[name], digits[name], lengths[name]) for name in values}
        known["label"] = min(free, key=order.__getitem__, default=None)
        free = [name for name in free if name != known["label"]]
    longest = sorted(free, key=lambda name: sum(map(len, columns[name])), reverse=True)[: len(missing)]
    guess = known | dict(zip(missing, (name for name in free if name in longest), strict=False))
    complete = {field: name for field, name in guess.items() if name is not None}
    text = "".join(complete.values())
    return complete if len(complete) == len(fields) and len(text) <= LONGEST and text.isprintable() else None


def list_names(columns: Sequence[str], own: Mapping[str, str], others: Sequence[str] = ()) -> str:
    """Names of all columns for a table whose first line has none, with commas; "" where they are too many to list.

    columns: what the first line has. own: by it the names of those that are known. The rest are `others`, then column1,
    column2, ...
    """
    rest = iter([*others, *(f"column{k}" for k in range(1, len(columns)))])
    return ",".join(own.get(column) or next(rest) for column in columns) if len(columns) <= MOST else ""
