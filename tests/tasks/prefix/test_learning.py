"""The toy split is learnt, by the Euclidean and by the hyperbolic network."""

import pytest

from tests.cli import toy

CHANCE = 0.5  # both classes are equally frequent: always saying one of them is right for half of the pairs
MARGIN = 0.15


@pytest.mark.parametrize("geometry", ["euclidean", "poincare"])
def test_the_toy_split_is_learnt_beyond_chance(tmp_path, geometry):
    result = toy(
        tmp_path, f"geometry={geometry}", "encoder=rnn", "optim.lr=0.01", "trainer.max_epochs=3",
        "task.data.batch_size=32", "task.data.max_length=4",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert result.record["metrics"]["test/accuracy"] >= CHANCE + MARGIN
    assert result.record["metrics"]["test/loss"] < 0.6, "0.693 is that of a guess"
