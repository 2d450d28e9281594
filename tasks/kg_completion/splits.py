"""Splits of a knowledge graph: triples that are held out of train, and answers of the test that train gives away."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from tasks.errors import UserError
from tasks.ragged import ranges
from tasks.reading import brief

LEAKS = 0.05  # share of the test with its reverse in train, from which on it is said


def hold_out(triples: np.ndarray, shares: Mapping[str, float], seed: int) -> dict[str, np.ndarray]:
    """Triples (N, 3), none twice, of which shares at random go to other splits, at least one to each that is to have
    some, and the others to train. Of the triples with an entity, or with a relation, the first at random stays there.

    Raises UserError where too few are left over by these.
    """
    order = np.random.default_rng(seed).permutation(len(triples))
    stays = np.zeros(len(order), dtype=bool)
    stays[np.unique(triples[order, ::2], return_index=True)[1] // 2] = True
    stays[np.unique(triples[order, 1], return_index=True)[1]] = True
    free = order[~stays]
    counts = [max(1, round(share * len(order))) if share else 0 for share in shares.values()]
    if sum(counts) > len(free):
        raise UserError(
            f"{sum(counts):,} of {len(order):,} triples are to be held out, and all but {len(free):,} are needed in "
            "train, so that it has every entity and relation; give smaller shares with task.data.held_out, or files."
        )
    *parts, left = np.split(free, np.cumsum(counts))
    rows = dict(zip(shares, parts, strict=True)) | {"train": np.append(order[stays], left)}
    return {split: triples[np.sort(part)] for split, part in rows.items()}


def inverses(train: Tensor, test: Tensor, n_entities: int, relations: Sequence[str], symmetric: bool) -> str:
    """That many triples (N, 3) of the test have their reverse in train under an inverse relation, one with the reverses
    of half of the triples or more, as the end of a sentence; "" where few have.

    symmetric: relations that are their own inverse count, too.
    """
    n = len(relations)
    rows, others = _reverses(train, train, n_entities)
    pairs, counts = (train[rows, 1] * n + others).unique(return_counts=True)
    is_inverse = 2 * counts >= train[:, 1].bincount(minlength=n)[pairs // n]
    known = pairs[is_inverse if symmetric else is_inverse & (pairs // n != pairs % n)]
    rows, others = _reverses(test, train, n_entities)
    pairs = test[rows, 1] * n + others
    leaks = torch.isin(pairs, known)
    share = len(rows[leaks].unique()) / max(len(test), 1)
    if share < LEAKS:
        return ""
    pairs, counts = pairs[leaks].unique(return_counts=True)
    one, other = (brief(relations[k]) for k in divmod(int(pairs[counts.argmax()]), n))
    which = f"an inverse relation, as {one} and {other}" if one != other else f"the same relation, as {one}"
    return (
        f"{share:.0%} of the triples of the test have their reverse in train under {which}: a model can answer them by "
        "copying"
    )


def _reverses(triples: Tensor, among: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Of triples (h, r, t) whose pair (t, h) is among others, of n entities: their rows, once for each of these, and
    the relation there."""
    pairs, order = (among[:, 0] * n + among[:, 2]).sort()
    reverse = triples[:, 2] * n + triples[:, 0]
    first = torch.searchsorted(pairs, reverse)
    rows, places = ranges(first, torch.searchsorted(pairs, reverse, right=True) - first)
    return rows, among[order[places], 1]
