"""Nodes of a graph about their centroid: true distances, colours of classes and degrees, links and names."""

import dataclasses
import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.text import Annotation

from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.manifolds.charts import convert
from scripts.drawing import canvas, charts, nodes
from scripts.figures import main
from scripts.trained import Run, Trained
from tasks.errors import UserError
from tasks.graph.graph import Graph
from tasks.names import Names
from tests import cli

N, D = 60, 5
EDGES = np.array([(min(k, (k - 1) // 3), max(k, (k - 1) // 3)) for k in range(1, N)])  # a tree of three children each
LABELS = np.arange(N) % 3
HYPERBOLIC = [PoincareBall, Lorentz, Klein]


def points(manifold, n=N):
    away = torch.tensor([1.0] + [0.0] * (D - 1))
    return manifold.expmap0(0.5 * torch.randn(n, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + away)


def trained(manifold, x, name="airport_nc", **graph) -> Trained:
    """What scripts.trained.load gives of a run of a graph, as far as the figure looks at it."""
    settings = {"seed": 0, "task.name": name, "geometry.name": "lorentz", "geometry.c": 1.0}
    each = Graph("airport", len(x), graph.pop("edges", EDGES), **graph)
    names = Names(each.names or [str(k) for k in range(each.n)], "node", each.name)
    model = SimpleNamespace(manifold=manifold, encode=lambda: (x, None))
    data = SimpleNamespace(graph=each, node_names=names)
    return Trained(Run(Path("outputs") / name, name, settings, None, []), None, model, data, 4)


def cloud_of(graph: Trained, *options, **named) -> nodes.Cloud:
    return nodes.cloud(graph, graph.data.node_names.names, *options, **named)


@pytest.mark.parametrize("c", [0.4, 2.5])
@pytest.mark.parametrize("model", HYPERBOLIC)
def test_every_node_is_at_its_true_distance_from_the_centroid(model, c):
    manifold = model(c)
    x = points(manifold)
    cloud = cloud_of(trained(manifold, x))
    distance = manifold.dist(x, manifold.centroid(x).expand_as(x))
    assert torch.allclose(2 * torch.atanh(cloud.xy.norm(dim=-1)) / c**0.5, distance, rtol=1e-7)


@pytest.mark.parametrize("model", [Lorentz, Klein])
def test_the_models_of_one_space_give_one_picture(model):
    ball, other = PoincareBall(0.7), model(0.7)
    x = points(ball)
    first, second = (cloud_of(trained(m, y)) for m, y in ((ball, x), (other, convert(x, ball, other))))
    assert torch.allclose(first.xy, second.xy, atol=1e-7)


@pytest.mark.parametrize("manifold", [PoincareBall(0.7), Euclidean()])
def test_the_centroid_is_moved_without_a_change_of_distances(manifold):
    x = points(manifold)
    space, y = charts.centred(manifold, x)
    centre = space.centroid(y) if manifold.is_curved else y.mean(0)
    assert centre.norm() < 1e-12
    assert torch.allclose(space.dist(y[1:], y[:-1]), manifold.dist(x[1:], x[:-1]))


def test_classes_have_colours_and_a_legend(figures, options):
    labels = np.where(np.arange(N) == 3, -1, LABELS)
    graph = trained(Lorentz(1.0), points(Lorentz(1.0)), labels=labels, classes=("b", "a", "c"))
    nodes.draw([graph.run], lambda _: graph, options())
    cloud = cloud_of(graph)
    assert cloud.classes[:4] == ("b", "a", "c", "no class")
    assert nodes.styles([cloud])["a"] == {"color": canvas.COLOURS[0], "marker": "o"}, "by name"
    body = figures[0].subfigs[0]
    assert [text.get_text() for text in body.legends[0].get_texts()] == ["a", "b", "c", "no class"]
    assert len(body.axes) == 1, "no bar of degrees"
    drawn = Counter()
    for dots in body.axes[0].collections:
        if isinstance(dots, PathCollection):
            drawn[to_hex(dots.get_facecolor()[0]).upper()] += len(dots.get_offsets())
    assert drawn == {canvas.COLOURS[1]: 19, canvas.COLOURS[0]: 20, canvas.COLOURS[2]: 20, "#BBBBBB": 1}


def test_of_many_classes_the_rarest_share_a_colour(figures, options):
    labels = np.arange(N) % 20
    labels[labels >= 16] = 16 + np.arange((labels >= 16).sum()) % 4
    labels[:40] = labels[:40] % 16
    graph = trained(Lorentz(1.0), points(Lorentz(1.0)), labels=labels)
    marks = nodes.styles([cloud_of(graph)])
    assert list(marks) == [str(k) for k in range(16)], "numbers by size"
    assert len({tuple(style.values()) for style in marks.values()}) == 16
    nodes.draw([graph.run], lambda _: graph, options())
    assert [text.get_text() for text in figures[0].subfigs[0].legends[0].get_texts()][-1] == "other classes"


def test_links_without_classes_are_coloured_by_degree(figures, options):
    graph = trained(Lorentz(1.0), points(Lorentz(1.0)), "airport_lp")
    nodes.draw([graph.run], lambda _: graph, options())
    cloud = cloud_of(graph)
    assert (cloud.degree.tolist(), cloud.classes) == (np.bincount(EDGES.reshape(-1)).tolist(), None)
    assert cloud.links.shape[0] == len(EDGES)
    assert torch.allclose(cloud.links[:, 0], cloud.xy[EDGES[:, 0]])
    assert torch.allclose(cloud.links[:, -1], cloud.xy[EDGES[:, 1]])
    panel, bar = figures[0].subfigs[0].axes
    assert bar.get_xlim() == pytest.approx((1, int(cloud.degree.max())))
    assert not figures[0].subfigs[0].legends
    assert not [text for text in panel.texts if isinstance(text, Annotation)], "numbers are no names"


def test_nodes_without_a_link_are_grey_and_in_the_legend(figures, options):
    """The last two, and not as nodes of degree 1."""
    graph = trained(Lorentz(1.0), points(Lorentz(1.0)), "airport_lp", edges=EDGES[:-2])
    nodes.draw([graph.run], lambda _: graph, options())
    body = figures[0].subfigs[0]
    assert [text.get_text() for text in body.legends[0].get_texts()] == ["no link"]
    grey, others = [dots for dots in body.axes[0].collections if isinstance(dots, PathCollection) and len(dots.get_offsets())]
    assert {to_hex(colour).upper() for colour in grey.get_facecolor()} == {"#BBBBBB"}
    assert np.allclose(np.sort(grey.get_offsets(), 0), np.sort(cloud_of(graph).xy[-2:].numpy(), 0))
    assert len(others.get_offsets()) == N - 2


def test_a_large_graph_is_sampled_and_has_no_links():
    manifold = PoincareBall(1.0)
    names = [f"n{k}" for k in range(5000)]
    edges = np.stack([np.zeros(4999, dtype=np.int64), np.arange(1, 5000)], 1)
    cloud = cloud_of(trained(manifold, points(manifold, 5000), edges=edges, names=tuple(names)), [4321], most=300)
    assert 290 < len(cloud.xy) <= 300
    assert cloud.total == 5000
    assert not len(cloud.links)
    assert [name for _, name in cloud.named] == ["n4321"]
    axis = nodes.plot([("run", cloud)]).subfigs[0].axes[0]
    assert f"{len(cloud.xy)} of 5,000 nodes" in axis.get_title()
    assert [text.get_text() for text in axis.texts if isinstance(text, Annotation)] == ["n4321"]


def test_names_stand_apart_and_labels_choose_them(figures, options):
    names = tuple(f"node {k}" for k in range(N))
    graph = trained(Lorentz(1.0), points(Lorentz(1.0)), labels=LABELS, names=names)
    nodes.draw([graph.run], lambda _: graph, options())
    figures[0].draw_without_rendering()
    boxes = [text.get_window_extent() for text in figures[0].subfigs[0].axes[0].texts]
    assert len(boxes) > 5
    assert not any(a.padded(-1).overlaps(b.padded(-1)) for a, b in itertools.combinations(boxes, 2))
    nodes.draw([graph.run], lambda _: graph, options(("node 7",)))
    shown = [text.get_text() for text in figures[1].subfigs[0].axes[0].texts if isinstance(text, Annotation)]
    assert shown == ["node 7"]
    with pytest.raises(UserError, match=r"'nod 7' is none of the 60 nodes of .* Did you mean 'node 7'"):
        nodes.draw([graph.run], lambda _: graph, options(("nod 7",)))


def test_a_run_without_a_graph_is_told(options):
    other = trained(Lorentz(1.0), points(Lorentz(1.0)), "wn18rr")._replace(data=SimpleNamespace(graph="of triples"))
    with pytest.raises(UserError, match="the task wn18rr has no nodes; this figure shows graphs"):
        nodes.draw([other.run], lambda _: other, options())


def test_titles_stand_in_the_place_of_names(figures, options):
    graph = trained(Lorentz(1.0), points(Lorentz(1.0)))
    titled = dataclasses.replace(options(("3",)), titles={"3": "Tromsø", "99": "not there"})
    nodes.draw([graph.run], lambda _: graph, titled)
    panel = figures[0].subfigs[0].axes[0]
    assert [text.get_text() for text in panel.texts if isinstance(text, Annotation)] == ["Tromsø"]


@pytest.mark.long
def test_data_that_have_moved_are_named(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "edges.tsv").write_text("".join(f"{k}\t{(k - 1) // 3}\n" for k in range(1, N)))
    run = cli.call("task=graph", f"data.dir={tmp_path}/mine", "trainer.max_epochs=1", *cli.QUIET, *cli.places(tmp_path))
    assert run.code == 0, run.err
    (tmp_path / "mine").rename(tmp_path / "moved")
    folder = str(run.record_path.parent)
    assert main(["nodes", folder]) == 1
    assert "Say where it is with data.dir=... (--data FOLDER of a script)" in capsys.readouterr().err
    assert main(["nodes", folder, "--data", str(tmp_path / "moved")]) == 0
    assert "figure: " in capsys.readouterr().out
