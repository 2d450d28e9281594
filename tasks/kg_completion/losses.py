"""Losses of scores, and the penalty of the parameters themselves."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

EXCLUDED = -1e30  # the score of what is no negative; losses ignore it, and have no gradient by it


def mean(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """``sum w x / sum w`` of x and w (B,); None: the mean."""
    return x.mean() if weights is None else (weights.to(x) * x).sum() / weights.sum().to(x)


def negative_bce(scores: Tensor, count: int, weights: Tensor | None = None) -> Tensor:
    """``(softplus(-s_0) + n mean_i softplus(s_i)) / (1 + n)``, a mean over the batch, with weights (B,) if there are.

    Scores (B, 1 + N), the true answer first, then N wrong ones, of which some may be `EXCLUDED`. For n = N it is the
    mean binary cross entropy (Balazevic et al. 2019); a larger sample N has the same expectation. HyboNet's paper takes
    the sum over the negatives and its program the mean, as here.
    """
    wrong = scores[:, 1:]
    n = (wrong > EXCLUDED / 2).sum(-1).clamp_min(1)
    return mean(F.softplus(-scores[:, 0]) + F.softplus(wrong).sum(-1) * count / n, weights) / (1 + count)


def self_adversarial(scores: Tensor, temperature: float, weights: Tensor | None = None) -> Tensor:
    """``-(log sigmoid(s_0) + sum_i p_i log sigmoid(-s_i)) / 2``, ``p = softmax(temperature s_i)`` held fixed, as a mean
    over the batch (Sun et al. 2019). Scores (B, 1 + N), the true answer first; they hold the margin. weights (B,): of
    the triples in that mean."""
    wrong = scores[:, 1:]
    shares = torch.softmax(torch.where(wrong > EXCLUDED / 2, temperature * wrong, EXCLUDED).detach(), -1)
    return -mean(F.logsigmoid(scores[:, 0]) + (shares * F.logsigmoid(-wrong)).sum(-1), weights) / 2


def all_bce(scores: Tensor, rows: Tensor, answers: Tensor, smoothing: float) -> Tensor:
    """Mean binary cross entropy of the scores (B, E) of all entities, with smoothed targets ``(1 - s) y + s / E``
    (1-N scoring, Dettmers et al. 2018; their programs and TuckER's add 1 / E in the place of s / E).

    rows, answers: long (M,), the queries and entities that are true. With ``BCE(z, y) = softplus(z) - y z`` no matrix
    of targets is made.
    """
    total = F.softplus(scores).sum() - (1 - smoothing) * scores[rows, answers].sum()
    if smoothing:
        total = total - smoothing / scores.shape[1] * scores.sum()
    return total / scores.numel()


def power(factors: list[Tensor], exponent: int, weights: Tensor | None = None) -> Tensor:
    """``sum |x|^exponent`` over all factors (B, ...), a mean over the batch, with weights (B,) if there are.

    3: N3 (Lacroix et al. 2018); 2: L2.
    """
    if weights is None:
        return sum((x.abs().pow(exponent).sum() for x in factors), start=factors[0].new_zeros(())) / len(factors[0])
    return mean(torch.stack([x.abs().pow(exponent).reshape(len(x), -1).sum(1) for x in factors]).sum(0), weights)
