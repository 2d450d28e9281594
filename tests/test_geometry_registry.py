"""Geometries of your own: the registry, options of layers, and settings that have defaults."""

from unittest import mock

import pytest
import torch

from hyperbolic.encoders.graph.hybonet import HyboNet
from hyperbolic.encoders.relational.isometries import Rotation
from hyperbolic.encoders.relational.mur import MuR
from hyperbolic.encoders.relational.translational import TransE
from hyperbolic.geometry import (
    FAMILIES,
    GEOMETRIES,
    MANIFOLDS,
    ChangeGeometry,
    LayerFamily,
    make_geometry,
    register_family,
    register_geometry,
    register_manifold,
)
from hyperbolic.manifolds import Euclidean, Klein
from hyperbolic.manifolds.base import Manifold
from tests.test_geometry import F64, make

with mock.patch.dict(MANIFOLDS), mock.patch.dict(FAMILIES):  # it registers itself
    from tests.manifolds.half_space import HalfSpace, Linear


class TestOptions:
    """Settings of single layers of a family, for all layers of that class that a model makes."""

    def test_layers_get_them_and_what_the_model_says_comes_first(self):
        options = {"Linear": {"variant": "mt", "scale": 3.0}, "Dropout": {}}
        geometry = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0, options=options, parts={"ffnn": "euclidean"})
        layer = geometry.part("sentence").linear(3, 4)
        assert layer.variant == "mt"
        assert layer.scale.item() == pytest.approx(3.0)
        assert geometry.linear(3, 4, variant="paper").variant == "paper"
        assert geometry.part("ffnn").linear(3, 4).weight.shape == (4, 3)

    def test_the_attention_of_hatt_has_a_curvature_of_its_own(self):
        options = {"MultiHeadAttention": {"c": 3.0, "learn_c": True}}
        attention = make_geometry("hatt", "Euclidean", "hatt", options=options).multi_head_attention(4, 2)
        assert attention.space.c.item() == pytest.approx(3.0)
        assert attention.space.free_c.requires_grad

    def test_settings_of_layers_that_no_model_made_are_refused(self):
        options = {"Linear": {"variant": "mt"}, "Concat": {"variant": "mt"}}
        geometry = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0, options=options)
        geometry.part("sentence").linear(3, 4)
        with pytest.raises(ValueError, match=r"geometry.options.Concat: this model makes no Concat .* it makes Linear"):
            geometry.check_options()
        geometry.concat((2, 2), 3)
        geometry.check_options()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"Linaer": {}}, r"geometry.options of g: the layer family lorentz has no Linaer; it has .*Linear"),
            ({"Linear": {"varient": "mt"}}, r"lorentz.Linear has no option 'varient'; it takes bias"),
        ],
    )
    def test_mistakes(self, options, message):
        with pytest.raises(ValueError, match=message):
            make_geometry("g", "Lorentz", "lorentz", c=1.0, options=options)


@pytest.fixture
def half_space():
    """The registries with a manifold and a family from outside of the package."""
    with mock.patch.dict(MANIFOLDS), mock.patch.dict(FAMILIES), mock.patch.dict(GEOMETRIES):
        register_manifold(HalfSpace)
        register_family(LayerFamily("halfspace", (HalfSpace,), {**FAMILIES["tangent"].layers, "Linear": Linear}))
        yield


class TestRegistry:
    """What a user registers is known everywhere; nothing is guessed from names of modules."""

    def test_a_new_manifold_has_the_tangent_layers_and_its_own_family(self, half_space):
        for family in ("tangent", "halfspace"):
            g = make_geometry("mine", "HalfSpace", family, c=0.5, learn_c=True, parts={"classifier": "euclidean"})
            layer, x = g.linear(3, 4).double(), g.manifold.random(5, 3, dtype=F64)
            assert (type(layer) is Linear) == (family == "halfspace")
            assert g.manifold.check_point_on_manifold(layer(x).detach())
            with pytest.raises(ValueError, match=rf"^{family}.Linear: takes points of HalfSpace with 3 coordinates"):
                layer(x[:, :2])
            flat = ChangeGeometry(g, g.part("classifier"))(x)
            torch.testing.assert_close(ChangeGeometry(g.part("classifier"), g)(flat), x)
        with pytest.raises(ValueError, match="layer family halfspace is defined on HalfSpace, not on Klein"):
            make_geometry("mine", "Klein", "halfspace", c=0.5)
        with pytest.raises(ValueError, match=r"halfspace.Linear: the family is defined on HalfSpace, got .* Klein"):
            Linear(Klein(1.0), 3, 4)(torch.zeros(2, 3))

    def test_a_part_on_it_shares_the_curvature(self, half_space):
        register_geometry("half", "HalfSpace", "tangent")
        pair = {"name": "flat half", "manifold": "HalfSpace", "layers": "halfspace"}
        g = make_geometry("poincare", "PoincareBall", "mobius", c=0.3, learn_c=True, parts={"a": "half", "b": pair})
        assert g.part("a").manifold is g.part("b").manifold
        assert g.part("a").manifold.free_c is g.manifold.free_c
        assert (g.part("a").name, g.part("b").name) == ("half", "flat half")
        x = g.manifold.random(6, 3, std=0.3, dtype=F64)
        torch.testing.assert_close(ChangeGeometry(g.part("a"), g)(ChangeGeometry(g, g.part("a"))(x)), x)

    def test_names_are_given_once(self, half_space):
        register_manifold(HalfSpace)
        register_geometry("poincare", "PoincareBall", "mobius")
        with pytest.raises(ValueError, match="another manifold is registered as 'HalfSpace'"):
            register_manifold(type("Other", (HalfSpace,), {}))
        with pytest.raises(ValueError, match="another layer family is registered as 'mobius'"):
            register_family(LayerFamily("mobius", None, {}))
        with pytest.raises(ValueError, match="another geometry is registered as 'poincare'"):
            register_geometry("poincare", "PoincareBall", "tangent")
        with pytest.raises(ValueError, match="geometry mine: the layer family mobius is defined on PoincareBall, not on"):
            register_geometry("mine", "HalfSpace", "mobius")

    def test_settings_go_to_the_manifold_and_unknown_ones_are_refused(self, half_space):
        g = make_geometry("mine", "HalfSpace", "tangent", c=0.5, settings={"height": 3.0})
        assert g.manifold.origin(2)[1] == 3
        for settings, kind, layers, message in (
            ({"hight": 3.0}, "HalfSpace", "tangent", r"settings.hight: the manifold HalfSpace .* it has height"),
            ({"c": 3.0}, "HalfSpace", "tangent", r"settings.c: the manifold HalfSpace has no setting 'c'"),
            ({"height": 3.0}, "Lorentz", "lorentz", r"settings.height: the manifold Lorentz .* it has none"),
            ({"height": 3.0}, "Euclidean", "euclidean", r"settings.height: the manifold Euclidean .* it has none"),
        ):
            with pytest.raises(ValueError, match=message):
                make_geometry("mine", kind, layers, c=0.5, settings=settings)

    def test_a_part_of_which_something_is_missing(self):
        with pytest.raises(ValueError, match=r"geometry.parts.ffnn: needs a name, a manifold and layers, got name"):
            make("poincare", parts={"ffnn": {"name": "klein"}})

    def test_models_refuse_the_manifolds_that_their_formulas_are_not_for(self, half_space):
        g = make_geometry("mine", "HalfSpace", "tangent", c=0.5)
        sizes = {"n_entities": 4, "n_relations": 2, "sparse": False, "d": 4}
        for model, options, fitting in (
            (MuR, {"init_std": 0.1}, "euclidean or hatt or poincare .*klein_tangent"),
            (Rotation, {"init_std": 0.1, "learn_c_per_relation": False}, "euclidean or hatt or poincare"),
            (TransE, {"margin": 1.0, "p": 1}, "euclidean or hatt, or another model, as by encoder="),
        ):
            with pytest.raises(ValueError, match=rf"{model.__name__} is defined on .*, not with geometry=mine; .*{fitting}"):
                model(g, **sizes, **options)
        for name in ("klein", "lorentz_tangent"):  # whose linear layers have no variants
            with pytest.raises(ValueError, match=rf"HyboNet .* not with geometry={name}; choose geometry=lorentz, or"):
                HyboNet(make(name), 3, 4, False, 2, "relu", 0.0, "gcn", {})

    def test_is_curved_and_is_hyperbolic(self):
        kinds = {name: (kind.is_curved, kind.is_hyperbolic) for name, kind in MANIFOLDS.items()}
        assert kinds.pop("Euclidean") == (False, False)
        assert set(kinds.values()) == {(True, True)}
        assert (HalfSpace(2.0).is_curved, HalfSpace(2.0).is_hyperbolic) == (True, False)


DEFAULTS = {
    "mobius": {"Linear": {"bias_std": 0.5}, "Logits": {"point_std": 0.1}},
    "euclidean": {"Logits": {"scale": 4.0}},
    "lorentz": {"Linear": {"variant": "mt"}},
}


class TestWithDefaults:
    """Defaults of layers that a model's paper has, by family."""

    def test_each_part_takes_those_for_its_own_family(self):
        geometry = make("poincare", parts={"classifier": "euclidean", "ffnn": "lorentz"}).with_defaults(DEFAULTS)
        for layers in (geometry, geometry.part("encoder")):
            assert layers.linear(3, 4).bias.any()
            assert layers.logits(3, 4).p.any()
        flat = geometry.part("classifier")
        assert flat.logits(3, 4).scale == 4
        assert not flat.linear(3, 4).bias.any()
        assert geometry.part("ffnn").linear(3, 4).variant == "mt"
        assert not make("poincare_tangent").with_defaults(DEFAULTS).options

    def test_options_and_what_the_model_passes_come_first(self):
        options = {"Linear": {"bias_std": 0.0}}
        geometry = make_geometry("poincare", "PoincareBall", "mobius", c=1.0, options=options)
        changed = geometry.with_defaults(DEFAULTS)
        assert not changed.linear(3, 4).bias.any()
        assert changed.logits(3, 4).p.any()
        assert not changed.logits(3, 4, point_std=0.0).p.any()
        geometry.check_options()  # the layers that the one has made count for the other
        assert geometry.options == options

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"gyro": {}}, r"defaults of layers: unknown value 'gyro'; available: euclidean, hatt, mobius"),
            ({"lorentz": {"Lineal": {}}}, r"layer family lorentz has no Lineal; it has .*Linear"),
            ({"mobius": {"MultiHeadAttention": {}}}, r"layer family mobius has no MultiHeadAttention"),
            ({"mobius": {"Logits": {"scale": 4.0}}}, r"mobius.Logits has no option 'scale'; it takes .*point_std"),
            ({"mobius": {"Logits": {"d": 4}}}, r"mobius.Logits has no option 'd'"),
        ],
    )
    def test_mistakes(self, settings, message):
        with pytest.raises(ValueError, match=message):
            make("poincare").with_defaults(settings)


def test_what_is_no_manifold_is_not_registered():
    class Nameless(Euclidean):
        name = None

    class Fixed(Euclidean):
        is_curved, name = True, "fixed"

    for manifold, message in (
        (Euclidean(), "takes a subclass of hyperbolic.manifolds.Manifold"),
        (Nameless, "Nameless has no name; give the class one, as name = 'Nameless'"),
        (Manifold, "Manifold has no name|Manifold lacks _dist"),
        (Fixed, "Fixed: its constructor does not take c and learn_c"),
    ):
        with pytest.raises(ValueError, match=message):
            register_manifold(manifold)
