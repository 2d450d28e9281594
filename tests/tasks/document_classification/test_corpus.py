"""Documents become sentences of words within their limits; classes, held out documents and faults are counted."""

import numpy as np
import pytest
import torch

from tasks.batches import SPLITS
from tasks.document_classification.corpus import Document, prepare
from tasks.errors import UserError
from tasks.ragged import FIRST
from tasks.reading import Fault
from tests.tasks.document_classification.files import recipe


def rows(*labels: str, split: str = "train", text: str = "Some words."):
    return [(split, f"news.csv, line {k}", Document(label, (text,))) for k, label in enumerate(labels, start=1)]


def three(train=("a", "b", "a", "b"), **more):
    return rows(*train, **more) + rows("a", split="dev") + rows("b", split="test")


def test_no_sentence_goes_over_from_one_text_into_the_next():
    assert recipe().sentences(("A title", "One two. Three?", "")) == [
        ["a", "title"],
        ["one", "two", "."],
        ["three", "?"],
    ]


def test_sentences_and_documents_are_cut_to_their_limits():
    sources = recipe(max_length=2, max_sentences=2).sentences(("One two three. Four five six.", "Seven."))
    assert sources == [["one", "two"], ["four", "five"]]
    assert recipe(max_length=4).sentences(("word " * 100_000,)) == [["word"] * 4]
    assert recipe(max_length=4).sentences(("." * 100_000,)) == [["." * 100_000]]


def test_a_document_with_an_emoji_in_escapes_is_kept():
    sources = [("train", "", Document(x, (r"Nice \ud83d\ude00 film.",))) for x in "ab"]
    assert "\U0001f600" in prepare(sources, recipe(clean=["escapes"], held_out={})).words


@pytest.mark.parametrize("texts", [("",), (" \n ", "\t"), ()])
def test_a_document_without_words_is_a_fault(texts):
    with pytest.raises(Fault, match="its text is empty"):
        recipe().sentences(texts)


def test_there_may_be_more_classes_than_an_int16_has_numbers():
    rows = (("train", str(k), Document(f"class {k}", ("a",))) for k in range(2**15 + 1))
    assert len(prepare(rows, recipe(held_out={})).classes) == 2**15 + 1


def test_arrays_hold_the_documents():
    corpus = prepare(three(text="Some words. More words."), recipe(held_out={}))
    names = ["", "?", *corpus.words]
    documents = corpus.arrays.texts()
    ids, lengths, counts = documents.pad_sentences(torch.tensor([0, 4]))
    assert [[names[k] for k in row] for row in ids.tolist()] == [
        ["some", "words", "."],
        ["more", "words", "."],
        ["some", "words", "."],
    ]
    assert (counts.tolist(), lengths.tolist()) == ([2, 1], [3, 3, 3])
    assert corpus.classes == ["a", "b"]
    assert corpus.arrays.labels.tolist() == [0, 1, 0, 1, 0, 1]
    train = {"documents": 4, "sentences": 8, "words": 24, "unknown": 0, "skipped": 0, "labels": {"a": 2, "b": 2}}
    duplicates = {"repeated": 3, "contradictory": 4}  # the documents differ in their labels alone
    assert corpus.counts["train"] == train | duplicates
    assert corpus.counts["test"]["labels"] == {"a": 0, "b": 1}


def test_unknown_words_are_counted_by_split():
    sources = three() + rows("a", "b", split="test", text="New things.") + rows("b", split="dev", text="Some things.")
    corpus = prepare(sources, recipe(held_out={}))
    assert [corpus.counts[split]["unknown"] for split in SPLITS] == [0, 1, 4]
    assert [corpus.counts[split]["words"] for split in SPLITS] == [12, 6, 9]
    assert prepare(sources, recipe(vocabulary="all", held_out={})).counts["test"]["unknown"] == 0
    assert len(prepare(sources, recipe(max_words=1)).words) == 1


def test_held_out_documents_are_drawn_by_the_seed_and_are_the_stated_share():
    sources = [("train", "", Document("ab"[k % 2], (f"Word w{k}.",))) for k in range(50)]
    one = prepare(sources, recipe(held_out={"test": 0.2, "dev": 0.1}))
    assert [one.counts[split]["documents"] for split in SPLITS] == [35, 5, 10]
    fewer = prepare(sources, recipe(held_out={"test": 0.2, "dev": 0.1}, sizes={"test": 3}))
    assert [fewer.counts[split]["documents"] for split in SPLITS] == [42, 5, 3]
    again = prepare(sources, recipe(held_out={"test": 0.2, "dev": 0.1}))
    other = prepare(sources, recipe(held_out={"test": 0.2, "dev": 0.1}, held_out_seed=1))
    assert np.array_equal(one.arrays.splits, again.arrays.splits)
    assert not np.array_equal(one.arrays.splits, other.arrays.splits)
    kept = {f"w{k}" for k in np.flatnonzero(one.arrays.splits == 0)}
    assert set(one.words) == {"word", ".", *kept}, "only words of documents that are trained on have a row"


@pytest.mark.parametrize(("texts", "copies", "sizes"), [(50, 4, [140, 20, 40]), (50, 1, [35, 5, 10]), (6, 4, [16, 4, 4])])
def test_equal_texts_are_held_out_together(texts, copies, sizes):
    sources = [("train", "", Document("ab"[k % 2], (f"Word w{k // copies}.",))) for k in range(texts * copies)]
    corpus = prepare(sources, recipe(held_out={"test": 0.2, "dev": 0.1}, vocabulary="all"))
    assert [corpus.counts[split]["documents"] for split in SPLITS] == sizes
    assert (corpus.arrays.splits.reshape(texts, copies) == corpus.arrays.splits[::copies, None]).all()
    assert [corpus.counts[split]["in_train"] for split in SPLITS[1:]] == [0, 0]


def test_a_text_that_most_documents_have_stays_in_train():
    sources = [("train", "", Document("ab"[k % 2], (f"Word w{max(k - 30, 0)}.",))) for k in range(50)]
    corpus = prepare(sources, recipe(held_out={"test": 0.2, "dev": 0.1}))
    assert [corpus.counts[split]["documents"] for split in SPLITS] == [35, 5, 10]
    assert not corpus.arrays.splits[:31].any()


def test_documents_that_cannot_be_used_are_counted_or_end_the_reading():
    sources = [*three(), ("train", "news.csv, line 9", Fault("it has 2 columns")), *rows("c", split="test")]
    with pytest.raises(
        UserError, match=r"news\.csv, line 9: it has 2 columns\. Correct the line, or .* task\.data\.on_error=skip"
    ):
        prepare(sources, recipe())
    corpus = prepare(sources, recipe(on_error="skip"))
    assert [corpus.counts[split]["skipped"] for split in SPLITS] == [1, 0, 1]
    assert corpus.faults["train"] == "line 9: it has 2 columns"
    assert corpus.faults["test"].startswith("line 1: the label 'c' is none of 'a', 'b'")


def test_labels_outside_the_given_classes_and_classes_without_documents():
    classes = {"good": ["a"], "bad": ["b"]}
    assert prepare(three(), recipe(classes=classes)).classes == ["good", "bad"]
    with pytest.raises(
        UserError, match=r"news\.csv, line 2: the label 'c' is none of 'a', 'b' \(see task\.data\.classes\)"
    ):
        prepare(three(("a", "c")), recipe(classes=classes))
    with pytest.raises(
        UserError, match=r"Train has no documents of the class none; add some, or leave it out of task\.data\.classes"
    ):
        prepare(three(), recipe(classes={**classes, "none": ["n"]}))
    with pytest.raises(UserError, match="Train has documents of the class 'a' alone, and at least two classes are needed"):
        prepare(rows("a", "a") + rows("a", split="dev") + rows("a", split="test"), recipe())
    with pytest.raises(UserError, match=r"Train has no documents that can be used; see whether its file has any"):
        prepare(rows("a", split="test"), recipe(on_error="skip"))


def test_the_first_documents_of_a_split_may_be_used_alone():
    corpus = prepare(three(), recipe(sizes={"train": 2, "dev": None, "test": None}))
    assert [corpus.counts[split]["documents"] for split in SPLITS] == [2, 1, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"held_out": {"train": 0.1}}, "task.data.held_out.train: the splits are dev, test"),
        ({"held_out": {"dev": 0.5, "test": 0.5}}, "leaves no documents for train"),
        ({"max_sentences": 0}, "task.data.max_sentences must be a whole number of at least 1"),
        ({"max_words": 0}, "task.data.max_words must be a whole number of at least 1"),
        ({"language": "english"}, "task.data.language must be the code of a language"),
        ({"clean": ["all"]}, "task.data.clean must be one of escapes"),
        ({"on_error": "stop"}, "task.data.on_error must be one of fail, skip"),
        ({"sizes": {"tests": 1}}, "task.data.sizes.tests: the splits are train, dev, test"),
    ],
)
def test_settings_that_cannot_be_are_named(changes, message):
    with pytest.raises(UserError) as error:
        recipe(**changes)
    assert message in str(error.value)


def test_a_word_takes_four_bytes():
    corpus = prepare([(s, "", Document(x, ("word " * 1000,))) for s in SPLITS for x in "ab"], recipe(max_length=1000))
    assert corpus.arrays.words.nbytes == 4 * 6000
    assert corpus.arrays.words.max() == FIRST
