"""Points of a hierarchy in two dimensions: the curve between a subtree and the rest, and the tree, at their true places."""

import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.text import Annotation
from torch import nn

from hyperbolic.geometry import make_geometry
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.manifolds.charts import convert
from scripts.drawing import separation, tree
from scripts.trained import Run, Trained
from tasks.batches import TensorSplit
from tasks.errors import UserError
from tasks.points_files import PointsFile
from tasks.wordnet_subtree.model import SubtreeClassifier

HYPERBOLIC = [PoincareBall, Lorentz, Klein]
MODELS = [("poincare", {}), ("euclidean", {}), ("poincare", {"classifier": "euclidean"}), ("lorentz", {}), ("klein", {})]
N = 40


def disk_points(c=1.0):
    angle = torch.linspace(0, 6, N, dtype=torch.float64)
    radius = torch.linspace(0, 0.97, N, dtype=torch.float64)
    return radius.unsqueeze(-1) * torch.stack([angle.cos(), angle.sin()], -1) / c**0.5


def run(name: str = "hnn_subtree", task: str = "wordnet_subtree") -> Run:
    settings = {"seed": 0, "task.name": task, "geometry.name": "poincare", "geometry.c": 1.0}
    return Run(Path("outputs") / name, name, settings, None, [])


def trained(geometry="poincare", parts=None, c=0.5, name="hnn_subtree", d=2) -> Trained:
    """A subtree run on a spiral of points, of which the last third is the subtree, and every fifth a test node."""
    torch.manual_seed(0)
    points = torch.nn.functional.pad(disk_points(c), (0, d - 2)).float().numpy()
    file = PointsFile(tuple(map(str, range(N))), points, "PoincareBall", c, "")
    model = SubtreeClassifier(make_geometry(**FAMILIES[geometry], c=c, learn_c=False, parts=parts or {}, options={}), file, 1, 1.0)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    rows = torch.arange(N)
    labels = (rows > 2 * N // 3).long()
    parted = {"train": rows % 5 > 0, "test": rows % 5 == 0}
    splits = {split: TensorSplit({"rows": rows[part], "labels": labels[part]}) for split, part in parted.items()}
    data = SimpleNamespace(subtree="animal.n.01", splits=lambda: splits)
    return Trained(run(name), None, model.eval(), data, 7)


FAMILIES = {
    "poincare": {"name": "poincare", "manifold": "PoincareBall", "layers": "mobius"},
    "euclidean": {"name": "euclidean", "manifold": "Euclidean", "layers": "euclidean"},
    "lorentz": {"name": "lorentz", "manifold": "Lorentz", "layers": "lorentz"},
    "klein": {"name": "klein", "manifold": "Klein", "layers": "klein"},
}


def hierarchy(manifold, x, names=None, name="poincare_embeddings") -> Trained:
    """A binary tree with points."""
    n = len(x)
    child = np.arange(1, n, dtype=np.int32)
    edges = SimpleNamespace(names=tuple(names or map(str, range(n))), child=child, parent=(child - 1) // 2, source="words")
    model = SimpleNamespace(points=x, manifold=manifold)
    return Trained(run(name, "poincare_embeddings"), None, model, SimpleNamespace(edges=edges), 3)


@pytest.mark.parametrize("c", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("model", HYPERBOLIC)
def test_points_stand_where_they_are_in_the_disk(model, c):
    ball, manifold = PoincareBall(c), model(c)
    x = disk_points(c)
    field = separation.field(manifold, convert(x, ball, manifold), torch.ones(N, dtype=torch.bool), lambda x: x[:, 0])
    assert torch.allclose(field.xy, x * c**0.5, atol=1e-7)
    same = tree.picture(manifold, convert(x, ball, manifold), list(map(str, range(N))), np.arange(1, N), np.arange(N - 1))
    assert torch.allclose(same.xy, field.xy)


@pytest.mark.parametrize(("geometry", "parts"), MODELS)
def test_the_margin_on_the_grid_is_the_models(geometry, parts):
    """At every place of the disk the field has the margin of the point that is drawn there."""
    subtree = trained(geometry, parts)
    field, _ = separation.separate(subtree)
    places = torch.tensor([[3, 5], [40, 700], [100, 0], [150, 300]])
    x, y, margin = (grid[places[:, 0], places[:, 1]] for grid in (field.x, field.y, field.margin))
    ball = PoincareBall(0.5)
    points = torch.stack([x, y], -1) / 0.5**0.5
    model = subtree.model.double()
    if geometry != "euclidean":
        points = convert(points, ball, model.manifold)
    logits = model.logits(points)
    assert torch.allclose(margin, logits[:, 1] - logits[:, 0], atol=1e-6)
    assert field.extent == 0
    order = torch.cat([split.columns["rows"] for split in subtree.data.splits().values()])
    assert torch.allclose(field.xy, (disk_points(0.5) * 0.5**0.5)[order], atol=1e-6)
    assert field.inside.sum() == N - 2 * N // 3 - 1


def test_the_curve_of_one_hyperplane_is_a_geodesic():
    ball = PoincareBall(0.5)
    away = ball.expmap0(torch.tensor([[0.4, 0.3]], dtype=torch.float64))

    def margin(x):
        """Nearer to `away` than to the origin."""
        return ball.dist0(x) - ball.dist(x, away)

    field = separation.field(ball, disk_points(0.5), torch.arange(N) > 9, margin)
    axis = separation.plot([("run", field)], "Title").subfigs[0].axes[0]
    (curve,) = [each for each in axis.collections if hasattr(each, "filled") and not each.filled]
    x = torch.from_numpy(curve.get_paths()[0].vertices)
    a = away * 0.5**0.5  # the disk's: |x - m|^2 = |m|^2 - 1 with m = a / |a|^2
    m = a / a.square().sum()
    assert ((x - m).norm(dim=-1) - (m.square().sum() - 1).sqrt()).abs().max() < 5e-3


@pytest.mark.parametrize(("offset", "note"), [(9.0, "predicted nowhere"), (-9.0, "predicted everywhere")])
def test_a_class_that_is_predicted_nowhere_is_named_in_the_title(offset, note):
    field = separation.field(Euclidean(), torch.randn(9, 2), torch.arange(9) > 4, lambda x: x[:, 0] * 0.1 - offset)
    assert field.extent > 0
    assert separation.plot([("run", field)], "Title").subfigs[0].axes[0].get_title().endswith(note)


def test_f1_is_that_of_the_test_nodes(figures, options):
    subtree = trained()
    test = subtree.data.splits()["test"]
    predictions = subtree.model(test.columns["rows"]).argmax(-1)
    right = int((predictions & test.columns["labels"]).sum())
    expected = 2 * right / int(predictions.sum() + test.columns["labels"].sum())
    assert separation.separate(subtree)[1] == pytest.approx(expected)
    (path,) = separation.draw([run("a"), run("b")], lambda one: trained(name=one.name), options())
    assert path.name == "separation-a-seed0-vs-b-seed0.png"
    axes = figures[0].subfigs[0].axes
    assert [axis.get_title().splitlines()[0] for axis in axes] == ["a, seed 0", "b, seed 0"]
    assert axes[0].get_title().splitlines()[1:] == ["poincare, c = 0.5, epoch 7", f"test F1 {100 * expected:.1f} %"]
    assert figures[0].subfigs[0].get_suptitle() == "Nodes below animal.n.01, and all others"


def test_what_has_no_plane_is_refused(options):
    with pytest.raises(UserError, match=r"its points have 3 dimensions; name runs with task.dim=2"):
        separation.separate(trained(d=3))
    other = trained()._replace(data=SimpleNamespace())
    with pytest.raises(UserError, match=r"the task wordnet_subtree has no subtree; name runs of task=wordnet_subtree"):
        separation.separate(other)
    with pytest.raises(UserError, match=r"embeds no hierarchy; name runs of task=poincare_embeddings"):
        tree.draw([run()], lambda _: trained(), options())
    deep = hierarchy(Lorentz(1.0), Lorentz(1.0).expmap0(torch.zeros(5, 5)))
    with pytest.raises(UserError, match=r"5 dimensions"):
        tree.draw([deep.run], lambda _: deep, options())


@pytest.mark.parametrize("manifold", [PoincareBall(0.6), Lorentz(2.0), Euclidean()])
def test_edges_are_geodesics_of_the_disk_from_parent_to_child(manifold):
    tangent = torch.randn(31, 2, dtype=torch.float64)
    tangent[1] = 0  # an edge through the origin
    x = manifold.expmap0(tangent)
    child = np.arange(1, 31)
    picture = tree.picture(manifold, x, list(map(str, range(31))), child, (child - 1) // 2)
    ends = torch.from_numpy(picture.edges)
    parent = torch.from_numpy((child - 1) // 2)
    assert torch.allclose(ends[:, 0], picture.xy[parent], atol=1e-9)
    assert torch.allclose(ends[:, -1], picture.xy[1:], atol=1e-9)
    if manifold.is_curved:
        disk = PoincareBall(1.0)
        first, last = (disk.dist(ends, ends[:, [k]].expand_as(ends)) for k in (0, -1))
        assert torch.allclose(first + last, last[:, :1].expand_as(last), atol=1e-6)
    else:
        assert torch.allclose(ends[:, 12], (ends[:, 0] + ends[:, -1]) / 2)


@pytest.mark.parametrize(("most", "levels", "edges"), [(1, 1, 2), (6, 2, 6), (13, 2, 6), (14, 3, 14), (600, 4, 30)])
def test_whole_levels_are_drawn_up_to_so_many_edges(most, levels, edges):
    child = np.arange(1, 31)
    picture = tree.picture(Euclidean(), torch.randn(31, 2), ["x"] * 31, child, (child - 1) // 2, most=most)
    assert (picture.levels, len(picture.edges)) == (levels, edges)


def test_names_of_the_top_or_the_labels(figures, options):
    ball = PoincareBall(1.0)
    names = ["entity", "cat", "dog", *(f"name {k}" for k in range(N - 3))]
    words = hierarchy(ball, disk_points(), names)
    (path,) = tree.draw([words.run], lambda _: words, options())
    assert path.name == "tree-poincare_embeddings-seed0.png"
    axis = figures[0].subfigs[0].axes[0]
    texts = [text.get_text() for text in axis.texts if isinstance(text, Annotation)]
    assert texts[0] == "entity"
    assert 3 < len(texts) <= tree.NAMED
    assert f"{N} nodes, {N - 1} edges of levels 1 to 5" in axis.get_title()
    figures[0].draw_without_rendering()
    boxes = [text.get_window_extent() for text in axis.texts]
    assert not any(a.padded(-1).overlaps(b.padded(-1)) for a, b in itertools.combinations(boxes, 2))
    tree.draw([words.run], lambda _: words, options(("name 30", "dog")))
    assert [text.get_text() for text in figures[1].subfigs[0].axes[0].texts] == ["name 30", "dog"]
    with pytest.raises(UserError, match=r"'dgo' is none of the 40 nodes of .* Did you mean 'dog'"):
        tree.draw([words.run], lambda _: words, options(("dgo",)))


def test_a_point_alone_is_a_tree():
    picture = tree.picture(PoincareBall(1.0), torch.zeros(1, 2), ["root"], np.array([], int), np.array([], int))
    assert picture.edges.shape == (0, tree.STEPS, 2)
    assert math.isclose(float(picture.xy.norm()), 0)
    tree.plot([("run", picture)], "Title").draw_without_rendering()


def test_of_a_cycle_with_nothing_above_the_node_of_the_most_children_is_the_root():
    """0 -> 1 -> 2 -> 0, 2 has the children 3 and 4; 5 is above 6."""
    child, parent = np.array([0, 1, 2, 3, 4, 6]), np.array([1, 2, 0, 2, 2, 5])
    assert tree._levels(child, parent, 7).tolist() == [2, 1, 0, 1, 1, 0, 1]
    assert tree._levels(child[:0], parent[:0], 2).tolist() == [0, 0]
