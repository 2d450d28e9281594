"""Points that start as a tree; settings that cannot be; the file that another task reads."""

import hashlib
import math

import numpy as np
import pytest
import torch

from configs import checks, composing
from configs.build import build
from hyperbolic.geometry import GEOMETRIES, make_geometry
from tasks.edges import Edges, complete_tree
from tasks.errors import UserError
from tasks.poincare_embeddings.model import NodeEmbeddings, softmax_of_distances
from tasks.poincare_embeddings.pairs import Ancestors
from tests.cli import QUIET, call, places


def model(geometry: str = "poincare", learn_c: bool = False, **changes) -> NodeEmbeddings:
    space, layers = GEOMETRIES[geometry]
    c = None if space == "Euclidean" else 1.0
    curved = make_geometry(geometry, space, layers, c=c, learn_c=learn_c and c is not None)
    settings = {"d": 3, "start": "tree", "start_step": 0.4, "init_bound": 1e-3, "temperature": 1.0, "sparse": True}
    return NodeEmbeddings(curved, complete_tree(3, 2), **(settings | changes))


@pytest.mark.parametrize("learn_c", [False, True])
@pytest.mark.parametrize("geometry", list(GEOMETRIES))
def test_every_node_starts_a_step_from_the_one_above_it(geometry, learn_c):
    torch.manual_seed(0)
    embeddings, edges = model(geometry, learn_c), complete_tree(3, 2)
    points = embeddings.points.detach()
    steps = embeddings.manifold.dist(points[edges.child.astype(np.int64)], points[edges.parent.astype(np.int64)])
    torch.testing.assert_close(steps, torch.full_like(steps, 0.4), rtol=1e-4, atol=0)
    top = embeddings.manifold.dist(points[0], embeddings.manifold.origin(3))
    assert top < 3e-3


@pytest.mark.parametrize("geometry", ["poincare", "lorentz", "euclidean"])
def test_what_lies_farther_out_than_the_nodes_below_it_is_counted(geometry):
    edges = Edges(("root", "left", "right", "leaf"), np.array([1, 2, 3]), np.array([0, 0, 1]), "", "")
    space, layers = GEOMETRIES[geometry]
    shape = make_geometry(geometry, space, layers, c=None if space == "Euclidean" else 1.0)
    settings = {"d": 2, "start": "uniform", "start_step": 1.0, "init_bound": 0.1, "temperature": 1.0, "sparse": False}
    embeddings = NodeEmbeddings(shape, edges, **settings)
    at = torch.tensor([[0.1, 0.0], [0.5, 0.0], [0.05, 0.0], [0.0, 0.3]])
    table = next(embeddings.table.parameters()).data
    table.copy_(embeddings.manifold.expmap0(at) if table.shape[1] > 2 or geometry == "poincare" else at)
    pairs = Ancestors(torch.tensor([0, 0, 1, 2, 4]), torch.tensor([0, 0, 0, 1]))  # left, right: root; leaf: root, left
    assert embeddings.share_farther_out(pairs) == pytest.approx(2 / 4), "right below root, leaf below left"


@pytest.mark.parametrize("geometry", ["poincare", "lorentz", "klein", "euclidean"])
def test_the_loss_is_that_of_the_distances_of_the_space(geometry):
    torch.manual_seed(0)
    embeddings = model(geometry, temperature=0.7)
    children, parents, negatives = torch.tensor([3, 8, 14]), torch.tensor([1, 0, 2]), torch.tensor([0, 5, 6, 9])
    excluded = torch.tensor([0, 1]), torch.tensor([0, 0])
    x, far = embeddings.points.detach().double(), []
    distance = embeddings.manifold.dist(x.unsqueeze(1), x)
    for row, (u, v) in enumerate(zip(children.tolist(), parents.tolist(), strict=True)):
        others = [z for k, z in enumerate(negatives.tolist()) if (row, k) not in ((0, 0), (1, 0))]
        scores = -distance[u, [v, *others]] / 0.7
        far.append(scores.logsumexp(0) - scores[0])
    torch.testing.assert_close(embeddings(children, parents, negatives, excluded).detach(), torch.stack(far).mean(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("geometry", ["poincare", "lorentz", "euclidean"])
def test_order_is_that_of_the_distances(geometry):
    torch.manual_seed(0)
    embeddings, nodes = model(geometry), torch.tensor([0, 7])
    points = embeddings.points.detach()
    distances = embeddings.manifold.dist(points[nodes].unsqueeze(1), points)
    ranked = distances.gather(-1, embeddings.order(nodes, embeddings.all_coordinates().detach()).argsort(-1))
    assert (ranked.diff() > -1e-5).all()
    assert (distances.diff() < -1e-2).any(), "their own order is another"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d": 0}, "task.model.d must be a whole number of at least 1"),
        ({"start": "top"}, "task.model.start must be one of uniform, tree"),
        ({"start_step": 0.0}, "task.model.start_step must be a positive number"),
        ({"temperature": -1.0}, "task.model.temperature must be a positive number"),
        ({"temperature": 0.019}, "task.model.temperature must be at least 0.02, and it is 0.019"),
    ],
)
def test_settings_that_cannot_be(changes, message):
    with pytest.raises(UserError, match=message):
        model(**changes)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.module.negatives=0"], "task.module.negatives must be a whole number of at least 1"),
        (["task.module.burn_in_factor=2.0"], "task.module.burn_in_factor must be above 0 and at most 1"),
        (["optim.warmup_steps=3"], "optim.warmup_steps=0; the schedule is linear with 3 steps. Set task.module.burn_in_epochs=0"),
        (["optim.schedule=plateau"], "task.module.burn_in_epochs=2 goes with optim.schedule=constant|linear|cosine"),
        (["task.module.select=val/loss"], "task.module.select must be one of val/map, val/mean_rank, and it is 'val/loss'"),
        (["task.module.dampening=-0.1"], "task.module.dampening must be a number of at least 0"),
        (["task.module.burn_in_dampening=-1"], "task.module.burn_in_dampening must be a number of at least 0"),
        (["task.data.toy=null", "task.data.wordnet=nowhere"], "download.py wordnet"),
        (["task.data.toy=null", "task.data.file=nowhere.tsv"], "There is no file nowhere.tsv; correct task.data.file."),
    ],
)
def test_what_a_user_gets_wrong(tmp_path, words, message):
    result = call("task=poincare_embeddings_toy", *words, *QUIET, *places(tmp_path))
    assert result.code == 1
    assert message in result.err


@pytest.mark.parametrize("geometry", ["poincare", "lorentz", "euclidean"])
def test_the_loss_is_finite_at_the_least_temperature(geometry):
    """Where each node is 4 from the one above it, and 24 from the farthest."""
    embeddings = model(geometry, temperature=0.02, start_step=4.0)
    nodes, negatives = torch.arange(1, 7), torch.arange(7, 15)
    excluded = torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)
    loss = embeddings(nodes, (nodes - 1) // 2, negatives, excluded)
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.to_dense().isfinite().all() for p in embeddings.parameters())


@pytest.mark.long
def test_that_the_shared_file_is_replaced_is_told(tmp_path):
    words = ("task=poincare_embeddings_toy", "trainer.max_epochs=1", *QUIET, *places(tmp_path))
    first, second = call(*words), call(*words, "seed=1")
    assert first.code == second.code == 0, first.err + second.err
    shared = tmp_path / "out" / "embeddings" / "toy-poincare-2d.npz"
    assert "is replaced" not in first.out
    assert f"{shared} is replaced by the points of this run, {second.record_path.parent}." in second.out
    assert (second.record_path.parent / "points.npz").read_bytes() == shared.read_bytes()
    assert (first.record_path.parent / "points.npz").read_bytes() != shared.read_bytes()


@pytest.mark.parametrize("closure", ["true", "false"])
def test_a_list_of_edges_with_a_cycle_gives_a_file_of_its_name_and_contents(tmp_path, closure):
    path = tmp_path / "mine.tsv"
    path.write_text("a\tb\nb\tc\nc\ta\nd\ta\n", encoding="utf-8")
    result = call(
        "task=poincare_embeddings_toy", "task.data.toy=null", f"task.data.file={path}", "trainer.max_epochs=1",
        "task.model.start=tree", "geometry=lorentz", f"task.data.closure={closure}", *QUIET, *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "mine.tsv: 3 of 4 nodes lie on cycles" in result.out
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert f"mine-{sha256[:8]}-lorentz-2d.npz" in result.out


def test_the_burn_in_draws_upper_nodes_as_often_as_they_are_above_others():
    """And later epochs draw all nodes alike."""

    def counts(epochs):
        words = (f"task.module.burn_in_epochs={epochs}", "task.module.burn_in_dampening=1", "task.module.dampening=0")
        composing.register()
        words = ("task=poincare_embeddings_toy", *words, "task.module.negatives=1")
        task, _ = build(checks.check(composing.composed(*words)))
        torch.manual_seed(0)
        task.train()
        drawn = torch.cat([task._draw_negatives() for _ in range(4000)])
        return torch.bincount(drawn, minlength=40), task

    first, task = counts(1)
    above = 1 + torch.bincount(task.ancestors.nodes, minlength=40)
    torch.testing.assert_close(first / first.sum(), above / above.sum(), rtol=0, atol=0.02)
    later, _ = counts(0)
    torch.testing.assert_close(later / later.sum(), torch.full((40,), 1 / 40), rtol=0, atol=0.012)


def test_softmax_of_distances_by_hand():
    """Two points: partners at 1 and 2; others at 1 and 3, of which the first does not count for the second point."""
    near, others = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 3.0], [1.0, 3.0]])
    excluded = torch.tensor([1]), torch.tensor([0])
    weights = [[math.exp(-d / 2) for d in row] for row in ((1, 1, 3), (2, 3))]
    expected = sum(-math.log(row[0] / sum(row)) for row in weights) / 2
    assert float(softmax_of_distances(near, others, excluded, 2.0)) == pytest.approx(expected)


@pytest.mark.parametrize("geometry", ["poincare", "lorentz", "klein", "euclidean"])
def test_is_a_rises_where_what_is_above_lies_farther_in(geometry):
    """-(1 + 1000 (|v| - |u|)) d(u, v), lengths in the ball (Nickel & Kiela 2017, section 4.3)."""
    embeddings = model(geometry)
    space, x = embeddings.manifold, embeddings.points.detach().double()
    nodes, above = torch.tensor([7, 1, 5]), torch.tensor([1, 7, 6])  # a leaf and a node next to the top, and reversed; siblings
    distances, scores = (column.detach() for column in embeddings.is_a(nodes, above))
    for k, (u, v) in enumerate(zip(x[nodes], x[above], strict=True)):
        far = [float(space.dist(space.origin(3).double(), each)) for each in (u, v)]
        u_length, v_length = (math.tanh(r / 2) if space.is_curved else r for r in far)
        d = float(space.dist(u, v))
        assert float(distances[k]) == pytest.approx(d, rel=1e-6)
        assert float(scores[k]) == pytest.approx(-(1 + 1000 * (v_length - u_length)) * d, rel=1e-4, abs=1e-3)
    assert scores[0] > 0 > scores[1], "a leaf is a kind of what is above it, and not the reverse"
    assert float(scores[0] + scores[1]) == pytest.approx(-2 * float(distances[0]), rel=1e-3), "the 1 of the formula"
