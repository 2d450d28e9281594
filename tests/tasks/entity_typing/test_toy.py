"""The generated task: the same every time, types in a tree, and words that tell them."""

import pytest
import torch

from tasks.batches import TrainBatches
from tasks.entity_typing.examples import Limits
from tasks.entity_typing.toy import ToyTypingData
from tasks.errors import UserError

LIMITS = Limits(mention=5, characters=10, context=25)


def toy(**changes) -> ToyTypingData:
    settings = {
        "sizes": {"train": 600, "dev": 60, "test": 200}, "d_word": 10, "noise": 0.1, "generator_seed": 0,
        "limits": LIMITS, "mask_padding": True, "crowd_cycles": 0, "shuffle": "examples", "batch_size": 64,
        "eval_batch_size": 100, "seed": 0,
    }  # fmt: skip
    return ToyTypingData(**(settings | changes))


def test_the_toy_is_the_same_every_time():
    assert toy().fingerprint() == toy().fingerprint()
    assert toy().fingerprint()["sha256"] != toy(generator_seed=1).fingerprint()["sha256"]
    assert torch.equal(toy().words.tangent, toy(seed=5).words.tangent)
    assert len(set(toy().fingerprint()["sha256"].values())) == 3
    whole = toy(sizes={"train": 64, "dev": 7, "test": 1})
    assert {name: len(split) for name, split in whole.splits().items()} == {"train": 64, "dev": 7, "test": 1}
    assert whole.mentions("train") == toy().mentions("train")[:64]


def test_types_of_the_toy_are_a_tree():
    found = toy()
    assert found.types.granularity.bincount().tolist() == [3, 9, 27]
    for mention in found.mentions("train"):
        coarse, fine, *last = mention.types
        assert fine.startswith(coarse)
        assert all(t.startswith(fine) for t in last)
        assert 1 <= len(last) == len(set(last)) <= 2
    assert found.types.co_occurrence()[:, 2].sum() >= 3 * 600


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sizes": {"train": 10, "dev": 2, "test": 0}}, "task.data.sizes.test must be a whole number"),
        ({"sizes": {"train": 10, "dev": 2, "test": 2, "tset": 1}}, "task.data.sizes.tset: the splits are"),
        ({"noise": 1.0}, "task.data.noise must be at least 0 and less than 1"),
        ({"d_word": 0}, "task.data.d_word must be"),
    ],
)
def test_toys_that_cannot_be_are_named(changes, said):
    with pytest.raises(UserError) as caught:
        toy(**changes)
    assert said in str(caught.value)


def macro_f1(predicted: torch.Tensor, gold: torch.Tensor) -> float:
    """Choi's, of (N, K) booleans."""
    both = (predicted & gold).sum(1)
    precision, recall = (both / predicted.sum(1).clamp(min=1)).mean(), (both / gold.sum(1)).mean()
    return float(2 * precision * recall / (precision + recall).clamp(min=1e-9))


def features(batch: dict[str, torch.Tensor], table: torch.Tensor) -> torch.Tensor:
    return torch.cat([table[batch[key]].sum(1) for key in ("mention", "context")], dim=1)


def test_the_toy_can_be_learnt_by_far_better_than_guessed():
    found = toy(sizes={"train": 1500, "dev": 10, "test": 300})
    splits, k = found.splits(), len(found.types)

    def gold(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.zeros(len(batch["targets"]), k + 1, dtype=torch.bool).scatter_(
            1, batch["targets"] % (k + 1), True
        )[:, :k]

    train, test = (splits[s][torch.arange(len(splits[s]))] for s in ("train", "test"))
    often = gold(train).sum(0).argsort(descending=True)
    guesses = [
        macro_f1(gold(test).new_zeros(1, k).index_fill(1, often[:n], True).expand(300, k), gold(test))
        for n in (1, 3, 6, 13)
    ]
    model = torch.nn.Linear(20, k)
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    for epoch in range(10):
        batches = TrainBatches(splits["train"], 64, "examples", 0)
        batches.set_epoch(epoch)
        for batch in batches:
            optimizer.zero_grad()
            target = gold(batch).float()
            torch.nn.functional.binary_cross_entropy_with_logits(
                model(features(batch, found.words.tangent)), target
            ).backward()
            optimizer.step()
    with torch.no_grad():
        logits = model(features(test, found.words.tangent))
    predicted = (logits > 0).scatter(1, logits.argmax(1, keepdim=True), True)
    assert max(guesses) < 0.45
    assert macro_f1(predicted, gold(test)) > max(guesses) + 0.2, "a linear model on sums of word vectors"


def test_new_mentions_are_read_and_described():
    found = toy()
    mention = next(iter(found.read_inputs([b"word1 [Place_a0] word2"], "inputs")))
    assert found.describe(mention) == {"left": ["word1"], "mention": "Place_a0", "right": ["word2"]}
