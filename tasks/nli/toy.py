"""A small world whose sentences are pairs of premise and hypothesis, for tests and first tries.

Something living does something to something that is not alive, or the other way round: "an old dog follows a red car".
The hypothesis names the two by their kinds, "an animal follows a vehicle", and is

    entailment     in the same order,
    contradiction  in the other order, "a vehicle follows an animal": the words alone do not tell,
    neutral        in the same order with a reason that the premise does not give, "because it is hungry".
"""

from collections.abc import Iterator

import numpy as np

from tasks.nli.pairs import Pair

KINDS = {"animal": ("dog", "cat", "horse", "bird"), "vehicle": ("car", "truck", "train", "boat")}
ADJECTIVES = ("old", "red", "small", "noisy")
VERBS = ("follows", "passes", "meets")
REASONS = ("hungry", "late", "lost")
LABELS = ("entailment", "neutral", "contradiction")
GENRES = ("road", "field")


def toy_pairs(n: int, draw: np.random.Generator) -> Iterator[Pair]:
    """`n` pairs; their labels and genres are equally likely."""
    for _ in range(n):
        kinds = [tuple(KINDS)[k] for k in draw.permutation(2)]
        things = [KINDS[kind][draw.integers(4)] for kind in kinds]
        if draw.random() < 0.5:
            place = draw.integers(2)
            things[place] = f"{ADJECTIVES[draw.integers(4)]} {things[place]}"
        verb, label = VERBS[draw.integers(3)], LABELS[draw.integers(3)]
        if label == "contradiction":
            kinds.reverse()
        reason = f" because it is {REASONS[draw.integers(3)]}" if label == "neutral" else ""
        premise = f"the {things[0]} {verb} the {things[1]}."
        yield Pair(premise, f"a {kinds[0]} {verb} a {kinds[1]}{reason}.", label, GENRES[draw.integers(2)])
