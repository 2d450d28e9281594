"""Figures of entity typing runs: class points, decision boundaries, attention by distances, granularity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hyperbolic.layers.classes import ClassLogits
from hyperbolic.manifolds import Manifold
from scripts.drawing import attention, boundaries, charts, granularity, nearest
from scripts.shown.asked import Models, Wishes, caption, known
from scripts.trained import Run, Trained
from tasks.base import Points
from tasks.errors import UserError

# Lopez & Strube 2020: Table 2 and Figure 4 show these three, Table 9 a chain from each of the other coarse types.
TABLE_2 = ("person", "artist", "musician")
TABLE_9 = ("organization", "group", "location", "place", "event", "time", "object", "entity")
GRANULARITIES = ("coarse", "fine", "ultrafine")
MOST_CURVES = 6
INSIDE = 1  # position id of the words of the mention in its context


def draw_nearest(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """For each run a table and a picture: with --labels a column a label, else two of each, like the paper's tables."""
    made = []
    for run in runs:
        found = models(run)
        manifold, points = class_points(found)
        names, kinds = types(found)
        space = (manifold, points, names, kinds)
        curved = charts.is_curved(manifold)
        shown = labels(found, wishes, TABLE_2)
        columns = [nearest.column(*space, known(label, names, found)) for label in shown]
        rows = [columns[k : k + 3] for k in range(0, len(columns), 3)]
        tables = [("nearest", f"Nearest class points: {', '.join(shown)}", rows)]
        heads = [name for name, kind in zip(names, kinds, strict=True) if kind == "coarse" and name not in shown]
        if not wishes.labels and heads:
            heads.sort(key=lambda name: (TABLE_9.index(name) if name in TABLE_9 else len(TABLE_9)))
            chains = [nearest.chain(*space, known(head, names, found)) for head in heads]
            tables.append(("nearest-coarse", "Nearest class points, in chains from the coarse types on", chains))
        for figure, title, table in tables:
            foot = (
                f"{run.title}; {found.about(manifold)}. Points of the classifier, one for each of {len(names):,} "
                f"types; {'geodesic' if curved else 'Euclidean'} distances."
            )
            measure = "hyperbolic distance" if curved else "distance"
            own = wishes.of_one(runs, run)
            made.append(own.write(nearest.markdown(table, title, foot), figure, [run]))
            made.append(own.save(nearest.draw(table, title, foot, measure), figure, [run]))
    return made


def draw_boundaries(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """One file with a panel for each run."""
    panels, shown = [], None
    if len(wishes.labels or ()) > MOST_CURVES:
        raise UserError(f"--labels: boundaries of at most {MOST_CURVES} types can be told apart in one picture.")
    for run in runs:
        found = models(run)
        classifier = classifier_of(found)
        names, _ = types(found)
        shown = shown or labels(found, wishes, TABLE_2)
        chosen = [known(label, names, found) for label in shown]
        panels.append((caption(found, classifier.manifold), boundaries.field(classifier, shown, chosen)))
    return [wishes.save(boundaries.draw(panels), "boundaries", runs)]


def draw_attention(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """One file: a row of panels for each run, one for each attention of its model."""
    rows = []
    for run in runs:
        found = models(run)
        clouds = []
        for name, (manifold, *pairs) in attended(found).items():
            shown = attention.cloud(manifold, *pairs, wishes.words)
            clouds.append((f"{name} attention\n{caption(found, manifold)}", shown))
        rows.append(clouds)
    return [wishes.save(attention.draw(rows, "Queries and keys of the attention, dev mentions"), "attention", runs)]


def draw_granularity(runs: Sequence[Run], models: Models, wishes: Wishes) -> list[Path]:
    """A table and a file with a panel for each run."""
    panels, lines = [], []
    for run in runs:
        found = models(run)
        manifold, points = class_points(found)
        groups = granularity.groups(manifold, points, inventory(found).granularity, GRANULARITIES)
        measure = "hyperbolic distance from the origin" if charts.is_curved(manifold) else "distance from the origin"
        panels.append((caption(found, manifold), measure, groups))
        lines.append((f"{run.title}; {found.about(manifold)}", groups))
    title = "Distance of class points from the origin, by granularity"
    foot = "Points p_k of the classifier, one for each type, at the geodesic distance of the model's own space."
    more = " Box: quartiles and median; whiskers: the farthest points within 1.5 times the quartiles' distance."
    table = wishes.write(granularity.markdown(lines, title, foot), "granularity", runs)
    return [table, wishes.save(granularity.draw(panels, title, foot + more), "granularity", runs)]


def inventory(found: Trained) -> Any:
    """The types of the run's data. Raises UserError where it is no entity typing run."""
    types = found.data.model_sizes.get("types")
    if types is None:
        task = found.run.settings.get("task.name")
        raise UserError(f"{found.run.folder}: the task {task} has no types; this figure shows entity typing runs.")
    return types


def types(found: Trained) -> tuple[Sequence[str], list[str]]:
    """Names of the types, and the granularity of each."""
    listed = inventory(found)
    return listed.names, [GRANULARITIES[i] for i in listed.granularity.tolist()]


def class_points(found: Trained) -> Points:
    """The points of the classifier's classes. Raises UserError where it has none."""
    inventory(found)
    points = getattr(found.model, "class_points", None)
    if points is None or points.x is None:
        raise UserError(
            f"{found.run.folder}: the classifier of {type(found.model).__name__} has no class points, which this "
            "figure shows. Name a run of another model; boundaries, norms and curves need none."
        )
    return points


def classifier_of(found: Trained) -> ClassLogits:
    """The classifier of an entity typing run. Raises UserError where it is none."""
    inventory(found)
    return found.model.classifier


def labels(found: Trained, wishes: Wishes, default: Sequence[str]) -> tuple[str, ...]:
    """The types to show: those asked for, or the paper's, or where the run has none of these its first three."""
    names, _ = types(found)
    if wishes.labels is None and not set(default) <= set(names):
        print(f"{found.run.title}: no types {', '.join(default)}; shown are {', '.join(names[:3])} (--labels chooses).")
        return tuple(names[:3])
    chosen = wishes.labels or tuple(default)
    for label in chosen:
        known(label, names, found)
    return chosen


def attended(found: Trained) -> dict[str, tuple[Manifold, Tensor, Tensor, Tensor]]:
    """For each attention of the model its manifold, and of all words of the dev split, padding left out, queries and
    keys (N, D) and whether they are inside of the mention (N,), which only contexts know.

    Raises UserError where the model has no such attention.
    """
    if not hasattr(found.model, "attentions"):
        raise UserError(
            f"{found.run.folder}: {type(found.model).__name__} has no attention by distances, whose queries and keys "
            "this figure shows. Name a run of task/model=entity_typer."
        )
    parts: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {}
    manifolds: dict[str, Manifold] = {}
    for batch in found.data.val_dataloader():
        with torch.inference_mode():
            for name, seen in found.model.attentions(batch).items():
                words = seen.keys.shape[1]
                real = torch.arange(words) < batch[f"{name}_length"].unsqueeze(-1)
                inside = batch["positions"] == INSIDE if name == "context" else torch.zeros_like(real)
                manifolds[name] = seen.manifold
                parts.setdefault(name, []).append((seen.queries[real], seen.keys[real], inside[real]))
    return {name: (manifolds[name], *map(torch.cat, zip(*seen, strict=True))) for name, seen in parts.items()}
