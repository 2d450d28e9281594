"""The networks of entity typing are those of the papers, whichever geometry their parts have."""

import functools

import pytest
import torch
from geoopt import ManifoldParameter
from torch import nn

from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.encoders.transformer import TransformerEncoder
from hyperbolic.geometry import FAMILIES, GEOMETRIES, make_geometry
from hyperbolic.kernels.lorentz import lift
from tasks.entity_typing.model import EntityTyper
from tasks.entity_typing.points import WordPoints
from tasks.entity_typing.types import TypeInventory
from tasks.errors import UserError
from tasks.text import WordVectors
from tests.tolerances import tolerance

F64 = torch.float64
MODEL = tolerance(F64, "model")
GRU = functools.partial(RecurrentEncoder, cell="gru", nonlinearity=None, bidirectional=False)
RNN = functools.partial(RecurrentEncoder, cell="rnn", nonlinearity=None, bidirectional=False)
SIZES = {"n_layers": 1, "n_heads": 2, "d_feed_forward": 9, "n_positions": 25, "norm": "post"}
TRANSFORMER = functools.partial(TransformerEncoder, **SIZES, dropout=0.0, attention_dropout=0.0)
LAYERS = {
    "hyfi": {
        "Dropout": {"space": "coordinates"},
        "Linear": {"bias_std": 0.3},
        "RNN": {"bias_std": 0.3},
        "GRU": {"bias_std": 0.3},
        "Concat": {"bias_std": 0.3},
        "Logits": {"point_std": 0.3, "scale": 4.0},
    },
    "hybonet": {},
}
N_WORDS, D_WORD, N_CHARACTERS, K = 30, 6, 13, 9
SETTINGS = {
    "design": None, "s": 3, "d": 8, "max_mention": 5, "max_context": 25, "input_dropout": 0.0, "concat_dropout": 0.0,
    "mask_padding": True, "bidirectional": True, "nonlinearity": "tanh", "layers": LAYERS,
}  # fmt: skip
# what of the text belongs to which component
PLACES = {
    "hyfi": {
        "encoder": ("words", "mention", "activation", "characters", "spelling", "midpoint", "context"),
        "attention": ("mention_attention", "context_attention"),
        "concat": ("dropout", "concat"),
    },
    "hybonet": {
        "encoder": ("words", "context", "centroid"),
        "attention": ("context_attention",),
        "concat": ("dropout", "concat"),
    },
}
HYFI = [(GRU, name) for name in GEOMETRIES] + [(RNN, name) for name in ("poincare", "euclidean")]
HYBONET = [(TRANSFORMER, name) for name, (_, f) in GEOMETRIES.items() if hasattr(FAMILIES[f], "MultiHeadAttention")]
EVERYWHERE = pytest.mark.parametrize(("encoder", "name"), HYFI + HYBONET)


def words(n: int = N_WORDS, d: int = D_WORD) -> WordVectors:
    tangent = 0.4 * torch.randn(n, d)
    tangent[0] = 0
    return WordVectors({}, tangent, "words.txt", "0", "euclidean")


def inventory(k: int) -> TypeInventory:
    return TypeInventory(tuple(f"type{i}" for i in range(k)), torch.arange(k) % 3, lambda: torch.zeros(0, 3).long())


def geometry(name: str, c: float = 0.7, **options):
    manifold, layers = GEOMETRIES[name]
    if manifold == "Euclidean" and "parts" not in options:
        c, options = None, {}
    return make_geometry(name, manifold, layers, c=c, **options)


def model(name="poincare", encoder=GRU, settings=None, **options) -> EntityTyper:
    made = geometry(name, **options)
    net = EntityTyper(made, encoder, words(), inventory(K), N_CHARACTERS, **{**SETTINGS, **(settings or {})}).double()
    with torch.no_grad():
        for p in net.parameters():  # zeros and ones away from their start
            if not isinstance(p, ManifoldParameter) and p.dim() < 2:
                p.add_(0.2 * torch.randn_like(p))
    return net


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    lengths = {"mention": [4, 1, 2, 3], "characters": [7, 1, 3, 5], "context": [8, 1, 5, 6]}
    rows = {"mention": N_WORDS, "characters": N_CHARACTERS, "context": N_WORDS}
    made = {}
    for name, true in lengths.items():
        length = torch.tensor(true)
        inside = torch.arange(max(true)) < length.unsqueeze(-1)
        made[name] = torch.where(inside, torch.randint(1, rows[name], inside.shape), 0)
        made[f"{name}_length"] = length
        if name == "context":
            made["positions"] = torch.where(inside, torch.randint(1, 52, inside.shape), 0)
    return {**made, "targets": torch.tensor([[0, 5], [3, -1], [8, 1], [2, 4]])}


def example(batch: dict, i: int) -> dict:
    """One example without any padding."""
    alone = {k: v[i : i + 1] for k, v in batch.items()}
    for name in ("mention", "characters", "context"):
        alone[name] = alone[name][:, : alone[f"{name}_length"]]
    return {**alone, "positions": alone["positions"][:, : alone["context_length"]]}


def wider(batch: dict, extra: int, fill) -> dict:
    """The same examples with more padding, filled with anything."""
    made = dict(batch)
    for name, length, high in (
        ("mention", "mention_length", N_WORDS),
        ("characters", "characters_length", N_CHARACTERS),
        ("context", "context_length", N_WORDS),
        ("positions", "context_length", 52),
    ):
        old = batch[name]
        new = torch.cat([old, old.new_zeros(len(old), extra)], 1)
        outside = torch.arange(new.shape[1]) >= batch[length].unsqueeze(-1)
        made[name] = torch.where(outside, fill(high, new.shape), new)
    return made


def zeros(high: int, shape: torch.Size) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.long)


def anything(high: int, shape: torch.Size) -> torch.Tensor:
    return torch.randint(1, high, shape)


def attended(layer: nn.Module, ball, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """``q = W_q r (+) b_q``, ``k = W_k r (+) b_k``, ``r = x (+) p``, the midpoint with softmax(-beta d(q, k))."""
    r = ball.mobius_add(x, layer.positions.weight[places])
    q, k = (ball.mobius_add(ball.mobius_matvec(m.weight, r), m.bias) for m in (layer.query, layer.key))
    weights = torch.exp(-layer.beta * ball.dist(q, k))
    return ball.centroid(x, weights / weights.sum(-1, keepdim=True))


def test_hyfi_is_the_formula_of_the_paper(batch):
    """Mention, characters and context by the ball's own operations, example by example without padding."""
    net = model(c=0.7)
    text, ball = net.text, net.manifold
    for attention in (text.mention_attention, text.context_attention):
        attention.beta.data.fill_(0.9)
    found = net.features(batch)
    for i in range(4):
        alone = example(batch, i)
        points = text.words(alone["mention"])
        points = ball.mobius_add(ball.mobius_matvec(text.mention.weight, points), text.mention.bias)
        points = ball.expmap0(torch.tanh(ball.logmap0(points)))
        mention = attended(text.mention_attention, ball, points, torch.arange(1, points.shape[1] + 1))

        cell, h, states = text.spelling, ball.origin(1, 3, dtype=F64), []
        for x in text.characters(alone["characters"]).unbind(1):
            h = ball.mobius_add(
                ball.mobius_matvec(cell.weight_hh[0, 0], h), ball.mobius_matvec(cell.weight_ih[0, 0], x)
            )
            h = ball.mobius_add(h, cell.bias[0, 0])
            states.append(h)
        characters = ball.centroid(torch.stack(states, 1))

        states = text.context(text.words(alone["context"]))[0]
        assert states.shape[-1] == 6
        context = attended(text.context_attention, ball, states, alone["positions"])

        m1, m2, m3 = (
            ball.mobius_matvec(w, x) for w, x in zip(text.concat.weights, (mention, context, characters), strict=True)
        )
        joined = ball.mobius_add(ball.mobius_add(ball.mobius_add(m1, m2), m3), text.concat.bias)
        torch.testing.assert_close(found[i : i + 1], joined, **MODEL)
    torch.testing.assert_close(net(batch), net.classifier(found))


def test_order_of_the_concatenation_matters_here(batch):
    """So that the test above would notice another order."""
    net = model(c=0.7)
    ball, concat = net.manifold, net.text.concat
    x = [0.5 * ball.random(4, d, dtype=F64) for d in concat.dims]
    m1, m2, m3 = (ball.mobius_matvec(w, p) for w, p in zip(concat.weights, x, strict=True))
    other = ball.mobius_add(ball.mobius_add(ball.mobius_add(m1, m3), m2), concat.bias)
    assert (concat(*x) - other).abs().max() > 1e-3


def test_hyfi_asks_its_encoder_for_both_ends_and_tanh():
    net = model()
    assert net.text.context.layer.bidirectional
    assert net.text.context.layer.nonlinearity == "tanh"
    assert net.text.spelling.nonlinearity == "identity"
    net = model(settings={"bidirectional": False, "nonlinearity": None})
    assert not net.text.context.layer.bidirectional
    assert net.text.context.layer.nonlinearity == "identity"
    assert net.text.context.d_out == 6


def test_hyfi_takes_any_encoder(batch):
    assert model("lorentz", TRANSFORMER, {"design": "hyfi", "s": 4})(batch).shape == (4, K)


def test_hybonet_is_the_formula_of_the_paper(batch):
    """Uniform centroid, softmax of -d_L^2(q, k)/sqrt(n), and mention and context joined as two heads are."""
    net = model("lorentz", TRANSFORMER, c=0.7)
    assert net.design == "hybonet"
    text, space = net.text, net.manifold
    found = net.features(batch)
    for i in range(4):
        alone = example(batch, i)
        mention = space.centroid(text.context.enter(text.words(alone["mention"])))
        states = text.context(text.words(alone["context"]))[0]
        layer = text.context_attention
        moved = layer.add.affine.join(states, layer.positions(alone["positions"]))
        q, k = layer.query(moved), layer.key(moved)
        q_time, k_time = q[..., 0], k[..., 0]
        product = (q[..., 1:] * k[..., 1:]).sum(-1) - q_time * k_time
        weights = torch.softmax((2 / 0.7 + 2 * product) / 8**0.5, -1)
        context = space.centroid(states, weights)
        heads = lift(torch.cat([mention[..., 1:], context[..., 1:]], -1), space.c)
        torch.testing.assert_close(found[i : i + 1], text.concat.affine(heads), **MODEL)


def test_hybonets_mention_and_context_share_words_and_positions(batch):
    net = model("lorentz", TRANSFORMER)
    assert len([n for n, _ in net.named_parameters() if ".positions." in n and "context_attention" not in n]) == 3
    entered = net.text.context.enter(net.text.words(batch["context"]))
    stack = net.text.context.stacks[0]
    torch.testing.assert_close(entered, stack.positions(stack.project(net.text.words(batch["context"]))))


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
    seen = set()
    for place, layer in net.named_modules():
        head, *rest = place.split(".")
        part = "classifier" if head == "classifier" else None
        if head == "text" and rest:
            part = next((p for p, names in PLACES[net.design].items() if rest[0] in names), None)
        if part is None or not hasattr(layer, "manifold"):
            continue
        seen.add(part)
        assert type(layer.manifold).__name__ == kinds[part], place
        for key, p in layer.named_parameters(recurse=False):
            kind = type(p.manifold).__name__ if isinstance(p, ManifoldParameter) else "Euclidean"
            assert kind in ("Euclidean", kinds[part]), f"{place}.{key}"
    assert seen == set(EntityTyper.components)
    x = net.features(batch)
    assert net.manifold is net.classifier.manifold
    assert net.manifold.check_point_on_manifold(x)
    assert x.shape[-1] == net.manifold.ambient_dim(net.text.d_out)


def test_log_at_the_origin_stands_where_the_components_meet(batch):
    """A Euclidean concatenation takes log_0 of the hyperbolic points, and its result goes through exp_0."""
    net = model(parts={"concat": "euclidean"})
    text, ball = net.text, net.manifold
    (mention, context), characters = text.encoded(batch), text.spelled(batch)
    parts = [text.mention_attention(*mention)[0], text.context_attention(*context)[0], characters]
    joined = text.concat(*(ball.logmap0(x) for x in parts))
    torch.testing.assert_close(net.features(batch), ball.expmap0(joined))


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
    tangent = model(settings={"layers": {"hyfi": {"Dropout": {"space": "tangent"}}}})
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
    found = net.attentions(batch)
    assert list(found) == (["mention", "context"] if net.design == "hyfi" else ["context"])
    for kind, seen in found.items():
        inside = torch.arange(batch[kind].shape[1]) < batch[f"{kind}_length"].unsqueeze(-1)
        torch.testing.assert_close(seen.weights.sum(-1), torch.ones(4, dtype=F64))
        assert (seen.weights[~inside] == 0).all()
        assert seen.manifold.check_point_on_manifold(seen.queries)
        layer = getattr(net.text, f"{kind}_attention")
        if net.design == "hyfi":
            score = -layer.beta * seen.manifold.dist(seen.queries, seen.keys)
            expected = torch.softmax(score.masked_fill(~inside, -torch.inf), -1)
            torch.testing.assert_close(seen.weights, expected, **MODEL)


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


def test_hybonet_needs_an_encoder_with_an_entrance():
    with pytest.raises(UserError, match=r"task\.model\.design=hybonet.*encoder=transformer"):
        model(settings={"design": "hybonet"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"design": "bert"}, "task.model.design must be one of hyfi, hybonet"),
        ({"s": 0}, "task.model.s must be a whole number of at least 1"),
        ({"d": -1}, "task.model.d must be a whole number of at least 1"),
        ({"max_context": 0}, "task.model.max_context must be"),
        ({"input_dropout": 1.0}, "task.model.input_dropout must be at least 0 and less than 1"),
        ({"concat_dropout": -0.1}, "task.model.concat_dropout must be"),
        ({"layers": {"hyphy": {}}}, "task.model.layers must be one of hyfi, hybonet"),
        ({"layers": {"hyfi": {"Liner": {}}}}, "no layer family has a Liner"),
        ({"layers": {"hyfi": {"Linear": {"bias_sd": 1}}}}, "no Linear of any family has an option 'bias_sd'"),
    ],
)
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        model(settings=settings)


def test_an_unknown_component_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="encoder, attention, concat, classifier"):
        model(parts={"mlr": "euclidean"})
