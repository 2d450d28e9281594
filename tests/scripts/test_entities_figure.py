"""Entities of a knowledge graph around the origin: true distances, a fair sample, names; and the curves of such runs."""

import dataclasses
import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from matplotlib.text import Annotation

from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.manifolds.charts import convert
from scripts.drawing import charts, curves, entities, lettering
from scripts.drawing.titles import read_titles
from scripts.trained import Run, Trained
from tasks.errors import UserError

N, D = 60, 5
NAMES = [f"entity {k}" for k in range(N)]
DEGREE = torch.arange(N)
LICENCE = "  1 This software and database is being provided to you\n"
HYPERBOLIC = [PoincareBall, Lorentz, Klein]


def points(manifold, n=N, length=0.6):
    return manifold.expmap0(length * torch.randn(n, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


def run(name: str = "hybonet_wn18rr_short_hybonet", seed: int = 0, **settings) -> Run:
    defaults = {"seed": seed, "task.name": "wn18rr", "task.module.select": "val/mrr", "geometry.name": "lorentz", "geometry.c": 1.0}
    history = [{"epoch": e, "step": 10 * e, "train/loss": 1 / e, "lr": 0.1} for e in range(1, 7)]
    for row in history[1::2]:
        row |= {"val/mrr": 0.1 * row["epoch"] - 0.02 * seed, "val/hits@1": 0.05}
    return Run(Path("outputs") / name, name, defaults | settings, {"step": 40, "epoch": 4}, history)


def trained(manifold, x, names=NAMES, triples=None) -> Trained:
    """What scripts.trained.load gives of a run of a knowledge graph, as far as the figure looks at it."""
    model = SimpleNamespace(scorer=SimpleNamespace(points=lambda: (manifold, x)), entities=tuple(names))
    triples = torch.tensor([[0, 0, 1], [2, 1, 1], [1, 0, 1]]) if triples is None else triples
    return Trained(run(), None, model, SimpleNamespace(graph=SimpleNamespace(triples={"train": triples})), 4)


@pytest.mark.parametrize("c", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("model", HYPERBOLIC)
def test_every_entity_is_at_its_true_distance(model, c):
    manifold = model(c)
    x = points(manifold)
    cloud = entities.cloud(manifold, x, NAMES, DEGREE)
    assert cloud.xy.shape == (N, 2)
    assert torch.allclose(2 * torch.atanh(cloud.xy.norm(dim=-1)) / math.sqrt(c), manifold.dist0(x), rtol=1e-9)


@pytest.mark.parametrize("model", [Lorentz, Klein])
def test_the_models_of_one_space_give_one_picture(model):
    ball, other = PoincareBall(0.7), model(0.7)
    x = points(ball)
    first = entities.cloud(ball, x, NAMES, DEGREE)
    second = entities.cloud(other, convert(x, ball, other), NAMES, DEGREE)
    assert torch.allclose(first.xy, second.xy, atol=1e-9)
    assert first.correlation == pytest.approx(second.correlation)


def test_points_of_a_plane_keep_their_angles():
    ball = PoincareBall(1.0)
    flat = torch.randn(N, 2, dtype=torch.float64)
    x = ball.expmap0(0.3 * torch.cat([torch.zeros(N, 3, dtype=torch.float64), flat], -1))
    cloud = entities.cloud(ball, x, NAMES, DEGREE)
    assert cloud.share == pytest.approx(1)
    cosines = [torch.nn.functional.cosine_similarity(v[:-1], v[1:], dim=-1) for v in (flat, cloud.xy)]
    assert torch.allclose(*cosines, atol=1e-9)


def test_flat_points_keep_their_norm():
    x = 3 + torch.randn(N, D)
    cloud = entities.cloud(Euclidean(), x, NAMES, DEGREE)
    assert torch.allclose(cloud.xy.norm(dim=-1), x.double().norm(dim=-1))


@pytest.mark.parametrize("x", [torch.zeros(3, D), torch.ones(1, 1), torch.full((2, D), 1e-9)])
def test_few_or_equal_points_at_the_origin_are_drawn(x):
    for manifold in (PoincareBall(1.0), Euclidean()):
        cloud = entities.cloud(manifold, x / 2, NAMES[: len(x)], torch.ones(len(x), dtype=torch.long))
        assert cloud.xy.isfinite().all()
        assert cloud.correlation == 0 or len(x) > 2
        entities.plot([("run", cloud)]).draw_without_rendering()


def test_of_many_an_even_sample_and_those_with_names_are_drawn():
    manifold = PoincareBall(1.0)
    x = manifold.expmap0(torch.linspace(0, 3, 1000, dtype=torch.float64).unsqueeze(-1) * torch.ones(D).double() / D)
    degree = torch.zeros(1000, dtype=torch.long)
    degree[[17, 333]] = torch.tensor([50, 60])
    cloud = entities.cloud(manifold, x, [str(k) for k in range(1000)], degree, most=200)
    assert (len(cloud.xy), cloud.total) == (cloud.degree.numel(), 1000)
    assert 150 < len(cloud.xy) <= 200
    assert [name for _, name in cloud.named[:2]] == ["333", "17"]
    for place, name in cloud.named:
        assert float(cloud.xy[place].norm()) == pytest.approx(float(charts.radius(manifold, manifold.dist0(x[int(name)]))))
    assert set(cloud.degree.tolist()) == {0, 50, 60}
    gaps = manifold.dist0(x)[-1] / 150
    assert (2 * torch.atanh(cloud.xy.norm(dim=-1))).sort().values.diff().max() < 3 * gaps


def test_names_of_the_labels_are_drawn_where_there_is_room():
    manifold = PoincareBall(1.0)
    x = manifold.expmap0(torch.tensor([[0.3, 0, 0, 0, 0], [0.3001, 0, 0, 0, 0], [-0.5, 0, 0, 0, 0], [0, 0.9, 0, 0, 0]]).double())
    cloud = entities.cloud(manifold, x, ["a", "b", "c", "d"], torch.tensor([9, 8, 7, 6]), labels=[2, 1, 0])
    assert [name for _, name in cloud.named] == ["c", "b", "a"]
    fitting = [name for _, name, _ in lettering.fitting(cloud.xy, cloud.named, cloud.most_named, 1.04)]
    assert fitting == ["c", "b"]


def test_degrees_count_heads_and_tails():
    triples = torch.tensor([[0, 5, 1], [1, 5, 1], [3, 0, 0]])
    assert entities.degrees(triples, 5).tolist() == [2, 3, 0, 1, 0]


def test_the_rank_correlation_by_hand():
    up = torch.tensor([1.0, 2.0, 30.0, 400.0])
    assert entities.rank_correlation(up, up.log()) == pytest.approx(1)
    assert entities.rank_correlation(up, -up) == pytest.approx(-1)
    # ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4 about their means: (-1.5, 0, 0, 1.5) . (-1.5, -.5, .5, 1.5) / sqrt(4.5 * 5)
    assert entities.rank_correlation(torch.tensor([0, 7, 7, 9]), up) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert entities.rank_correlation(torch.ones(4), up) == 0


@pytest.mark.parametrize(("length", "rim"), [(2.0, True), (0.2, False)])
def test_the_rim_is_drawn_where_it_is_in_view_and_rings_say_their_distance(length, rim):
    manifold = PoincareBall(0.5)
    cloud = entities.cloud(manifold, points(manifold, length=length), NAMES, DEGREE)
    axis = entities.plot([("run", cloud)]).subfigs[0].axes[0]
    radii = sorted(patch.radius for patch in axis.patches)
    assert (1 in radii) == rim
    rings = [text for text in axis.texts if not isinstance(text, Annotation)]
    assert 2 <= len(rings) <= 5
    for text, radius in zip(rings, radii, strict=False):
        assert radius == pytest.approx(math.tanh(math.sqrt(0.5) * float(text.get_text()) / 2))
    assert axis.get_xlim()[1] >= float(cloud.xy.abs().max())


@pytest.mark.parametrize("model", [PoincareBall, Lorentz])
def test_names_stand_apart(model):
    manifold = model(1.0)
    figure = entities.plot([("a run\nits space", entities.cloud(manifold, points(manifold), NAMES, DEGREE))])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.subfigs[0].axes[0].texts]
    assert len(boxes) > 6
    assert not any(a.padded(-1).overlaps(b.padded(-1)) for a, b in itertools.combinations(boxes, 2))


def test_a_panel_for_each_run_with_one_bar_of_colours(figures, options):
    models = {"a": (Lorentz(1.0), 3), "b": (Euclidean(), 2)}
    runs = [run(name) for name in models]

    def model(one):
        manifold, head = models[one.name]
        return trained(manifold, points(manifold).float(), triples=torch.tensor([[head, 0, 1]] * 70))

    (path,) = entities.draw(runs, model, options())
    assert path.name == "entities-a-seed0-vs-b-seed0.png"
    first, second, bar = figures[0].subfigs[0].axes
    for axis, space in ((first, "lorentz, c = 1, epoch 4"), (second, "lorentz, c = 0, epoch 4")):
        assert axis.get_title().splitlines()[1:] == [space, f"{N} entities; rank correlation {axis.get_title()[-5:]}"]
    assert bar.get_xlim() == pytest.approx((1, 70))
    named = {text.get_text() for text in first.texts if isinstance(text, Annotation)}
    assert "entity 1" in named or "entity 3" in named
    small = figures[0].subfigs[1].texts[0].get_text().replace("\n", " ")
    assert "Poincaré disk" in small
    assert "Flat space, scaled to fit" in small
    assert "sample" not in small


def test_a_large_graph_says_that_a_sample_is_drawn(figures, options):
    n, manifold = entities.MOST + 500, PoincareBall(1.0)
    graph = trained(manifold, points(manifold, n).float(), [str(k) for k in range(n)])
    entities.draw([run()], lambda _: graph, options())
    title = figures[0].subfigs[0].axes[0].get_title()
    assert f"of {n:,} entities" in title
    assert "an even sample by number is drawn" in figures[0].subfigs[1].texts[0].get_text().replace("\n", " ")


def test_labels_choose_names_and_errors_name_what_is_wrong(figures, options):
    manifold = PoincareBall(1.0)
    graph = trained(manifold, points(manifold))
    entities.draw([run()], lambda _: graph, options(("entity 7",)))
    names = [text.get_text() for text in figures[0].subfigs[0].axes[0].texts if isinstance(text, Annotation)]
    assert names == ["entity 7"]
    with pytest.raises(UserError, match=r"'entty 7' is none of the 60 entities of .* Did you mean 'entity 7'"):
        entities.draw([run()], lambda _: graph, options(("entty 7",)))
    other = graph._replace(model=SimpleNamespace())
    with pytest.raises(UserError, match=r"the task wn18rr has no entities; this figure shows knowledge graphs"):
        entities.draw([run()], lambda _: other, options())


def test_titles_stand_in_the_place_of_names(figures, options):
    manifold = PoincareBall(1.0)
    graph = trained(manifold, points(manifold))
    chosen = options(("entity 7",))
    entities.draw([run()], lambda _: graph, dataclasses.replace(chosen, titles={"entity 7": "dog"}))
    names = [text.get_text() for text in figures[0].subfigs[0].axes[0].texts if isinstance(text, Annotation)]
    assert names == ["dog"]
    with pytest.raises(UserError, match=r"none of the 60 entities of .* \(as 'entity 0'\) has a title; the files have .* as '00000020'"):
        entities.draw([run()], lambda _: graph, dataclasses.replace(chosen, titles={"00000020": "dog"}))


def test_titles_from_tables_and_from_wordnets_own_files(tmp_path):
    """The word of a synset is its first; a name of two files, as an offset of nouns and of verbs, has the first's title."""
    nouns, verbs, table = (tmp_path / name for name in ("data.noun", "data.verb", "entity2text.txt"))
    nouns.write_text(f"{LICENCE}00000020 03 n 02 domestic_dog 0 Dog 0 001 @ 00000010 n 0000 | barks  \n")
    verbs.write_text("00000020 03 v 01 bark 0 000 00 | as dogs do  \n00000030 03 a 01 galore(ip) 0 000 00 | in\tplenty  \n")
    table.write_text("/m/027rn\tDominican Republic\tof the Caribbean\n\n00000030\ta title\n/m/0\t\n")
    assert read_titles([nouns, verbs, table]) == {
        "00000020": "domestic dog", "00000030": "galore", "/m/027rn": "Dominican Republic",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nno title\n", r"titles.txt, line 2: 'no title' has no title; each line is `name <tab> title`, or a synset"),
        ("a,b\n", r"titles.txt, line 1: 'a,b' has no title; each .* Its columns are separated by commas"),
        ("'hood n 1 2 @ ; 1 0 08641944\n", r"titles.txt, line 1: .* has no title"),  # of index.noun
        ("a\t \n", r"titles.txt has no titles"),
        ("\n", r"titles.txt has no titles"),
        (None, r"titles.txt cannot be read"),
    ],
)
def test_files_without_titles(tmp_path, text, message):
    path = tmp_path / "titles.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_titles([path])


def test_validation_curves_of_many_runs_stand_in_one_panel(figures, options):
    """Figure 2 of Chen et al.: one panel with the selecting metric of every run, validated every other epoch."""
    runs = [run(f"model {k}", seed=k) for k in range(11)]
    (path,) = curves.draw(runs, None, options())
    assert path.name.startswith("curves-model 0-seed0-and-10-more-")
    panels = {axis.get_ylabel(): axis for axis in figures[0].subfigs[0].axes}
    assert list(panels) == ["train/loss", "val/mrr"]
    lines = [line for line in panels["val/mrr"].lines if len(line.get_xdata()) > 1]
    assert [line.get_xdata().tolist() for line in lines] == [[2, 4, 6]] * 11
    assert lines[3].get_ydata().tolist() == pytest.approx([0.14, 0.34, 0.54])
    assert len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}) == 11
    rings = [line for line in panels["val/mrr"].lines if len(line.get_xdata()) == 1]
    assert [float(ring.get_xdata()[0]) for ring in rings] == [4] * 11
    legend = [text.get_text() for text in figures[0].subfigs[0].legends[0].get_texts()]
    assert legend == [f"model {k}, seed {k} (lorentz, c = 1)" for k in range(11)]
