"""Beam search for the likeliest translations, over anything that scores next tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tasks.errors import UserError, number, one_of, whole

PENALTIES = ("none", "average", "wu")


class NextTokens(Protocol):
    """What the search asks. It begins with a row for each sentence; the search repeats, reorders and drops rows."""

    def scores(self, tokens: Tensor) -> Tensor:
        """Log-probabilities (R, V) of the tokens that follow, when ``tokens`` (R, 1) are appended to the rows; the
        search writes into what it gets."""
        ...

    def reorder(self, index: Tensor) -> None:
        """Go on with the rows ``index`` (R',) of the present ones."""
        ...


class SpecialTokens(NamedTuple):
    """Ids of the target's vocabulary: what begins a sequence, what ends it, and padding."""

    bos: int
    eos: int
    pad: int


class Hypothesis(NamedTuple):
    """A finished translation.

    tokens: ids, without beginning and end. log_probability: of the sequence with its end. score: what hypotheses are
    compared by, ``log_probability / penalty``.
    """

    tokens: list[int]
    log_probability: float
    score: float


@dataclass(frozen=True)
class SearchOptions:
    """Settings of :func:`search`.

    beam_size: K, extensions that are kept at each step; 1 is greedy search. n_best: translations of each sentence,
    1..K. length_penalty, alpha: see :meth:`penalty`. min_length: least tokens before the end, where the limit allows
    it. max_length_ratio, max_length_constant: a translation has at most ``ratio * N + constant`` tokens, N those of its
    source.
    Raises UserError for settings that cannot be.
    """

    beam_size: int
    n_best: int
    length_penalty: str
    alpha: float
    min_length: int
    max_length_ratio: float
    max_length_constant: int

    def __post_init__(self) -> None:
        node = "task.module.search"
        whole(f"{node}.beam_size", self.beam_size, 1)
        if whole(f"{node}.n_best", self.n_best, 1) > self.beam_size:
            raise UserError(f"{node}.n_best={self.n_best} is more than {node}.beam_size={self.beam_size}.")
        one_of(f"{node}.length_penalty", self.length_penalty, PENALTIES)
        number(f"{node}.alpha", self.alpha)
        whole(f"{node}.min_length", self.min_length, 0)
        number(f"{node}.max_length_ratio", self.max_length_ratio)
        whole(f"{node}.max_length_constant", self.max_length_constant, 1)

    def penalty(self, length: Tensor) -> Tensor:
        """What the log-probability of a hypothesis is divided by; at least 1, and no less for a longer one.

            none: 1        average: |Y|        wu: ((5 + |Y|) / 6) ** alpha

        |Y| counts the tokens with the end. wu is Wu et al. (2016), "Google's Neural Machine Translation System", Eq 14,
        without its coverage penalty; alpha 0 is the same as none.

        Args: length: |Y|, at least 1, of any shape. Returns: float64 of that shape.
        """
        length = length.double()
        if self.length_penalty == "wu":
            return ((5 + length) / 6) ** self.alpha
        return length if self.length_penalty == "average" else torch.ones_like(length)

    def limits(self, lengths: Tensor, most: int) -> Tensor:
        """Most tokens of the translations, with the end, of sources of these lengths (B,); never above ``most``."""
        return (self.max_length_ratio * lengths.double() + self.max_length_constant + 1).clamp(max=most).long()


@torch.no_grad()
def search(
    following: NextTokens, limits: Tensor, special: SpecialTokens, options: SearchOptions
) -> list[list[Hypothesis]]:
    """The best translations of each sentence that a beam search comes by, the best first.

    In each step all open hypotheses of a sentence are extended by every token, and of the extensions the K of the
    highest log-probability are kept. Those that end there are finished, and the others stay open. A sentence is done,
    and costs no more, when no hypothesis is open, or when the best open one can no longer come among the n_best
    finished ones: its log-probability only falls, so its score will be at most ``log_probability / penalty(limit)``.
    At its limit a hypothesis can only end, and the log-probability of the end counts there as elsewhere.

    Args:
        following: scores the next tokens; it has a row for each sentence.
        limits: long (B,), most tokens of each translation with the end, at least 1.
    Returns: for each sentence at most n_best hypotheses; fewer only where there are no others of a probability above 0.
    """
    results: list[list[Hypothesis]] = [[] for _ in range(len(limits))]
    beams = _Beams(limits, special, options)
    following.reorder(beams.sentences.repeat_interleave(options.beam_size))
    while len(beams.sentences):
        scores = following.scores(beams.newest)
        parents = beams.extend(scores)
        done = beams.done()
        if done.any():
            for sentence, hypotheses in beams.results(done):
                results[sentence] = hypotheses
            parents = parents[~done]
            beams.keep(~done)
        index = parents.flatten()
        if len(index) and not torch.equal(index, torch.arange(len(scores), device=index.device)):
            following.reorder(index)
    return results


class _Beams:
    """Open and finished hypotheses of the S sentences that are not done; with K open ones each, of which some may have
    the log-probability -inf, which are none, and n finished ones likewise.

    tokens (S, K, L + 1) and totals (S, K) are of the open ones, ended_tokens (S, n, L + 1), ended_totals and scores
    (S, n) of the finished ones, best first. sentences (S,) says which they are; length is that of the open ones.
    """

    def __init__(self, limits: Tensor, special: SpecialTokens, options: SearchOptions):
        sentences, k, n, device = len(limits), options.beam_size, options.n_best, limits.device
        self.special, self.options, self.limits, self.length = special, options, limits, 0
        self.sentences = torch.arange(sentences, device=device)
        longest = int(limits.max()) if sentences else 0
        self.tokens = torch.full((sentences, k, longest + 1), special.pad, device=device)
        self.tokens[:, :, 0] = special.bos
        self.totals = torch.full((sentences, k), -torch.inf, dtype=torch.float64, device=device)
        self.totals[:, 0] = 0
        self.ended_tokens = self.tokens[:, :n].clone()
        self.ended_totals = torch.full_like(self.totals[:, :n], -torch.inf)
        self.scores = self.ended_totals.clone()

    @property
    def newest(self) -> Tensor:
        """The newest token (S K, 1) of each open hypothesis."""
        return self.tokens[:, :, self.length].reshape(-1, 1)

    def extend(self, scores: Tensor) -> Tensor:
        """Take the K best extensions, given the log-probabilities (S K, V) of the next tokens.

        Returns: the rows (S, K) of the scorer that they extend. Raises UserError where a log-probability is NaN.
        """
        self.length += 1
        sentences, k = self.totals.shape
        scores = scores.view(sentences, k, -1)
        self._forbid(scores)
        best, tokens = scores.topk(min(k, scores.shape[-1]))
        if best.isnan().any():
            raise UserError(
                "The model's probabilities of the next word are not numbers (NaN): the weights are too large. Use "
                "another checkpoint, or trainer.precision=64-true."
            )
        totals, index = (best.double() + self.totals.unsqueeze(-1)).flatten(1).topk(k)
        parents, tokens = index // best.shape[-1], tokens.flatten(1).gather(1, index)
        self.tokens = _rows(self.tokens, parents)
        self.tokens[:, :, self.length] = tokens
        ends = tokens == self.special.eos
        self._finish(totals.masked_fill(~ends, -torch.inf))
        self.totals = totals.masked_fill(ends, -torch.inf)
        return parents + torch.arange(sentences, device=parents.device).unsqueeze(-1) * k

    def _forbid(self, scores: Tensor) -> None:
        """Give -inf to the log-probabilities (S, K, V) of tokens that cannot be next."""
        bos, eos, pad = self.special
        scores[:, :, bos] = scores[:, :, pad] = -torch.inf
        at_limit = self.limits <= self.length
        if self.length <= self.options.min_length:
            scores[:, :, eos].masked_fill_(~at_limit.unsqueeze(1), -torch.inf)
        if at_limit.any():
            ends = scores[at_limit, :, eos]
            scores[at_limit] = -torch.inf
            scores[at_limit, :, eos] = ends

    def _finish(self, totals: Tensor) -> None:
        """Put those with log-probabilities (S, K) above -inf among the n best finished ones."""
        penalty = self.options.penalty(torch.tensor(self.length, device=totals.device))
        scores = torch.cat([self.scores, totals / penalty], 1)
        self.scores, index = scores.topk(self.options.n_best)
        self.ended_totals = torch.cat([self.ended_totals, totals], 1).gather(1, index)
        self.ended_tokens = _rows(torch.cat([self.ended_tokens, self.tokens], 1), index)

    def done(self) -> Tensor:
        """Whether no open hypothesis of a sentence can still come among its best, (S,)."""
        return self.totals.amax(-1) / self.options.penalty(self.limits) <= self.scores[:, -1]

    def results(self, which: Tensor) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The number of each of these sentences, and its finished hypotheses."""
        columns, eos = (self.sentences, self.ended_tokens, self.ended_totals, self.scores), self.special.eos
        for sentence, *columns_of_one in zip(*(column[which].tolist() for column in columns), strict=True):
            hypotheses = zip(*columns_of_one, strict=True)
            yield sentence, [Hypothesis(ids[1 : ids.index(eos)], t, s) for ids, t, s in hypotheses if t > -torch.inf]

    def keep(self, which: Tensor) -> None:
        """Go on with these sentences alone."""
        for name in ("sentences", "limits", "tokens", "totals", "ended_tokens", "ended_totals", "scores"):
            setattr(self, name, getattr(self, name)[which])


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """Of x (S, K, L) the rows index (S, K'): (S, K', L)."""
    return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
