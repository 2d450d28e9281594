"""Ranking metrics: the rank of the right answer among all candidates, other right answers left out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

TIES = ("pessimistic", "optimistic", "mean")
Known = tuple[Tensor, Tensor]


def filtered_ranks(scores: Tensor, target: Tensor, known: Known | Tensor, ties: str = "pessimistic") -> Tensor:
    """Rank of each row's target among all candidates, without the other known answers; 1 is the best.

    The rank is the number of candidates that score at least as high as the target, less the known answers among them
    other than the target (Bordes et al. 2013, "filtered").

    Args:
        scores: (B, E), higher is better. target: long (B,).
        known: right answers of each row, which may include the target and repeat: long (B, L), filled up with -1; or
            (offsets, indices), where row b has ``indices[offsets[b]:offsets[b + 1]]``.
        ties: how candidates with the target's score count: "pessimistic" before it, "optimistic" after it, "mean" half
            of them before it (the expected rank under a random order).

    Returns: (B,), float64 for "mean", otherwise long.
    Raises:
        ValueError: unknown ties, shapes that do not fit, an index that is no candidate, a target whose score is NaN.
    """
    batch, candidates = _checked(scores, target, ties)
    row, index = _entries(known, target, batch, candidates)
    bar = scores.gather(1, target.unsqueeze(1))
    if bar.isnan().any():
        raise ValueError("filtered_ranks: the score of a target is NaN, so it has no rank")
    other, beside = scores[row, index], bar[row, 0]
    # counted as a sum of floats, exact for so many ones and much faster than a sum of booleans
    flags = torch.empty_like(scores, dtype=torch.float32 if candidates < 1 << 24 else torch.float64)

    def better(below: Callable[..., Tensor]) -> Tensor:
        """Candidates, the target among them, for which ``below`` is false; NaN counts as better."""
        count = candidates - below(scores, bar, out=flags).sum(1).long()
        return count - torch.bincount(row[~below(other, beside)], minlength=batch)

    if ties == "pessimistic":
        return better(torch.lt)
    above = better(torch.le) + 1
    return above if ties == "optimistic" else (above + better(torch.lt)).double() / 2


def _checked(scores: Tensor, target: Tensor, ties: str) -> tuple[int, int]:
    if ties not in TIES:
        raise ValueError(f"filtered_ranks: ties must be one of {', '.join(TIES)}, got {ties!r}")
    if scores.dim() != 2 or target.shape != scores.shape[:1]:
        raise ValueError(
            f"filtered_ranks: takes scores (B, E) and target (B,), got the shapes {tuple(scores.shape)} and "
            f"{tuple(target.shape)}"
        )
    _check_index(target, scores.shape[1], "target")
    return scores.shape[0], scores.shape[1]


def _check_index(index: Tensor, candidates: int, what: str) -> None:
    wrong = (index < 0) | (index >= candidates)
    if wrong.any():
        raise ValueError(f"filtered_ranks: {what} {index[wrong][0].item()}, but there are {candidates} candidates")


def _entries(known: Known | Tensor, target: Tensor, batch: int, candidates: int) -> tuple[Tensor, Tensor]:
    """Row and index of every known answer once, the targets left out."""
    if isinstance(known, Tensor):
        if known.dim() != 2 or len(known) != batch:
            raise ValueError(f"filtered_ranks: known must have the shape ({batch}, L), got {tuple(known.shape)}")
        row, place = (known >= 0).nonzero(as_tuple=True)
        index = known[row, place]
    else:
        offsets, index = known
        if offsets.shape != (batch + 1,):
            raise ValueError(f"filtered_ranks: offsets must have the shape ({batch + 1},), got {tuple(offsets.shape)}")
        row = torch.arange(batch, device=index.device).repeat_interleave(offsets.diff(), output_size=len(index))
    _check_index(index, candidates, "known answer")
    key = torch.unique(row * candidates + index)
    row, index = key // candidates, key % candidates
    other = index != target[row]
    return row[other], index[other]


def answers_of(queries: Tensor, keys: Tensor, answers: Tensor) -> Known:
    """Right answers of each query, as (offsets, indices).

    Args:
        queries: long (B,), one number for each query (of a triple, for example ``head * n_relations + relation``).
        keys, answers: long (M,), the query and the answer of every true statement.
    """
    order = keys.argsort()
    keys, answers = keys[order], answers[order]
    start = torch.searchsorted(keys, queries)
    counts = torch.searchsorted(keys, queries, right=True) - start
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    within = torch.arange(int(offsets[-1]), device=keys.device) - offsets[:-1].repeat_interleave(counts)
    return offsets, answers[start.repeat_interleave(counts) + within]


@torch.no_grad()
def ranks_of(
    score: Callable[[Tensor], Tensor],
    queries: Tensor,
    target: Tensor,
    known: Known,
    ties: str = "pessimistic",
    chunk: int = 64,
) -> Tensor:
    """:func:`filtered_ranks` of many queries, of which ``chunk`` at a time are scored against all candidates.

    Args:
        score: queries (b, ...) -> scores (b, E) of all candidates.
        queries: (B, ...). target: long (B,). known: (offsets, indices), see :func:`filtered_ranks`.
    """
    offsets, indices = known
    bounds = offsets[:: max(chunk, 1)].tolist()
    if (len(offsets) - 1) % chunk:
        bounds.append(int(offsets[-1]))
    ranks = []
    for i, start in enumerate(range(0, len(queries), chunk)):
        stop = min(start + chunk, len(queries))
        part = offsets[start : stop + 1] - bounds[i], indices[bounds[i] : bounds[i + 1]]
        ranks.append(filtered_ranks(score(queries[start:stop]), target[start:stop], part, ties))
    return torch.cat(ranks) if ranks else target.new_empty(0)


__all__ = ["TIES", "answers_of", "filtered_ranks", "ranks_of"]
