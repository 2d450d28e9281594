"""States of the words of new sentences in each layer of a translation's encoder."""

from collections.abc import Sequence
from typing import Any

import torch

from tasks.base import LayerStates
from tasks.errors import UserError
from tasks.pieces import words_of_pieces
from tasks.ragged import Sentences
from tasks.text import UNK
from tasks.translation.data import FIRST, Vocabulary
from tasks.translation.model import Translator


@torch.no_grad()
def layer_states(model: Translator, vocabulary: Vocabulary, sentences: Sequence[Sequence[str]]) -> LayerStates:
    """See `Task.layer_states`. vocabulary: of the sources. A word is cut into pieces by itself, which is as in its
    sentence, as no piece has a blank inside; pieces that are not in the vocabulary are the unknown one. There are no
    states of sentences with more pieces than the encoder has positions, and of words without pieces.

    Raises UserError where the encoder does not give the states of its layers.
    """
    encoder: Any = model.encoder
    if not hasattr(encoder, "layer_states"):
        raise UserError(
            f"probe.checkpoint: {type(encoder).__name__} does not give the states of its layers; name a run with "
            "encoder=transformer."
        )
    numbers = {piece: k for k, piece in enumerate(vocabulary.pieces, start=FIRST)}
    split = iter(vocabulary.subwords.split([word for words in sentences for word in words]))
    pieces = [[[numbers.get(piece, UNK) for piece in next(split)] for _ in words] for words in sentences]
    unknown = sum(UNK in word for words in pieces for word in words)
    counts = [[len(word) for word in words] for words in pieces]
    fits = torch.tensor([0 < sum(words) <= encoder.n_positions for words in counts])
    ids = [[k for word in words for k in word] if fit else [UNK] for words, fit in zip(pieces, fits, strict=True)]
    counts = [words if fit else [0] * len(words) for words, fit in zip(counts, fits, strict=True)]
    starts = torch.tensor([0, *map(len, ids)]).cumsum(0)
    flat = Sentences(torch.tensor([k for row in ids for k in row], dtype=torch.int32), starts)
    device = next(model.parameters()).device
    source, lengths = (x.to(device) for x in flat.pad(torch.arange(len(ids))))
    states = encoder.layer_states(model.source_embedding(source), lengths)
    points = words_of_pieces(model.encoder_geometry.manifold, states, counts)
    most = points[0].shape[1]
    mask = torch.tensor([[*(n > 0 for n in words), *[False] * (most - len(words))] for words in counts])
    return LayerStates(model.encoder_geometry, points, mask.to(device), unknown)
