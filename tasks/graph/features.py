"""Features of nodes, scaled to what a model can use as points."""

import numpy as np


def scaled(features: np.ndarray, normalize: bool, standardize: bool, mean_norm: float | None) -> np.ndarray:
    """Features (N, F) as float64, after those of these steps that are asked for, in this order.

    normalize: the features of each node are divided by their sum, where that is not 0. standardize: see `standardized`.
    mean_norm: all are divided by one number, which gives them this norm in the mean, where not all are 0.
    """
    features = features.astype(np.float64)
    if normalize:
        total = features.sum(1, keepdims=True)
        features = features * np.divide(1, total, out=np.zeros_like(total), where=total != 0)
    if standardize:
        features = standardized(features)
    if mean_norm is not None and (norm := np.linalg.norm(features, axis=1).mean()):
        features = features * (mean_norm / norm)
    return features


def standardized(features: np.ndarray) -> np.ndarray:
    """Features (N, F) whose columns have mean 0 and standard deviation 1 over the nodes, so that no unit of measurement
    counts more than another; 0 in a column of one value.

    Columns of 0 and 1 alone, such as indicators of categories and words, stay as they are: they are of that size
    already, and divided by their deviation the rarest would be the longest.
    """
    is_binary = ((features == 0) | (features == 1)).all(0)
    is_constant = features.min(0) == features.max(0)
    mean = features.mean(0)
    deviation = np.where(is_constant, 1, features.std(0))
    return np.where(is_binary, features, np.where(is_constant, 0, (features - mean) / deviation))
