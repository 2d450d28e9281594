"""The data of a task: its splits, their batches, and the examples that predictions are made of."""

import abc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from tasks.batches import SHUFFLES, EvaluationBatches, Split, TokenBatches, TrainBatches
from tasks.errors import UserError, one_of, whole


class TaskData(pl.LightningDataModule, abc.ABC):
    """The splits train, dev and test of a task, held as tensors, and their batches.

    shuffle: one of SHUFFLES (TrainBatches says what they mean). batch_size: of a whole training batch, shared
    by all processes. eval_batch_size: most examples of an evaluation batch. seed: of the order of the batches.
    batch_tokens: also most words of a training batch after padding, with shuffle=buckets (TokenBatches); None: any.
    drop_last: a last training batch that is smaller is left out.
    """

    def __init__(
        self,
        shuffle: str,
        batch_size: int,
        eval_batch_size: int,
        seed: int,
        batch_tokens: int | None = None,
        drop_last: bool = False,
    ):
        super().__init__()
        self.drop_last = drop_last
        self.shuffle = one_of("task.data.shuffle", shuffle, SHUFFLES)
        self.batch_tokens = None if batch_tokens is None else whole("task.data.batch_tokens", batch_tokens, 1)
        if batch_tokens is not None and shuffle != "buckets":
            raise UserError(f"task.data.batch_tokens needs task.data.shuffle=buckets, and it is {shuffle}.")
        self.batch_size = whole("task.data.batch_size", batch_size, 1)
        self.eval_batch_size = whole("task.data.eval_batch_size", eval_batch_size, 1)
        self.seed = whole("seed", seed, 0)
        self._splits: dict[str, Split] = {}
        self.adopted: dict[str, Any] | None = None  # fingerprint of the data whose vocabulary these adopted

    @property
    @abc.abstractmethod
    def model_sizes(self) -> dict[str, Any]:
        """What the data decide and the model may take as keywords: sizes, as {"n_words": 101, "n_classes": 2}, or
        tables of words and types."""

    @property
    def identity(self) -> dict[str, str]:
        """What the model's rows stand for and its weights do not say, by name, as the sha256 of the words or types: a
        checkpoint keeps it, so that it is not used with others, of which there may be equally many."""
        return {}

    @abc.abstractmethod
    def load(self) -> dict[str, Split]:
        """The splits, by the names train, dev and test."""

    @abc.abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """{"files": name by split, "counts": by split, "sha256": by split}, all without paths of this machine."""

    def vocabulary(self) -> dict[str, Any] | None:
        """What a checkpoint keeps, so that `adopt` makes these data without their files: names of words, classes,
        nodes, and what else predictions need. Values are those that JSON has, tensors and arrays, and mappings of
        these. None: nothing is kept, and predictions need the data."""
        return None

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        """Be the data that gave a `vocabulary`, as far as predictions need: no file is read from now on. Raises any
        error for one that cannot be; `tasks.vocabularies` makes a message of it."""
        raise NotImplementedError

    def test_inputs(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """The examples of the test split in the order of their files, as `read_inputs` gives them, each with what is
        right, under "gold", and what else a line of `mode=test output=FILE` says of it."""
        raise UserError(f"output: {type(self).__name__} gives no test examples one by one; leave it out.")

    @property
    def input_keys(self) -> tuple[str, ...]:
        """The keys of objects of JSON that `read_inputs` uses; others are handed on to the line of output."""
        return ()

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[Any]:
        """New examples from the lines of a file, for mode=predict; one after the other, so that the file may be long.

        name: of the file, for messages. Raises UserError, which names the line, where one cannot be used.
        """
        raise UserError(f"mode=predict: {type(self).__name__} reads no new examples, so this task has no predictions.")

    def read_table(self, path: Path) -> Iterator[tuple[Any, dict[str, str]]] | None:
        """As `read_inputs`, of a file that is a table whose first line names the columns that this task knows, each
        example with the other columns of its row, which are handed on; None of any other file, whose lines are read."""
        return None

    def read_folder(self, folder: Path) -> Iterator[Any]:
        """As `read_inputs`, of a folder each of whose files is an example."""
        raise UserError(f"input={folder} is a folder; name a file, or - for standard input.")

    def encode(self, inputs: Sequence[Any]) -> Split:
        """Examples that `read_inputs` gave, as a split whose batches `Task.predict` takes."""
        raise NotImplementedError

    def describe(self, example: Any) -> dict[str, Any]:
        """What the line of a prediction says of an example that `read_inputs` gave, in values that JSON has."""
        raise NotImplementedError

    def words_of(self, example: Any) -> list[list[str]]:
        """The words of each sentence of an example that `read_inputs` gave, as the model reads them: for
        `Task.explain`."""
        raise UserError(
            "explain=true is for documents, as those of encoder=han: this task has no weights of words that its "
            "answers do not hold already. Leave it out."
        )

    def splits(self) -> dict[str, Split]:
        """The splits, loaded the first time they are asked for."""
        self._splits = self._splits or self.load()
        return self._splits

    def train_dataloader(self) -> TrainBatches:
        split = self.splits()["train"]
        if self.batch_tokens is not None:
            return TokenBatches(split, self.batch_size, self.batch_tokens, self.seed, *self._place())
        place = self._place()
        return TrainBatches(split, self.batch_size, self.shuffle, self.seed, *place, drop_last=self.drop_last)

    def val_dataloader(self) -> EvaluationBatches:
        return EvaluationBatches(self.splits()["dev"], self.eval_batch_size, *self._place())

    def test_dataloader(self) -> EvaluationBatches:
        return EvaluationBatches(self.splits()["test"], self.eval_batch_size, *self._place())

    def _place(self) -> tuple[int, int]:
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer is not None else (0, 1)
