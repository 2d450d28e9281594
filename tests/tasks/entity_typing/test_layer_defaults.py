"""Each layer gets the options that the papers' programs have, in every geometry that a configuration names."""

import pytest

from configs import checks, composing, files
from configs.build import build
from hyperbolic.geometry import Geometry

HYFI = {
    "Dropout": {"space": "tangent"}, "Linear": {"bias_std": 1e-3}, "RNN": {"bias_std": 1e-5}, "GRU": {"bias_std": 1e-5},
    "Concat": {"bias_std": 1e-5}, "Logits": {"point_std": 1e-5},
}  # fmt: skip
FLAT = {"Logits": {"scale": 4.0}}
SHIMIZU = {layer: HYFI[layer] for layer in ("Dropout", "RNN", "GRU")}
TRANSLATION = ("Linear", "MultiHeadAttention", "Residual", "FeedForward", "PositionEncoding", "Concat")
MT = {layer: {"variant": "mt"} for layer in TRANSLATION}
# What reaches the layers, by encoder and geometry: written down when these options were chosen by signatures.
EXPECTED = {
    "gru": {
        "poincare": HYFI, "klein": HYFI, "poincare_pp": SHIMIZU, "euclidean": FLAT, "hatt": FLAT, "lorentz": {},
        "poincare_tangent": FLAT, "lorentz_tangent": FLAT, "klein_tangent": FLAT,
    },
    "transformer": {
        "lorentz": {**MT, "MultiHeadAttention": {"variant": "mt", "temperature": "head"}, "Logits": {"beta": 14}}
    },
}  # fmt: skip
# hype_han has parts that only an encoder of documents has
GEOMETRIES = sorted(file.stem for file in (files.FOLDER / "geometry").glob("*.yaml") if file.stem != "hype_han")


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    composing.register()


def reached(tmp_path, monkeypatch, *words: str) -> dict[tuple[str, str], dict]:
    """The options of the layers that the toy task's network is built of, by geometry and layer class, without those
    that the network passes itself."""
    options, make = {}, Geometry._make

    def recorded(self, layer, *sizes, **passed):
        options[self.name, layer] = dict(self.options.get(layer, {}))
        return make(self, layer, *sizes, **passed)

    monkeypatch.setattr(Geometry, "_make", recorded)
    places = f"paths.data_dir={tmp_path}", f"paths.output_dir={tmp_path}"
    build(checks.check(composing.composed("task=entity_typing_toy", *places, *words)))
    return options


@pytest.mark.parametrize(
    ("encoder", "geometry"),
    [("gru", name) for name in GEOMETRIES]
    + [("transformer", name) for name in GEOMETRIES if name not in ("poincare", "klein")],  # no multi-head attention
)
def test_options_reach_the_layers_as_ever(tmp_path, monkeypatch, encoder, geometry):
    options = reached(tmp_path, monkeypatch, f"encoder={encoder}", f"geometry={geometry}")
    expected = EXPECTED[encoder].get(geometry, {})
    assert {layer for _, layer in options} >= {"Dropout", "Linear", "Concat", "Logits", "Attention"}
    assert options == {(geometry, layer): expected.get(layer, {}) for _, layer in options}
    if encoder == "gru":
        assert {layer for _, layer in options} >= {"RNN", "GRU"}


def test_a_part_gets_the_options_of_its_own_family(tmp_path, monkeypatch):
    words = "geometry=poincare", "+geometry.parts.classifier=euclidean", "+geometry.parts.concat=poincare_pp"
    options = reached(tmp_path, monkeypatch, "fidelity=code", "+geometry.options.GRU.bias_std=0.5", *words)
    coordinates = {"Dropout": {"space": "coordinates"}}
    expected = {
        "poincare": HYFI | coordinates | {"GRU": {"bias_std": 0.5}},
        "euclidean": FLAT,
        "poincare_pp": coordinates,
    }
    assert {name for name, _ in options} == set(expected)
    assert all(values == expected[name].get(layer, {}) for (name, layer), values in options.items())
