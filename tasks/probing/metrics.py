"""What a probe recovers of dependency trees (Hewitt & Manning 2019): edges, root, order of distances and of depths.

A metric of a split is made from sums over its sentences: UUAS and root are shares of all edges and sentences; the
Spearman correlations are averaged over the sentences of each length, and then over the lengths that occur.
"""

import numpy as np
from scipy.stats import rankdata

LENGTHS = range(5, 51)  # words of the sentences whose correlations count


def root(depths: np.ndarray, counted: np.ndarray) -> int:
    """The word of least depth (W,) among those `counted` (W,), or where none is among all; of equal ones the first."""
    return int(np.argmin(np.where(counted, depths, np.inf) if counted.any() else depths))


def spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's correlation of the last axis, (..., W) and (..., W) -> (...): Pearson's of the ranks, where equal
    values have the mean of their ranks. 0 where all values of x or of y are equal, for which it is not defined."""
    ranks = [rankdata(z, axis=-1) for z in (x, y)]
    x, y = (r - r.mean(-1, keepdims=True) for r in ranks)
    scale = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return np.where(scale > 0, (x * y).sum(-1) / np.where(scale > 0, scale, 1), 0.0)


def mean_over_lengths(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sums (..., len(LENGTHS)) over the sentences of each length, and how many those are (len(LENGTHS),) -> the mean
    over lengths of the means (...); 0 where there is no sentence of such a length."""
    there = counts > 0
    if not there.any():
        return np.zeros(sums.shape[:-1])
    return (sums[..., there] / counts[there]).mean(-1)
