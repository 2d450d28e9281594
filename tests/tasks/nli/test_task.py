"""Training on pairs leaves metrics by group and a table by class; predictions have probabilities and attention."""

import csv
import json

import pytest

from tests.cli import QUIET, Result, call, places
from tests.tasks.nli.files import ROWS, folder, lines

LABELS = ("entailment", "neutral", "contradiction")
SMALL = ("task.data.sizes={train: 200, dev: 40, test: 60}", "trainer.max_epochs=2", "task.data.batch_size=50")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[object, Result]:
    place = tmp_path_factory.mktemp("trained")
    result = call(
        "task=nli_toy", "geometry=euclidean", "encoder=gru_attention", "optim.lr=0.03", *SMALL, *QUIET, *places(place)
    )
    assert result.code == 0, result.err
    return place, result


def test_a_run_leaves_metrics_counts_and_the_table(trained):
    _, result = trained
    record = result.record
    assert {"test/accuracy", "test/macro_f1", "test/road/accuracy", "val/field/accuracy"} <= set(record["metrics"])
    assert record["data"]["counts"]["test"]["pairs"] == sum(record["data"]["counts"]["test"]["labels"].values()) == 60
    with (result.record_path.parent / "classes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["gold"]) for row in rows) == 60
    assert sum(int(row["true_positives"]) for row in rows) == round(60 * record["metrics"]["test/accuracy"])


def predicted(trained, tmp_path, text: str, *words: str) -> Result:
    (tmp_path / "in.tsv").write_text(text, encoding="utf-8")
    return call(
        "mode=predict", f"checkpoint={trained[1].record_path.parent}", f"input={tmp_path}/in.tsv",
        f"output={tmp_path}/out.jsonl", *places(trained[0]), *words,
    )  # fmt: skip


@pytest.mark.long
def test_predictions_have_probabilities_and_the_weights_of_the_premise(trained, tmp_path):
    text = "The old dog follows the car.\ta vehicle meets a snail.\n"
    text += json.dumps({"premise": "A horse.", "hypothesis": "an animal meets a vehicle because it is late."}) + "\n"
    result = predicted(trained, tmp_path, text)
    assert result.code == 0, result.err
    predictions = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [s["premise"] for s in predictions] == ["The old dog follows the car.", "A horse."]
    for answer in predictions:
        assert set(answer["probabilities"]) == set(LABELS)
        assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-4)
        assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)
        assert sum(weight for _, weight in answer["attention"]) == pytest.approx(1, abs=1e-4)
    assert [token for token, _ in predictions[0]["attention"]] == ["the", "old", "dog", "follows", "the", "car", "."]
    assert [token for token, _ in predictions[1]["attention"]] == ["a", "horse", "."]


def test_a_table_of_new_pairs_is_read_by_its_columns(trained, tmp_path):
    text = "label\tpremise\tid\thypothesis\nneutral\tThe car.\t7\ta vehicle meets an animal.\n"
    result = predicted(trained, tmp_path, text)
    assert result.code == 0, result.err
    (answer,) = map(json.loads, (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines())
    assert (answer["premise"], answer["hypothesis"]) == ("The car.", "a vehicle meets an animal.")
    assert "note:" not in result.err


@pytest.mark.long
def test_batches_do_not_change_predictions(trained, tmp_path):
    text = "The dog meets the car.\ta vehicle meets an animal.\nThe car.\ta vehicle meets an animal.\n"
    results = []
    for size in (1, 2):
        assert predicted(trained, tmp_path, text, f"task.data.eval_batch_size={size}").code == 0
        results.append([json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()])
    for one, other in zip(*results, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
        assert [w for _, w in one["attention"]] == pytest.approx([w for _, w in other["attention"]], abs=1e-5)


def test_a_faulty_new_pair_is_named(trained, tmp_path):
    result = predicted(trained, tmp_path, "a\tb\na\t\n")
    assert result.code == 1
    assert "in.tsv, line 2: its hypothesis is empty" in result.err
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.long
def test_predictions_without_attention_have_none(tmp_path):
    fitted = call("task=nli_toy", "geometry=euclidean", "encoder=rnn", *SMALL, *QUIET, *places(tmp_path))
    assert fitted.code == 0, fitted.err
    result = predicted((tmp_path, fitted), tmp_path, "a\tb\n")
    assert result.code == 0, result.err
    assert set(json.loads((tmp_path / "out.jsonl").read_text())) == {"premise", "hypothesis", "label", "probabilities"}


def test_a_folder_of_ones_own_is_trained_on(tmp_path):
    rows = lines(genre="x") * 10
    pairs = folder(tmp_path / "mine", train=rows, dev=rows, test=rows)
    result = call(
        "task=nli", f"data.dir={pairs}", "encoder=rnn", "geometry=euclidean", "trainer.max_epochs=1", *QUIET,
        *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    assert result.record["data"]["counts"]["train"]["labels"] == {"contradiction": 10, "entailment": 10, "neutral": 10}
    assert result.record["data"]["counts"]["train"]["unlabelled"] == 10
    assert "test/x/accuracy" in result.record["metrics"]
    assert str(tmp_path) not in json.dumps(result.record)
    again = call("task=nli", "encoder=rnn", *QUIET, *places(tmp_path))
    assert "task=nli needs a folder" in again.err


MULTINLI = ("train", "dev_matched", "dev_mismatched")


@pytest.fixture
def multinli(tmp_path):
    """A function that runs task=multinli on a few pairs."""
    place = tmp_path / "data" / "multinli"
    place.mkdir(parents=True)
    for stem in MULTINLI:
        rows = [(*row[:1], f"{row[1]} {k}", row[2]) for k in range(100) for row in ROWS[:3]]
        (place / f"multinli_1.0_{stem}.jsonl").write_text(lines(rows, genre=stem), encoding="utf-8")
    words = ("task=multinli", "encoder=rnn", "geometry=euclidean", "trainer.max_epochs=1", *QUIET, *places(tmp_path))
    return lambda *more: call(*words, *more)


@pytest.mark.long
def test_a_metric_that_dev_has_not_is_refused_before_training(multinli):
    """By the report dev is a part of train, and both published dev sets are the test."""
    result = multinli("task.module.select=val/matched/accuracy")
    assert result.code == 1
    assert "task.module.select must be one of val/accuracy, val/macro_f1, val/loss, val/train/accuracy, and it is" in result.err
    assert "val/matched/accuracy" in result.err
    assert "train/loss" not in result.out
    result = multinli("task.module.select=val/matched/accuracy", "task.data.files.dev.matched=multinli_1.0_dev_matched")
    assert result.code == 0, result.err
    assert result.record["selection"]["metric"] == "val/matched/accuracy"
    assert "test/mismatched/accuracy" in result.record["metrics"]
