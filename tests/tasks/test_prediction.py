"""mode=predict: new examples to JSON lines, from a checkpoint that knows by itself what it is of."""

import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from configs.build import rebuild
from tasks import resume
from tasks.entity_typing.toy import make_mentions, make_tree
from tasks.errors import UserError
from tasks.prediction import Files, _examples, standard_output
from tasks.settings import settings_of
from tests.cli import QUIET, Result, call, places

SMALL = ("task.data.sizes={train: 200, dev: 20, test: 60}", "task.data.limits.context=8", "optim.lr=0.05")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("trained")
    result = call(
        "task=entity_typing_toy", "geometry=euclidean", "+geometry.parts.classifier=poincare", "geometry.c=0.5", *SMALL,
        *QUIET, *places(folder), "trainer.max_epochs=2", "trainer.precision=64-true",
    )  # fmt: skip
    assert result.code == 0, result.err
    return folder, result


def best(trained) -> Path:
    return trained[1].record_path.parent / "checkpoints" / "best.ckpt"


def predict(trained, *words: str) -> Result:
    """Without task, geometry and encoder: the checkpoint has them."""
    return call("mode=predict", f"checkpoint={best(trained)}", *places(trained[0]), *words)


@pytest.fixture(scope="module")
def mentions():
    """The test split."""
    return make_mentions(make_tree(), 60, np.random.default_rng([0, 4]), 0.1)


@pytest.fixture(scope="module")
def written(mentions, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("input") / "mentions.jsonl"
    lines = [json.dumps({"left": m.left, "mention": m.mention, "right": m.right}) + "\n" for m in mentions]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_predictions_of_the_test_split_have_the_scores_of_its_evaluation(trained, mentions, written, tmp_path):
    target = tmp_path / "types.jsonl"
    result = predict(trained, f"input={written}", f"output={target}")
    assert result.code == 0, result.err
    said = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert [(s["left"], s["mention"], s["right"]) for s in said] == [(m.left, m.mention, m.right) for m in mentions]
    type_sets = [{t["type"] for t in s["types"]} for s in said]
    assert all(type_sets), "everyone has at least one type"
    precision = sum(len(f & set(m.types)) / len(f) for f, m in zip(type_sets, mentions, strict=True)) / 60
    recall = sum(len(f & set(m.types)) / len(m.types) for f, m in zip(type_sets, mentions, strict=True)) / 60
    metrics = trained[1].record["metrics"]
    assert metrics["test/macro_precision"] == pytest.approx(precision)
    assert metrics["test/macro_recall"] == pytest.approx(recall)
    assert 0 < recall < 1
    record = result.record
    assert record["prediction"] == {"input": "mentions.jsonl", "output": "types.jsonl", "examples": 60}
    assert record["config"]["mode"] == "predict"
    assert record["config"]["geometry"]["c"] == 0.5
    assert record["metrics"] == {}
    assert str(tmp_path) not in json.dumps(record)
    assert [f.name for f in tmp_path.iterdir()] == ["types.jsonl"]


def test_standard_output_has_predictions_only(trained, monkeypatch):
    text = '{"left": "word1", "mention": "person_a1", "right": ""}\n\nword3 [Thing_b0 é漢] word4\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), encoding="latin-1"))
    result = predict(trained, "input=-", "task.module.threshold=0.0", "task.module.top_k=3")
    assert result.code == 0, result.err
    first, second = (json.loads(line) for line in result.out.splitlines())
    assert (first["mention"], second["mention"]) == ("person_a1", "Thing_b0 é漢")
    assert [len(first["types"]), len(second["types"])] == [3, 3]
    assert first["types"][0]["type"] == "person"
    assert "note: blank lines of standard input, which have no line in the output: 1\n" in result.err
    last = result.err.strip().splitlines()[-1]
    assert last.startswith("record: ")
    assert json.loads(Path(last.removeprefix("record: ")).read_text())["prediction"]["output"] is None


def test_standard_output_is_utf_8_where_predictions_go_there(trained, monkeypatch, tmp_path):
    for output, encoding in ((None, "utf-8"), ("-", "utf-8"), (str(tmp_path / "x.jsonl"), "latin-1")):
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
        with standard_output(Files(str(best(trained)), "-", output)) as stream:
            assert stream.encoding == encoding


@pytest.mark.long
def test_long_files_are_read_in_batches_and_batches_change_nothing(trained, written, tmp_path):
    for size in (7, 500):
        outcome = predict(
            trained, f"input={written}", f"output={tmp_path}/{size}.jsonl", f"task.data.eval_batch_size={size}"
        )
        assert outcome.code == 0, outcome.err
    small, large = (
        [json.loads(line)["types"] for line in (tmp_path / f"{size}.jsonl").read_text().splitlines()]
        for size in (7, 500)
    )
    for one, other in zip(small, large, strict=True):
        assert [t["type"] for t in one] == [t["type"] for t in other]
        assert [t["probability"] for t in one] == pytest.approx([t["probability"] for t in other])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'a [b] c\n{"left": ""}\n', "line 2"),
        (b"a [b] c\nno mention\n", "line 2"),
        (b"a [b] c\n\xff [b]\n", "line 2"),
        (b"", "has no mentions"),
    ],
)
def test_a_faulty_line_is_named_and_nothing_is_written(trained, tmp_path, text, said):
    (tmp_path / "in.jsonl").write_bytes(text)
    result = predict(trained, f"input={tmp_path}/in.jsonl", f"output={tmp_path}/out.jsonl", "task.data.eval_batch_size=1")
    assert result.code == 1
    assert "in.jsonl" in result.err
    assert said in result.err
    assert result.err.strip().count("\n") == 0
    assert [f.name for f in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "mode=predict needs input=FILE"),
        ("input=nowhere.jsonl", "input=nowhere.jsonl: there is no such file"),
        ("input=run.py output=nowhere/types.jsonl", "output=nowhere/types.jsonl cannot be written"),
        ("input=run.py output=types.csv", "output=types.csv: predictions are lines of JSON, and no table .csv; name a file .jsonl"),
        ("input=run.py output=./run.py", "output=run.py is the input, which would be overwritten"),
        ("input=run.py task=prefix_toy geometry=euclidean", "was trained with task.name='entity_typing_toy'"),
        ("input=run.py task.data.limits.characters=9", "was trained with task.data.limits.characters=10, not 9"),
        ("input=run.py task.data.limits.characters=9", "Give this run the settings of the checkpoint"),
        ("input=run.py trainer.accelerator=mps", "a CUDA device is needed"),
        ("input=run.py task.module.top_k=-1", "task.module.top_k must be a whole number of at least 1"),
    ],
)
def test_mistakes_are_told_in_one_paragraph(trained, words, said):
    result = predict(trained, *words.split())
    assert result.code == 1
    assert said in result.err
    assert result.err.strip().count("\n") == 0


def test_a_checkpoint_is_not_overwritten(trained):
    folder = trained[1].record_path.parent
    for checkpoint in (folder, best(trained)):
        result = call("mode=predict", f"checkpoint={checkpoint}", "input=run.py", f"output={best(trained)}", *places(trained[0]))
        assert result.code == 1
        assert "is the checkpoint, which would be overwritten; name another file" in result.err


def test_a_file_of_the_data_is_not_overwritten(tmp_path):
    (tmp_path / "train.jsonl").write_text("{}")
    with pytest.raises(UserError, match=r"train\.jsonl is there already, in the folder of the data \(data\.dir="):
        Files("run", "-", str(tmp_path / "train.jsonl"), data=str(tmp_path)).check_output()
    Files("run", "-", str(tmp_path / "answers.jsonl"), data=str(tmp_path)).check_output()
    Files("run", "-", str(tmp_path / "train.jsonl")).check_output()


@pytest.mark.long
def test_links_and_pipes_take_predictions_and_stay_what_they_are(trained, written, tmp_path):
    (tmp_path / "old.jsonl").write_text("old\n")
    (tmp_path / "link.jsonl").symlink_to("old.jsonl")
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    reader = os.open(tmp_path / "pipe.jsonl", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    ends = os.pipe()
    for place in ("link.jsonl", "pipe.jsonl", f"/dev/fd/{ends[1]}", "/dev/null"):
        result = predict(trained, f"input={written}", "task.module.top_k=1", f"output={tmp_path / place}")
        assert result.code == 0, result.err
    assert (tmp_path / "link.jsonl").is_symlink()
    assert (tmp_path / "pipe.jsonl").is_fifo()
    text = (tmp_path / "old.jsonl").read_bytes()
    assert text.count(b"\n") == 60
    for descriptor in (reader, ends[0]):
        assert os.read(descriptor, 1 << 16) == text
    for descriptor in (reader, *ends):
        os.close(descriptor)
    assert "cannot be written" in predict(trained, f"input={written}", f"output={tmp_path}/loop.jsonl").err


@pytest.mark.parametrize(("stream", "said"), [("stdin", "standard input is closed"), ("stdout", "Standard output is closed")])
def test_closed_streams_are_told(trained, monkeypatch, stream, said):
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(UserError, match=said), standard_output(Files(str(best(trained)), "-", None)), _examples(None, "-"):
        pass
    if stream == "stdout":
        sys.stdout.close()


def test_a_file_in_a_folder_of_the_input_is_not_overwritten(tmp_path):
    (tmp_path / "in" / "sea").mkdir(parents=True)
    (tmp_path / "in" / "sea" / "1.txt").write_text("waves")
    files = Files("run", str(tmp_path / "in"), str(tmp_path / "in" / "sea" / "1.txt"))
    with pytest.raises(UserError, match="is the input, which would be overwritten"):
        files.check_output()


def test_a_test_with_other_data_is_refused(trained):
    result = call("mode=test", f"checkpoint={best(trained)}", *places(trained[0]), "task.data.generator_seed=1")
    assert result.code == 1
    assert "was trained with data.vectors='euclidean 10d with sha256" in result.err
    assert "These are other data than it was trained with: put back its files" in result.err


def test_a_checkpoint_is_needed(tmp_path):
    for words, said in (
        (("mode=predict", "input=-"), "mode=predict needs checkpoint="),
        (("mode=predict", "checkpoint=nowhere", "input=-"), "checkpoint=nowhere: there is no checkpoint nowhere"),
    ):
        result = call(*words, *places(tmp_path))
        assert result.code == 1
        assert said in result.err


def test_testing_needs_no_more_words_than_the_checkpoint(trained):
    result = call("mode=test", f"checkpoint={best(trained)}", *places(trained[0]))
    assert result.code == 0, result.err
    for name, value in result.record["metrics"].items():
        assert value == pytest.approx(trained[1].record["metrics"][name]), name


def test_a_folder_stands_for_its_best_state_or_else_its_last(trained, tmp_path):
    folder = best(trained).parent.parent
    assert resume.read(folder, "checkpoint")["file"] == best(trained)
    assert resume.read(folder, "trainer.resume", ("last.ckpt",))["file"].name == "last.ckpt"
    (tmp_path / "last.ckpt").write_bytes((best(trained).parent / "last.ckpt").read_bytes())
    assert resume.read(tmp_path, "checkpoint")["file"] == tmp_path / "last.ckpt"


def test_a_checkpoint_keeps_the_configuration_that_rebuilds_it(trained):
    config = torch.load(best(trained))["config"]
    assert config["geometry"]["parts"] == {"classifier": "poincare"}
    assert (config["geometry"]["name"], config["geometry"]["c"]) == ("euclidean", 0.5)
    assert config["trainer"]["precision"] == "64-true"
    assert str(trained[0]) not in json.dumps(config), "no path of this machine"
    task, data = rebuild(resume.read(best(trained), "checkpoint"))
    assert settings_of(task.origin.config, data.identity) == settings_of(config, data.identity)
