"""Files are found by name, in the layouts that data sets come in."""

import pytest

from tasks.errors import UserError
from tasks.nli.places import Source, find_files, named_files


def files_by_part(folder) -> dict[tuple[str, str], str]:
    return {(s.split, s.part): s.path.name for s in find_files(folder)}


def touch(folder, *names: str) -> None:
    for name in names:
        (folder / name).write_text("")


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (
            ("snli_1.0_train.jsonl", "snli_1.0_train.txt", "snli_1.0_dev.jsonl", "snli_1.0_test.txt", "README.txt"),
            ("snli_1.0_train.jsonl", "snli_1.0_dev.jsonl", "snli_1.0_test.txt"),
        ),
        (
            ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"),
            ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"),
        ),
        (
            ("scitail_1.0_train.txt", "scitail_1.0_dev.txt", "scitail_1.0_test.txt", "._scitail_1.0_test.txt"),
            ("scitail_1.0_train.txt", "scitail_1.0_dev.txt", "scitail_1.0_test.txt"),
        ),
        (("train.tsv", "validation.tsv", "test.tsv"), ("train.tsv", "validation.tsv", "test.tsv")),
    ],
    ids=["SNLI", "SICK", "SciTail", "plain"],
)
def test_splits_are_reported_by_the_names(tmp_path, names, files):
    touch(tmp_path, *names)
    assert files_by_part(tmp_path) == dict(zip((("train", "all"), ("dev", "all"), ("test", "all")), files, strict=True))


def test_matched_and_mismatched_dev_files_are_dev_and_test(tmp_path):
    touch(tmp_path, *(f"multinli_1.0_{part}.jsonl" for part in ("train", "dev_matched", "dev_mismatched")))
    assert files_by_part(tmp_path) == {
        ("train", "all"): "multinli_1.0_train.jsonl",
        ("dev", "matched"): "multinli_1.0_dev_matched.jsonl",
        ("test", "mismatched"): "multinli_1.0_dev_mismatched.jsonl",
    }


def test_several_files_of_a_split_are_parts_of_it(tmp_path):
    touch(tmp_path, "train.jsonl", "dev.jsonl", "test.jsonl", "test_hard.jsonl")
    assert [k for k in files_by_part(tmp_path) if k[0] == "test"] == [("test", "test"), ("test", "test_hard")]


def test_dev_and_test_may_be_absent_and_train_may_not(tmp_path):
    touch(tmp_path, "train.jsonl", "test.jsonl")
    assert set(files_by_part(tmp_path)) == {("train", "all"), ("test", "all")}
    (tmp_path / "train.jsonl").unlink()
    with pytest.raises(UserError, match=r"no file for train.*begins with train.*as in train\.jsonl"):
        find_files(tmp_path)
    with pytest.raises(UserError, match=r"There is no folder or file .*nowhere; name one with data\.dir"):
        find_files(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["mine.csv", "pairs.jsonl.gz"])
def test_a_single_file_is_train(tmp_path, name):
    touch(tmp_path, name, "README.md")
    assert find_files(tmp_path) == find_files(tmp_path / name) == [Source("train", "all", tmp_path / name)]
    touch(tmp_path, "other.tsv")
    with pytest.raises(UserError, match="no file for train"):
        find_files(tmp_path)


def test_tables_with_commas_are_found_where_there_is_no_other_form(tmp_path):
    touch(tmp_path, "train.tsv", "train-stats.csv", "test.csv.gz")
    assert [source.path.name for source in find_files(tmp_path)] == ["train.tsv", "test.csv.gz"]


def test_named_files_may_have_any_ending(tmp_path):
    touch(tmp_path, "a_train.txt", "b.jsonl", "b.txt", "c")
    files = {"train": {"all": "a_train"}, "test": {"x": "b", "y": "c"}}
    assert [(s.split, s.part, s.path.name) for s in named_files(tmp_path, files, None)] == [
        ("train", "all", "a_train.txt"), ("test", "x", "b.jsonl"), ("test", "y", "c"),
    ]  # fmt: skip


def test_a_part_without_a_name_has_no_file(tmp_path):
    touch(tmp_path, "a.jsonl", "b.jsonl")
    files = {"train": {"all": "a"}, "dev": {"all": None}, "test": {"all": None, "x": "b"}}
    assert [(s.split, s.part) for s in named_files(tmp_path, files, None)] == [("train", "all"), ("test", "x")]


def test_a_file_that_is_absent_is_named_with_how_to_fetch_it(tmp_path):
    with pytest.raises(UserError, match=r"snli_train\.jsonl or \.txt \(train\).*scripts/download\.py snli.*HYPERBOLIC_DATA"):
        named_files(tmp_path, {"train": {"all": "snli_train"}}, "snli")
    with pytest.raises(UserError, match=r"\(dev\)\. Name the folder"):
        named_files(tmp_path, {"dev": {"all": "dev"}}, None)
