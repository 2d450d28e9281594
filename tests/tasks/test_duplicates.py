"""Examples that stand in a data set more than once."""

import numpy as np

from tasks.batches import SPLITS
from tasks.duplicates import count_duplicates, duplicates_remarks

TRAIN, DEV, TEST = range(len(SPLITS))


def test_each_kind_is_counted_and_said():
    rows = [  # key, label, split
        (7, 0, TRAIN), (7, 0, TRAIN), (7, 1, TRAIN),  # two more than once, all three contradictory
        (8, 1, TRAIN), (8, 1, TRAIN),  # repeated alone
        (9, 0, TRAIN), (7, 1, DEV), (5, 0, DEV), (5, 1, TEST),  # of other splits only dev has what train has
    ]  # fmt: skip
    keys, labels, splits = np.array(rows).T
    counts = count_duplicates(keys, labels, splits)
    assert counts == {"train": {"repeated": 3, "contradictory": 3}, "dev": {"in_train": 1}, "test": {"in_train": 0}}
    sizes = {"train": 6, "dev": 2, "test": 1}
    assert list(duplicates_remarks({split: {"pairs": n} | counts[split] for split, n in sizes.items()}, "pairs")) == [
        "3 of 6 pairs of train stand there with another label, too, as the model reads them; they are kept.",
        "1 of 2 pairs of dev are in train, too, as the model reads them; they are kept.",
    ]


def test_without_dev_and_with_a_count_of_before_nothing_is_said():
    counts = count_duplicates(np.array([1, 2]), np.array([0, 1]), np.array([TRAIN, TEST]))
    assert counts == {"train": {"repeated": 0, "contradictory": 0}, "dev": {"in_train": 0}, "test": {"in_train": 0}}
    assert list(duplicates_remarks({split: {"documents": 1} for split in SPLITS}, "documents")) == []
