"""Geometries: the registry, their layers, geometry by component, and the change from one to another."""

import copy
import itertools

import pytest
import torch
from torch import nn

from hyperbolic.geometry import (
    FAMILIES,
    GEOMETRIES,
    MANIFOLDS,
    ChangeGeometry,
    Geometry,
    make_geometry,
)
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall

F64 = torch.float64


def make(name: str, c: float = 2.0, learn_c: bool = False, parts=None) -> Geometry:
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=c, learn_c=learn_c, parts=parts)


LAYERS = {
    "linear": ((3, 4), {"bias": False}),
    "embedding": ((5, 3), {"padding_idx": 0, "init_norm": 0.01}),
    "activation": (("tanh",), {}),
    "dropout": ((0.1,), {}),
    "rnn": ((3, 4), {"bidirectional": True, "nonlinearity": "relu"}),
    "gru": ((3, 4), {"streams": 2}),
    "concat": (((3, 2), 4), {"n_features": 1}),
    "attention": ((3,), {"n_positions": 6}),
    "context_attention": ((3,), {}),
    "residual": ((3, 4), {"activation": "relu"}),
    "feed_forward": ((3, 8), {"activation": "tanh"}),
    "position_encoding": ((3, 7), {}),
    "norm": ((3,), {}),
    "multi_head_attention": ((4, 2), {}),
    "centroid": ((), {}),
    "ordered_sum": ((), {}),
    "logits": ((3, 2), {}),
}
CLASSES = {name: name.upper() if len(name) == 3 else name.title().replace("_", "") for name in LAYERS}
WITHOUT = {("poincare", "multi_head_attention"), ("klein", "multi_head_attention")}  # their papers define none


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_every_geometry_makes_every_layer(name, layer):
    geometry = make(name)
    sizes, options = LAYERS[layer]
    if (name, layer) in WITHOUT:
        with pytest.raises(ValueError, match=rf"geometry {name}: .* has no {CLASSES[layer]}"):
            getattr(geometry, layer)(*sizes, **options)
        return
    module = getattr(geometry, layer)(*sizes, **options)
    assert type(module) is geometry.family.layers[CLASSES[layer]]
    assert module.manifold is geometry.manifold
    assert type(geometry.manifold) is MANIFOLDS[GEOMETRIES[name][0]]


@pytest.mark.parametrize(("family", "manifold"), [*itertools.product(FAMILIES, MANIFOLDS)])
def test_families_are_made_on_the_manifolds_they_are_defined_on(family, manifold):
    defined = {
        "euclidean": {"Euclidean"},
        "hatt": {"Euclidean"},
        "mobius": {"PoincareBall"},
        "poincare_pp": {"PoincareBall"},
        "lorentz": {"Lorentz"},
        "klein": {"Klein"},
        "tangent": {"PoincareBall", "Lorentz", "Klein"},
    }
    assert {name: {m for m in MANIFOLDS if f.fits(MANIFOLDS[m])} for name, f in FAMILIES.items()} == defined
    if manifold in defined[family]:
        geometry = make_geometry("mine", manifold, family, c=0.5)
        assert (geometry.name, geometry.family) == ("mine", FAMILIES[family])
        assert float(geometry.manifold.c) == (0.0 if manifold == "Euclidean" else 0.5)
    else:
        with pytest.raises(
            ValueError, match=rf"geometry mine: the layer family {family} is defined on .*, not on {manifold}"
        ):
            make_geometry("mine", manifold, family, c=0.5)


@pytest.mark.parametrize(
    ("manifold", "layers", "message"),
    [
        ("Sphere", "tangent", r"geometry.manifold of mine: unknown value 'Sphere'; available: Euclidean, PoincareBall"),
        ("Lorentz", "gyro", r"geometry.layers of mine: unknown value 'gyro'; available: euclidean, hatt, mobius"),
    ],
)
def test_unknown_names(manifold, layers, message):
    with pytest.raises(ValueError, match=message):
        make_geometry("mine", manifold, layers, c=1.0)


@pytest.mark.parametrize("name", [n for n, (m, _) in GEOMETRIES.items() if m != "Euclidean"])
@pytest.mark.parametrize("c", [0, 0.0, -1.0, float("nan"), float("inf"), True, "1"])
def test_curvatures_that_are_not_positive_numbers(name, c):
    with pytest.raises(ValueError, match="c must be a positive number"):
        make(name, c=c)
    with pytest.raises(ValueError, match="c must be a positive number"):
        make("euclidean", c=c, parts={"ffnn": name})


def test_a_curved_manifold_needs_a_curvature():
    with pytest.raises(ValueError, match=r"geometry poincare: geometry.c is needed"):
        make("poincare", c=None)
    with pytest.raises(ValueError, match=r"geometry euclidean: geometry.c is needed"):
        make("euclidean", c=None, parts={"ffnn": "lorentz_tangent"})
    assert float(make("euclidean", c=None, parts={"ffnn": "euclidean"}).manifold.c) == 0


def test_an_option_the_layer_does_not_have():
    with pytest.raises(
        ValueError, match=r"geometry klein_tangent: tangent.Linear has no option 'bias_std'; it takes bias"
    ):
        make("klein_tangent").linear(2, 3, bias_std=0.1)
    with pytest.raises(ValueError, match=r"geometry poincare: mobius.Logits has no option 'scale'"):
        make("poincare").logits(2, 3, scale=4.0)


def test_a_layer_the_family_does_not_have(monkeypatch):
    monkeypatch.delitem(FAMILIES["tangent"].layers, "Attention")
    with pytest.raises(ValueError, match="geometry lorentz_tangent: the layer family tangent has no Attention"):
        make("lorentz_tangent").attention(3)


class TestParts:
    PARTS = {"sentence": "poincare", "ffnn": "euclidean", "classifier": "poincare_tangent"}  # noqa: RUF012

    def test_a_part_has_its_own_layers_and_the_others_the_common_ones(self):
        geometry = make("poincare", parts={"classifier": "euclidean"})
        classifier, sentence = geometry.part("classifier"), geometry.part("sentence")
        assert (classifier.name, classifier.family) == ("euclidean", FAMILIES["euclidean"])
        assert isinstance(classifier.manifold, Euclidean)
        assert (sentence.name, sentence.family, sentence.manifold) == ("poincare", FAMILIES["mobius"], geometry.manifold)
        assert not classifier.parts
        assert not sentence.parts

    def test_parts_on_one_manifold_share_it(self):
        geometry = make("poincare", parts=self.PARTS)
        assert geometry.part("sentence").manifold is geometry.manifold
        assert geometry.part("classifier").manifold is geometry.manifold
        assert geometry.part("classifier").family is FAMILIES["tangent"]
        assert geometry.part("ffnn").manifold is not geometry.manifold

    def test_parts_on_other_models_have_the_same_curvature(self):
        geometry = make("poincare", c=0.3, parts={"sentence": "lorentz_tangent", "ffnn": "klein_tangent"})
        for component, kind in (("sentence", Lorentz), ("ffnn", Klein)):
            manifold = geometry.part(component).manifold
            assert type(manifold) is kind
            assert float(manifold.c) == 0.3

    def test_a_flat_geometry_with_a_curved_part(self):
        geometry = make("euclidean", c=0.3, parts={"ffnn": "poincare"})
        assert float(geometry.part("ffnn").manifold.c) == 0.3
        assert geometry.part("sentence").manifold is geometry.manifold

    def test_unknown_geometry_of_a_part(self):
        with pytest.raises(
            ValueError, match=r"geometry.parts.ffnn: unknown value 'flat'; available: euclidean, hatt, poincare"
        ):
            make("poincare", parts={"ffnn": "flat"})

    def test_unknown_component(self):
        geometry = make("poincare", parts={"ffnn": "euclidean", "decoder": "euclidean"})
        geometry.check_components(("sentence", "ffnn", "decoder"))
        with pytest.raises(
            ValueError,
            match=r"geometry.parts.decoder: this model has no component 'decoder'; its components are sentence, ffnn",
        ):
            geometry.check_components(iter(("sentence", "ffnn")))
        make("poincare").check_components(())


class TestLearnedCurvature:
    def test_all_parts_share_it_and_it_gets_a_gradient(self):
        geometry = make("poincare", c=0.7, learn_c=True, parts={"sentence": "poincare_tangent", "ffnn": "euclidean"})
        words = geometry.part("sentence").embedding(5, 3)
        net = nn.ModuleList(
            [
                words,
                geometry.part("sentence").gru(3, 4),
                geometry.linear(4, 3),
                geometry.part("classifier").logits(3, 2),
            ]
        )
        with torch.no_grad():
            words.inner.weight.normal_(std=0.5)
        free = geometry.manifold.free_c
        assert [p is free for p in net.parameters()].count(True) == 1
        assert geometry.manifold.c.item() == pytest.approx(0.7, rel=1e-12)
        table, gru, linear, logits = net
        x = torch.randint(0, 5, (6, 4))
        for loss in (
            gru(table(x))[1].square().sum(),
            linear(gru(table(x))[1].detach()).square().sum(),
            logits(linear(gru(table(x))[1]).detach()).square().sum(),
        ):
            (grad,) = torch.autograd.grad(loss, free)
            assert torch.isfinite(grad)
            assert grad.abs() > 1e-8

    def test_two_models_of_the_space_share_it(self):
        """One scalar for all parts, also where they are different models; a step of it moves them together."""
        geometry = make("poincare", c=0.7, learn_c=True, parts={"sentence": "lorentz_tangent", "ffnn": "klein_tangent"})
        net = nn.ModuleList([geometry.linear(2, 2), *(geometry.part(p).linear(2, 2) for p in ("sentence", "ffnn"))])
        assert sum(name.endswith("free_c") for name, _ in net.named_parameters()) == 1
        with torch.no_grad():
            geometry.manifold.free_c += 1.0
        curvatures = {float(layer.manifold.c.detach()) for layer in net}
        assert len(curvatures) == 1
        assert curvatures.pop() > 1.0
        other = copy.deepcopy(net)
        with torch.no_grad():
            other[0].manifold.free_c += 1.0
        assert len({float(layer.manifold.c.detach()) for layer in other}) == 1
        assert other[2].manifold.c > net[2].manifold.c
        x = geometry.manifold.random(5, 2, dtype=F64)
        lorentz = geometry.part("sentence")
        moved = ChangeGeometry(geometry, lorentz)(x)
        torch.testing.assert_close(lorentz.manifold.dist0(moved), geometry.manifold.dist0(x))

    def test_it_stays_positive(self):
        for c in (1e-3, 0.5, 30.0):
            manifold = make("lorentz_tangent", c=c, learn_c=True).manifold
            assert manifold.c.item() == pytest.approx(c, rel=1e-12)
            with torch.no_grad():
                manifold.free_c -= 50.0
            assert manifold.c > 0

    def test_it_can_be_printed_and_asked_for_its_radius(self):
        """Warnings are errors here: a number is taken from a tensor that needs a gradient."""
        always = torch.is_warn_always_enabled()
        torch.set_warn_always(True)
        try:
            for kind in (PoincareBall, Lorentz, Klein):
                manifold = kind(2.0, learn_c=True)
                assert "c=2, learned" in repr(manifold)
                assert manifold.max_radius(torch.float32) == pytest.approx(kind(2.0).max_radius(torch.float32))
        finally:
            torch.set_warn_always(always)

    def test_a_copy_of_a_model_has_one_curvature_of_its_own(self):
        geometry = make("poincare", learn_c=True)
        net = nn.ModuleList([geometry.embedding(4, 3), geometry.attention(3), geometry.logits(3, 2)])
        other = copy.deepcopy(net)
        spaces = {id(m.manifold) for m in (*other, other[1].query, other[0].weight, other[2].p)}
        assert len(spaces) == 1
        assert id(geometry.manifold) not in spaces
        assert len(list(other.parameters())) == len(list(net.parameters()))


NAMED = {name: make(name) for name in GEOMETRIES}


class TestChangeGeometry:
    def test_autocast_is_left(self):
        ball, flat = make("poincare"), make("euclidean")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            vectors = flat.linear(3, 3)(torch.randn(4, 3))
            points = ChangeGeometry(flat, ball)(vectors)
            assert (vectors.dtype, points.dtype) == (torch.bfloat16, torch.float32)
            assert ball.logits(3, 2)(points).isfinite().all()

    def test_the_identity_on_one_manifold(self):
        ball = make("poincare")
        x = ball.manifold.random(5, 3)
        for target in (ball, ball.part("ffnn"), make("poincare", parts={"a": "poincare_tangent"})):
            assert ChangeGeometry(ball, target)(x) is x
        mixed = make("poincare", learn_c=True, parts={"ffnn": "poincare_tangent"})
        assert ChangeGeometry(mixed, mixed.part("ffnn"))(x) is x

    @pytest.mark.parametrize(("a", "b"), [*itertools.permutations(["poincare", "lorentz_tangent", "klein_tangent"], 2)])
    def test_the_isometry_between_models_of_one_space(self, a, b):
        source, target = NAMED[a], NAMED[b]
        change, back = ChangeGeometry(source, target), ChangeGeometry(target, source)
        x = source.manifold.random(6, 3, std=0.5, dtype=F64)
        y = change(x)
        assert y.shape[-1] == target.manifold.ambient_dim(3)
        torch.testing.assert_close(
            target.manifold.dist(y[:3], y[3:]), source.manifold.dist(x[:3], x[3:]), rtol=1e-9, atol=0
        )
        torch.testing.assert_close(back(y), x, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("curved", ["poincare", "poincare_tangent", "lorentz_tangent", "klein_tangent"])
    def test_logarithm_and_exponential_between_flat_and_curved(self, curved):
        """Also between spaces of different curvature."""
        space, flat = NAMED[curved], NAMED["euclidean"]
        x, u = space.manifold.random(6, 3, std=0.5, dtype=F64), torch.randn(6, 3, dtype=F64)
        torch.testing.assert_close(ChangeGeometry(space, flat)(x), space.manifold.logmap0(x))
        torch.testing.assert_close(ChangeGeometry(flat, space)(u), space.manifold.expmap0(u))
        other = make("lorentz_tangent", c=0.5)
        expected = other.manifold.expmap0(space.manifold.origin_scale * space.manifold.logmap0(x))
        torch.testing.assert_close(ChangeGeometry(space, other)(x), expected)
        for target in (flat, other):
            change = ChangeGeometry(space, target)
            torch.testing.assert_close(change.vectors(x), target.manifold.logmap0(change(x)))

    def test_it_trains_and_says_what_it_does(self):
        change = ChangeGeometry(NAMED["poincare"], NAMED["euclidean"])
        assert "PoincareBall -> Euclidean" in repr(change)
        x = torch.zeros(2, 3, requires_grad=True)
        (grad,) = torch.autograd.grad(change(x).sum(), x)
        torch.testing.assert_close(grad, torch.ones(2, 3))


def test_a_geometry_is_fixed():
    geometry = make("poincare")
    with pytest.raises(AttributeError):
        geometry.name = "other"
    with pytest.raises(AttributeError):
        geometry.conv(3, 4)


@pytest.mark.parametrize("name", ["euclidean", "hatt"])
def test_there_is_nothing_to_learn_in_flat_space(name):
    with pytest.raises(ValueError, match="geometry.learn_c=true, but no part of it is curved"):
        make(name, learn_c=True)
    make(name, learn_c=True, parts={"ffnn": "poincare"})
