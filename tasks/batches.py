"""Batches in an order that depends on nothing but (seed, epoch), for one process or several, from any position on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from tasks.errors import UserError
from tasks.gradients import gather_rows

SPLITS = ("train", "dev", "test")
SHUFFLES = ("examples", "batches", "buckets")
BUCKET = 50  # batches whose examples are sorted together


class Split(Protocol):
    """Examples held as tensors: `split[index]` is the batch of the examples that the 1-D tensor `index` names.

    For shuffle="buckets" it also has `sizes` (N,), the size of each example, as its number of words; for `TokenBatches`
    that may be (N, sides), as the words of source and target, which are padded apart from each other.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: Tensor) -> Any: ...


@dataclass(frozen=True)
class Share:
    """What one of several processes has of a whole batch, whose examples they take one part after the other.

    rank: of this process. sizes: how many examples each process has. One that has none goes through the whole batch's
    first example, so that all do the same, with the same random numbers, and it counts for nothing.
    """

    rank: int
    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        """Examples that this process has."""
        return self.sizes[self.rank]

    @property
    def place(self) -> slice:
        """Where the examples that this process goes through stand in the whole batch."""
        start = sum(self.sizes[: self.rank])
        return slice(start, start + self.size) if self.size else slice(0, 1)

    @property
    def total(self) -> int:
        """Examples of the whole batch."""
        return sum(self.sizes)

    @property
    def weight(self) -> float:
        """Of the mean over this process's examples: the mean over the processes is then that over the whole batch."""
        return self.size * len(self.sizes) / self.total

    def among(self, x: Tensor) -> tuple[int, int]:
        """Where the rows of x, in the order of the examples that they are of, stand among those of all processes, and
        how many those are; all processes have to ask. One without examples has the rows of the first, counted once."""
        if len(self.sizes) == 1:
            return 0, len(x)
        count = torch.tensor([len(x) if self.size else 0], device=x.device)
        counts = gather_rows(count, [1] * len(self.sizes)).tolist()
        return sum(counts[: self.rank]) if self.size else 0, sum(counts)


@dataclass(frozen=True)
class TensorSplit:
    """N examples, each a row of some tensors (N, ...) of whole numbers, by name."""

    columns: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """The rows (B, ...) of each tensor, int64."""
        return {name: column[index].long() for name, column in self.columns.items()}


class TrainBatches:
    """The training batches of one epoch after the other.

    `batch_size` is the size of the whole batch: with several processes each takes a share of it, an equal one but for
    the last batch, so batches do not depend on their number. `share` is that of the batch that was given out last.

    shuffle="examples": every example is drawn anew in every epoch; the last batch may be smaller.
    shuffle="batches": batches are consecutive examples, built once; only their order changes. The last one is filled up
    from the beginning (Ganea et al.'s code), or where not `fill`, it may be smaller.
    shuffle="buckets": as "examples", but those of each BUCKET batches are sorted by size, so that a batch has examples
    of about the same size, and then the order of the batches is drawn; a smaller one comes last.

    again=(n, cycles): when all examples were given out, the first n of them are gone over `cycles` times more in the
    same epoch, each time in another order.

    drop_last: a last batch of fewer than `batch_size` examples is left out (as in `torch.utils.data.DataLoader`).

    It is resumable: `state_dict` holds how many batches of the epoch were given out, and after `load_state_dict` the
    next epoch starts behind them. Lightning calls `sampler.set_epoch`, which is this object's own.
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        shuffle: str,
        seed: int,
        rank: int = 0,
        world: int = 1,
        again: tuple[int, int] = (0, 0),
        fill: bool = True,
        drop_last: bool = False,
    ):
        if batch_size < world:
            raise UserError(
                f"task.data.batch_size={batch_size} is the size of the whole batch, too small to be shared by {world} "
                f"processes; use at least {world}."
            )
        if len(split) < batch_size and shuffle == "batches" and fill and not drop_last:
            raise UserError(f"task.data.batch_size={batch_size} is more than the {len(split)} training examples.")
        if len(split) < batch_size and drop_last:
            raise UserError(
                f"task.data.drop_last=true leaves no batch of task.data.batch_size={batch_size} from {len(split)} "
                "training examples; take a smaller batch_size, or drop_last=false."
            )
        if len(split) < world:
            raise UserError(f"{len(split)} examples cannot be shared by trainer.devices={world} processes; use fewer.")
        if shuffle == "buckets" and not hasattr(split, "sizes"):
            raise UserError(
                "task.data.shuffle=buckets is for examples of different sizes, which this task's do not have; take "
                "task.data.shuffle=examples."
            )
        self.split, self.batch_size, self.shuffle, self.seed = split, batch_size, shuffle, seed
        self.rank, self.world, self.fill, self.drop_last = rank, world, fill, drop_last
        self.share = Share(0, (0,))
        self.passes = [len(split)] + [again[0]] * again[1]
        self.sampler = self
        self.epoch = self.given = self.skip = 0

    def __len__(self) -> int:
        return sum(self._batches(examples) for examples in self.passes)

    def _batches(self, examples: int) -> int:
        return examples // self.batch_size if self.drop_last else -(-examples // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def order(self) -> Iterator[Tensor]:
        """The indices of each whole batch of this epoch."""
        draw = np.random.default_rng([self.seed, self.epoch])
        for examples in self.passes:
            count = self._batches(examples)
            if self.shuffle == "examples":
                order = torch.from_numpy(draw.permutation(examples))
                for k in range(count):
                    yield order[k * self.batch_size : (k + 1) * self.batch_size]
            elif self.shuffle == "buckets":
                order = torch.from_numpy(self._sort(draw.permutation(examples)))
                full = examples // self.batch_size
                for k in (*draw.permutation(full), *range(full, count)):
                    yield order[k * self.batch_size : (k + 1) * self.batch_size]
            else:
                for k in draw.permutation(count):
                    batch = torch.arange(k * self.batch_size, (k + 1) * self.batch_size)
                    yield batch % examples if self.fill else batch[batch < examples]

    def _sort(self, order: np.ndarray) -> np.ndarray:
        """The examples of each BUCKET batches by size, equal ones as they were."""
        sizes = _sizes(self.split)[order].sum(-1)
        return order[np.lexsort([sizes, np.arange(len(order)) // (BUCKET * self.batch_size)])]

    def __iter__(self) -> Iterator[Any]:
        skip, self.skip = self.skip, 0
        for k, batch in enumerate(self.order()):
            if k >= skip:
                self.given = k + 1
                self.share = Share(self.rank, tuple(len(part) for part in batch.tensor_split(self.world)))
                yield self.split[batch[self.share.place]]

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given % len(self)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.skip = self.given = int(state["given"])


class TokenBatches(TrainBatches):
    """Batches of examples of about the same size, with at most `tokens` words in all their sides after padding, and at
    most `batch_size` examples.

    A batch of n examples whose longest source has S words and longest target T has n (S + T). Examples are sorted by
    size, those of one size in an order that is drawn anew in every epoch, and cut into batches, which are shuffled. So
    every epoch has equally many. Several processes share them as they do those of TrainBatches, and it is resumable as
    these are.

    For a million examples it takes about 2 s and 50 MB to make one, and 1 s to draw an epoch's order.
    Raises UserError, besides those of TrainBatches, where an example has more than `tokens` words.
    """

    def __init__(self, split: Split, batch_size: int, tokens: int, seed: int, rank: int = 0, world: int = 1):
        super().__init__(split, batch_size, "buckets", seed, rank, world)
        self.tokens = tokens
        self.sizes = _sizes(split)
        self.bounds = self._bounds()

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def _order(self, draw: np.random.Generator) -> np.ndarray:
        """Examples from the smallest to the largest, those of one size in an order that is drawn."""
        ties = draw.permutation(len(self.sizes))
        return np.lexsort([ties, *self.sizes.T[::-1]])

    def _bounds(self) -> list[int]:
        """Where batches begin in the sorted examples, and the end of the last; the same for every draw."""
        bounds, ordered = [0], self.sizes[self._order(np.random.default_rng(0))]
        while (start := bounds[-1]) < len(ordered):
            most = min(self.batch_size, max(1, self.tokens // max(1, int(ordered[start].sum()))))
            widths = np.maximum.accumulate(ordered[start : start + most]).sum(-1)
            count = int((np.arange(1, len(widths) + 1) * widths <= self.tokens).sum())
            if not count:
                raise UserError(
                    f"task.data.batch_tokens={self.tokens} is too small for an example of {widths[0]} words; take a "
                    "larger one, or cut examples to fewer words."
                )
            bounds.append(start + count)
        return bounds

    def order(self) -> Iterator[Tensor]:
        draw = np.random.default_rng([self.seed, self.epoch])
        order = torch.from_numpy(self._order(draw))
        for k in draw.permutation(len(self)):
            yield order[self.bounds[k] : self.bounds[k + 1]]


def _sizes(split: Split) -> np.ndarray:
    """(N, sides)."""
    sizes = np.asarray(split.sizes)  # type: ignore[attr-defined] # only splits of examples of different sizes have it
    return sizes.reshape(len(sizes), -1)


@dataclass(frozen=True)
class MaskedSplit:
    """Examples that are computed together with all others, as the nodes of one graph: a batch is the whole, with the
    rows of those examples that count. A task picks them, `model(batch["edges"], ...)[batch["rows"]]`.

    whole: tensors of the graph, by name. labels (N,): of all examples; mask bool (N,): those of this split; only they
    are counted. With a batch_size of at least as many a step is one pass over the graph; smaller batches cost a whole
    pass each, too. Splits share the tensors.
    """

    whole: Mapping[str, Any]
    labels: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return int(self.mask.sum())

    def __getitem__(self, index: Tensor) -> dict[str, Any]:
        """The tensors of `whole`, and rows (B,) and labels (B,) of the examples of the split that `index` names."""
        rows = self.mask.nonzero().squeeze(-1)[index]
        return {**self.whole, "rows": rows, "labels": self.labels[rows]}


class EvaluationBatches:
    """Every example once, in order, in batches of about `batch_size`; every process gets equally many batches."""

    def __init__(self, split: Split, batch_size: int, rank: int = 0, world: int = 1):
        if len(split) < world:
            raise UserError(f"{len(split)} examples cannot be shared by trainer.devices={world} processes; use fewer.")
        self.split, self.rank, self.world = split, rank, world
        self.batches = max(1, min(-(-len(split) // (batch_size * world)), len(split) // world))

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        for k, batch in enumerate(torch.arange(len(self.split)).tensor_split(self.batches * self.world)):
            if k % self.world == self.rank:
                yield self.split[batch]
