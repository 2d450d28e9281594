"""The entities of a knowledge graph around the origin: how far from it each lies, by how many triples it has.

Each entity is drawn at its true distance from the origin, whatever the number of dimensions; only its direction is
projected. So what is seen of hierarchy (hubs inside, leaves outside) is not an effect of the projection, and distances
between entities are not kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import FuncFormatter
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, charts, lettering
from scripts.drawing.lettering import LETTER, LINE, Box
from scripts.drawing.nearest import shortened

MOST = 20_000  # entities that are drawn
NAMED = 8  # of them with a name, where none are asked for
RING = "#777777"
STEPS = (1.0, 2.0, 5.0, 10.0)  # between rings, times a power of 10
COLOURS = ListedColormap(colormaps["viridis_r"](torch.linspace(0.12, 1, 256).numpy()))  # the more triples, the darker
_UNDER = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}


@dataclass(frozen=True)
class Cloud:
    """Entities on paper.

    xy: (n, 2), in the unit disk or, where the space is flat, in its own lengths. degree: (n,), triples of each in the
    training graph. named: places and names of those that may get one, the most important first; most_named of them do.
    of: how many entities there are. share: see `charts.Basis`. correlation: of all degrees with the distances from the
    origin, by ranks (Spearman).
    """

    xy: Tensor
    degree: Tensor
    named: tuple[tuple[int, str], ...]
    most_named: int
    of: int
    share: float
    correlation: float
    manifold: Manifold


def degrees(triples: Tensor, n_entities: int) -> Tensor:
    """How many triples (N, 3) each entity is head or tail of: (n_entities,). A loop counts twice."""
    return torch.bincount(triples[:, ::2].flatten(), minlength=n_entities)


@torch.no_grad()
def cloud(
    manifold: Manifold, points: Tensor, names: Sequence[str], degree: Tensor, chosen: Sequence[int] = (),
    most: int = MOST,
) -> Cloud:  # fmt: skip
    """Of entities at points (E, D) with degrees (E,), at most `most`, evenly spaced by number, on paper.

    chosen: those that get a name; else those of the highest degree. They are drawn in any case. Directions: those of
    ``log_0`` in the plane through the origin that is nearest to the logarithms of the entities drawn.
    """
    n = len(points)
    candidates = list(chosen) or degree.argsort(descending=True, stable=True)[: 4 * NAMED].tolist()
    even = torch.linspace(0, n - 1, n if n <= most else max(1, most - len(candidates)), dtype=torch.float64)
    drawn = torch.cat([even.round().long(), torch.tensor(candidates)]).unique()
    x = points.detach()[drawn].double()
    logarithms = manifold.logmap0(x)
    basis = charts.principal(logarithms, centred=False)
    flat = basis.coordinates(logarithms)
    distance = manifold.dist0(x, keepdim=True)
    xy = charts.radius(manifold, distance) * flat / flat.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    places = torch.searchsorted(drawn, torch.tensor(candidates)).tolist()
    named = tuple((place, shortened(names[k])) for place, k in zip(places, candidates, strict=True))
    correlation = rank_correlation(degree, manifold.dist0(points.detach()))
    return Cloud(xy, degree[drawn], named, len(chosen) or NAMED, n, basis.share, correlation, manifold)


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's: the correlation of the ranks of two (N,), equal values at their mean rank; 0 where all are equal."""
    ranks = []
    for values in (a, b):
        _, group, counts = values.unique(return_inverse=True, return_counts=True)
        rank = (counts.cumsum(0) - (counts - 1) / 2).double()[group]
        ranks.append(rank - rank.mean())
    lengths = ranks[0].norm() * ranks[1].norm()
    return float(ranks[0] @ ranks[1] / lengths) if lengths else 0.0


def paint(axis: Axes, found: Cloud, title: str, colours: LogNorm) -> None:
    """Draw the entities, those of many triples larger and last, rings of equal distance, and the names that fit."""
    curved = charts.is_curved(found.manifold)
    far = float(found.xy.norm(dim=-1).max())
    extent = 1.04 if curved and far > 0.8 else 1.12 * far or 1.0
    boxes = _rings(axis, found.manifold, extent, far)
    axis.plot([0], [0], "+", color=canvas.GREY, markersize=6, zorder=3)
    order = found.degree.argsort(stable=True)
    shade = colours(found.degree[order].clamp_min(1).double().numpy())
    x, y = found.xy[order].numpy().T
    base = min(5.0, max(1.2, 6000 / len(x)))
    axis.scatter(x, y, s=base + 16 * shade**2, c=COLOURS(shade), linewidths=0, alpha=0.8, zorder=2, rasterized=True)
    axis.set(xlim=(-extent, extent), ylim=(-extent, extent))
    axis.set_aspect("equal")
    axis.set_axis_off()
    lettering.write(axis, found.xy, lettering.fitting(found.xy, found.named, found.most_named, extent, boxes))
    count = f"{found.of:,}" if len(found.xy) == found.of else f"{len(found.xy):,} of {found.of:,}"
    axis.set_title(f"{canvas.wrapped(title, 3.9, 9)}\n{count} entities; rank correlation {found.correlation:+.2f}")


def _rings(axis: Axes, manifold: Manifold, extent: float, far: float) -> list[Box]:
    """The rim of the disk where it is in view, and two to five circles of equal distance from the origin. Gives where
    their distances are written, in halves of the panel's side."""
    c = charts.curvature(manifold)
    if c and extent > 1:
        axis.add_patch(Circle((0, 0), 1, fill=False, edgecolor=RING, linewidth=1.0, zorder=1))
    distance = 2 * float(torch.atanh(torch.tensor(min(far, 0.985), dtype=torch.float64))) / c**0.5 if c else far
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
        boxes.append((-half, -r / extent - LINE, half, -r / extent + LINE))
    return boxes


def draw(panels: Sequence[tuple[str, Cloud]]) -> Figure:
    """One panel for each run: (title, cloud)."""
    clouds = [found for _, found in panels]
    foot = "\n".join(dict.fromkeys(_note(found, clouds) for found in clouds))
    foot += (
        "\nDistances between entities are not kept. Dashed rings: equal distance from the origin, with its value. Rank "
        "correlation: of the degrees with the distances from the origin, over all entities (Spearman). Named are "
        "entities of the highest degree, or those that were asked for, where there is room."
    )
    if any(len(found.xy) < found.of for found in clouds):
        foot += " Of many entities an even sample by number is drawn."
    colours = LogNorm(1, max(2, *(int(found.degree.max()) for found in clouds)))
    width, rows = max(5.4, 4.5 * min(3, len(panels))), -(-len(panels) // 3)
    with canvas.canvas(width, 1.0 + 5.0 * rows, "Entities around the origin", foot) as body:
        axes = canvas.grid(body, len(panels))
        for axis, (title, found) in zip(axes, panels, strict=True):
            paint(axis, found, title, colours)
        bar = body.colorbar(
            ScalarMappable(colours, COLOURS), ax=axes, location="bottom", shrink=0.6 / min(3, len(panels)), aspect=30,
            pad=0.03,
        )  # fmt: skip
        bar.set_label("degree: triples of the entity in the training graph")
        bar.formatter = FuncFormatter(lambda value, _: f"{value:,.0f}")
        bar.minorticks_off()
    return body.figure


def _note(found: Cloud, clouds: Sequence[Cloud]) -> str:
    """What panels of this kind of space show truly, with the smallest share among them."""
    curved = charts.is_curved(found.manifold)
    share = min(each.share for each in clouds if charts.is_curved(each.manifold) == curved)
    plane = f"projected to the 2 principal directions, which hold at least {100 * share:.0f} % of the squared lengths."
    if curved:
        return (
            "Poincaré disk of radius 1, or its part around the origin where no rim is drawn: each entity at its true "
            f"distance d from the origin, at tanh(√c d/2) from the centre, in the direction of log₀ {plane}"
        )
    return f"Flat space, scaled to fit: each entity at its true distance from the origin, in its direction {plane}"
