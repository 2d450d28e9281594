"""Figures of a hierarchy's points in two dimensions: the separation of a subtree, and the tree itself."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import charts, separation, tree
from scripts.shown.asked import Models, Wishes, caption, known
from scripts.trained import Run, Trained
from tasks.errors import UserError


def draw_separation(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """One file with a panel for each run."""
    loaded = [models(run) for run in runs]
    drawn = [separated(found) for found in loaded]
    roots = dict.fromkeys(found.data.subtree for found in loaded)
    panels = []
    for found, (field, f1) in zip(loaded, drawn, strict=True):
        root = f"{found.data.subtree}, " if len(roots) > 1 else ""
        panels.append((f"{caption(found, found.model.manifold)}\n{root}test F1 {100 * f1:.1f} %", field))
    title = f"Nodes below {', '.join(roots)}, and all others"
    return [wishes.save(separation.draw(panels, title), "separation", runs)]


def draw_tree(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """One file with a panel for each run."""
    panels, sources = [], []
    for run in runs:
        found = models(run)
        manifold, points = embedded(found)
        edges = found.data.edges
        chosen = [known(label, edges.names, found, "nodes") for label in wishes.labels or ()]
        drawn = tree.picture(manifold, points, edges.names, edges.child, edges.parent, chosen)
        panels.append((caption(found, manifold), drawn))
        sources.append(edges.source)
    return [wishes.save(tree.draw(panels, f"The top levels of {', '.join(dict.fromkeys(sources))}"), "tree", runs)]


def separated(found: Trained) -> tuple[separation.Field, float]:
    """All examples of a subtree run with its classifier, and F1 on the test part in the state that is loaded.

    Raises UserError where it is no such run, or its points have more than two dimensions.
    """
    if not hasattr(found.data, "subtree"):
        task = found.run.settings.get("task.name")
        raise UserError(f"{found.run.folder}: the task {task} has no subtree; name runs of task=wordnet_subtree.")
    model = copy.deepcopy(found.model).double()
    _check_plane(found, model.manifold, model.points)
    splits = [found.data.splits()[name] for name in ("train", "test")]
    rows, labels = (torch.cat([getattr(split, name) for split in splits]) for name in ("rows", "labels"))
    source = getattr(model, "source", None)  # of a ball's coordinates in flat space, the ball
    rim = charts.curvature(source) ** -0.5 if source is not None and charts.is_curved(source) else 0.0

    def margin(x: Tensor) -> Tensor:
        rest, subtree = model.logits(x).unbind(-1)
        return subtree - rest

    field = separation.field(model.manifold, model.points[rows], labels == 1, margin, rim)
    with torch.inference_mode():
        said = margin(model.points[splits[1].rows]) > 0
    gold = splits[1].labels == 1
    counted = int(said.sum() + gold.sum())
    return field, 2 * int((said & gold).sum()) / counted if counted else 0.0


def embedded(found: Trained) -> tuple[Manifold, Tensor]:
    """Manifold and points (N, D) of the nodes of a hierarchy. Raises UserError where it is no run of Poincaré
    embeddings, or its points have more than two dimensions."""
    if not hasattr(getattr(found.data, "edges", None), "names"):
        task = found.run.settings.get("task.name")
        raise UserError(
            f"{found.run.folder}: the task {task} embeds no hierarchy; name runs of task=poincare_embeddings."
        )
    points = found.model.points.detach()
    _check_plane(found, found.model.manifold, points)
    return found.model.manifold, points


def _check_plane(found: Trained, manifold: Manifold, points: Tensor) -> None:
    d = manifold.intrinsic_dim(points.shape[-1])
    if d != 2:
        raise UserError(f"{found.run.folder}: its points have {d} dimensions; name runs with task.dim=2.")
