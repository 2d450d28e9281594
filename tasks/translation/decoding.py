"""Translations as text: a beam search over a model's decoder, words in the place of unknown ones, texts for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tasks.text import PAD, UNK
from tasks.translation.data import Vocabulary
from tasks.translation.model import Translator
from tasks.translation.prepared import BOS, EOS
from tasks.translation.search import Hypothesis, SearchOptions, SpecialTokens, search

ROWS = 256  # hypotheses that are extended together
SPECIAL = SpecialTokens(BOS, EOS, PAD)


class Translation(NamedTuple):
    """text: as the data write sentences. log_probability, score: see `tasks.translation.search.Hypothesis`."""

    text: str
    log_probability: float
    score: float


class Continuations:
    """The next tokens by a model, each step from what it keeps of the steps before.

    source (B, N) ids, lengths (B,). See `tasks.translation.search.NextTokens`.
    """

    def __init__(self, model: Translator, source: Tensor, lengths: Tensor):
        self.model, self.lengths = model, lengths
        self.memory = model.encode(source, lengths)
        self.state = model.start()

    def scores(self, tokens: Tensor) -> Tensor:
        logits = self.model.decode(tokens, self.memory, self.lengths, self.state)
        return logits[:, -1].log_softmax(-1, torch.promote_types(logits.dtype, torch.float32))

    def reorder(self, index: Tensor) -> None:
        self.memory, self.lengths = self.memory[index], self.lengths[index]
        self.state.reorder(index)


@torch.no_grad()
def hypotheses(
    model: Translator, source: Tensor, lengths: Tensor, options: SearchOptions, most: int
) -> list[list[Hypothesis]]:
    """The translations of each source, the best first (see `tasks.translation.search.search`).

    Sources of about the same length are translated together, ROWS hypotheses at a time.

    Args: source (B, N) ids, lengths (B,). most: tokens of a translation, with its end, that the model can make.
    """
    results: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    for group in lengths.argsort(stable=True).split(max(1, ROWS // options.beam_size)):
        own = lengths[group]
        following = Continuations(model, source[group, : int(own.max())], own)
        translated = search(following, options.limits(own, most), SPECIAL, options)
        for place, each in zip(group.tolist(), translated, strict=True):
            results[place] = each
    return results


@torch.no_grad()
def alignments(model: Translator, source: Tensor, lengths: Tensor, targets: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each token of translations the place in its source that the last layer of the decoder attends to most, as a
    mean over the heads, when it is made.

    Args: source (B, N) ids, lengths (B,). targets: B translations of at least one token each.
    """
    rows = [torch.tensor([BOS, *tokens[:-1]], device=source.device) for tokens in targets]
    state = model.start(alignment=True)
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    model.states(padded, model.encode(source, lengths), lengths, state)
    places = state.alignment.argmax(-1).tolist()
    return [row[: len(tokens)] for row, tokens in zip(places, targets, strict=True)]


@dataclass(frozen=True)
class TextDecoder:
    """Sources to texts.

    source, target: the vocabularies. max_length: most pieces of a sentence. options: of the search. replace_unknown:
    the piece of the source that `alignments` names stands for each unknown piece (Luong et al. 2015, "Addressing the
    Rare Word Problem"; Jean et al. 2015).
    """

    source: Vocabulary
    target: Vocabulary
    max_length: int
    options: SearchOptions
    replace_unknown: bool

    def __call__(
        self, model: Translator, source: Tensor, lengths: Tensor, texts: Sequence[str]
    ) -> list[list[Translation]]:
        """At most `options.n_best` translations of each source, at least one, the best first.

        Args: source (B, N) ids, lengths (B,). texts: the sources as the data write them.
        """
        each = hypotheses(model, source, lengths, self.options, self.max_length + 1)
        of = [k for k, own in enumerate(each) for _ in own]  # the source of each hypothesis
        every = [hypothesis for own in each for hypothesis in own]
        names = [self.target.names(hypothesis.tokens) for hypothesis in every]
        if self.replace_unknown:
            unknown = [i for i, hypothesis in enumerate(every) if UNK in hypothesis.tokens]
            for part in (unknown[start : start + ROWS] for start in range(0, len(unknown), ROWS)):
                rows = [of[i] for i in part]
                places = alignments(model, source[rows], lengths[rows], [every[i].tokens for i in part])
                for i, row, own in zip(part, rows, places, strict=True):
                    names[i] = self._replace(names[i], every[i].tokens, own, texts[row])
        translations: list[list[Translation]] = [[] for _ in each]
        for row, pieces, hypothesis in zip(of, names, every, strict=True):
            text = self.target.subwords.join(pieces)
            translations[row].append(Translation(text, hypothesis.log_probability, hypothesis.score))
        return translations

    def _replace(self, names: list[str], tokens: list[int], places: list[int], text: str) -> list[str]:
        """The pieces of a translation, with those of the source in the place of unknown ones."""
        pieces = self.source.subwords.split([text])[0]
        # a blank source has no pieces, and one place
        of_source = [t == UNK and place < len(pieces) for t, place in zip(tokens, places, strict=True)]
        return [pieces[place] if own else name for own, name, place in zip(of_source, names, places, strict=True)]
