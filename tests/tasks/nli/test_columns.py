"""Pairs become numbers as the recipe says, with every line counted; prepared files are read again as they were."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from tasks.errors import UserError
from tasks.nli.cache import from_files
from tasks.nli.columns import Arrays, prepare
from tasks.nli.pairs import Pair
from tasks.nli.places import find_files
from tasks.ragged import FIRST
from tasks.reading import Fault
from tasks.text import UNK
from tests.tasks.nli.files import RECIPE, ROWS, folder, lines


def rows(*splits: tuple[str, tuple]):
    """(split, part, place, pair) of tuples (label, premise, hypothesis, genre) by split."""
    for split, pairs in splits:
        for k, (label, premise, hypothesis, *genre) in enumerate(pairs, start=1):
            yield split, "all", f"{split}.jsonl, line {k}", Pair(premise, hypothesis, label, *genre)


def prepared(recipe=RECIPE, train=ROWS, dev=ROWS, test=ROWS):
    return prepare(rows(("train", train), ("dev", dev), ("test", test)), recipe)


def sentences(pairs, split: int) -> list[list[list[str]]]:
    """[premises, hypotheses] of a split, in words again."""
    names, a = {UNK: "<unk>"} | dict(enumerate(pairs.words, start=FIRST)), pairs.arrays
    rows = 2 * np.flatnonzero(a.splits == split)
    return [[[names[w] for w in a.words[a.starts[k] : a.starts[k + 1]]] for k in rows + side] for side in (0, 1)]


def test_words_are_numbered_by_frequency_and_labels_merged():
    pairs = prepared()
    premises, hypotheses = sentences(pairs, 0)
    assert premises == [["a", "dog", "runs", "."]] * 3
    assert hypotheses == [["an", "animal", "moves", "."], ["a", "dog", "runs", "home", "."], ["a", "dog", "sleeps", "."]]
    assert pairs.words[0] == ".", "six times"
    assert pairs.words[1:3] == ["a", "dog"], "five times each"
    assert pairs.classes == ["other", "entailment"]
    assert pairs.arrays.labels[:3].tolist() == [1, 0, 0]
    assert pairs.counts["train"] == {
        "pairs": 3, "unlabelled": 1, "skipped": 0, "cut": 0, "words": 25, "unknown": 0,
        "labels": {"other": 2, "entailment": 1}, "repeated": 0, "contradictory": 0,
    }  # fmt: skip


def test_words_that_train_does_not_have_are_the_unknown_word():
    dev = (("neutral", "A cat runs.", "A dog."),)
    pairs = prepared(dev=dev)
    assert sentences(pairs, 1) == [[["a", "<unk>", "runs", "."]], [["a", "dog", "."]]]
    assert pairs.counts["dev"]["unknown"] == 1
    every = prepared(replace(RECIPE, vocabulary="all"), dev=dev)
    assert sentences(every, 1)[0] == [["a", "cat", "runs", "."]]
    assert every.counts["dev"]["unknown"] == 0
    rare = prepared(replace(RECIPE, min_count=2), dev=dev)
    assert sentences(rare, 0)[1][1:] == [["a", "dog", "runs", "<unk>", "."], ["a", "dog", "<unk>", "."]]


def test_sentences_are_cut_counted_and_marked():
    pairs = prepared(replace(RECIPE, max_length=3))
    assert sentences(pairs, 0)[1] == [["an", "animal", "moves"], ["a", "dog", "runs"], ["a", "dog", "sleeps"]]
    assert pairs.counts["train"]["cut"] == 6
    marked = prepared(replace(RECIPE, max_length=2, ends=True))
    assert sentences(marked, 0)[0] == [["<s>", "a", "dog", "</s>"]] * 3


def test_the_text_is_kept_as_it_was():
    dev = (("neutral", " Ein Bär \U0001f43b.", "Das\u2028nicht."),)
    arrays = prepared(dev=dev).arrays
    assert (arrays.sentence(3, 0), arrays.sentence(3, 1)) == dev[0][1:]
    assert (arrays.sentence(2, 0), arrays.sentence(2, 1)) == ROWS[2][1:]


def test_classes_are_the_labels_of_train_where_none_are_given():
    pairs = prepared(replace(RECIPE, classes=None), dev=ROWS[::-1])
    assert pairs.classes == ["contradiction", "entailment", "neutral"]
    assert pairs.arrays.labels[:3].tolist() == [1, 2, 0]
    assert pairs.arrays.labels[3:6].tolist() == [0, 2, 1]
    with pytest.raises(UserError, match=r"dev\.jsonl, line 1: the label 'maybe' is none of 'entailment', 'neutral'"):
        prepared(replace(RECIPE, classes=None), dev=(("maybe", "A", "b"),))


def test_minus_one_is_a_class_unless_classes_are_given_or_it_may_be_no_label():
    rows = tuple((str(k), f"A dog {k}.", "A cat.") for k in (-1, 0, 1))
    own = replace(RECIPE, classes=None)
    assert prepared(own, rows, rows, rows).classes == ["-1", "0", "1"]
    hidden = prepared(own, rows[1:], rows[1:], rows)
    assert (hidden.classes, hidden.counts["test"]["unlabelled"]) == (["0", "1"], 1), "train has no such label"
    copy = (*rows, ("2", "A dog 2.", "A cat."))
    with pytest.raises(UserError, match=r"The labels are -1, 0, 1, 2, as in copies of SNLI and MultiNLI, where -1 says"):
        prepared(own, copy, copy, copy)
    named = prepared(replace(RECIPE, classes={"no": ["0"], "yes": ["1", "2"]}), copy, copy, copy)
    assert named.counts["train"]["unlabelled"] == 1
    assert named.counts["train"]["labels"] == {"no": 1, "yes": 2}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("maybe", "A dog.", "A cat."), "the label 'maybe' is none of 'neutral', 'contradiction', 'entailment'"),
        (("neutral", " ", "A cat."), "its premise is empty"),
        (("neutral", "A dog.", ""), "its hypothesis is empty"),
        (("", "A dog.", "A cat."), "its label is empty"),
    ],
)
def test_a_pair_that_cannot_be_used_is_named_or_skipped(row, message):
    with pytest.raises(UserError, match=rf"train\.jsonl, line 5: {message}.*task\.data\.on_error=skip"):
        prepared(train=(*ROWS, row))
    pairs = prepared(replace(RECIPE, on_error="skip"), train=(row, *ROWS))
    assert (pairs.counts["train"]["pairs"], pairs.counts["train"]["skipped"]) == (3, 1)
    assert message in pairs.faults["train"]
    assert pairs.faults["train"].startswith("line 1: ")


def test_a_line_that_could_not_be_read_is_a_fault_too():
    bad = [("train", "all", "x, line 1", Fault("it is not a JSON object"))]
    with pytest.raises(UserError, match="x, line 1: it is not a JSON object"):
        prepare(bad, RECIPE)


def test_only_so_many_pairs_are_used():
    pairs = prepared(replace(RECIPE, sizes={"train": 2, "dev": 1, "test": None}))
    assert [pairs.counts[s]["pairs"] for s in ("train", "dev", "test")] == [2, 1, 3]
    assert pairs.counts["train"]["unlabelled"] == 0, "lines behind the last one are not looked at"


def test_a_split_without_pairs_is_an_error():
    with pytest.raises(UserError, match=r"no pairs for dev that can be used\.$"):
        prepared(dev=(("-", "A", "b"),))
    with pytest.raises(UserError, match=r"no pairs for dev .*; 1 were skipped, and the first is line 1: its premise is empty\.$"):
        prepared(replace(RECIPE, on_error="skip"), dev=(("neutral", "", "b"),))


def test_premises_are_held_out_with_all_their_pairs():
    train = tuple((label, f"Premise {k}.", "b") for k in range(2000) for label in ("neutral", "entailment"))
    recipe = replace(RECIPE, held_out=0.1)
    pairs = prepare(rows(("train", train), ("test", ROWS)), recipe, ["dev"])
    premises = [{" ".join(words) for words in sentences(pairs, split)[0]} for split in (0, 1)]
    assert not premises[0] & premises[1]
    assert len(premises[0] | premises[1]) > 1
    counts = [pairs.counts[s]["pairs"] for s in ("train", "dev")]
    assert sum(counts) == 4000
    assert abs(counts[1] - 400) < 4 * 2 * (2000 * 0.1 * 0.9) ** 0.5
    texts = {pairs.arrays.sentence(r, 0) for r in np.flatnonzero(pairs.arrays.splits == 1)}
    again = prepare(rows(("train", train[::-1]), ("test", ROWS)), recipe, ["dev"])
    assert texts == {again.arrays.sentence(r, 0) for r in np.flatnonzero(again.arrays.splits == 1)}, "order is no matter"
    other = prepare(rows(("train", train), ("test", ROWS)), replace(recipe, held_out_seed=1), ["dev"])
    assert texts != {other.arrays.sentence(r, 0) for r in np.flatnonzero(other.arrays.splits == 1)}


def test_the_vocabulary_has_no_word_that_only_the_held_out_part_has():
    train = tuple((("neutral", "entailment")[k % 2], f"word{k}", "b") for k in range(200))
    pairs = prepare(rows(("train", train), ("test", ROWS)), replace(RECIPE, held_out=0.2), ["dev"])
    assert len(pairs.words) == pairs.counts["train"]["pairs"] + 1
    assert pairs.counts["dev"]["unknown"] == pairs.counts["dev"]["pairs"]


@pytest.mark.parametrize(
    ("train", "classes", "said"),
    [
        ("aa", None, "Train has pairs of the class 'a' alone"),
        ("aa", {"A": ["a"], "B": ["b"]}, r"All pairs of the class B \(1\) are in dev or test"),
        ("ab", {"A": ["a"], "B": ["b"], "C": ["c"]}, "Train has no pairs of the class C"),
    ],
)
def test_classes_without_training_pairs_are_refused(train, classes, said):
    of = {"train": train, "dev": "a", "test": "a" if classes is None else "b"}
    splits = ((split, tuple((label, "A dog.", "It runs.") for label in labels)) for split, labels in of.items())
    with pytest.raises(UserError, match=said):
        prepare(rows(*splits), replace(RECIPE, classes=classes))


def same(one, other) -> bool:
    arrays = all(np.array_equal(a, b) for a, b in zip(one.arrays, other.arrays, strict=True))
    return arrays and one._replace(arrays=None) == other._replace(arrays=None)


def folders(cache) -> list:
    return [place for place in (cache / "nli").iterdir() if place.is_dir()]


def test_prepared_pairs_are_kept_and_mapped(tmp_path):
    sources = find_files(folder(tmp_path / "pairs"))
    first = from_files(sources, RECIPE, tmp_path / "cache")
    (place,) = folders(tmp_path / "cache")
    assert place.name.startswith("pairs-")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = from_files(sources, RECIPE, tmp_path / "cache")
    assert same(first, second)
    assert isinstance(second.arrays.words.base, np.memmap)
    assert first.files == {"train": "train.jsonl", "dev": "dev.jsonl", "test": "test.jsonl"}
    assert same(first._replace(files={}, sha256={}), prepared())


def test_another_recipe_or_content_is_prepared_anew(tmp_path):
    place = folder(tmp_path / "pairs")
    pairs = [from_files(find_files(place), RECIPE, tmp_path)]
    for change in ({"lower": False}, {"max_length": 2}, {"classes": None}):
        pairs.append(from_files(find_files(place), replace(RECIPE, **change), tmp_path))
    (place / "dev.jsonl").write_text(lines(ROWS[:2]))
    pairs.append(from_files(find_files(place), RECIPE, tmp_path))
    assert len(folders(tmp_path)) == 5
    assert pairs[-1].counts["dev"]["pairs"] == 2
    assert pairs[-1].sha256["train"] == pairs[0].sha256["train"]
    assert pairs[-1].sha256["dev"] != pairs[0].sha256["dev"]


@pytest.mark.parametrize("damage", ["cut", "gone", "meta", "shape"])
def test_a_damaged_folder_is_made_again(tmp_path, damage):
    sources = find_files(folder(tmp_path / "pairs"))
    good = from_files(sources, RECIPE, tmp_path)
    good = good._replace(arrays=Arrays(*(array.copy() for array in good.arrays)))  # of the files, which are damaged
    (place,) = folders(tmp_path)
    if damage == "cut":
        (place / "words.bin").write_bytes((place / "words.bin").read_bytes()[:-4])
    elif damage == "gone":
        (place / "labels.bin").unlink()
    elif damage == "meta":
        (place / "meta.json").write_text("{")
    else:
        (place / "words.bin").write_bytes((place / "words.bin").read_bytes() + b"more")
    with pytest.warns(UserWarning, match="is damaged .* made again"):
        assert same(from_files(sources, RECIPE, tmp_path), good)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(from_files(sources, RECIPE, tmp_path), good)


def test_pairs_are_used_where_they_cannot_be_kept(tmp_path):
    sources = find_files(folder(tmp_path / "pairs"))
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match=r"could not be kept .*paths\.cache_dir"):
        assert from_files(sources, RECIPE, tmp_path / "file").counts["train"]["pairs"] == 3
