"""Queries and keys of the distance attention, in two dimensions (Lopez & Strube 2020, Figure 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, charts, weights
from scripts.drawing.options import FigureOptions, Loader, caption
from scripts.trained import Run, Trained
from tasks.errors import UserError
from tasks.nli.data import NliData
from tasks.ragged import length_mask

INSIDE = 1  # position id of the words of the mention in its context
FOOT = "\nThe nearer a word's query is to its own key, the more weight the word gets (where β > 0)."


@dataclass(frozen=True)
class Cloud:
    """Queries and keys on paper."""

    queries: Tensor  # (N, 2)
    keys: Tensor  # (N, 2)
    in_mention: Tensor  # (N,) boolean
    distance: float  # mean distance of a query and the key of the same word
    total: int  # how many words there are, of which N are drawn
    share: float  # see charts.Basis
    manifold: Manifold


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Queries and keys of the attention (HyFi, Figure 5); of pairs of sentences, the weights of words."""
    models = [load(run) for run in runs]
    on_pairs = [trained for trained in models if isinstance(trained.data, NliData)]
    others = [trained for trained in models if not isinstance(trained.data, NliData)]
    if options.pairs and not on_pairs:
        raise UserError("--pairs is for runs on pairs of sentences, as of task=snli encoder=gru_attention.")
    files = []
    if others:
        rows = []
        for trained in others:
            clouds = {name: cloud(*points, options.words) for name, points in queries_and_keys(trained).items()}
            rows.append([(f"{k} attention\n{caption(trained, v.manifold)}", v) for k, v in clouds.items()])
        figure = plot(rows, "Queries and keys of the attention, dev mentions")
        files.append(options.save(figure, "attention", [trained.run for trained in others]))
    if on_pairs:
        files.append(weights.draw(on_pairs, options))
    return files


def queries_and_keys(trained: Trained) -> dict[str, tuple[Manifold, Tensor, Tensor, Tensor]]:
    """For each attention of the model its manifold, and of all words of the dev split, padding left out, queries and
    keys (N, D) and whether they are inside of the mention (N,), which only contexts know.

    Raises UserError where the model has no such attention.
    """
    if not hasattr(trained.model, "attentions"):
        raise UserError(
            f"{trained.run.folder}: {type(trained.model).__name__} has no attention by distances, whose queries and "
            "keys this figure shows. Name a run of task/model=entity_typer, or one of task=nli, snli or multinli with "
            "encoder=gru_attention or encoder=dan_attention, of which it shows the weights of words."
        )
    parts: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {}
    manifolds: dict[str, Manifold] = {}
    for batch in trained.data.val_dataloader():
        with torch.inference_mode():
            for name, attended in trained.model.attentions(batch).items():
                real = length_mask(batch[f"{name}_length"], attended.keys.shape[1])
                inside = batch["positions"] == INSIDE if name == "context" else torch.zeros_like(real)
                manifolds[name] = attended.manifold
                parts.setdefault(name, []).append((attended.queries[real], attended.keys[real], inside[real]))
    return {name: (manifolds[name], *map(torch.cat, zip(*part, strict=True))) for name, part in parts.items()}


@torch.no_grad()
def cloud(manifold: Manifold, queries: Tensor, keys: Tensor, in_mention: Tensor, most: int, seed: int = 0) -> Cloud:
    """Choose at most `most` words of queries and keys (N, D), the same for every run of one seed, and flatten them.

    The plane is that of all chosen queries and keys together, so that the two are seen in one picture.
    """
    n = len(queries)
    sample = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most].sort().values
    mean = float(manifold.dist(queries.double(), keys.double()).mean())
    queries, keys = queries[sample], keys[sample]
    basis = charts.plane_of(manifold, torch.cat([queries, keys]))
    flat = [charts.flatten(manifold, x, basis) for x in (queries, keys)]
    return Cloud(*flat, in_mention[sample], mean, n, basis.share, manifold)


def plot_panel(axis: Axes, title: str, cloud: Cloud) -> None:
    """Queries in red, keys in blue; words inside of the mention as larger, dark triangles."""
    inside = cloud.in_mention.numpy()
    for points, colour, dark, label in (
        (cloud.keys.numpy(), canvas.SKY, canvas.BLUE, "keys"),
        (cloud.queries.numpy(), "#F2A07B", canvas.RED, "queries"),
    ):
        if not inside.all():
            axis.scatter(*points[~inside].T, s=6, color=colour, alpha=0.55, linewidths=0, label=label, zorder=2)
        if inside.any():
            name = label if inside.all() else f"{label} inside the mention"
            axis.scatter(
                *points[inside].T, s=13, marker="^", color=dark, alpha=0.8, linewidths=0, label=name, zorder=3
            )
    extent = 1.08 * max(float(points.abs().max()) for points in (cloud.queries, cloud.keys)) or 1.0
    canvas.frame(axis, 0.0 if cloud.manifold.is_curved else extent)
    counts = f"{len(inside):,} of {cloud.total:,} words, mean d(query, key) {cloud.distance:.2f}"
    axis.set_title(f"{canvas.wrapped(title, 3.7, 9)}\n{counts}")


def plot(rows: Sequence[Sequence[tuple[str, Cloud]]], title: str) -> Figure:
    """A row of panels (title, cloud) for each run."""
    foot = charts.notes([(each.manifold, each.share) for row in rows for _, each in row]) + FOOT
    with canvas.canvas(max(5.0, *(4.2 * len(row) for row in rows)), 1.2 + 4.6 * len(rows), title, foot) as body:
        axes = canvas.plot_rows(body, plot_panel, rows)
        legend = canvas.legend(body, axes, loc="outside lower center", ncols=2, markerscale=1.8)
        for handle in legend.legend_handles:
            handle.set_alpha(1)
    return body.figure
