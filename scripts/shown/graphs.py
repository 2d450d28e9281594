"""The figure of a knowledge graph's entities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import entities
from scripts.shown.asked import Models, Wishes, caption, known
from scripts.trained import Run, Trained
from tasks.errors import UserError


def draw_entities(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """One file with a panel for each run."""
    panels = []
    for run in runs:
        found = models(run)
        manifold, points, names, degree = graph(found)
        chosen = [known(label, names, found, "entities") for label in wishes.labels or ()]
        panels.append((caption(found, manifold), entities.cloud(manifold, points, names, degree, chosen)))
    return [wishes.save(entities.draw(panels), "entities", runs)]


def graph(found: Trained) -> tuple[Manifold, Tensor, Sequence[str], Tensor]:
    """Of a knowledge graph's entities the manifold, points (E, D), names, and degrees (E,) in the training graph.

    Raises UserError where it is no run of a knowledge graph.
    """
    if not hasattr(found.model, "scorer"):
        task = found.run.settings.get("task.name")
        raise UserError(f"{found.run.folder}: the task {task} has no entities; this figure shows knowledge graphs.")
    manifold, points = found.model.scorer.points()
    names = found.model.entities
    return manifold, points, names, entities.degrees(found.data.graph.triples["train"], len(names))
