"""A run goes on with the data that it began with, and with no other."""

import gzip
import json
import sys
from pathlib import Path

import pytest
import torch

from tasks import record
from tests.cli import QUIET, call, places


def write_graph(folder: Path, last: dict[str, str]) -> tuple[str, ...]:
    """A graph of 12 entities, where `last` replaces the last triple of a split; the words that train on it."""
    folder.mkdir(exist_ok=True)
    for split, step in (("train", 1), ("dev", 2), ("test", 3)):
        triples = [f"e{i}\tr\te{(i + step) % 12}\n" for i in range(12)]
        (folder / f"{split}.txt").write_text("".join(triples[:-1]) + last.get(split, triples[-1]))
    return "task=kg", f"data.dir={folder}", "optim.schedule=constant", *QUIET, *places(folder.parent)


@pytest.mark.parametrize("split", ["train", pytest.param("dev", marks=pytest.mark.long), pytest.param("test", marks=pytest.mark.long)])
def test_a_run_does_not_go_on_with_other_data(tmp_path, split):
    """The files have the same entities and relations as before, in other triples."""
    words = write_graph(tmp_path / "graph", {})
    first = call(*words, "trainer.max_epochs=1")
    assert first.code == 0, first.err
    write_graph(tmp_path / "graph", {split: "e11\tr\te5\n"})
    again = call(*words, "trainer.max_epochs=2", f"trainer.resume={first.record_path.parent}")
    assert again.code == 1
    assert f"was trained with sha256.{split}=" in again.err
    assert "These are other data than it was trained with" in again.err
    both = call(*words, "trainer.max_epochs=2", "optim.lr=0.5", f"trainer.resume={first.record_path.parent}")
    assert "Give this run the settings and the data of the checkpoint" in both.err


@pytest.mark.long
@pytest.mark.parametrize("word", ["skip_finished=true", pytest.param("trainer.resume=auto", marks=pytest.mark.long)])
def test_a_finished_run_of_other_data_is_made_again(tmp_path, word):
    words = (*write_graph(tmp_path / "graph", {}), "trainer.max_epochs=1", word)
    first, same = call(*words), call(*words)
    assert same.record_path == first.record_path
    write_graph(tmp_path / "graph", {"dev": "e11\tr\te5\n"})
    other = call(*words)
    assert other.code == 0, other.err
    assert f"{first.record_path} has the same settings and other data (dev), so it does not count" in other.out
    assert other.record_path != first.record_path
    assert call(*words).record_path == other.record_path
    own = [each for each in words if each != word]
    tested = [call(*own, "mode=test", f"checkpoint={run.record_path.parent}") for run in (first, other)]
    assert [result.code for result in tested] == [0, 0], tested[0].err
    assert "note: dev: these are other data than those of the run that trained the model" in tested[0].out
    assert "note: dev:" not in tested[1].out


@pytest.mark.parametrize("damage", [
    {"selection": 5}, {"selection": [1]}, {"selection": {"value": 10**400}}, {"selection": {"value": "abc"}},
    {"data": "a"}, {"data": {}}, {"data": {"sha256": ["a"]}},
])  # fmt: skip
def test_a_damaged_record_is_none(tmp_path, damage):
    config = {"task": {"name": "x"}}
    whole = {"config_sha256": record.config_sha256(config), "selection": None, "data": {"sha256": {"train": "a"}}}
    (tmp_path / "run").mkdir()
    for text, path in ((whole, tmp_path / "run" / "record.json"), (whole | damage, None)):
        (tmp_path / "run" / "record.json").write_text(json.dumps(text))
        assert record.finished(tmp_path, config, {"train": "a", "vectors": "b"}) == path


@pytest.mark.long
def test_a_hostile_checkpoint_among_the_runs_is_passed_over(tmp_path):
    """And what it says of its data is printed as one line."""
    words = (*write_graph(tmp_path / "graph", {}), "trainer.max_epochs=1", "trainer.resume=auto")
    first = call(*words)
    first.record_path.unlink()
    last = first.record_path.parent / "checkpoints" / "last.ckpt"
    whole, deep, limit = torch.load(last), {}, sys.getrecursionlimit()
    for _ in range(3000 if sys.version_info < (3, 12) else 600):  # Python 3.12 pickles nothing deeper
        deep = {"node": deep}
    for hostile in (
        {"config": whole["config"] | {"optim": {"lr": torch.zeros(2)}}}, {"config": deep}, {"config": {"seed": 10**5000}}, {"sha256": {"train": ["a"]}},
        {"data": {"a\n\x1b[31m": "b"}},
    ):  # fmt: skip
        sys.setrecursionlimit(20_000)  # to write what is nested so deep
        torch.save(whole | hostile, last)
        sys.setrecursionlimit(limit)
        again = call(*words)
        assert again.code == 0, again.err
        assert "goes on from" not in again.out
        assert "\x1b" not in again.out
        again.record_path.unlink()
        (again.record_path.parent / "checkpoints" / "last.ckpt").unlink()


@pytest.mark.long
def test_an_unfinished_run_of_other_data_is_begun_anew(tmp_path):
    words = (*write_graph(tmp_path / "graph", {}), "trainer.max_epochs=1", "trainer.resume=auto")
    first = call(*words)
    first.record_path.unlink()
    write_graph(tmp_path / "graph", {"test": "e11\tr\te5\n"})
    other = call(*words)
    assert other.code == 0, other.err
    assert "begins anew, as" in other.out
    assert "was trained with other data (test)" in other.out
    assert "goes on from" not in other.out


@pytest.mark.long
def test_a_run_goes_on_with_files_that_were_packed(tmp_path):
    """And a checkpoint from before data were compared is of any."""
    folder = tmp_path / "pairs"
    folder.mkdir()
    lines = [f"a small dog{i} runs\tan animal{i} moves\t{label}\n" for i in range(8) for label in ("yes", "no")]
    for split in ("train", "dev", "test"):
        (folder / f"{split}.tsv").write_text("".join(["premise\thypothesis\tlabel\n", *lines]))
    words = ("task=nli", f"data.dir={folder}", "optim.schedule=constant", *QUIET)
    first = call(*words, "trainer.max_epochs=1", *places(tmp_path))
    assert first.code == 0, first.err
    text = (folder / "train.tsv").read_bytes()
    (folder / "train.tsv").unlink()
    (folder / "train.tsv.gz").write_bytes(gzip.compress(text))
    more = ("trainer.max_epochs=2", f"trainer.resume={first.record_path.parent}", *places(tmp_path))
    again = call(*words, *more)
    assert again.code == 0, again.err
