"""The Euclidean baselines of the papers: MultiTask (Choi et al. 2018) and LabelGCN (Xiong et al. 2019).

Both read a mention in its context alike: an LSTM in both directions over the context, whose words carry a mark of where
they stand to the mention, pooled by attention; the mention's words pooled by attention; its characters by a CNN.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hyperbolic.geometry import Geometry
from hyperbolic.layers.classes import ClassLogits
from hyperbolic.manifolds import Manifold
from tasks.entity_typing.examples import IN_MENTION
from tasks.entity_typing.label_graph import GraphLogits, label_vectors
from tasks.entity_typing.points import TypingModel, WordPoints
from tasks.entity_typing.types import TypeInventory
from tasks.errors import rate, whole
from tasks.ragged import length_mask
from tasks.word_vectors import WordVectors

LEFT, WHOLE, PART, RIGHT = range(4)  # where a word stands: left of the mention, all or a part of it, right of it


def locations(positions: Tensor) -> Tensor:
    """(B, T) position ids of the words of a context -> LEFT, WHOLE, PART or RIGHT (B, T)."""
    mention = positions == IN_MENTION
    kind = torch.where(mention.sum(-1, keepdim=True) == 1, WHOLE, PART)
    beside = torch.where(mention.cumsum(-1) > 0, RIGHT, LEFT)
    return torch.where(mention, kind, beside)


class AttentiveSum(nn.Module):
    """``sum_t a_t x_t`` with ``a = softmax(v^T relu(W x_t))``; without d_hidden, ``a = softmax(relu(w^T x_t))``.

    x (B, T, d), lengths (B,) -> the sum (B, d) and the weights (B, T), 0 at the padding.

    Source: Choi et al. 2018, section 4.1, and their code (SelfAttentiveSum), which does not leave the padding out.
    """

    def __init__(self, d: int, d_hidden: int | None):
        super().__init__()
        self.key = nn.Linear(d, d_hidden or 1, bias=False)
        self.score = nn.Linear(d_hidden, 1, bias=False) if d_hidden else nn.Identity()

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.score(F.relu(self.key(x))).squeeze(-1)
        weights = scores.masked_fill(~length_mask(lengths, x.shape[1]), -torch.inf).softmax(-1)
        return torch.einsum("bt,btd->bd", weights, x), weights


class CharacterCNN(nn.Module):
    """``max_t relu(W [c_t; ...; c_(t+width-1)] + b)`` over the windows of the characters' embeddings c.

    A text shorter than a window is filled up with zeros. characters (B, C), lengths (B,) -> (B, filters).
    """

    def __init__(self, n_characters: int, d: int, filters: int, width: int):
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(n_characters, d)
        self.convolution = nn.Conv1d(d, filters, width)

    def forward(self, characters: Tensor, lengths: Tensor) -> Tensor:
        x = self.embedding(characters) * length_mask(lengths, characters.shape[1]).unsqueeze(-1)
        x = F.pad(x, (0, 0, 0, max(0, self.width - x.shape[1]))).transpose(1, 2)
        windows = F.relu(self.convolution(x))
        full = length_mask((lengths - self.width + 1).clamp_min(1), windows.shape[-1])
        return windows.masked_fill(~full.unsqueeze(1), 0).amax(-1)


class LinearLogits(ClassLogits):
    """``<x, w_k>``, without a bias (Choi et al.'s code: the same)."""

    def __init__(self, manifold: Manifold, d: int, n_classes: int):
        super().__init__(manifold, d, n_classes)
        self.linear = nn.Linear(d, n_classes, bias=False)

    def operands(self, x: Tensor) -> tuple[Tensor, Tensor, None, None]:
        return x, self.linear.weight, None, None


class Fusion(nn.Module):
    """``g gelu(R [x; y; x - y]) + (1 - g) x``, ``g = sigmoid(G [x; y; x - y])``: x, changed by y where a gate opens.

    Source: Xiong et al. 2019, section 3, and their code (Fusion).
    """

    def __init__(self, d: int):
        super().__init__()
        self.change, self.gate = nn.Linear(3 * d, d), nn.Linear(3 * d, d)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        both = torch.cat([x, y, x - y], -1)
        gate = torch.sigmoid(self.gate(both))
        return gate * F.gelu(self.change(both)) + (1 - gate) * x


@dataclass(frozen=True)
class ReaderOptions:
    """How both baselines read. d_hidden: of the LSTM in each direction. d_attention: hidden size of the attention to
    the context. d_location: of the mark of where a word stands to the mention. d_character, filters, width: of the CNN.
    input_dropout: on the context's words with their marks. mention_dropout: on the mention's vector.

    Raises UserError for a size below 1, and a dropout outside of [0, 1).
    """

    d_hidden: int
    d_attention: int
    d_location: int
    d_character: int
    filters: int
    width: int
    input_dropout: float
    mention_dropout: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            rate(f"task.model.{name}", value) if name.endswith("dropout") else whole(f"task.model.{name}", value, 1)


class MultiTask(TypingModel):
    """``<[context; mention], w_k>``; the name comes from the loss, which is the task's.

    geometry: must be Euclidean, without parts. words, types, n_characters: what the data supply; the word vectors stay
    as they are. options: the fields of `ReaderOptions`.

    Source: Choi, Levy, Choi and Zettlemoyer 2018, section 4, and their code with its options ``-lstm_type single
    -enhanced_mention`` (models.py, model_utils.py). Difference: padding counts nowhere.

    Raises:
        ValueError: another geometry.
    """

    Options = ReaderOptions
    components = ()
    class_points = None  # the classes are directions, not points

    def __init__(
        self,
        geometry: Geometry,
        words: WordVectors,
        types: TypeInventory,
        n_characters: int,
        **options: Any,
    ):
        super().__init__()
        if geometry.name != "euclidean" or geometry.parts:
            parts = f" with geometry.parts of {', '.join(geometry.parts)}" if geometry.parts else ""
            raise ValueError(
                f"{type(self).__name__} is a Euclidean baseline and takes geometry=euclidean without geometry.parts "
                f"alone; it got geometry={geometry.name}{parts}"
            )
        reader = ReaderOptions(**options)
        self.manifold = geometry.manifold
        self.words = WordPoints(words, geometry, dropout=0.0)  # in the flat space the vectors themselves
        self.register_buffer("groups", types.granularity, persistent=False)
        self.n_classes = len(types.names)
        self.d_context, self.d_mention = 2 * reader.d_hidden, words.d + reader.filters

        self.location = nn.Linear(4, reader.d_location)
        self.lstm = nn.LSTM(words.d + reader.d_location, reader.d_hidden, bidirectional=True, batch_first=True)
        self.pool = AttentiveSum(self.d_context, reader.d_attention)
        self.pool_mention = AttentiveSum(words.d, None)
        self.characters = CharacterCNN(n_characters, reader.d_character, reader.filters, reader.width)
        self.drop_input = nn.Dropout(reader.input_dropout)
        self.drop_mention = nn.Dropout(reader.mention_dropout)
        self.classifier = LinearLogits(self.manifold, self.d_context + self.d_mention, self.n_classes)

    def context(self, batch: dict[str, Tensor]) -> Tensor:
        """The LSTM's states (B, T, 2 d_hidden), 0 behind the end of a context."""
        places = F.one_hot(locations(batch["positions"]), 4).to(self.location.weight.dtype)
        x = torch.cat([self.words(batch["context"]), self.location(places)], -1)
        lengths = batch["context_length"].cpu()
        packed = pack_padded_sequence(self.drop_input(x), lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])[0]

    def mention(self, batch: dict[str, Tensor]) -> Tensor:
        """(B, filters + d): the CNN's view of the characters, and the weighted sum of the words."""
        words, _ = self.pool_mention(self.words(batch["mention"]), batch["mention_length"])
        characters = self.characters(batch["characters"], batch["characters_length"])
        return self.drop_mention(torch.cat([characters, words], -1))

    def features(self, batch: dict[str, Tensor]) -> Tensor:
        """[context; mention], (B, m): what the classifier reads."""
        context, _ = self.pool(self.context(batch), batch["context_length"])
        return torch.cat([context, self.mention(batch)], -1)


class LabelGCN(MultiTask):
    """MultiTask with class weights that pass along a graph of the types, and a mention that attends to its context.

    With m = tanh(P mention) and states c_t of the context: ``r = sum_t softmax_t(<B m + b, c_t>) c_t``, and the
    classifier reads ``[fusion(r, m); context]``.

    interaction: false: it reads [context; mention], as MultiTask's. attention_dropout: on the states, where they are
    scored. output_dropout: on what the classifier reads. edges, similarity, residual: of the label graph, see
    :class:`GraphLogits`. The others are MultiTask's.

    Source: Xiong et al. 2019, section 3, and their code with its options ``-lstm_type single -enhanced_mention
    -model_debug -gcn`` (models.py, model_utils.py, label_corr.py).
    """

    def __init__(
        self,
        geometry: Geometry,
        words: WordVectors,
        types: TypeInventory,
        n_characters: int,
        attention_dropout: float,
        output_dropout: float,
        interaction: bool,
        edges: str,
        similarity: bool,
        residual: bool,
        **options: Any,
    ):
        super().__init__(geometry, words, types, n_characters, **options)
        d = self.d_context
        self.interaction = interaction
        if interaction:
            self.project, self.attend, self.fusion = nn.Linear(self.d_mention, d), nn.Linear(d, d), Fusion(d)
        self.drop_attention = nn.Dropout(rate("task.model.attention_dropout", attention_dropout))
        self.drop_output = nn.Dropout(rate("task.model.output_dropout", output_dropout))
        vectors = label_vectors(types, words) if similarity else None
        d_out = 2 * d if interaction else d + self.d_mention
        pairs = types.co_occurrence()
        self.classifier = GraphLogits(self.manifold, d_out, self.n_classes, pairs, edges, vectors, residual)

    def attended_context(self, mention: Tensor, states: Tensor, lengths: Tensor) -> Tensor:
        """r (B, 2 d_hidden) of the class docstring, for m (B, 2 d_hidden) and states (B, T, 2 d_hidden)."""
        scores = torch.einsum("bd,btd->bt", self.attend(mention), self.drop_attention(states))
        weights = scores.masked_fill(~length_mask(lengths, states.shape[1]), -torch.inf).softmax(-1)
        return torch.einsum("bt,btd->bd", weights, states)

    def features(self, batch: dict[str, Tensor]) -> Tensor:
        states, lengths, mention = self.context(batch), batch["context_length"], self.mention(batch)
        context, _ = self.pool(states, lengths)
        if self.interaction:
            mention = torch.tanh(self.project(mention))
            joined = [self.fusion(self.attended_context(mention, states, lengths), mention), context]
        else:
            joined = [context, mention]
        return self.drop_output(torch.cat(joined, -1))
