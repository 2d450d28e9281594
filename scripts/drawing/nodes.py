"""The nodes of a graph about their centroid, by class, or where they have none by degree, and its links. A node without
a link is grey there, as one without a class is.

Models of graphs do not tie nodes to the origin, so the centroid is moved there first, by an isometry. Each node is then
drawn at its true distance from it, whatever the number of dimensions, and only its direction is projected. The
links of a small graph are drawn as geodesics between the places on paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from torch import Tensor

from hyperbolic.manifolds import Manifold
from scripts.drawing import canvas, charts, lettering
from scripts.drawing.entities import COLOURS, MOST, NAMED, surround
from scripts.drawing.options import FigureOptions, Loader, caption, number_of, unfit
from scripts.drawing.tree import geodesics
from scripts.trained import Run, Trained
from tasks.graph.graph import Graph

MOST_LINKS = 3000  # above which a picture would be all links
MOST_CLASSES = 16  # with a colour and mark of their own
OTHERS, WITHOUT, ALONE = "other classes", "no class", "no link"
PLAIN = "#BBBBBB"  # of nodes without a class or a degree of their own
CURVED = (
    "Poincaré disk of radius 1, or its part about the centre where no rim is drawn. The centroid of the nodes is moved "
    "to the centre by an isometry; each node is at its true distance d from it, at tanh(√c d/2) from the centre, in "
    f"the direction of its logarithm {charts.ON_PAPER}"
)
FLAT = (
    "Flat space, scaled to fit: each node at its true distance from the mean of all, "
    f"in its direction {charts.ON_PAPER}"
)
FOOT = "\nDistances between nodes are not kept. Dashed rings: equal distance from the centroid, with its value."
LINKS = " Lines: the links of the graph, geodesics of the disk."
NAMES = " Named are the nodes of the highest degree, or chosen ones, where there is room."
SAMPLE = " Of many nodes an even sample by number is drawn."


@dataclass(frozen=True)
class Cloud:
    """Nodes on paper."""

    xy: Tensor  # (n, 2), in the unit disk or, where the space is flat, in its own lengths
    degree: Tensor  # (n,), links of each in the graph
    classes: tuple[str, ...] | None  # of each node drawn; None: the graph has none
    links: Tensor  # (L, S, 2), curves; none of a large graph
    named: tuple[tuple[int, str], ...]  # places and names of those that may get one, the most important first
    most_named: int  # how many of them do
    total: int  # how many nodes there are
    share: float  # see charts.Basis
    manifold: Manifold


def draw(runs: Sequence[Run], load: Loader, options: FigureOptions) -> list[Path]:
    """Nodes of a graph in the disk, about their centroid, by class or by degree, a panel for each run."""
    panels = []
    for run in runs:
        trained = load(run)
        if not isinstance(getattr(trained.data, "graph", None), Graph):  # knowledge graphs have another one
            raise unfit(run, "has no nodes; this figure shows graphs (task=airport_nc, cora_lp, graph, ...).")
        names = trained.data.node_names.names
        labels = [number_of(label, names, trained, "nodes") for label in options.labels or ()]
        titles = options.titled(names, run, "nodes")
        panels.append((caption(trained, trained.model.manifold), cloud(trained, titles, labels)))
    return [options.save(plot(panels), "nodes", runs)]


@torch.no_grad()
def cloud(trained: Trained, names: Sequence[str], labels: Sequence[int] = (), most: int = MOST) -> Cloud:
    """The nodes of a graph run, at most `most` of them, evenly spaced by number, on paper.

    names: what nodes are called, by number. labels: numbers of those that get a name; else, where there are names that
    are not numbers, those of the highest degree.
    """
    graph = trained.data.graph
    degree = torch.from_numpy(np.bincount(graph.edges.reshape(-1), minlength=graph.n))
    candidates = list(labels)
    if not candidates:
        order = degree.argsort(descending=True, stable=True).tolist()
        candidates = [k for k in order if not names[k].isdecimal()][: 4 * NAMED]
    even = torch.linspace(0, graph.n - 1, min(graph.n, max(1, most - len(candidates))), dtype=torch.float64)
    sample = torch.cat([even.round().long(), torch.tensor(candidates, dtype=torch.long)]).unique()
    if graph.n <= most:
        sample = torch.arange(graph.n)
    manifold, x = charts.centred(trained.model.manifold, trained.model.encode()[0].detach().double())
    x = x[sample]
    basis = charts.principal(manifold.logmap0(x), centred=False)
    xy = charts.flatten(manifold, x, basis, true_distance=True)
    places = torch.searchsorted(sample, torch.tensor(candidates, dtype=torch.long)).tolist()
    named = tuple((place, lettering.shortened(names[k])) for place, k in zip(places, candidates, strict=True))
    few = len(graph.edges) <= MOST_LINKS and graph.n <= most
    ends = torch.from_numpy(graph.edges) if few else torch.empty(0, 2, dtype=torch.long)
    links = geodesics(xy[ends[:, 0]], xy[ends[:, 1]], manifold.is_curved)
    return Cloud(
        xy, degree[sample], _classes(graph, sample), links, named, len(labels) or NAMED, graph.n, basis.share, manifold
    )


def _classes(graph: Graph, sample: Tensor) -> tuple[str, ...] | None:
    if graph.labels is None:
        return None
    classes = graph.classes or tuple(str(k) for k in range(graph.n_classes))
    return tuple(WITHOUT if k < 0 else classes[k] for k in graph.labels[sample.numpy()])


def styles(clouds: Sequence[Cloud]) -> dict[str, dict[str, object]]:
    """Colour and mark of each class of all panels, in the order of their names, numbers by size; of many, those of the
    fewest nodes share one."""
    each = [name for one in clouds for name in one.classes or () if name != WITHOUT]
    names = sorted(set(each), key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name))
    if len(names) > MOST_CLASSES:
        frequent = set(sorted(names, key=each.count, reverse=True)[:MOST_CLASSES])
        names = [name for name in names if name in frequent]
    n = len(canvas.COLOURS)
    return {name: {"color": canvas.COLOURS[k % n], "marker": canvas.MARKERS[k // n]} for k, name in enumerate(names)}


def plot_panel(axis: Axes, title: str, cloud: Cloud, marks: dict[str, dict[str, object]], colours: LogNorm) -> None:
    """Links, nodes, rings of equal distance, and the names that fit."""
    surround(axis, cloud, title, "nodes")
    axis.add_collection(LineCollection(cloud.links.numpy(), colors="#999999", linewidths=0.4, alpha=0.6, zorder=1))
    size = min(14.0, max(3.0, 9000 / len(cloud.xy)))
    if cloud.classes is None:
        order = cloud.degree.argsort(stable=True)
        alone, order = order[cloud.degree[order] == 0], order[cloud.degree[order] > 0]
        colour = COLOURS(colours(cloud.degree[order].double().numpy()))
        dots: dict[str, Any] = {"s": size, "linewidths": 0, "alpha": 0.85, "zorder": 2, "rasterized": True}
        if len(alone):
            axis.scatter(*cloud.xy[alone].T, color=PLAIN, **dots)
            axis.scatter([], [], s=18, linewidths=0, label=ALONE, color=PLAIN)
        axis.scatter(*cloud.xy[order].T, c=colour, **dots)
    else:
        _scatter_classes(axis, cloud, marks, size)


def _scatter_classes(axis: Axes, cloud: Cloud, marks: dict[str, dict[str, object]], size: float) -> None:
    """All nodes in an order that favours no class, as a class that is drawn last would hide the others."""
    assert cloud.classes is not None
    names = np.array(cloud.classes)
    plain = {"color": PLAIN, "marker": "o"}
    groups: list[tuple[str, np.ndarray]] = [(name, np.flatnonzero(names == name)) for name in (*marks, WITHOUT)]
    groups.append((OTHERS, np.flatnonzero(~np.isin(names, (*marks, WITHOUT)))))
    order = np.random.default_rng(0).permutation(len(names))
    layers = np.array_split(order, max(1, min(20, len(order) // 50)))
    for name, members in groups:
        style = marks.get(name, plain)
        for k, layer in enumerate(layers):
            xy = cloud.xy[np.intersect1d(members, layer)].numpy()
            axis.scatter(*xy.T, s=size, linewidths=0, alpha=0.85, zorder=2 + k / 100, rasterized=True, **style)
        if len(members):
            axis.scatter([], [], s=18, linewidths=0, label=name, **style)


def plot(panels: Sequence[tuple[str, Cloud]]) -> Figure:
    """One panel for each run: (title, cloud)."""
    clouds = [each for _, each in panels]
    foot = charts.notes([(each.manifold, each.share) for each in clouds], CURVED, FLAT) + FOOT
    foot += LINKS * any(len(each.links) for each in clouds) + NAMES * any(each.named for each in clouds)
    foot += SAMPLE * any(len(each.xy) < each.total for each in clouds)
    marks, by_degree = styles(clouds), any(each.classes is None for each in clouds)
    colours = LogNorm(1, max([2, *(int(each.degree.max()) for each in clouds if each.classes is None)]))
    contents = [(*panel, marks, colours) for panel in panels]
    alone = any(each.classes is None and (each.degree == 0).any() for each in clouds)
    lines = -(-(len(marks) + alone) // 8)
    extra = 0.5 + 0.2 * lines + 0.7 * by_degree
    with canvas.panels(plot_panel, contents, (4.5, 5.0), extra, "Nodes about their centroid", foot, least=5.4) as (
        body,
        axes,
    ):
        if marks or alone:
            canvas.legend(body, axes, loc="outside lower center", ncols=min(8, 1 + len(marks)))
        if by_degree:
            bar = body.colorbar(
                ScalarMappable(colours, COLOURS), ax=axes, location="bottom", shrink=0.6 / min(3, len(panels)),
                aspect=30, pad=0.03, format=StrMethodFormatter("{x:,.0f}"), label="degree: links of the node",
            )  # fmt: skip
            top = int(colours.vmax)
            bar.set_ticks(sorted({1, top, *(10**k for k in range(1, len(str(top))) if 2 * 10**k < top)}))
            bar.minorticks_off()
    return body.figure
