"""Ranks of right answers among all candidates, areas under curves, and precision, recall and F1 of sets of types.

The first are of ranking tasks; the second of right and wrong examples with a score each; the third, Choi's scores, of
entity typing, where a mention has any number of types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from scipy.stats import rankdata
from torch import Tensor

from hyperbolic.layers.classes import distinct
from tasks.errors import Diverged

Answers = tuple[Tensor, Tensor]


def filtered_rank_bounds(scores: Tensor, target: Tensor, answers: Answers | Tensor) -> tuple[Tensor, Tensor]:
    """Rank of each row's target among all candidates, without the other right answers; 1 is the best.

    The optimistic rank counts the candidates that score higher than the target, the pessimistic rank also those that
    score as high, without the right answers among them other than the target (Bordes et al. 2013, "filtered").

    Args:
        scores: (B, E), higher is better. target: long (B,).
        answers: right answers of each row, which may include the target and repeat: long (B, L), filled up with -1; or
            (offsets, indices), where row b has ``indices[offsets[b]:offsets[b + 1]]``.

    Returns: both ranks, long (B,) each.
    Raises:
        ValueError: shapes that do not fit, an index that is no candidate.
        Diverged: a target whose score is NaN.
    """
    batch, candidates = _check(scores, target)
    row, index = _entries(answers, target, batch, candidates)
    bar = scores.gather(1, target.unsqueeze(1))
    if bar.isnan().any():
        raise Diverged(
            "filtered ranks: the score of a target is NaN, so it has no rank. It diverged; take a smaller optim.lr."
        )
    other, beside = scores[row, index], bar[row, 0]
    # counted as a sum of floats, exact for so many ones and much faster than a sum of booleans
    flags = torch.empty_like(scores, dtype=torch.float32 if candidates < 1 << 24 else torch.float64)

    def count(below: Callable[..., Tensor]) -> Tensor:  # of the candidates, the target among them; NaN is better
        better = candidates - below(scores, bar, out=flags).sum(1).long()
        return better - torch.bincount(row[~below(other, beside)], minlength=batch)

    return count(torch.le) + 1, count(torch.lt)


def _check(scores: Tensor, target: Tensor) -> tuple[int, int]:
    if scores.dim() != 2 or target.shape != scores.shape[:1]:
        raise ValueError(
            f"filtered ranks: takes scores (B, E) and target (B,), got the shapes {tuple(scores.shape)} and "
            f"{tuple(target.shape)}"
        )
    _check_index(target, scores.shape[1], "target")
    return scores.shape[0], scores.shape[1]


def _check_index(index: Tensor, candidates: int, what: str) -> None:
    wrong = (index < 0) | (index >= candidates)
    if wrong.any():
        raise ValueError(f"filtered ranks: {what} {index[wrong][0].item()}, but there are {candidates} candidates")


def _entries(answers: Answers | Tensor, target: Tensor, batch: int, candidates: int) -> tuple[Tensor, Tensor]:
    """Row and index of every right answer once, the targets left out."""
    if isinstance(answers, Tensor):
        if answers.dim() != 2 or len(answers) != batch:
            raise ValueError(f"filtered ranks: answers must have the shape ({batch}, L), got {tuple(answers.shape)}")
        row, place = (answers >= 0).nonzero(as_tuple=True)
        index = answers[row, place]
    else:
        offsets, index = answers
        if offsets.shape != (batch + 1,):
            raise ValueError(f"filtered ranks: offsets must have the shape ({batch + 1},), got {tuple(offsets.shape)}")
        row = torch.arange(batch, device=index.device).repeat_interleave(offsets.diff(), output_size=len(index))
    _check_index(index, candidates, "answer")
    key = torch.unique(row * candidates + index)
    row, index = key // candidates, key % candidates
    other = index != target[row]
    return row[other], index[other]


TYPING_SCORES = tuple(f"{kind}_{score}" for kind in ("macro", "micro") for score in ("precision", "recall", "f1"))


def typing_sums(predicted: Tensor, gold: Tensor, groups: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """Sums over mentions from which :func:`typing_scores` makes the scores of Choi et al. (2018), section 5.

    A granularity looks only at its own types: of a mention with the predicted types P and the right types G it takes
    those in the granularity. For "" (all types) and each name there are, as 0-dim float64 tensors under "name/...":
    right, the sum of |P & G|; predicted, of |P|; gold, of |G|; precision, of |P & G| / |P| over the mentions with a
    predicted type, whose number is with_predicted; recall, of |P & G| / |G| over the with_gold mentions with a right
    type. Besides: exact, the mentions with P = G, and ordered, those among them whose list of right types ascends (what
    the program of Lopez and Strube 2020 counts: it compares sorted predictions with the list as it is in the file).

    Args:
        predicted: (B, K), true where a type is predicted. gold: right types of each mention in the order of the file,
            long (B, L), filled up with -1. groups: granularity of each type, long (K,), below len(names).
    """
    member = torch.nn.functional.one_hot(groups, len(names)).to(torch.float32)  # counts below 2**24 are exact
    listed = distinct(gold)
    there, place = listed >= 0, listed.clamp_min(0)
    n_gold = (member[place] * there.unsqueeze(-1)).sum(-2)
    n_right = (member[place] * (there & predicted.gather(-1, place)).unsqueeze(-1)).sum(-2)
    n_predicted = predicted.to(member.dtype) @ member
    right, claimed, gold_counts = (
        torch.cat([n.sum(-1, keepdim=True), n], -1).double() for n in (n_right, n_predicted, n_gold)
    )  # fmt: skip
    columns = {
        "right": right,
        "predicted": claimed,
        "gold": gold_counts,
        "precision": right / claimed.clamp_min(1),
        "recall": right / gold_counts.clamp_min(1),
        "with_predicted": claimed > 0,
        "with_gold": gold_counts > 0,
    }
    sums = {}
    for name, column in columns.items():
        for k, total in enumerate(column.double().sum(0)):
            sums[f"{names[k - 1]}/{name}" if k else name] = total
    exact = (right[:, 0] == claimed[:, 0]) & (right[:, 0] == gold_counts[:, 0])
    later, earlier = gold[:, 1:], gold[:, :-1]
    ascending = ((later > earlier) | (later < 0)).all(-1)
    return sums | {"exact": exact.double().sum(), "ordered": (exact & ascending).double().sum()}


def typing_scores(sums: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Loose macro and micro precision, recall and F1, of all types and "name/..." of each granularity.

    macro_precision is the mean of the mentions' precisions, macro_recall that of their recalls, each over the mentions
    that have one; macro_f1 = 2 P R / (P + R) of these two means. micro_* are those of the sums. An empty mean is 0.
    Source: Choi et al. 2018 (eval_metric.py); Ling and Weld 2012.
    """
    fractions = (  # of the precision and of the recall
        (("precision", "with_predicted"), ("recall", "with_gold")),
        (("right", "predicted"), ("right", "gold")),
    )
    scores: dict[str, float] = {}
    for at in ("", *(f"{name}/" for name in names)):
        values = []
        for pair in fractions:
            p, r = (sums[at + above] / max(sums[at + below], 1) for above, below in pair)
            values += [p, r, 2 * p * r / (p + r) if p + r else 0.0]
        scores |= {at + score: value for score, value in zip(TYPING_SCORES, values, strict=True)}
    return scores


def roc_auc(scores: Tensor, labels: Tensor) -> float:
    """Area under the ROC curve: the odds that a right example scores higher than a wrong one; equal scores count half.

    Args: scores (N,), higher is better. labels: bool (N,), with at least one of each.
    Raises:
        ValueError: examples of one kind only. Diverged: a score is NaN.
    """
    _check_both_kinds(scores, labels)
    ranks = torch.from_numpy(rankdata(scores.detach().double().cpu())).to(labels.device)  # equal scores have their mean
    right, wrong = int(labels.sum()), int((~labels).sum())
    return float((ranks[labels].sum() - right * (right + 1) / 2) / right / wrong)


def average_precision(scores: Tensor, labels: Tensor) -> float:
    """``sum_n (R_n - R_(n-1)) P_n`` over the thresholds, from the highest score, with precision P and recall R.

    Args, errors: as in :func:`roc_auc`.
    """
    _check_both_kinds(scores, labels)
    values, place = torch.unique(-scores.double(), return_inverse=True)
    counts = torch.zeros(2, len(values), dtype=torch.float64, device=scores.device)
    counts[0].index_add_(0, place, labels.double())
    counts[1].index_add_(0, place, torch.ones_like(labels, dtype=torch.float64))
    right, every = counts.cumsum(-1)
    return float((counts[0] / right[-1] * right / every).sum())


def _check_both_kinds(scores: Tensor, labels: Tensor) -> None:
    if scores.isnan().any():
        raise Diverged("A score is NaN, so there is no area under a curve: the weights of the model are too large.")
    if labels.all() or not labels.any():
        raise ValueError("areas under curves: they need right and wrong examples")
