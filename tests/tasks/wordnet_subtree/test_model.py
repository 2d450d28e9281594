"""The three classifiers of the paper's Table 2 are one model in different geometries; points move by isometries."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from hyperbolic.geometry import GEOMETRIES, MANIFOLDS, make_geometry
from hyperbolic.manifolds import PoincareBall
from hyperbolic.manifolds.charts import convert
from tasks.errors import UserError
from tasks.points_files import PointsFile
from tasks.wordnet_subtree.model import SubtreeClassifier

ROWS = torch.tensor([4, 0, 7])


def points(kind="PoincareBall", c=1.0, d=3) -> PointsFile:
    ball = np.random.default_rng(0).uniform(-0.5, 0.5, (9, d)).astype(np.float32) / c**0.5
    x = torch.from_numpy(ball)
    if kind != "PoincareBall":
        space = PoincareBall(c)
        x = x if kind == "Euclidean" else convert(x, space, space.twin(MANIFOLDS[kind]))
    return PointsFile(tuple("abcdefghi"), x.numpy(), kind, 0.0 if kind == "Euclidean" else c, "")


def model(name="poincare", embedded=None, parts=None, c=1.0, hyperplanes=2, start_scale=1.0) -> SubtreeClassifier:
    manifold, layers = GEOMETRIES[name]
    geometry = make_geometry(name, manifold, layers, c=c if manifold != "Euclidean" else None, parts=parts)
    classifier = SubtreeClassifier(geometry, embedded or points(c=c), hyperplanes, start_scale)
    for p in classifier.classifier.parameters():
        p.data = torch.empty_like(p).uniform_(-0.4, 0.4)
    return classifier


@pytest.mark.parametrize("c", [0.5, 1.0, 2.0])
def test_both_hyperbolic_is_the_formula_of_the_paper(c):
    classifier = model(c=c).double()
    ball, expected = PoincareBall(c), []
    for row in ROWS:
        x, logits = classifier.embedded[row], []
        for p, a in zip(classifier.classifier.p.detach(), classifier.classifier.a.detach(), strict=True):
            z = ball.mobius_add(-p, x)
            # Eq. 25 with a' = a, normals at the origin: lambda_p |a_k| = 2 |a'|
            inner = 2 * c**0.5 * (z * a).sum() / ((1 - c * z.square().sum()) * a.norm())
            logits.append(2 * a.norm() / c**0.5 * torch.asinh(inner))
        expected.append(torch.stack(logits))
    torch.testing.assert_close(classifier(ROWS).detach(), torch.stack(expected), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["poincare", "poincare_pp", "lorentz", "klein", "lorentz_tangent", "euclidean"])
def test_what_is_kept_of_the_points_of_a_batch_changes_nothing(name):
    kept, fresh = model(name), model(name)
    kept(ROWS)
    fresh.load_state_dict(kept.state_dict())
    for some in (kept, fresh):
        with torch.no_grad():
            next(some.classifier.parameters()).mul_(0.5)
    for rows in (ROWS, ROWS, ROWS + 1, ROWS):
        ours, theirs = kept(rows), fresh.logits(fresh.points[rows])
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
        ours.square().sum().backward()
        theirs.square().sum().backward()
    for a, b in zip(kept.parameters(), fresh.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_flat_is_the_usual_mlr_of_the_coordinates_in_the_ball():
    classifier = model("euclidean")
    x, p, a = classifier.embedded[ROWS], classifier.classifier.p, classifier.classifier.a
    torch.testing.assert_close(classifier(ROWS), (x @ a.T - (p * a).sum(-1)))
    assert (classifier.points == torch.from_numpy(points().points)).all()


def test_a_flat_classifier_of_hyperbolic_points_sees_log0():
    classifier = model(parts={"classifier": "euclidean"})
    x = classifier.embedded[ROWS]
    log0 = torch.atanh(x.norm(dim=-1, keepdim=True)) * x / x.norm(dim=-1, keepdim=True)
    p, a = classifier.classifier.p, classifier.classifier.a
    logits = classifier(ROWS)
    # the project's log0 has the Euclidean metric times 4 at the origin as tangent vectors of the ball do
    torch.testing.assert_close(logits, log0 @ a.T - (p * a).sum(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["PoincareBall", "Lorentz", "Klein"])
@pytest.mark.parametrize("name", ["poincare", "lorentz", "klein", "poincare_tangent"])
def test_points_of_any_model_go_to_any_other_by_the_isometry(kind, name):
    classifier = model(name, points(kind, c=2.0), c=2.0)
    again = convert(classifier.points, classifier.manifold, classifier.manifold.twin(PoincareBall))
    torch.testing.assert_close(again, torch.from_numpy(points(c=2.0).points), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(classifier(ROWS), classifier.logits(classifier.points[ROWS]))
    flat = model("euclidean", points(kind, c=2.0))
    torch.testing.assert_close(flat.points, torch.from_numpy(points(c=2.0).points), rtol=1e-4, atol=1e-5)


def test_flat_points_enter_hyperbolic_space_by_exp0():
    classifier = model("poincare", points("Euclidean"))
    torch.testing.assert_close(classifier.points, PoincareBall(1.0).expmap0(torch.from_numpy(points("Euclidean").points)))


@pytest.mark.parametrize("name", sorted(GEOMETRIES))
def test_one_hyperplane_is_the_boundary(name):
    classifier = model(name, hyperplanes=1)
    logits = classifier(ROWS)
    assert logits.shape == (3, 2)
    assert (logits[:, 0] == 0).all()
    at = classifier.classifier.p if name in ("poincare", "euclidean") else None
    if at is not None:
        torch.testing.assert_close(classifier.logits(at.detach()), torch.zeros(1, 2), rtol=0, atol=1e-6)
    loss = F.cross_entropy(logits, torch.tensor([1, 0, 1]))
    torch.testing.assert_close(loss, F.binary_cross_entropy_with_logits(logits[:, 1], torch.tensor([1.0, 0, 1])))


def test_points_stay_as_they_are_and_are_not_kept_in_checkpoints():
    classifier = model()
    assert {name for name, _ in classifier.named_parameters()} == {"classifier.p", "classifier.a"}
    assert not any("embedded" in name for name in classifier.state_dict())
    classifier(ROWS).sum().backward()
    assert classifier.embedded.grad is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: model(hyperplanes=3), "task.model.hyperplanes must be 1 or 2"),
        (lambda: model(start_scale=0.0), "task.model.start_scale must be a positive number"),
        (lambda: model(parts={"encoder": "euclidean"}), "its components are points, classifier"),
        (lambda: model(embedded=points(c=2.0)), r"have c = 2, and geometry.c is 1; add geometry.c=2\."),
        (lambda: model(embedded=PointsFile(("a",), np.ones((1, 2), np.float32), "PoincareBall", 1.0, "")), "not on its Poin"),
        (lambda: model(embedded=PointsFile(("a",), np.ones((1, 2), np.float32), "Sphere", 1.0, "")), "it is 'Sphere'"),
    ],
)
def test_what_does_not_fit_is_reported(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_learned_curvature_is_refused():
    geometry = make_geometry("poincare", "PoincareBall", "mobius", c=1.0, learn_c=True)
    with pytest.raises(UserError, match="geometry.learn_c=true"):
        SubtreeClassifier(geometry, points(), 2, 1.0)


@pytest.mark.parametrize("name", ["poincare", "euclidean"])
def test_the_start_is_scaled_but_for_points(name):
    manifold, layers = GEOMETRIES[name]
    geometry, starts = make_geometry(name, manifold, layers, c=1.0 if name == "poincare" else None), []
    for scale in (1.0, 0.1):
        torch.manual_seed(3)
        starts.append(dict(SubtreeClassifier(geometry, points(), 2, scale).classifier.named_parameters()))
    for key, value in starts[0].items():
        torch.testing.assert_close(starts[1][key], value if key == "p" else 0.1 * value)


@pytest.mark.parametrize("hyperplanes", [1, 2])
def test_hyperplanes_start_on_the_way_to_the_centroid_of_the_subtree(hyperplanes):
    ball, table = PoincareBall(2.0), points(c=2.0)
    geometry = make_geometry("poincare", *GEOMETRIES["poincare"], c=2.0)
    classifier = SubtreeClassifier(geometry, table, hyperplanes, 0.1, "centroid", torch.tensor([3, 4]))
    middle = ball.centroid(torch.from_numpy(table.points[[3, 4]]))
    p, a = classifier.classifier.p.detach().clone(), classifier.classifier.a.detach()
    shares = ball.dist0(p) / ball.dist0(middle)
    assert torch.equal(shares, shares[:1].expand(hyperplanes))
    assert 0.5 <= shares[0] <= 1
    torch.testing.assert_close(ball.expmap0(shares[0] * ball.logmap0(middle)).expand_as(p), p)
    torch.testing.assert_close(a[-1], 0.1 * F.normalize(middle, dim=-1))
    assert F.cosine_similarity(p[0], a[-1], dim=0) > 0.999
    classifier.restart()
    assert not torch.equal(classifier.classifier.p, p), "each start is another"
    with pytest.raises(UserError, match="task.model.start_at"):
        SubtreeClassifier(make_geometry("lorentz", *GEOMETRIES["lorentz"], c=2.0), table, 2, 0.1, "centroid", torch.tensor([4]))
