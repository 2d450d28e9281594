"""Examples that stand in a data set more than once: how many, and what a run says of them."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tasks.batches import SPLITS


def count_in_train(keys: np.ndarray, splits: np.ndarray) -> dict[str, int]:
    """Of dev and test, how many examples train has, too. keys (N,): the same for examples that are the same. splits
    (N,): numbers in SPLITS."""
    train = keys[splits == SPLITS.index("train")]
    return {split: int(np.isin(keys[splits == SPLITS.index(split)], train).sum()) for split in SPLITS[1:]}


def count_duplicates(keys: np.ndarray, labels: np.ndarray, splits: np.ndarray) -> dict[str, dict[str, int]]:
    """By split the counts of a record. Of train: repeated, examples that stand there before; contradictory, those that
    stand there with another label, too. Of dev and test: in_train, see :func:`count_in_train`.

    keys (N,), splits (N,): as there. labels (N,): numbers of classes.
    """
    is_train = splits == SPLITS.index("train")
    unique, group = np.unique(keys[is_train], return_inverse=True)
    pairs = np.unique(np.stack([group, labels[is_train]]), axis=1)
    several = np.bincount(pairs[0], minlength=len(unique)) > 1
    train = {"repeated": len(group) - len(unique), "contradictory": int(several[group].sum())}
    return {"train": train} | {split: {"in_train": n} for split, n in count_in_train(keys, splits).items()}


def duplicates_remarks(counts: Mapping[str, Mapping[str, Any]], unit: str) -> Iterator[str]:
    """A sentence for each count above 0 that tells something of the metrics. counts: of a record, by split. unit: of an
    example, in the plural, which is a count, too."""
    if n := counts["train"].get("contradictory", 0):
        which = f"{n:,} of {counts['train'][unit]:,} {unit} of train"
        yield f"{which} stand there with another label, too, as the model reads them; they are kept."
    for split in SPLITS[1:]:
        if n := counts[split].get("in_train", 0):
            which = f"{n:,} of {counts[split][unit]:,} {unit} of {split}"
            yield f"{which} are in train, too, as the model reads them; they are kept."
