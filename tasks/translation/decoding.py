"""Translations of a batch by a model: a beam search over its decoder, and words for unknown ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tasks.translation.search import Hypothesis, SearchOptions, SpecialTokens, search

ROWS = 256  # hypotheses that are extended together


class Continuations:
    """The next tokens by a model, each step from what it keeps of the steps before.

    model: with ``encode``, ``start`` and ``decode``, as `tasks.translation.model.Translator`. source (B, N) ids, lengths
    (B,). See `tasks.translation.search.NextTokens`.
    """

    def __init__(self, model: Any, source: Tensor, lengths: Tensor):
        self.model, self.lengths = model, lengths
        self.memory = model.encode(source, lengths)
        self.state = model.start()

    def scores(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model.decode(tokens, self.memory, self.lengths, self.state)
        return logits[:, -1].log_softmax(-1)

    def reorder(self, index: Tensor) -> None:
        self.memory, self.lengths = self.memory[index], self.lengths[index]
        self.state.reorder(index)


@torch.no_grad()
def translate(
    model: Any, source: Tensor, lengths: Tensor, special: SpecialTokens, options: SearchOptions, most: int
) -> list[list[Hypothesis]]:
    """The translations of each source, the best first (see `tasks.translation.search.search`).

    Sources of about the same length are translated together, ROWS hypotheses at a time.

    Args: source (B, N) ids, lengths (B,). most: tokens of a translation, with its end, that the model can make.
    """
    results: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    for group in lengths.argsort(stable=True).split(max(1, ROWS // options.beam_size)):
        own = lengths[group]
        following = Continuations(model, source[group, : int(own.max())], own)
        for place, hypotheses in zip(
            group.tolist(), search(following, options.limits(own, most), special, options), strict=True
        ):
            results[place] = hypotheses
    return results
