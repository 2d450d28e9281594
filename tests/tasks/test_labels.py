"""Labels stand for classes as the settings say, or for one class each."""

import numpy as np
import pytest

from tasks.errors import UserError
from tasks.labels import Labels, check_classes
from tasks.reading import Fault

CLASSES = {"other": ["neutral", "contradiction"], "entailment": ["entailment"]}


def test_a_class_may_stand_for_several_labels():
    labels = Labels(CLASSES, ("-", "neutral"))
    assert [labels.number(name, False) for name in ("contradiction", "entailment", "neutral")] == [0, 1, 0]
    assert [labels.is_unlabelled(name) for name in ("-", "neutral")] == [True, False], "a class has it"
    names, numbers = labels.finish(np.array([1, 0], np.int16))
    assert (names, numbers.tolist()) == (["other", "entailment"], [1, 0])


def test_without_classes_each_label_of_the_training_data_is_one_in_alphabetical_order():
    labels = Labels(None)
    numbers = np.array([labels.number(name, True) for name in ("z", "a", "z", "b")], np.int16)
    names, classes = labels.finish(numbers)
    assert (names, classes.tolist(), classes.dtype) == (["a", "b", "z"], [2, 0, 2, 1], np.int16)
    with pytest.raises(Fault, match=r"the label 'c' is none of 'z', 'a', 'b' \(see task\.data\.classes\)"):
        labels.number("c", False)


@pytest.mark.parametrize("other", ["Ku\u0308che", "K\u00fcche\u200b", "K\u00fcche\u00a0"])
def test_labels_that_look_alike_are_an_error(other):
    labels = Labels(None)
    for name in ("K\u00fcche", "Garten", other):
        labels.number(name, True)
    with pytest.raises(UserError, match=r"'K.*che.*' differ in characters that are not seen"):
        labels.finish(np.array([0, 1, 2], np.int16))
    others = Labels(None)
    for name in ("m2", "m\u00b2"):
        others.number(name, True)
    assert others.finish(np.array([0, 1], np.int16))[0] == ["m2", "m\u00b2"]


def test_labels_that_differ_in_case_alone_are_an_error_unless_classes_say_what_they_are():
    labels = Labels(None)
    for name in ("neutral", "Entailment", "entailment"):
        labels.number(name, True)
    with pytest.raises(UserError, match=r"'Entailment' and 'entailment' differ in case alone.*task\.data\.classes"):
        labels.finish(np.array([0, 1, 2], np.int16))
    labels = Labels(None)
    for name in ("x" * 1_000_000, "X" + "x" * 999_999):
        labels.number(name, True)
    with pytest.raises(UserError) as caught:
        labels.finish(np.array([0, 1], np.int16))
    assert len(str(caught.value)) < 400
    labels = Labels({"yes": ["a"], "no": ["A"]})
    assert [labels.number(name, True) for name in ("a", "A")] == [0, 1]


def test_a_label_that_cannot_be_used_is_named_in_short():
    with pytest.raises(Fault, match="its label is empty"):
        Labels(None).number("", True)
    with pytest.raises(Fault) as caught:
        Labels(CLASSES).number("x" * 1_000_000, True)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("classes", [{"a": ["x"]}, {"a": ["x"], "b": ["x"]}, {"a": ["x"], "b": []}])
def test_classes_that_cannot_be_are_named(classes):
    with pytest.raises(UserError, match=r"task\.data\.classes needs at least two classes"):
        Labels(classes)


def test_labels_that_are_no_classes_are_told():
    scores = {f"0.{k}": int(k < 8) for k in range(10)}
    dev = {name: 1 - count for name, count in scores.items()}
    with pytest.raises(UserError, match=r"The labels of 10 documents are 10, as '0\.0', '0\.1', '0\.2': numbers or texts of their own"):
        check_classes({"train": scores, "dev": dev}, "documents")
    many = {f"c{k}": int(k < 8) * 9 for k in range(20)}
    with pytest.raises(UserError, match=r"of the class c8 \(1\), .*, c12 \(1\) and 7 more are in dev or test"):
        check_classes({"train": many, "dev": dict.fromkeys(many, 1)}, "documents")
