"""Labels as files write them, as numbers of classes."""

import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from tasks.errors import UserError
from tasks.reading import Fault, brief

WITHOUT_WIDTH = dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff"))  # soft hyphen, blank and joiner of no width, mark
LONGEST = 60  # characters of a label in a message


class Labels:
    """The class of each label.

    classes: by class the labels that it stands for; None: each label of the training data is a class, in alphabetical
    order. unlabelled: labels that say that there is none, unless a class has them.
    Raises UserError for fewer than two classes, and for labels that two classes have or a class lacks.
    """

    def __init__(self, classes: Mapping[str, Sequence[str]] | None, unlabelled: Sequence[str] = ()) -> None:
        labels = [label for several in (classes or {}).values() for label in several]
        if classes is not None and (len(classes) < 2 or len(set(labels)) < len(labels) or not all(classes.values())):
            raise UserError(
                "task.data.classes needs at least two classes, and for each one or more labels that no other has, "
                f"as {{entailment: [entailment], other: [neutral, contradiction]}}; it is {classes}."
            )
        self.classes = classes
        self._numbers = {label: k for k, several in enumerate((classes or {}).values()) for label in several}
        self._unlabelled = frozenset(unlabelled) - self._numbers.keys()

    def is_unlabelled(self, label: str) -> bool:
        """Whether a label says that there is none."""
        return label in self._unlabelled

    def has(self, label: str) -> bool:
        """Whether a class has the label, by now."""
        return label in self._numbers

    def number(self, label: str, training: bool) -> int:
        """The number of a label: that of its class, or where no classes are given, one that `finish` turns into it.

        training: whether a new label of data without given classes is a new class. Raises Fault for an unknown label.
        """
        if not label:
            raise Fault("its label is empty")
        if self.classes is None and training:
            self._numbers.setdefault(label, len(self._numbers))
        if label not in self._numbers:
            names = ", ".join(map(brief, self._numbers))
            raise Fault(f"the label {brief(label)} is none of {names[:200]} (see task.data.classes)")
        return self._numbers[label]

    def finish(self, numbers: np.ndarray) -> tuple[list[str], np.ndarray]:
        """The names of the classes, and the class of each of the `numbers` (N,), of which they keep the type.

        Raises UserError for labels of training data without given classes that differ in case alone, or in nothing
        that is seen.
        """
        if self.classes is not None:
            return list(self.classes), numbers
        names = sorted(self._numbers)
        alike: dict[str, str] = {}
        for name in names:
            if (other := alike.setdefault(_visible_part(name), name)) != name:
                in_case = other.casefold() == name.casefold()
                show, how = (brief, "case alone") if in_case else (ascii, "characters that are not seen")
                both = f"{show(other[:LONGEST])} and {show(name[:LONGEST])}"
                raise UserError(
                    f"The labels {both} differ in {how}. Write them alike, or say with task.data.classes which "
                    "labels each class has, as {yes: [Yes, yes], no: [no]}."
                )
        place = {name: k for k, name in enumerate(names)}
        return names, np.array([place[name] for name in self._numbers], numbers.dtype)[numbers]


def _visible_part(label: str) -> str:
    """A label without what does not show: case, composition (NFC), kinds of blanks, and what has no width."""
    return " ".join(unicodedata.normalize("NFC", label.casefold()).translate(WITHOUT_WIDTH).split())


def check_classes(counts: Mapping[str, Mapping[str, int]], unit: str, remark: str = "") -> None:
    """Raise UserError unless train has examples of two classes or more, and of each that has any.

    counts: of each split and class. unit: what examples are, in the plural. remark: `Faults.remark` of train.
    """
    labels = counts["train"]
    if not any(labels.values()):
        raise UserError(f"Train has no {unit} that can be used{remark or '; see whether its file has any'}.")
    if len(labels) < 2:
        raise UserError(
            f"Train has {unit} of the class {', '.join(map(brief, labels))} alone, and at least two classes are "
            "needed; see whether the column that was read as the label is the right one."
        )
    empty = [name for name, count in labels.items() if not count]
    elsewhere = {name: sum(each[name] for each in counts.values()) for name in empty}
    if few := [f"{name} ({n})" for name, n in elsewhere.items() if n]:
        if 2 * len(labels) > (total := sum(sum(each.values()) for each in counts.values())):
            raise UserError(
                f"The labels of {total:,} {unit} are {len(labels):,}, as {', '.join(map(brief, [*labels][:3]))}: "
                "numbers or texts of their own, and no classes. See whether the column that was read as the label is "
                "the right one; scores have to be put into classes first."
            )
        more = f" and {len(few) - 5:,} more" if len(few) > 5 else ""
        raise UserError(
            f"All {unit} of the class {', '.join(few[:5])}{more} are in dev or test, and none is left for train. Add "
            "some, or leave it out of task.data.classes; where dev or test are held out of train (task.data.held_out), "
            "another task.data.held_out_seed draws others."
        )
    if empty:
        raise UserError(
            f"Train has no {unit} of the class {', '.join(empty)}; add some, or leave it out of task.data.classes."
        )
