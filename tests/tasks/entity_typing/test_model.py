"""The networks of entity typing, whichever geometry their parts have."""
import functools

import pytest
import torch
from geoopt import ManifoldParameter

from hyperbolic.encoders.transformer import TransformerEncoder
from hyperbolic.geometry import GEOMETRIES, make_geometry
from tasks.entity_typing.hyfi import HyFiSettings
from tasks.entity_typing.model import EntityTyper
from tasks.entity_typing.points import WordPoints
from tasks.errors import UserError
from tests.tasks.entity_typing.networks import (
    EVERYWHERE,
    F64,
    GRU,
    MODEL,
    N_CHARACTERS,
    PLACES,
    SETTINGS,
    TRANSFORMER,
    K,
    anything,
    example,
    geometry,
    inventory,
    model,
    wider,
    words,
    zeros,
)


@EVERYWHERE
@torch.no_grad()
def test_neither_padding_nor_the_rest_of_the_batch_changes_a_prediction(batch, encoder, name):
    net, order = model(name, encoder).eval(), torch.tensor([2, 0, 3, 1])
    logits = net(batch)
    moved = wider({k: v[order] for k, v in batch.items()}, 1, anything)
    torch.testing.assert_close(net(moved), logits[order], **MODEL)
    for i in (1, 2):
        torch.testing.assert_close(net(example(batch, i)), logits[i : i + 1], **MODEL)


@pytest.mark.parametrize(("encoder", "name"), [(GRU, "poincare"), (TRANSFORMER, "lorentz")])
def test_without_a_mask_padding_counts_as_in_the_official_code(batch, encoder, name):
    net = model(name, encoder, {"mask_padding": False}).eval()
    masked = model(name, encoder).eval()
    masked.load_state_dict(net.state_dict())
    assert not torch.allclose(net(batch), net(wider(batch, 1, zeros)), rtol=1e-4)
    whole = example(batch, 0)  # nothing is padded
    masked.text.words.table = net.text.words.table
    torch.testing.assert_close(net(whole), masked(whole))
    assert not torch.allclose(net(batch), masked(batch), rtol=1e-4)


@EVERYWHERE
def test_every_parameter_gets_a_gradient(batch, encoder, name):
    """That of the curvature too, where it is learned."""
    net = model(name, encoder, learn_c=True)
    net.classifier.bce(net.features(batch), batch["targets"]).backward()
    parameters = dict(net.named_parameters())
    assert any("free_c" in n for n in parameters) == (GEOMETRIES[name][0] != "Euclidean")
    for place, p in parameters.items():
        assert p.grad is not None, place
        assert p.grad.isfinite().all(), place
        assert p.grad.any(), place


@pytest.mark.parametrize("component", EntityTyper.components)
@pytest.mark.parametrize(
    ("base", "other", "encoder"),
    [("poincare", "euclidean", GRU), ("euclidean", "poincare", GRU), ("lorentz", "euclidean", TRANSFORMER)],
)
def test_a_switch_changes_the_geometry_of_exactly_its_component(batch, base, other, encoder, component):
    """Table 5, and the other way round: every layer and parameter of the component, and no other."""
    net = model(base, encoder, parts={component: other})
    kinds = {part: GEOMETRIES[other if part == component else base][0] for part in EntityTyper.components}
    components = set()
    for place, layer in net.named_modules():
        head, *rest = place.split(".")
        part = "classifier" if head == "classifier" else None
        if head == "text" and rest:
            part = next((p for p, names in PLACES[net.design].items() if rest[0] in names), None)
        if part is None or not hasattr(layer, "manifold"):
            continue
        components.add(part)
        assert type(layer.manifold).__name__ == kinds[part], place
        for key, p in layer.named_parameters(recurse=False):
            kind = type(p.manifold).__name__ if isinstance(p, ManifoldParameter) else "Euclidean"
            assert kind in ("Euclidean", kinds[part]), f"{place}.{key}"
    assert components == set(EntityTyper.components)
    x = net.features(batch)
    assert net.manifold is net.classifier.manifold
    assert net.manifold.check_point_on_manifold(x)
    assert x.shape[-1] == net.manifold.ambient_dim(net.text.d_out)


def test_log_at_the_origin_stands_where_the_components_meet(batch):
    """A Euclidean concatenation takes log_0 of the hyperbolic points, and its result goes through exp_0."""
    net = model(parts={"concat": "euclidean"})
    text, ball = net.text, net.manifold
    (mention, context), characters = text.attention_inputs(batch), text.character_points(batch)
    parts = [text.mention_attention(*mention)[0], text.context_attention(*context)[0], characters]
    joined = text.concat(*(ball.logmap0(x) for x in parts))
    torch.testing.assert_close(net.features(batch), ball.expmap0(joined))


@pytest.mark.parametrize("midpoint", ["encoder", "attention"])
def test_the_characters_meet_in_the_encoders_or_the_attentions_geometry(batch, midpoint):
    settings = {"hyfi": HyFiSettings(True, "tanh", {}, midpoint=midpoint)}
    net = model(parts={"encoder": "euclidean"}, settings=settings)
    text, ball = net.text, net.manifold
    states, _ = text.spelling(text.characters(batch["characters"]), text.length(batch, "characters"))
    mask = text.mask(batch, "characters")
    if midpoint == "attention":
        points = geometry("poincare").centroid()(ball.expmap0(states), mask=mask)
    else:
        points = geometry("euclidean").centroid()(states, mask=mask)
    torch.testing.assert_close(text.character_points(batch), points)
    assert net(batch).isfinite().all()


def test_the_three_parts_are_joined_in_the_order_that_is_given(batch):
    order = ("mention", "characters", "context")
    net = model(settings={"hyfi": HyFiSettings(True, "tanh", {}, order=order)})
    text = net.text
    (mention, context), characters = text.attention_inputs(batch), text.character_points(batch)
    parts = [text.mention_attention(*mention)[0], characters, text.context_attention(*context)[0]]
    torch.testing.assert_close(net.features(batch), text.concat(*parts))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"midpoint": "concat"}, "task.model.hyfi.midpoint must be one of encoder, attention"),
     ({"order": ["mention", "context"]}, "must have each of mention, context, characters once")],
)  # fmt: skip
def test_settings_of_the_text_that_cannot_be_are_named(changes, words):
    with pytest.raises(UserError, match=words):
        HyFiSettings(True, "tanh", {}, **changes)


@pytest.mark.parametrize(("s", "published"), [(20, 1.8e6), (50, 4.6e6), (100, 9.5e6)])
@pytest.mark.parametrize("name", ["poincare", "euclidean"])
def test_sizes_give_the_papers_numbers_of_parameters(name, s, published):
    made = geometry(name)
    net = EntityTyper(made, GRU, words(5, 100), inventory(8_850), 100, **{**SETTINGS, "s": s})
    assert net.text.d_out == 5 * s
    assert sum(p.numel() for p in net.parameters() if p.requires_grad) == pytest.approx(published, rel=0.02)


def test_word_vectors_are_neither_trained_nor_saved_and_move_with_the_model():
    net = model()
    table = net.text.words.table
    assert not table.requires_grad
    assert not any(p.numel() == table.numel() for p in [*net.state_dict().values(), *net.parameters(), *net.buffers()])
    assert net.to("meta").text.words.table.device.type == "meta"


@pytest.mark.parametrize("name", ["poincare", "lorentz", "euclidean"])
def test_only_the_words_of_a_batch_have_the_dtype_of_the_model(name):
    """The table stays the one that was read, in whatever precision and space the words are used."""
    vectors, rows = words(), torch.tensor([[0, 3, 3], [29, 1, 0]])
    layer = WordPoints(vectors, geometry(name, c=1.7), 0.0)
    single = layer(rows)
    double = layer.double().cpu()(rows)
    assert (single.dtype, double.dtype) == (torch.float32, F64)
    torch.testing.assert_close(double.float(), single)
    assert layer.float()(rows).dtype == torch.float32
    assert layer.table is vectors.tangent


@pytest.mark.parametrize("name", GEOMETRIES)
def test_words_are_the_points_that_the_vectors_say(name):
    vectors, rows = words(), torch.tensor([[0, 3], [29, 1]])
    made = geometry(name, c=1.7)
    expected = vectors.points(made.manifold)[rows]
    torch.testing.assert_close(WordPoints(vectors, made, 0.0)(rows), expected)
    if name != "euclidean" and GEOMETRIES[name][0] != "Euclidean":
        moving = WordPoints(vectors, geometry(name, c=1.7, learn_c=True), 0.0)
        assert moving.moving
        torch.testing.assert_close(moving(rows), expected)
        assert moving(rows).requires_grad


def test_a_learned_curvature_gets_the_gradient_of_the_words_places(batch):
    """The derivative by c of the loss, against a central difference."""
    net = model(learn_c=True)

    def loss() -> torch.Tensor:
        return net(batch).square().mean()

    free = net.manifold.free_c
    loss().backward()
    with torch.no_grad():
        free += 1e-5
        above = loss()
        free -= 2e-5
        below = loss()
    torch.testing.assert_close(free.grad, (above - below) / 2e-5, rtol=1e-5, atol=1e-9)


def test_dropout_acts_in_training_alone(batch):
    net = model(settings={"input_dropout": 0.3, "concat_dropout": 0.3})
    assert net.text.words.dropout.space == net.text.dropout.space == "coordinates"
    net.train()
    assert not torch.allclose(net(batch), net(batch))
    net.eval()
    torch.testing.assert_close(net(batch), net(batch))
    tangent = model(settings={"hyfi": HyFiSettings(True, "tanh", {"mobius": {"Dropout": {"space": "tangent"}}})})
    assert tangent.text.words.dropout.space == "tangent"


def test_a_papers_settings_reach_the_layers_that_have_them_and_give_way_to_the_users():
    assert model("euclidean").classifier.scale == 4
    assert model(parts={"classifier": "euclidean"}).classifier.scale == 4
    assert model("euclidean", TRANSFORMER).classifier.scale == 1
    made = make_geometry("euclidean", "Euclidean", "euclidean", options={"Logits": {"scale": 2.0}})
    net = EntityTyper(made, GRU, words(), inventory(K), N_CHARACTERS, **SETTINGS)
    assert net.classifier.scale == 2
    made.check_options()


@pytest.mark.parametrize(("encoder", "name"), [(GRU, "poincare"), (GRU, "klein"), (TRANSFORMER, "lorentz")])
def test_figures_get_queries_keys_and_weights(batch, encoder, name):
    net = model(name, encoder, c=0.7).eval()
    attentions = net.attentions(batch)
    assert list(attentions) == (["mention", "context"] if net.design == "hyfi" else ["context"])
    for kind, attention in attentions.items():
        inside = torch.arange(batch[kind].shape[1]) < batch[f"{kind}_length"].unsqueeze(-1)
        torch.testing.assert_close(attention.weights.sum(-1), torch.ones(4, dtype=F64))
        assert (attention.weights[~inside] == 0).all()
        assert attention.manifold.check_point_on_manifold(attention.queries)
        layer = getattr(net.text, f"{kind}_attention")
        if net.design == "hyfi":
            score = -layer.beta * attention.manifold.dist(attention.queries, attention.keys)
            expected = torch.softmax(score.masked_fill(~inside, -torch.inf), -1)
            torch.testing.assert_close(attention.weights, expected, **MODEL)


@EVERYWHERE
def test_class_points_lie_on_the_classifiers_manifold(encoder, name):
    net = model(name, encoder)
    manifold, points = net.class_points
    assert manifold is net.manifold
    assert points.shape == (K, manifold.ambient_dim(net.text.d_out))
    assert manifold.check_point_on_manifold(points)


def test_groups_are_the_types_granularities():
    assert model().groups.tolist() == [k % 3 for k in range(K)]


@pytest.mark.parametrize("design", ["hybonet", "hyfi"])
def test_an_encoder_with_too_few_positions_is_refused_when_the_model_is_built(design):
    short = functools.partial(TRANSFORMER, n_positions=24)
    with pytest.raises(
        UserError, match=r"encoder\.n_positions=24 is too small: .* 25 words .*encoder\.n_positions to 25"
    ):
        model("lorentz", short, {"design": design, "s": 4})
    assert model("lorentz", short, {"design": design, "s": 4, "max_context": 24}).design == design


def test_hybonet_needs_an_encoder_that_embeds_positions():
    message = r"task\.model\.design=hybonet needs .*RecurrentEncoder does not.*encoder=transformer"
    with pytest.raises(UserError, match=message):
        model(settings={"design": "hybonet"})


def test_the_design_follows_what_the_encoder_declares_and_not_its_class():
    class Declared(TransformerEncoder):
        embeds_positions = False

    assert model("lorentz", TRANSFORMER).design == "hybonet"
    assert model("lorentz", functools.partial(Declared, **TRANSFORMER.keywords), {"s": 4}).design == "hyfi"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"design": "bert"}, "task.model.design must be one of auto, hyfi, hybonet"),
        ({"s": 0}, "task.model.s must be a whole number of at least 1"),
        ({"d": -1}, "task.model.d must be a whole number of at least 1"),
        ({"max_context": 0}, "task.model.max_context must be"),
        ({"input_dropout": 1.0}, "task.model.input_dropout must be at least 0 and less than 1"),
        ({"concat_dropout": -0.1}, "task.model.concat_dropout must be"),
        ({"hyfi": HyFiSettings(True, None, {"moebius": {}})}, "defaults of layers.*'moebius'"),
        ({"hyfi": HyFiSettings(True, None, {"mobius": {"Liner": {}}})}, "mobius has no Liner"),
        ({"hyfi": HyFiSettings(True, None, {"mobius": {"Linear": {"bias_sd": 1}}})}, "mobius.Linear.*'bias_sd'"),
    ],
)
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        model(settings=settings)


def test_an_unknown_component_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="encoder, attention, concat, classifier"):
        model(parts={"mlr": "euclidean"})


@pytest.mark.parametrize("design", ["hyfi", "hybonet"])
def test_the_dropout_of_the_concatenation_meets_each_of_its_parts(batch, design):
    net = model(settings={"concat_dropout": 0.5}) if design == "hyfi" else model("lorentz", TRANSFORMER, {"concat_dropout": 0.5})
    dropped, joined = [], []
    net.text.dropout.register_forward_hook(lambda module, x, y: dropped.append(y))
    net.text.concat.register_forward_pre_hook(lambda module, x: joined.extend(x))
    net.train()(batch)
    assert len(joined) == len(dropped) == {"hyfi": 3, "hybonet": 2}[design]
    assert all(any(x is y for y in dropped) for x in joined)
    assert not torch.equal(net.features(batch), net.features(batch))
