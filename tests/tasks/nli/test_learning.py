"""The generated pairs are learnt, by the Euclidean and by the hyperbolic network."""

import pytest

from tests.cli import QUIET, call, places

CHANCE = {2: 2 / 3, 3: 1 / 3}  # of the largest class
WORDS = {2: 2 / 3, 3: 2 / 3}  # of knowing the words and not their order: entailment and contradiction have the same
MARGIN = 0.15


@pytest.mark.parametrize(("geometry", "labels"), [pytest.param("euclidean", 3, marks=pytest.mark.long), ("poincare", 2)])
def test_the_order_of_the_words_is_learnt(tmp_path, geometry, labels):
    words = {"euclidean": ("optim.lr=0.01", "trainer.max_epochs=20"), "poincare": ("optim.lr=0.03", "trainer.max_epochs=8")}
    result = call(
        "task=nli_toy", f"task.labels={labels}", f"geometry={geometry}", "encoder=rnn", *words[geometry],
        "task.data.batch_size=128", *QUIET, *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    assert result.record["metrics"]["test/accuracy"] >= max(CHANCE[labels], WORDS[labels]) + MARGIN
