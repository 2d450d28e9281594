"""How much of the data that a paper trained with there is."""

from collections.abc import Iterator
from typing import Any


def share_of_paper(counts: dict[str, dict[str, Any]], unit: str, total: int | None) -> dict[str, Any]:
    """For a record: how many training examples the paper has, under the name of their unit, and the share of them that
    train has, at most 1; both None where the paper does not say."""
    return {unit: total, "share": None if total is None else min(1.0, counts["train"][unit] / total)}


def paper_remarks(counts: dict[str, dict[str, Any]], unit: str, total: int | None) -> Iterator[str]:
    """A sentence where train has fewer examples than the paper's."""
    if total is not None and (n := counts["train"][unit]) < total:
        yield f"{n:,} training {unit}, {n / total:.1%} of the paper's {total:,}."
