"""The figures that scripts/figures.py knows: from runs to the numbers that a drawing module shows, and to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.shown import entity_types, graphs, hierarchies, histories, pairs
from scripts.shown.asked import Models, Wishes
from scripts.trained import Run

Drawer = Callable[[Sequence[Run], Models, Wishes], list[Path]]
FIGURES: dict[str, tuple[str, Drawer]] = {
    "nearest": (
        "class points nearest to given types, with distances (HyFi, Tables 2 and 9)", entity_types.draw_nearest,
    ),
    "boundaries": (
        "decision boundaries of three types in a plane of the space (HyFi, Figure 4)", entity_types.draw_boundaries,
    ),
    "attention": (
        "queries and keys of the attention (HyFi, Figure 5); of pairs of sentences, the weights of words",
        pairs.draw_attention,
    ),
    "norms": ("mean distance of text vectors from the origin by epoch (HyFi, Figure 6)", histories.draw_norms),
    "granularity": ("distance of class points from the origin by granularity", entity_types.draw_granularity),
    "entities": ("entities of a knowledge graph at their distance from the origin, by degree", graphs.draw_entities),
    "lengths": ("lengths of premises and hypotheses by split (HyperA, Figures 4 and 5)", pairs.draw_lengths),
    "classes": ("classes of the test split and true positives (HyperA, Figure 10)", pairs.draw_classes),
    "separation": (
        "nodes of a subtree against all others, and their classifier (HNN, Figure 2)", hierarchies.draw_separation,
    ),
    "tree": (
        "a hierarchy embedded in two dimensions, with its top levels (Nickel & Kiela 2017, Figure 2)",
        hierarchies.draw_tree,
    ),
    "curves": ("losses and the selecting metric by epoch", histories.draw_curves),
}  # fmt: skip
