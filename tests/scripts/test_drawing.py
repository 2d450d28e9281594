"""The pictures' geometry against closed formulas, and that nothing is cut off or written in part."""

import math

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.contour import QuadContourSet
from matplotlib.text import Text

from hyperbolic.layers import euclidean, lorentz, mobius
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.manifolds.charts import convert
from scripts.drawing import (
    attention,
    boundaries,
    canvas,
    charts,
    classes,
    curves,
    entities,
    granularity,
    histograms,
    nearest,
    separation,
    tree,
    weights,
)

MODELS = [PoincareBall, Lorentz, Klein]
D = 6


def points(manifold, n=50, std=0.4, d=D):
    return manifold.random(n, d, std=std, dtype=torch.float64)


@pytest.mark.parametrize("c", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("model", MODELS)
def test_flattening_keeps_the_distance_from_the_origin(model, c):
    manifold = model(c)
    x = points(manifold)
    flat = charts.flatten(manifold, x, charts.plane_of(manifold, x))
    assert flat.shape == (50, 2)
    assert torch.allclose(2 * torch.atanh(flat.norm(dim=-1)) / math.sqrt(c), manifold.dist0(x), rtol=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_points_of_the_plane_itself_keep_all_distances(model):
    manifold, disk = model(0.7), PoincareBall(1.0)
    tangent = torch.zeros(20, D, dtype=torch.float64)
    tangent[:, 1:3] = 0.5 * torch.randn(20, 2, dtype=torch.float64)
    x = manifold.expmap0(tangent)
    basis = charts.plane_of(manifold, x)
    flat = charts.flatten(manifold, x, basis)
    assert basis.share == pytest.approx(1)
    assert torch.allclose(disk.dist(flat[:10], flat[10:]) / math.sqrt(0.7), manifold.dist(x[:10], x[10:]), rtol=1e-8)


def test_isometric_models_give_the_same_picture():
    ball, sheet = PoincareBall(0.5), Lorentz(0.5)
    x = points(ball)
    y = convert(x, ball, sheet)
    first, second = (charts.flatten(m, z, charts.plane_of(m, z)) for m, z in ((ball, x), (sheet, y)))
    assert torch.allclose(first, second, atol=1e-9)


def test_flat_points_are_drawn_in_principal_coordinates():
    x = torch.randn(40, D, dtype=torch.float64) * torch.tensor([3, 2, 0.1, 0.1, 0.1, 0.1]) + 5
    basis = charts.plane_of(Euclidean(), x)
    flat = charts.flatten(Euclidean(), x, basis)
    assert torch.allclose(flat.mean(0), torch.zeros(2, dtype=torch.float64), atol=1e-9)
    share = flat.square().sum() / (x - x.mean(0)).square().sum()
    assert basis.share == pytest.approx(float(share))
    assert basis.share > 0.95


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_basis_is_orthonormal_also_of_few_vectors(n):
    axes = charts.principal(torch.randn(n, D), centred=False).axes
    assert torch.allclose(axes @ axes.mT, torch.eye(2, dtype=torch.float64), atol=1e-9)


def test_a_plane_for_no_vector_is_refused():
    with pytest.raises(ValueError, match="no vector"):
        charts.principal(torch.zeros(0, D), centred=False)


def plane_classifier(layer, manifold, angles, offsets):
    """Hyperplanes with normals in one plane, at a given distance from the origin (negative: behind it)."""
    classifier = layer.Logits(manifold, D, len(angles)).double()
    normal = torch.zeros(len(angles), D, dtype=torch.float64)
    normal[:, 2], normal[:, 4] = torch.tensor(angles).cos(), torch.tensor(angles).sin()
    with torch.no_grad():
        classifier.a.copy_(3 * normal)
        length = torch.tensor(offsets).unsqueeze(-1) / manifold.origin_scale
        classifier.p.copy_(manifold.expmap0(normal * length))
    return classifier


ANGLES, OFFSETS = [0.3, 1.9, -2.0], [0.5, 1.2, -0.8]


@pytest.mark.parametrize("c", [0.6, 1.0])
def test_boundaries_of_the_ball_are_geodesics_at_their_true_distance(c):
    classifier = plane_classifier(mobius, PoincareBall(c), ANGLES, OFFSETS)
    field = boundaries.field(classifier, ["a", "b", "c"], [0, 1, 2])
    assert torch.allclose(field.shares, torch.ones(3, dtype=torch.float64))
    assert torch.allclose(field.nearest, torch.tensor(OFFSETS, dtype=torch.float64).abs(), rtol=2e-3)
    axis = boundaries.plot([("run", field)]).subfigs[0].axes[0]
    contours = [each for each in axis.collections if isinstance(each, QuadContourSet) and not each.filled]
    assert len(contours) == 3
    for each, offset in zip(contours, OFFSETS, strict=True):
        x = torch.from_numpy(each.get_paths()[0].vertices)
        right = 1 + x.square().sum(-1)  # of |x|^2 - 2<x, m> + 1 = 0, the circle about m that is orthogonal to the rim
        m = torch.linalg.lstsq(2 * x, right.unsqueeze(-1)).solution.squeeze(-1)
        off = (2 * x @ m - right).abs() / (2 * m.norm())  # about the distance from the circle
        assert off.max() < 5e-3
        assert off[x.norm(dim=-1) < 0.9].max() < 1e-3
        r = math.tanh(math.sqrt(c) * abs(offset) / 2)
        assert float(m.norm()) == pytest.approx((1 + r * r) / (2 * r), rel=2e-3)


def test_boundaries_of_flat_space_are_lines_and_all_are_in_view():
    classifier = plane_classifier(euclidean, Euclidean(), ANGLES, OFFSETS)
    field = boundaries.field(classifier, ["a", "b", "c"], [0, 1, 2])
    assert torch.allclose(field.nearest, torch.tensor(OFFSETS, dtype=torch.float64).abs(), rtol=1e-3)
    assert field.extent == pytest.approx(2 * max(map(abs, OFFSETS)))


def test_a_boundary_by_distance_from_a_point_is_a_circle():
    classifier = lorentz.Logits(Lorentz(1.0), D, 2).double()
    with torch.no_grad():
        classifier.points.copy_(Lorentz(1.0).expmap0(torch.eye(D, dtype=torch.float64)[:2]))
        radius = 0.4
        classifier.bias.copy_(torch.tensor([2 * math.cosh(radius) - 2, -1.0]))
    field = boundaries.field(classifier, ["near", "never"], [0, 1])
    assert float(field.nearest[0]) == pytest.approx(1 - radius, rel=2e-3)
    assert field.nearest[1] == math.inf
    texts = [t.get_text() for t in boundaries.plot([("run", field)]).subfigs[0].axes[0].get_legend().get_texts()]
    assert "never (does not meet this plane; 100 %)" in texts


def test_logits_of_some_classes_are_those_of_all():
    classifier = lorentz.Logits(Lorentz(0.8), D, 7).double()
    x = points(Lorentz(0.8), 5)
    assert torch.allclose(boundaries.logits_for(classifier, x, torch.tensor([5, 2])), classifier(x)[:, [5, 2]])


NAMES = [f"type{k}" for k in range(8)]
KINDS = ["coarse", "fine", *["ultrafine"] * 6]


@pytest.mark.parametrize("model", MODELS)
def test_nearest_classes_by_brute_force(model):
    manifold = model(0.9)
    x = points(manifold, 8)
    column = nearest.column(manifold, x.float(), NAMES, KINDS, 3)
    distances = sorted((float(manifold.dist(x[3], x[k])), NAMES[k]) for k in range(8) if k != 3)[:5]
    assert [name for name, *_ in column.nearest] == [name for _, name in distances]
    assert [d for _, d, _ in column.nearest] == pytest.approx([d for d, _ in distances], rel=1e-4)


def test_a_chain_follows_the_nearest_that_does_not_stand_there_yet():
    x = torch.tensor([0, 1.0, 1.5, 1.7, 9, 20, 30, 40], dtype=torch.float64).unsqueeze(-1)
    heads = [c.label for c in nearest.chain(Euclidean(), x, NAMES, KINDS, 0, length=3, n=2)]
    assert heads == ["type0", "type1", "type2"]


def test_fewer_classes_than_columns_give_a_shorter_table():
    x = points(Euclidean(), 3)
    columns = nearest.chain(Euclidean(), x, NAMES[:3], KINDS[:3], 0, length=9)
    assert {c.label for c in columns} == set(NAMES[:3])
    text = nearest.markdown([columns], "Title", "Foot.")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 2
    assert len({line.count("|") for line in rows}) == 1


def test_distances_by_granularity():
    manifold = PoincareBall(2.0)
    x = manifold.expmap0(torch.eye(3, dtype=torch.float64) * torch.tensor([0.1, 0.2, 0.4]).double())
    groups = granularity.groups(manifold, x, torch.tensor([0, 2, 2]), ("coarse", "fine", "ultrafine"))
    assert {k: v.tolist() for k, v in groups.items()} == {
        "coarse": pytest.approx([0.2]), "ultrafine": pytest.approx([0.4, 0.8])
    }  # fmt: skip
    assert "| run | ultrafine | 2 | 0.600 | 0.283 | 0.400 |" in granularity.markdown([("run", groups)], "T", "F")


def test_the_chosen_words_are_the_same_for_queries_and_keys():
    manifold = PoincareBall(1.0)
    q, inside = points(manifold, 30), torch.arange(30) % 3 == 0
    cloud = attention.cloud(manifold, q, q, inside, 10)
    assert torch.equal(cloud.queries, cloud.keys)
    assert (len(cloud.queries), cloud.total, cloud.distance) == (10, 30, 0)
    assert len(cloud.in_mention) == 10


def every_figure():
    """One of each, with long names and many panels."""
    ball, flat = PoincareBall(1.0), Euclidean()
    name = "hyfi_ultrafine_a_rather_long_name_of_an_experiment, seed 0\npoincare (classifier: euclidean), c = 1, epoch 12"
    fields = [
        boundaries.field(plane_classifier(layer, m, ANGLES, OFFSETS), ["a", "b", "c"], [0, 1, 2])
        for layer, m in ((mobius, ball), (euclidean, flat))
    ]
    clouds = [attention.cloud(m, points(m), points(m), torch.arange(50) < 9, 40) for m in (ball, flat)]
    rows = [nearest.chain(ball, points(ball, 8), [n * 5 for n in NAMES], KINDS, k) for k in range(3)]
    groups = granularity.groups(ball, points(ball, 60), torch.arange(60) % 3, ("coarse", "fine", "ultrafine"))
    lines = [curves.Curve(f"run {k} {name}", [(e, e + k) for e in range(1, 9)], 3) for k in range(9)]
    around = [entities.cloud(m, points(m), [f"{n} {k}" for n in NAMES for k in range(7)], torch.arange(50)) for m in (ball, flat)]
    foot = "Small print. " * 40
    inside, margin = torch.arange(50) < 20, lambda x: x[:, 0] - 0.3
    subtrees = [separation.field(m, points(m, d=2), inside, margin, rim) for m, rim in ((ball, 0), (flat, 0), (flat, 4))]
    child = np.arange(1, 50)
    trees = [tree.picture(m, points(m, d=2), [n * 6 for n in NAMES] * 7, child, child // 4) for m in (ball, flat)]
    lengths = {split: np.arange(1, 90) % k for split, k in (("train", 70), ("dev", 9))}
    counts = [classes.Count(label, 9999, 8888, 7777) for label in ("entailment", "neutral", "contradiction")]
    strips = [
        weights.Strip("A hypothesis. " * k, "neutral", ("a-rather-long-word",) * t, ((f"{NAMES[0]}: entailment 0.99", np.full(t, 1 / t)),) * k)
        for t, k in ((1, 1), (30, 3), (90, 1))
    ]
    yield "separation", separation.plot([(name, each) for each in [*subtrees, subtrees[0]]], "Title")
    yield "tree", tree.plot([(name, each) for each in [*trees, *trees]], "Title")
    yield "lengths", histograms.plot([("premises", lengths), ("hypotheses", lengths)], "Title", foot)
    yield "classes", classes.plot([(name, counts)] * 4, "Title")
    yield "weights", weights.plot(strips, "Title")
    yield "boundaries", boundaries.plot([(name, f) for f in [*fields, *fields]])
    yield "attention", attention.plot([[(name, clouds[0]), (name, clouds[1])], [(name, clouds[1])]], "Title")
    yield "entities", entities.plot([(name, each) for each in [*around, *around]])
    yield "nearest", nearest.plot(rows, "Title", foot, "hyperbolic distance")
    yield "granularity", granularity.plot([(name, "distance", groups)] * 4, "Title", foot)
    yield "curves", curves.plot([("value", lines)] * 4, "Title", foot)
    yield "one epoch", curves.plot([("value", [curves.Curve("run", [(1, 0.5)], 1)])], "Title", foot)


def visible_texts(figure):
    """All texts on the page with their boxes, and whether they stand at data; ticks that are not drawn are left out."""
    hidden = set()
    for axes in figure.findobj(Axes):
        for k, (line, span) in enumerate(((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim()))):
            for tick in line.majorTicks:
                for label in (tick.label1, tick.label2):
                    if not axes.axison or not min(span) <= label.get_position()[k] <= max(span):
                        hidden.add(id(label))
            if not axes.axison:
                hidden |= {id(line.label), id(line.offsetText)}
    at_data = {id(text) for axes in figure.findobj(Axes) for text in axes.texts}
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden:
            yield text.get_text(), text.get_window_extent(), id(text) in at_data


@pytest.mark.long
def test_nothing_is_cut_off_and_no_text_covers_another():
    for name, figure in every_figure():
        figure.draw_without_rendering()
        page = figure.bbox
        texts = list(visible_texts(figure))
        assert len(texts) > 5
        for k, (text, box, at_data) in enumerate(texts):
            inside = page.padded(1)
            assert min(box.x0 - inside.x0, box.y0 - inside.y0) >= 0, f"{name}: {text!r} is cut off"
            assert min(inside.x1 - box.x1, inside.y1 - box.y1) >= 0, f"{name}: {text!r} is cut off"
            for other, box2, also_at_data in texts[:k]:
                touching = box.padded(-1).overlaps(box2.padded(-1))
                assert not touching or (at_data and also_at_data), f"{name}: {text!r} covers {other!r}"


@pytest.mark.parametrize("kind", canvas.FORMATS)
def test_a_file_is_written_whole_and_the_same_each_time(tmp_path, kind):
    texts = []
    for _ in range(2):
        figure = curves.plot([("value", [curves.Curve("run", [(1, 2), (2, 1)], 2)])], "Title", "Foot.")
        texts.append(canvas.save(figure, tmp_path / "new" / f"a.{kind}").read_bytes())
    assert texts[0] == texts[1]
    assert [f.name for f in (tmp_path / "new").iterdir()] == [f"a.{kind}"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    figure = curves.plot([("value", [curves.Curve("run", [(1, 2)], None)])], "Title", "Foot.")
    figure.savefig = None
    with pytest.raises(TypeError):
        canvas.save(figure, path)
    assert path.read_bytes() == b"old"
    assert [f.name for f in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize(("best", "says"), [(2.0, True), (None, False)])
def test_rings_are_explained_where_there_are_some(best, says):
    figure = curves.plot([("value", [curves.Curve("run", [(1.0, 0.5), (2.0, 0.6)], best)])], "Title", "Foot.")
    texts = " ".join(" ".join(text.get_text().split()) for text in figure.findobj(lambda a: hasattr(a, "get_text")))
    assert ("Rings: the selected epoch. Foot." in texts) == says
    assert "Foot." in texts
