"""What all data sets of entity typing share: types, words, batches, and new mentions."""

import abc
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tasks.base import TaskData
from tasks.batches import TrainBatches
from tasks.entity_typing.examples import N_CHARACTERS, Columns, Encoder, Examples, Limits, encode
from tasks.entity_typing.label_graph import rows_of_types
from tasks.entity_typing.mentions import PLAIN, RELEASE, Mention, read_inputs
from tasks.entity_typing.types import GRANULARITIES, TypeInventory, count_pairs
from tasks.errors import UserError, whole
from tasks.fingerprints import identity_of
from tasks.ragged import FIRST
from tasks.reading import Fault
from tasks.text import PAD, UNK
from tasks.vocabularies import check_floats, check_names, check_numbers
from tasks.word_vectors import WordVectors

KEPT_BYTES = 1 << 27  # of word vectors in a checkpoint at most


@dataclass(frozen=True)
class BatchOptions:
    """limits: see Limits. mask_padding: whether a batch is as wide as its longest mention; otherwise it is as wide as
    the limits, as in Lopez & Strube's code, where padding takes part in everything. crowd_cycles: further passes over
    the crowd-sourced part of the training data at the end of each epoch. The others are TaskData's."""

    limits: Limits
    mask_padding: bool
    crowd_cycles: int
    shuffle: str
    batch_size: int
    eval_batch_size: int
    seed: int


class TypingData(TaskData):
    """What all data sets of entity typing share. options: the fields of `BatchOptions`."""

    Options = BatchOptions

    def __init__(self, **options: Any):
        batches = BatchOptions(**options)
        super().__init__(batches.shuffle, batches.batch_size, batches.eval_batch_size, batches.seed)
        self.limits, self.mask_padding = batches.limits, batches.mask_padding
        self.crowd_cycles = whole("task.data.crowd_cycles", batches.crowd_cycles, 0)
        self._pairs: Tensor | None = None  # see co_occurrence

    @property
    @abc.abstractmethod
    def words(self) -> WordVectors:
        """The word vectors."""

    @property
    @abc.abstractmethod
    def types(self) -> TypeInventory:
        """The types, in the order of the classes."""

    @abc.abstractmethod
    def crowd_size(self) -> int:
        """How many mentions at the beginning of the training data are gone over again, `crowd_cycles` times."""

    def co_occurrence(self) -> Tensor:
        """How many training mentions have two types, for each pair of types: (E, 3), see `TypeInventory`."""
        if self._pairs is None:
            train = self.splits()["train"]
            assert isinstance(train, Examples)
            self._pairs = count_pairs(train.chunks(), len(self.types))
        return self._pairs

    def words_in_use(self) -> Counter[int]:
        """How often each row of the vectors stands in the data. Here all of them, once."""
        return Counter(range(FIRST, len(self.words.tangent)))

    def vocabulary(self) -> dict[str, Any]:
        """Types, and the vectors of the words of types and data, of these the most frequent, up to KEPT_BYTES; others
        are in the file of vectors, whose sha256 says which one it is."""
        words, types = self.words, self.types
        most = KEPT_BYTES // (words.d * words.tangent.element_size())
        by_count = [row for row, _ in self.words_in_use().most_common() if row >= FIRST]
        rows = sorted([*dict.fromkeys([*rows_of_types(types, words), *by_count])][:most])
        by_row = {row: word for word, row in words.index.items()}
        kept = {
            "types": list(types.names), "granularity": types.granularity, "words": [by_row[row] for row in rows],
            "tangent": words.tangent[[PAD, UNK, *rows]], "source": words.source, "sha256": words.sha256,
            "space": words.space,
        }  # fmt: skip
        return kept | ({} if self._pairs is None else {"pairs": self._pairs})

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        types, words = tuple(check_names(vocabulary["types"])), check_names(vocabulary["words"])
        levels = check_numbers(vocabulary["granularity"].unsqueeze(-1), 1, len(GRANULARITIES)).squeeze(-1)
        tangent = check_floats(vocabulary["tangent"], FIRST + len(words)).float()
        source, sha256, space = check_names([vocabulary[key] for key in ("source", "sha256", "space")], different=False)
        if len(levels) != len(types) or not types:
            raise ValueError("types without a granularity")
        self._pairs = check_numbers(vocabulary["pairs"], 3, 1 << 62) if "pairs" in vocabulary else None
        if self._pairs is not None and len(self._pairs) and self._pairs[:, :2].max() >= len(types):
            raise ValueError("pairs of other types")
        index = {word: row for row, word in enumerate(words, start=FIRST)}
        self.__dict__["words"] = self.all_words(WordVectors(index, tangent, source, sha256, space))
        self.__dict__["types"] = TypeInventory(types, levels, self.co_occurrence)

    def all_words(self, kept: WordVectors) -> WordVectors:
        """The vectors that `kept` is a part of, where their file is at hand, or else these. Here always these."""
        return kept

    @property
    def model_sizes(self) -> dict[str, Any]:
        return {"words": self.words, "types": self.types, "n_characters": N_CHARACTERS}

    @property
    def identity(self) -> dict[str, str]:
        return {
            "types": identity_of(self.types.names),
            "vectors": f"{self.words.space} {self.words.d}d with sha256 {self.words.sha256[:12]}",
        }

    def examples(self, columns: Columns, parts: Sequence[tuple[int, int]]) -> Examples:
        return Examples(columns, parts, self.limits, full=not self.mask_padding)

    @property
    def input_keys(self) -> tuple[str, ...]:
        return (*RELEASE[:3], *PLAIN)

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[Mention]:
        return read_inputs(lines, name)

    def describe(self, example: Mention) -> dict[str, Any]:
        return {"left": example.left, "mention": example.mention, "right": example.right}

    def encode(self, mentions: Sequence[Mention]) -> Examples:
        """New mentions as a split; their types are left out, so targets are (B, 1) of -1."""
        encoder = Encoder(self.words.index, self.limits, {}, keep_untyped=True)
        try:
            columns = encode((m._replace(types=[]) for m in mentions), encoder)
        except Fault as fault:
            raise UserError(f"{fault}.") from None
        return self.examples(columns, [(0, len(mentions))])

    def train_dataloader(self) -> TrainBatches:
        return TrainBatches(
            self.splits()["train"], self.batch_size, self.shuffle, self.seed, *self._place(),
            again=(self.crowd_size(), self.crowd_cycles), fill=False,
        )  # fmt: skip
