"""Files are found by the words of their names."""

from pathlib import Path

import pytest

from tasks.split_files import several_files, split_name, stems_by_split


@pytest.mark.parametrize(
    ("name", "split"),
    [("train", "train"), ("snli_1.0_dev", "dev"), ("Validation-set", "dev"), ("my.TEST", "test"), ("strain", None), ("values", None), ("devices", None), ("testimonials", None), ("x", None)],
)
def test_a_word_of_a_name_says_the_split(name, split):
    assert split_name(name) == split


def test_several_files_of_a_split_are_named():
    files = [("train", Path("a/train.csv")), ("train", Path("a/train_old.csv")), ("test", Path("a/test.csv"))]
    assert list(several_files(files)) == ["Files of train: train.csv, train_old.csv; task.data.files chooses among them."]


def test_of_one_name_the_first_ending_is_taken(tmp_path):
    for name in ("train.csv", "train.jsonl", "test.csv", ".train.csv", "other.csv", "valid.txt"):
        (tmp_path / name).touch()
    (tmp_path / "test_folder.csv").mkdir()
    stems = stems_by_split(tmp_path, (".jsonl", ".csv"))
    names = {split: {stem: path.name for stem, path in files.items()} for split, files in stems.items()}
    assert names == {"train": {"train": "train.jsonl"}, "dev": {}, "test": {"test": "test.csv"}}
