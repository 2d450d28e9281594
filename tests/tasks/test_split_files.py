"""Files are found by the words of their names."""

import pytest

from tasks.split_files import split_name, stems_by_split


@pytest.mark.parametrize(
    ("name", "split"),
    [("train", "train"), ("snli_1.0_dev", "dev"), ("Validation-set", "dev"), ("my.TEST", "test"), ("strain", None), ("x", None)],
)
def test_a_word_of_a_name_says_the_split(name, split):
    assert split_name(name) == split


def test_of_one_name_the_first_ending_is_taken(tmp_path):
    for name in ("train.csv", "train.jsonl", "test.csv", ".train.csv", "other.csv", "valid.txt"):
        (tmp_path / name).touch()
    (tmp_path / "test_folder.csv").mkdir()
    stems = stems_by_split(tmp_path, (".jsonl", ".csv"))
    names = {split: {stem: path.name for stem, path in files.items()} for split, files in stems.items()}
    assert names == {"train": {"train": "train.jsonl"}, "dev": {}, "test": {"test": "test.csv"}}
