"""The entities of a knowledge graph around the origin: how far from it each lies, by how many triples it has.

Each entity is drawn at its true distance from the origin, whatever the number of dimensions; only its direction is
projected. So what is seen of hierarchy (hubs inside, leaves outside) is not an effect of the projection, and distances
between entities are not kept.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import StrMethodFormatter
from matplotlib.transforms import Bbox
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, charts, lettering
from scripts.drawing.lettering import LETTER, LINE
from scripts.drawing.options import FigureOptions, Loader, caption, number_of, unfit
from scripts.trained import Run

MOST = 20_000  # entities that are drawn
NAMED = 8  # of them with a name, where --labels gives none
RING = "#777777"
STEPS = (1.0, 2.0, 5.0, 10.0)  # between rings, times a power of 10
COLOURS = ListedColormap(colormaps["viridis_r"](torch.linspace(0.12, 1, 256).numpy()))  # the more triples, the darker
_UNDER = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
CURVED = (
    "Poincaré disk of radius 1, or its part around the origin where no rim is drawn: each entity at its true distance "
    f"d from the origin, at tanh(√c d/2) from the centre, in the direction of log₀ {charts.ON_PAPER}"
)
FLAT = (
    f"Flat space, scaled to fit: each entity at its true distance from the origin, in its direction {charts.ON_PAPER}"
)
FOOT = (
    "\nDistances between entities are not kept. Dashed rings: equal distance from the origin, with its value. Rank "
    "correlation: of the degrees with the distances from the origin, over all entities (Spearman). Named are entities "
    "of the highest degree, or chosen ones, where there is room."
)


@dataclass(frozen=True)
class Cloud:
    """Entities on paper."""

    xy: Tensor  # (n, 2), in the unit disk or, where the space is flat, in its own lengths
    degree: Tensor  # (n,), triples of each in the training graph
    named: tuple[tuple[int, str], ...]  # places and names of those that may get one, the most important first
    most_named: int  # how many of them do
    total: int  # how many entities there are
    share: float  # see charts.Basis
    correlation: float  # of all degrees with the distances from the origin, by ranks (Spearman)
    manifold: Manifold


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Entities of a knowledge graph at their distance from the origin, by degree, a panel for each run."""
    panels = []
    for run in runs:
        trained = load(run)
        if not hasattr(trained.model, "scorer"):
            raise unfit(run, "has no entities; this figure shows knowledge graphs.")
        (manifold, points), names = trained.model.scorer.points(), trained.model.entities
        labels = [number_of(label, names, trained, "entities") for label in options.labels or ()]
        degree = degrees(trained.data.graph.triples["train"], len(names))
        titles = options.titled(names, run, "entities")
        panels.append((caption(trained, manifold), cloud(manifold, points, titles, degree, labels)))
    return [options.save(plot(panels), "entities", runs)]


def degrees(triples: Tensor, n_entities: int) -> Tensor:
    """How many triples (N, 3) each entity is head or tail of: (n_entities,). A loop counts twice."""
    return torch.bincount(triples[:, ::2].flatten(), minlength=n_entities)


@torch.no_grad()
def cloud(
    manifold: Manifold, points: Tensor, names: Sequence[str], degree: Tensor, labels: Sequence[int] = (),
    most: int = MOST,
) -> Cloud:  # fmt: skip
    """Of entities at points (E, D) with degrees (E,), at most `most`, evenly spaced by number, on paper.

    labels: those that get a name; else those of the highest degree. They are drawn in any case. Directions: those of
    ``log_0`` in the plane through the origin that is nearest to the logarithms of the entities drawn.
    """
    n = len(points)
    candidates = list(labels) or degree.argsort(descending=True, stable=True)[: 4 * NAMED].tolist()
    even = torch.linspace(0, n - 1, n if n <= most else max(1, most - len(candidates)), dtype=torch.float64)
    sample = torch.cat([even.round().long(), torch.tensor(candidates)]).unique()
    x = points.detach()[sample].double()
    basis = charts.principal(manifold.logmap0(x), centred=False)
    xy = charts.flatten(manifold, x, basis, true_distance=True)
    places = torch.searchsorted(sample, torch.tensor(candidates)).tolist()
    named = tuple((place, lettering.shortened(names[k])) for place, k in zip(places, candidates, strict=True))
    correlation = rank_correlation(degree, manifold.dist0(points.detach()))
    return Cloud(xy, degree[sample], named, len(labels) or NAMED, n, basis.share, correlation, manifold)


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's: the correlation of the ranks of two (N,), equal values at their mean rank; 0 where all are equal."""
    from scipy.stats import spearmanr  # takes a second to import

    return float(spearmanr(a, b).statistic) if min(len(values.unique()) for values in (a, b)) > 1 else 0.0


def plot_panel(axis: Axes, title: str, cloud: Cloud, colours: LogNorm) -> None:
    """The entities, those of many triples larger and last, rings of equal distance, and the names that fit."""
    surround(axis, cloud, title, f"entities; rank correlation {cloud.correlation:+.2f}")
    order = cloud.degree.argsort(stable=True)
    shade = colours(cloud.degree[order].clamp_min(1).double().numpy())
    size = min(5.0, max(1.2, 6000 / len(order))) + 16 * shade**2
    axis.scatter(
        *cloud.xy[order].numpy().T, s=size, c=COLOURS(shade), linewidths=0, alpha=0.8, zorder=2, rasterized=True
    )


def surround(axis: Axes, cloud: Any, title: str, what: str) -> None:
    """The origin, rings of equal distance from it, the names that fit, and the title, of a cloud here or of nodes."""
    far = float(cloud.xy.norm(dim=-1).max())
    extent = 1.04 if cloud.manifold.is_curved and far > 0.8 else 1.12 * far or 1.0
    boxes = rings(axis, cloud.manifold, extent, far)
    axis.plot([0], [0], "+", color=canvas.GREY, markersize=6, zorder=3)
    axis.set(xlim=(-extent, extent), ylim=(-extent, extent), aspect="equal")
    axis.set_axis_off()
    lettering.write(axis, cloud.xy, cloud.named, cloud.most_named, extent, boxes)
    count = f"{cloud.total:,}" if len(cloud.xy) == cloud.total else f"{len(cloud.xy):,} of {cloud.total:,}"
    axis.set_title(f"{canvas.wrapped(title, 3.9, 9)}\n{count} {what}")


def rings(axis: Axes, manifold: Manifold, extent: float, far: float) -> list[Bbox]:
    """The rim of the disk where it is in view, and two to five circles of equal distance from the origin. Gives where
    their distances are written, in halves of the panel's side."""
    c = float(manifold.c.detach())
    if c and extent > 1:
        axis.add_patch(Circle((0, 0), 1, fill=False, edgecolor=RING, linewidth=1.0, zorder=1))
    distance = 2 * math.atanh(min(far, 0.985)) / c**0.5 if c else far
    if not distance:
        return []
    power = 10.0 ** math.floor(math.log10(distance / 2))
    step = max(s * power for s in STEPS if s * power <= distance / 2)
    boxes = []
    for k in range(1, int(distance / step + 1e-9) + 1):
        r = float(charts.radius(manifold, torch.tensor(k * step, dtype=torch.float64)))
        axis.add_patch(
            Circle((0, 0), r, fill=False, edgecolor=RING, linewidth=0.7, linestyle=(0, (4, 3)), alpha=0.8, zorder=3)
        )
        label = f"{k * step:.3g}"
        axis.text(0, -r, label, fontsize=7, color="#333333", ha="center", va="center", zorder=4, bbox=_UNDER)
        half = LETTER * len(label) / 2 + 0.01
        boxes.append(Bbox.from_extents(-half, -r / extent - LINE, half, -r / extent + LINE))
    return boxes


def plot(panels: Sequence[tuple[str, Cloud]]) -> Figure:
    """One panel for each run: (title, cloud)."""
    clouds = [each for _, each in panels]
    foot = charts.notes([(each.manifold, each.share) for each in clouds], CURVED, FLAT) + FOOT
    if any(len(each.xy) < each.total for each in clouds):
        foot += " Of many entities an even sample by number is drawn."
    colours = LogNorm(1, max(2, *(int(each.degree.max()) for each in clouds)))
    contents, title = [(*panel, colours) for panel in panels], "Entities around the origin"
    with canvas.panels(plot_panel, contents, (4.5, 5.0), 1.0, title, foot, least=5.4) as (body, axes):
        bar = body.colorbar(
            ScalarMappable(colours, COLOURS), ax=axes, location="bottom", shrink=0.6 / min(3, len(panels)), aspect=30,
            pad=0.03, format=StrMethodFormatter("{x:,.0f}"),
            label="degree: triples of the entity in the training graph",
        )  # fmt: skip
        bar.minorticks_off()
    return body.figure
