"""Kinds of relations by how many heads and tails they join."""

import numpy as np
from torch import Tensor

UNSEEN = "unseen"  # category of a relation without a triple


def categories(triples: Tensor, n_relations: int) -> list[str]:
    """1-1, 1-N, N-1 or N-N for each relation; "unseen" for one without a triple.

    The first letter is N where a tail has at least 1.5 heads in the mean, (number of triples) / (number of distinct
    tails), the second where a head has at least 1.5 tails. triples: those of train, long (N, 3), no row twice.

    Source: Bordes et al. 2013, Section 4.3; Wang et al. 2014, Section 4.2.
    """
    array = triples.numpy()
    count = np.bincount(array[:, 1], minlength=n_relations)
    wide = []
    for column in (2, 0):
        key = array[:, 1] * (array[:, column].max(initial=0) + 1) + array[:, column]
        distinct = np.unique(key, return_index=True)[1]
        wide.append(count >= 1.5 * np.bincount(array[distinct, 1], minlength=n_relations))
    letters = [("N" if heads else "1") + "-" + ("N" if tails else "1") for heads, tails in zip(*wide, strict=True)]
    return [letter if n else UNSEEN for letter, n in zip(letters, count, strict=True)]
