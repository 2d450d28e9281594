"""Batches: a pure function of seed and epoch, every example once, equal shares for processes, resumable."""

import pytest
import torch

from tasks.batches import EvaluationBatches, TrainBatches
from tasks.errors import UserError


class Numbers:
    """A split whose batch is the index itself."""

    def __init__(self, n: int):
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: torch.Tensor) -> torch.Tensor:
        return index


def train(n=23, size=4, shuffle="examples", seed=0, epoch=0, rank=0, world=1) -> list[list[int]]:
    batches = TrainBatches(Numbers(n), size, shuffle, seed, rank, world)
    batches.set_epoch(epoch)
    found = [b.tolist() for b in batches]
    assert len(found) == len(batches)
    return found


def test_an_epoch_has_every_example_once():
    found = train()
    assert [len(b) for b in found] == [4, 4, 4, 4, 4, 3]
    assert sorted(i for batch in found for i in batch) == list(range(23))


def test_order_depends_on_seed_and_epoch_alone():
    assert train(seed=1, epoch=2) == train(seed=1, epoch=2)
    assert train(seed=1, epoch=2) != train(seed=1, epoch=3)
    assert train(seed=1, epoch=2) != train(seed=2, epoch=2)


def test_whole_batches_are_shuffled_and_the_last_is_filled_from_the_beginning():
    found = train(n=10, shuffle="batches", seed=3)
    assert sorted(found) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    assert found != sorted(found) or train(n=10, shuffle="batches", seed=4) != sorted(found)


@pytest.mark.parametrize("shuffle", ["examples", "batches"])
@pytest.mark.parametrize("n", [24, 25, 27])
def test_processes_share_each_batch_equally(n, shuffle):
    alone = train(n=n, shuffle=shuffle)
    shares = [train(n=n, shuffle=shuffle, rank=r, world=2) for r in range(2)]
    assert len(shares[0]) == len(shares[1])
    assert [len(b) for b in shares[0]] == [len(b) for b in shares[1]]
    for batch, mine, theirs in zip(alone, *shares, strict=False):
        assert mine + theirs == batch[: len(mine) + len(theirs)]
        assert len(batch) - len(mine) - len(theirs) < 2


@pytest.mark.parametrize("given", range(7))
def test_the_rest_of_an_epoch_follows_after_a_break(given):
    whole = train(epoch=1)
    before = TrainBatches(Numbers(23), 4, "examples", 0)
    before.set_epoch(1)
    for _, _ in zip(range(given), before, strict=False):
        pass
    after = TrainBatches(Numbers(23), 4, "examples", 0)
    after.load_state_dict(before.state_dict())
    after.set_epoch(1)
    rest = [b.tolist() for b in after]
    assert rest == (whole[given:] if given < 6 else whole)
    assert [b.tolist() for b in after] == whole, "the epoch after it starts at its beginning"


@pytest.mark.parametrize("n", [2, 5, 7, 8, 100])
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("size", [1, 3, 50])
def test_evaluation_sees_every_example_once_and_processes_have_equally_many_batches(n, world, size):
    shares = [[b.tolist() for b in EvaluationBatches(Numbers(n), size, r, world)] for r in range(world)]
    assert sorted(i for share in shares for batch in share for i in batch) == list(range(n))
    assert {len(share) for share in shares} == {len(EvaluationBatches(Numbers(n), size, 0, world))}
    sizes = [len(b) for share in shares for b in share]
    assert min(sizes) > 0
    assert max(sizes) <= size + (world > 1), "equally many batches may need one example more"


def test_a_batch_that_cannot_be_shared_is_an_error():
    with pytest.raises(UserError, match=r"task\.data\.batch_size=5 .* a multiple of 2, as 6"):
        TrainBatches(Numbers(20), 5, "examples", 0, 0, 2)
    with pytest.raises(UserError, match="more than the 3 training examples"):
        TrainBatches(Numbers(3), 4, "batches", 0)
    with pytest.raises(UserError, match="1 examples cannot be shared"):
        EvaluationBatches(Numbers(1), 5, 0, 2)
