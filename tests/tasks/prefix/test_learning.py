"""The toy split is learnt, by the Euclidean and by the hyperbolic network, and what was learnt is used."""

import json

import pytest

from tests.cli import QUIET, call, places, toy

CHANCE = 0.5  # both classes are equally frequent: always saying one of them is right for half of the pairs
MARGIN = 0.15


@pytest.mark.parametrize("geometry", [pytest.param("euclidean", marks=pytest.mark.long), "poincare"])
def test_the_toy_split_is_learnt_beyond_chance(tmp_path, geometry):
    result = toy(
        tmp_path, f"geometry={geometry}", "encoder=rnn", "optim.lr=0.01", "trainer.max_epochs=6",
        "task.data.batch_size=32", "task.data.max_length=4",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert result.record["metrics"]["test/accuracy"] >= CHANCE + MARGIN
    assert result.record["metrics"]["test/loss"] < 0.6, "0.693 is that of a guess"
    (tmp_path / "pairs.tsv").write_text("3 1 2 5\t3 1\n4\t9\n")
    prediction = call(
        "mode=predict", f"checkpoint={result.record_path.parent}", f"input={tmp_path}/pairs.tsv",
        f"output={tmp_path}/out.jsonl", *QUIET, *places(tmp_path),
    )  # fmt: skip
    assert prediction.code == 0, prediction.err
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(line["first"], line["second"]) for line in lines] == [([3, 1, 2, 5], [3, 1]), ([4], [9])]
    assert [line["label"] for line in lines] == ["prefix", "no_prefix"]
    assert list(lines[0]["probabilities"]) == ["no_prefix", "prefix"]
