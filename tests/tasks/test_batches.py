"""Batches: a pure function of seed and epoch, every example once, equal shares for processes, resumable."""

import itertools

import pytest
import torch

from tasks.base import TaskData
from tasks.batches import EvaluationBatches, MaskedSplit, Share, TokenBatches, TrainBatches
from tasks.classification import ClassificationTask
from tasks.errors import UserError
from tasks.training import fit


class Numbers:
    """A split whose batch is the index itself."""

    def __init__(self, n: int):
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: torch.Tensor) -> torch.Tensor:
        return index


class Sentences(Numbers):
    """Numbers with a size each: 0 to 9, in no order."""

    def __init__(self, n: int):
        super().__init__(n)
        self.sizes = torch.arange(n) * 7 % 10


def train(n=23, size=4, shuffle="examples", seed=0, epoch=0, **more) -> list[list[int]]:
    batches = TrainBatches(Sentences(n), size, shuffle, seed, **more)
    batches.set_epoch(epoch)
    lists = [b.tolist() for b in batches]
    assert len(lists) == len(batches)
    return lists


def test_an_epoch_has_every_example_once():
    lists = train()
    assert [len(b) for b in lists] == [4, 4, 4, 4, 4, 3]
    assert sorted(i for batch in lists for i in batch) == list(range(23))


@pytest.mark.parametrize("shuffle", ["examples", "batches", "buckets"])
def test_a_last_batch_that_is_smaller_may_be_left_out(shuffle):
    lists = train(shuffle=shuffle, drop_last=True)
    assert [len(b) for b in lists] == [4] * 5
    assert len({i for batch in lists for i in batch}) == 20
    assert len(train(n=24, shuffle=shuffle, drop_last=True)) == 6
    with pytest.raises(UserError, match=r"drop_last=true leaves no batch of task\.data\.batch_size=24"):
        train(size=24, shuffle=shuffle, drop_last=True)


def test_order_depends_on_seed_and_epoch_alone():
    assert train(seed=1, epoch=2) == train(seed=1, epoch=2)
    assert train(seed=1, epoch=2) != train(seed=1, epoch=3)
    assert train(seed=1, epoch=2) != train(seed=2, epoch=2)


def test_whole_batches_are_shuffled_and_the_last_is_filled_from_the_beginning():
    lists = train(n=10, shuffle="batches", seed=3)
    assert sorted(lists) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    assert lists != sorted(lists) or train(n=10, shuffle="batches", seed=4) != sorted(lists)


def test_buckets_have_examples_of_about_the_same_size(monkeypatch):
    monkeypatch.setattr("tasks.batches.BUCKET", 5)
    sizes = Sentences(203).sizes
    lists = train(n=203, shuffle="buckets", seed=1)
    assert sorted(i for batch in lists for i in batch) == list(range(203))
    assert sorted(len(b) for b in lists) == [3] + [4] * 50
    spread = [int(sizes[b].max() - sizes[b].min()) for b in lists]
    alone = [int(sizes[b].max() - sizes[b].min()) for b in train(n=203, seed=1)]
    assert sum(spread) < sum(alone) / 2
    means = [float(sizes[b].double().mean()) for b in lists]
    ups = sum(later > earlier for earlier, later in itertools.pairwise(means))
    assert 15 < ups < 35, "batches do not come by size"


def test_buckets_are_drawn_anew_in_every_epoch():
    first, again, other, second = (
        train(n=203, shuffle="buckets", seed=s, epoch=e) for s, e in ((1, 0), (1, 0), (2, 0), (1, 1))
    )
    assert first == again
    as_sets = [{frozenset(b) for b in lists} for lists in (first, other, second)]
    assert as_sets[0] != as_sets[1]
    assert as_sets[0] != as_sets[2], "not only their order"


def test_buckets_need_the_sizes_of_the_examples():
    with pytest.raises(UserError, match=r"task\.data\.shuffle=buckets .* take task\.data\.shuffle=examples"):
        TrainBatches(Numbers(9), 3, "buckets", 0)


def shared(world: int, make) -> list[tuple[list[list[int]], list[Share]]]:
    """What each process goes through, and its shares; make(rank) gives its batches."""
    pairs = [[(batch.tolist(), batches.share) for batch in batches] for batches in map(make, range(world))]
    return [tuple(map(list, zip(*own, strict=True))) for own in pairs]


def check_shared(whole: list[list[int]], world: int, make) -> None:
    processes = shared(world, make)
    for k, batch in enumerate(whole):
        shares = [share[k] for _, share in processes]
        assert {share.sizes for share in shares} == {shares[0].sizes}
        assert shares[0].total == sum(share.size for share in shares) == len(batch)
        assert max(shares[0].sizes) - min(shares[0].sizes) <= 1
        assert [i for lists, share in processes if share[k].size for i in lists[k]] == batch
        for lists, share in processes:
            assert lists[k] == batch[share[k].place]
            assert len(lists[k]) == max(1, share[k].size), "no process goes through nothing"
        means = [
            share.weight * sum(lists[k]) / len(lists[k]) for share, (lists, _) in zip(shares, processes, strict=True)
        ]
        assert sum(means) / world == pytest.approx(sum(batch) / len(batch)), "the mean over the whole batch"


@pytest.mark.parametrize("shuffle", ["examples", "batches", "buckets"])
@pytest.mark.parametrize(("n", "size", "world"), [(24, 4, 2), (25, 4, 2), (27, 5, 2), (25, 8, 3), (7, 3, 3)])
@pytest.mark.parametrize("again", [(0, 0), (3, 1), (1, 2)])
def test_processes_share_the_batches_of_one(shuffle, n, size, world, again):
    more = {"again": again, "fill": False}
    whole = train(n=n, size=size, shuffle=shuffle, **more)
    assert sum(map(len, whole)) == n + again[0] * again[1]
    check_shared(whole, world, lambda rank: TrainBatches(Sentences(n), size, shuffle, 0, rank, world, **more))


def test_the_first_examples_are_gone_over_again_in_another_order():
    lists = train(again=(6, 3))
    assert [len(b) for b in lists] == [4, 4, 4, 4, 4, 3] + [4, 2] * 3
    assert lists[:6] == train(), "the pass over all examples is as without the others"
    passes = [[i for batch in lists[k : k + 2] for i in batch] for k in (6, 8, 10)]
    assert [sorted(p) for p in passes] == [list(range(6))] * 3
    assert len({tuple(p) for p in passes}) == 3
    assert train(again=(6, 0)) == train()


def test_batches_of_the_first_examples_are_whole_too():
    lists = train(n=23, shuffle="batches", again=(10, 2), fill=False)
    assert sorted(lists[:6]) == [[*range(k, min(k + 4, 23))] for k in range(0, 23, 4)]
    assert [sorted(lists[k : k + 3]) for k in (6, 9)] == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]] * 2


def test_a_last_batch_that_is_not_filled_may_be_the_only_one():
    assert train(n=3, size=4, shuffle="batches", fill=False) == [[0, 1, 2]]


@pytest.mark.parametrize("count", [0, 1, 5, 6])
def test_the_rest_of_an_epoch_follows_after_a_break(count):
    whole = train(epoch=1)
    before = TrainBatches(Numbers(23), 4, "examples", 0)
    before.set_epoch(1)
    for _, _ in zip(range(count), before, strict=False):
        pass
    after = TrainBatches(Numbers(23), 4, "examples", 0)
    after.load_state_dict(before.state_dict())
    after.set_epoch(1)
    rest = [b.tolist() for b in after]
    assert rest == (whole[count:] if count < 6 else whole)
    assert [b.tolist() for b in after] == whole, "the epoch after it starts at its beginning"


@pytest.mark.parametrize("count", [0, 1, 5, 6, 9, 10])
@pytest.mark.parametrize("shuffle", ["examples", "batches", "buckets"])
def test_the_rest_of_an_epoch_with_further_passes_follows_after_a_break(count, shuffle):
    whole = train(epoch=1, shuffle=shuffle, again=(7, 2), fill=False)
    assert len(whole) == 10
    before = TrainBatches(Sentences(23), 4, shuffle, 0, again=(7, 2), fill=False)
    before.set_epoch(1)
    for _, _ in zip(range(count), before, strict=False):
        pass
    after = TrainBatches(Sentences(23), 4, shuffle, 0, again=(7, 2), fill=False)
    after.load_state_dict(before.state_dict())
    after.set_epoch(1)
    assert [b.tolist() for b in after] == (whole[count:] if count < 10 else whole)


@pytest.mark.parametrize("n", [2, 7, 100])
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
    with pytest.raises(UserError, match=r"task\.data\.batch_size=2 .* use at least 3"):
        TrainBatches(Numbers(20), 2, "examples", 0, 0, 3)
    with pytest.raises(UserError, match="more than the 3 training examples"):
        TrainBatches(Numbers(3), 4, "batches", 0)
    with pytest.raises(UserError, match="1 examples cannot be shared"):
        TrainBatches(Numbers(1), 4, "examples", 0, 0, 2)
    with pytest.raises(UserError, match="1 examples cannot be shared"):
        EvaluationBatches(Numbers(1), 5, 0, 2)


class Translations(Numbers):
    """Numbers with the words of a source and a target each."""

    def __init__(self, n: int):
        super().__init__(n)
        draw = torch.Generator().manual_seed(0)
        self.sizes = torch.stack([torch.randint(1, 13, (n,), generator=draw), torch.randint(1, 9, (n,), generator=draw)], -1)

    def words(self, batch: list[int]) -> int:
        """Words of a batch after padding."""
        return len(batch) * int(self.sizes[batch].amax(0).sum())


PAIRS = Translations(203)


def by_tokens(tokens=100, size=24, seed=0, epoch=0, split=PAIRS) -> list[list[int]]:
    batches = TokenBatches(split, size, tokens, seed)
    batches.set_epoch(epoch)
    lists = [b.tolist() for b in batches]
    assert len(lists) == len(batches)
    return lists


def test_batches_have_at_most_so_many_words_and_every_example_once():
    batches = by_tokens()
    assert sorted(i for batch in batches for i in batch) == list(range(203))
    assert max(map(PAIRS.words, batches)) <= 100
    assert max(map(len, batches)) <= 24
    assert max(map(len, by_tokens(size=4))) == 4
    assert sum(map(PAIRS.words, batches)) < 1.2 * int(PAIRS.sizes.sum()), "examples of one size stand together"
    one = Sentences(50)
    one.sizes = one.sizes + 1
    assert all(len(b) * int(one.sizes[b].max()) <= 12 for b in by_tokens(12, split=one)), "with one side, too"


def test_batches_of_words_are_drawn_anew_in_every_epoch_and_equally_many():
    first, again, second, other = (by_tokens(seed=s, epoch=e) for s, e in ((1, 0), (1, 0), (1, 1), (2, 0)))
    assert first == again
    assert len({len(first), len(second), len(other)}) == 1
    as_sets = [{frozenset(b) for b in batches} for batches in (first, second, other)]
    assert as_sets[0] != as_sets[1], "not only their order"
    assert as_sets[0] != as_sets[2]


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_the_batches_of_words_of_one(world):
    check_shared(by_tokens(), world, lambda rank: TokenBatches(PAIRS, 24, 100, 0, rank, world))


@pytest.mark.parametrize("count", [0, 1, 7])
def test_the_rest_of_an_epoch_of_words_follows_after_a_break(count):
    whole, before, after = by_tokens(epoch=1), *(TokenBatches(PAIRS, 24, 100, 0) for _ in range(2))
    before.set_epoch(1)
    for _, _ in zip(range(count), before, strict=False):
        pass
    after.load_state_dict(before.state_dict())
    after.set_epoch(1)
    assert [b.tolist() for b in after] == whole[count:]
    assert [b.tolist() for b in after] == whole


def test_examples_that_have_too_many_words_are_an_error():
    with pytest.raises(UserError, match=r"task\.data\.batch_tokens=19 is too small for an example of 20 words; take a larger"):
        by_tokens(19)
    with pytest.raises(UserError, match=r"task\.data\.batch_tokens needs task\.data\.shuffle=buckets, and it is examples"):
        Graph(shuffle="examples", batch_size=4, eval_batch_size=4, seed=0, batch_tokens=100)


class Graph(TaskData):
    """Two rings of ten nodes; the class of a node is its ring, and only a few nodes have a feature that says so."""

    model_sizes = {"classes": ("one", "two")}  # noqa: RUF012

    def load(self):
        ring = torch.arange(20) // 10
        near = torch.stack([ring * 10 + (torch.arange(20) + step) % 10 for step in (-1, 0, 1)], -1)
        features = torch.nn.functional.one_hot(ring, 2).float() * (torch.arange(20) % 5 == 0).unsqueeze(-1)
        part = torch.tensor([0, 1, 1, 2] * 5)
        return {s: MaskedSplit({"near": near, "x": features}, ring, part == k) for k, s in enumerate(("train", "dev", "test"))}

    def fingerprint(self):
        return {}


class Smoothing(torch.nn.Module):
    """Two rounds of means over the neighbours, and a linear layer on them."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x, near):
        for _ in range(2):
            x = x[near].mean(1)
        return self.layer(x)


class NodeTask(ClassificationTask):
    def logits(self, batch):
        return self.model(batch["x"], batch["near"])[batch["rows"]]


FIT = {
    "resume": None, "checkpoint_every_s": 0.0, "checkpoint_every_n_steps": None, "patience": None, "average_last": None,
    "nan_check_every_n_steps": 1, "progress_every_n_steps": 1, "kernels": "plain", "threads": None,
    "enable_progress_bar": False, "log_every_n_steps": 1, "max_epochs": 20, "max_steps": -1, "accelerator": "cpu", "devices": 1,
}  # fmt: skip


@pytest.mark.parametrize("size", [100, 2])
def test_nodes_of_a_graph_are_classified_with_masks(tmp_path, size):
    torch.manual_seed(0)
    data = Graph(shuffle="examples", batch_size=size, eval_batch_size=size, seed=0)
    task = NodeTask(Smoothing(), lambda module: torch.optim.Adam(module.parameters(), lr=0.1), ("one", "two"), "val/accuracy", "max")
    assert len(data.train_dataloader()) == -(-5 // size)
    outcome = fit(task, data, tmp_path, None, **FIT)
    assert task.counts == {"train": 5, "val": 10, "test": 5}, "each node once, in its split"
    assert outcome.share == 1
    assert task.metrics["test/accuracy"] == task.metrics["test/macro_f1"] == 1
    split = data.splits()["test"]
    predictions = task.predict(split[torch.tensor([0, 4])])
    assert [one["label"] for one in predictions] == ["one", "two"]
    assert split[torch.tensor([1])]["rows"].tolist() == [7]
