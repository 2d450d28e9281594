"""Nodes of a subtree against all others, and the curve that separates them (Ganea et al. 2018, Figure 2).

Points of two dimensions are drawn where they are, in the Poincaré disk, and nothing is projected. The curve is the zero
of the trained classifier's margin (logit of the subtree minus the other) on a grid of the same disk, so that it is
right for every classifier: a geodesic for one hyperplane in hyperbolic space, a curve between two of them where each
class has its own, a straight line in the ball's coordinates, or the image of one by the exponential map.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, charts
from scripts.drawing.options import FigureOptions, Loader, caption, check_plane, unfit
from scripts.trained import Run, Trained
from tasks.classification import positive_scores

RADII = 300
FAR = 12.0  # times 1/sqrt(c): how far out the disk's grid goes, 1 - 1e-5 of its radius
INSIDE, OUTSIDE, CURVE = canvas.RED, "#EFC000", canvas.GREEN  # the colours of the paper
FOOT = (
    f"{charts.TRUE_PLACES} Curve: where the trained classifier gives the subtree probability 1/2; shaded: where it "
    "predicts the subtree. F1 of the subtree, in the state that is drawn."
)


@dataclass(frozen=True)
class Field:
    """A classifier on paper."""

    xy: Tensor  # (N, 2), the points, in the unit disk or in flat axes
    inside: Tensor  # (N,), which are of the subtree
    x: Tensor  # (R, A), of the grid
    y: Tensor
    margin: Tensor  # (R, A), positive where the subtree is predicted
    extent: float  # of flat axes; 0 of a disk


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Nodes of a subtree against all others, and their classifier (HNN, Figure 2), a panel for each run."""
    models = [load(run) for run in runs]
    fields = [separate(trained) for trained in models]
    roots = dict.fromkeys(trained.data.subtree for trained in models)
    panels = []
    for trained, (each, f1) in zip(models, fields, strict=True):
        root = f"{trained.data.subtree}, " if len(roots) > 1 else ""
        panels.append((f"{caption(trained, trained.model.manifold)}\n{root}test F1 {100 * f1:.1f} %", each))
    return [options.save(plot(panels, f"Nodes below {', '.join(roots)}, and all others"), "separation", runs)]


def separate(trained: Trained) -> tuple[Field, float]:
    """All examples of a subtree run with its classifier, and F1 on the test part in the state that is loaded.

    Raises UserError where it is no such run, or its points have more than two dimensions.
    """
    if not hasattr(trained.data, "subtree"):
        raise unfit(trained.run, "has no subtree; name runs of task=wordnet_subtree.")
    model = copy.deepcopy(trained.model).double()
    check_plane(trained.run, model.manifold, model.points)
    splits = [trained.data.splits()[name] for name in ("train", "test")]
    rows, labels = (torch.cat([split.columns[name] for split in splits]) for name in ("rows", "labels"))
    source = getattr(model, "source", None)  # of a ball's coordinates in flat space, the ball
    rim = float(source.c.detach()) ** -0.5 if source is not None and source.is_curved else 0.0

    def margin(x: Tensor) -> Tensor:
        rest, subtree = model.logits(x).unbind(-1)
        return subtree - rest

    with torch.inference_mode():
        predictions = margin(model.points[splits[1].columns["rows"]]) > 0
    gold = splits[1].columns["labels"] == 1
    sums = {"right": int((predictions & gold).sum()), "predicted": int(predictions.sum()), "gold": int(gold.sum())}
    return field(model.manifold, model.points[rows], labels == 1, margin, rim), positive_scores(sums)["f1"]


@torch.no_grad()
def field(
    manifold: Manifold, points: Tensor, inside: Tensor, margin: Callable[[Tensor], Tensor], rim: float = 0.0
) -> Field:
    """The points (N, D) of a space of two dimensions, and on it `margin`, which takes points (M, D) in float64 to (M,).

    rim: of a flat space whose coordinates are those of a ball, the radius of the ball: it is drawn as the disk, too.
    """
    xy, extent = charts.flatten(manifold, points), 0.0
    if manifold.is_curved:
        distance = torch.linspace(0, FAR / float(manifold.c.detach()) ** 0.5, RADII, dtype=torch.float64)
        radius = charts.radius(manifold, distance)
    elif rim:
        xy, radius = xy / rim, torch.linspace(0, 1 - 1e-6, RADII, dtype=torch.float64)
        distance = rim * radius
    else:
        extent = 1.1 * float(xy.abs().max()) or 1.0
        radius = distance = torch.linspace(0, 2**0.5 * extent, RADII, dtype=torch.float64)
    x, y, values = charts.values_on_rays(manifold, margin, distance, radius)
    return Field(xy, inside.cpu(), x, y, values.cpu(), extent)


def plot_panel(axis: Axes, title: str, field: Field) -> None:
    """The other nodes, those of the subtree over them, a light wash where the subtree is predicted, and the curve."""
    for points, colour, least in ((field.xy[~field.inside], OUTSIDE, 1.5), (field.xy[field.inside], INSIDE, 3.0)):
        size = max(least, min(14.0, 1500 / max(1, len(points))))
        axis.scatter(*points.numpy().T, s=size, color=colour, linewidths=0, alpha=0.8, zorder=2, rasterized=True)
    where = f"\npredicted {'everywhere' if field.margin.max() > 0 else 'nowhere'}"
    if canvas.boundary(axis, field.x, field.y, field.margin, CURVE):
        where = ""
    canvas.frame(axis, field.extent)
    axis.set_title(heading(title) + where)


def heading(title: str) -> str:
    """A panel's title in lines."""
    return canvas.wrapped(title, 3.8, 9)


def plot(panels: Sequence[tuple[str, Field]], title: str) -> Figure:
    """One panel for each run: (title, field)."""
    handles = [
        canvas.dot(INSIDE, "in the subtree"),
        canvas.dot(OUTSIDE, "all other nodes"),
        Line2D([], [], color=CURVE, label="separation"),
        Patch(facecolor=CURVE, alpha=canvas.WASH, label="predicted as the subtree"),
    ]
    lines = max(heading(name).count("\n") for name, _ in panels)
    size = (4.3, 4.7 + 0.2 * lines)
    with canvas.panels(plot_panel, panels, size, 0.9, title, FOOT, least=5.4) as (body, _):
        body.legend(handles=handles, loc="outside lower center", ncols=2 if len(panels) == 1 else 4)
    return body.figure
