"""Generated pairs are kept whole or not at all; tab files are read exactly, and their faults named."""

import shutil
import warnings

import pytest
import torch

from tasks.errors import UserError
from tasks.prefix.data import PrefixData
from tasks.prefix.files import generated, read_tab_file
from tasks.prefix.pairs import generate

RECIPE = {"noise": 10, "vocabulary": 10, "max_length": 6, "seed": [0, 0]}


def test_the_second_time_pairs_are_read(tmp_path):
    path = tmp_path / "deep" / "pairs"
    first = generated(path, 100, RECIPE)
    assert [f.name for f in path.parent.iterdir() if f.is_dir()] == ["pairs"], "no part of a folder is left"
    before = path.stat().st_mtime_ns
    assert generated(path, 100, RECIPE).sha256() == first.sha256() == generate(100, **RECIPE).sha256()
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text", "gone", "other recipe"])
def test_a_damaged_cache_is_made_again(tmp_path, damage):
    path = tmp_path / "pairs"
    good = generated(path, 100, RECIPE).sha256()
    labels = path / "labels.bin"
    data = labels.read_bytes()
    if damage == "cut":
        labels.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        labels.write_bytes(b"\1" + data[1:])
    elif damage == "empty":
        (path / "meta.json").write_bytes(b"")
    elif damage == "text":
        (path / "meta.json").write_text("no pairs")
    elif damage == "gone":
        labels.unlink()
    else:
        shutil.rmtree(path)
        generated(tmp_path / "other", 100, {**RECIPE, "noise": 50})
        (tmp_path / "other").replace(path)
    with pytest.warns(UserWarning, match=r"pairs is damaged .* made again"):
        assert generated(path, 100, RECIPE).sha256() == good
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert generated(path, 100, RECIPE).sha256() == good


def test_pairs_are_used_where_they_cannot_be_kept(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match=r"could not be kept in .*paths.cache_dir"):
        assert len(generated(tmp_path / "file" / "pairs", 100, RECIPE)) == 100


def test_a_tab_file_is_read_exactly(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("3 1 2\t3 1\t1\n\n5\t9 8 7 6\t0\n\n")
    pairs = read_tab_file(path, 10)
    assert pairs.words.tolist() == [[[3, 1, 2, 0], [5, 0, 0, 0]], [[3, 1, 0, 0], [9, 8, 7, 6]]]
    assert pairs.lengths.tolist() == [[3, 1], [2, 4]]
    assert pairs.labels.tolist() == [1, 0]
    batch = pairs[torch.tensor([0])]
    assert batch["words"].tolist() == [[[3, 1, 2]], [[3, 1, 0]]], "cut to the longest sentence of the batch"
    assert batch["lengths"].tolist() == [[3], [2]]
    assert batch["labels"].dtype == torch.int64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("1 2\t1\t1\n1 2\t11\t0\n", "line 2: the word id 11 is out of range"),
        ("1 -2\t1\t1\n", "line 1: the word id -2 is out of range"),
        ("1 2\t1\t2\n", "line 1: the label is '2'"),
        ("1 2\t1\t\n", "line 1: the label is ''"),
        ("1 2\t1\t1\n1 2\t3", "line 2: 2 columns instead of 3"),
        ("\n \n", "is empty"),
        ("1 x\t1\t1\n", "line 1: '1 x' is not a list of word ids"),
        ("1\t\t1\n", "line 1: a sentence is empty"),
    ],
)
def test_a_faulty_tab_file_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "bad.tsv"
    path.write_text(text)
    with pytest.raises(UserError, match=r"bad\.tsv") as caught:
        read_tab_file(path, 10)
    assert message in str(caught.value)


def test_a_missing_or_binary_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"There is no data file .*nowhere\.tsv"):
        read_tab_file(tmp_path / "nowhere.tsv", 10)
    (tmp_path / "binary.tsv").write_bytes(b"\xff\xfe\x00\xbe")
    with pytest.raises(UserError, match=r"binary\.tsv, line 1: it is not UTF-8 \(byte 1\)"):
        read_tab_file(tmp_path / "binary.tsv", 10)


def settings(tmp_path, **changes) -> dict:
    return {
        "root": str(tmp_path), "noise": 0, "vocabulary": 10, "max_length": 6,
        "sizes": {"train": 20, "dev": 10, "test": 10}, "files": {"train": None, "dev": None, "test": None},
        "generator_seed": 0, "shuffle": "examples", "batch_size": 4, "eval_batch_size": 5, "seed": 0,
    } | changes  # fmt: skip


def test_a_file_replaces_one_split(tmp_path, monkeypatch):
    path = tmp_path / "mine.tsv"
    path.write_text("1\t1\t1\n" * 3)
    monkeypatch.setenv("HOME", str(tmp_path))
    data = PrefixData(**settings(tmp_path, files={"train": None, "dev": f"~/{path.name}", "test": None}))
    assert {name: len(split) for name, split in data.splits().items()} == {"train": 20, "dev": 3, "test": 10}
    record = data.fingerprint()
    assert record["files"]["dev"] == "mine.tsv", "no path of this machine"
    assert record["counts"]["dev"] == {"pairs": 3, "positive": 3}
    assert len(set(record["sha256"].values())) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "task.data.batch_size must be a whole number of at least 1, and it is 0"),
        ({"noise": 101}, "task.data.noise is a percentage"),
        ({"vocabulary": 0}, "task.data.vocabulary"),
        ({"max_length": 0}, "task.data.max_length"),
        ({"shuffle": "words"}, "task.data.shuffle must be one of examples, batches"),
        ({"sizes": {"train": 3, "dev": 2, "test": 2}}, "task.data.sizes.train must be even"),
        ({"sizes": {"dev": 2, "test": 2}}, "task.data.sizes.train must be a whole number"),
        ({"files": {"val": None}}, "task.data.files.val: the splits are train, dev, test"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        PrefixData(**settings(tmp_path, **change))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1 2", "line 2: it has 1 column instead of 2. Each line is ids <tab> ids"),
        (b"1\t11", "line 2: the word id 11 is out of range"),
        (b"1\t ", "line 2: a sentence is empty"),
    ],
)
def test_new_pairs_that_are_faulty_are_named(tmp_path, line, message):
    with pytest.raises(UserError, match=message):
        list(PrefixData(**settings(tmp_path)).read_inputs([b"1\t2\n", line], "in.tsv"))
