"""The Transformer written against a geometry: torch's layers in flat space, decoding by steps, masks, streams."""

import pytest
import torch
from torch import nn

from hyperbolic.encoders.transformer import TransformerDecoder, TransformerEncoder
from hyperbolic.encoders.transformer_layers import TransformerDecoderLayer, TransformerEncoderLayer
from hyperbolic.geometry import FAMILIES, GEOMETRIES, make_geometry
from hyperbolic.layers.guard import OffManifoldError, validate_points
from tests.tolerances import tolerance

F64 = torch.float64
IDENTITY, MODEL = tolerance(F64, "identity"), tolerance(F64, "model")
SUPPORTED = [name for name, (_, family) in GEOMETRIES.items() if "MultiHeadAttention" in FAMILIES[family].layers]
LENGTHS = torch.tensor([5, 1, 3])
GEOMETRY = pytest.mark.parametrize("name", SUPPORTED)
NORM = pytest.mark.parametrize("norm", ["post", "pre", "none"])


def geometry(name: str, c: float = 2.0, learn_c: bool = False):
    manifold, layers = GEOMETRIES[name]
    flat = manifold == "Euclidean"
    return make_geometry(name, manifold, layers, c=None if flat else c, learn_c=learn_c and not flat)


SIZES = {"d_in": 3, "d_hidden": 4, "n_layers": 2, "n_heads": 2, "d_feed_forward": 7, "n_positions": 6}
SIZES |= {"dropout": 0.0, "attention_dropout": 0.0}


NORMLESS = [name for name in SUPPORTED if not list(geometry(name).norm(4).parameters())]


def encoder(name: str, streams: int = 1, norm: str = "post", **sizes) -> TransformerEncoder:
    return spread(TransformerEncoder(geometry(name), **{**SIZES, **sizes}, norm=norm, streams=streams).double())


def decoder(name: str, norm: str = "post", **sizes) -> TransformerDecoder:
    return spread(TransformerDecoder(geometry(name), **{**SIZES, **sizes}, norm=norm).double())


def spread(net: nn.Module) -> nn.Module:
    """Biases, positions and norms away from their start, at which some of them do not show."""
    with torch.no_grad():
        for p in net.parameters():
            if not hasattr(p, "manifold") and p.dim() < 2:
                p.add_(0.2 * torch.randn_like(p))
    return net


def manifold_of(net: nn.Module):
    return net.stacks[0].positions.manifold if isinstance(net, TransformerEncoder) else net.stack.positions.manifold


def points(net: nn.Module, *size: int) -> torch.Tensor:
    return manifold_of(net).random(*size, std=0.5, dtype=F64)


def copy_attention(ours, merge, theirs) -> None:
    d = ours.d
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias[:d], theirs.in_proj_bias[2 * d :] = ours.query.bias, ours.value.bias
        theirs.out_proj.load_state_dict(merge.affine.state_dict())


def copy_layer(ours, theirs) -> None:
    """A layer of ours, with its norms, into torch's layer."""
    copy_attention(ours.attention, ours.merge, theirs.self_attn)
    if isinstance(ours, TransformerDecoderLayer):
        copy_attention(ours.cross_attention, ours.cross_merge, theirs.multihead_attn)
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.join.affine.state_dict())
    for i, norm in enumerate(ours.norms):
        getattr(theirs, f"norm{i + 1}").load_state_dict(norm.state_dict())


def same_gradients(ours, theirs, x, *parameters) -> None:
    weight = torch.randn_like(ours)
    pairs = zip(
        torch.autograd.grad((weight * ours).sum(), [x, *(p for p, _ in parameters)]),
        torch.autograd.grad((weight * theirs).sum(), [x, *(p for _, p in parameters)]),
        strict=True,
    )
    for a, b in pairs:
        torch.testing.assert_close(a, b, **IDENTITY)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("masked", [False, True])
def test_the_euclidean_encoder_layer_is_torchs(norm, masked):
    layer = spread(TransformerEncoderLayer(geometry("euclidean"), 6, 3, 10, 0.3, 0.3, norm).double()).eval()
    peer = nn.TransformerEncoderLayer(6, 3, 10, 0.3, batch_first=True, norm_first=norm == "pre").double().eval()
    copy_layer(layer, peer)
    x = torch.randn(3, 5, 6, dtype=F64, requires_grad=True)
    mask = torch.arange(5) < LENGTHS[:, None]
    ours, theirs = layer(x, mask if masked else None), peer(x, src_key_padding_mask=~mask if masked else None)
    torch.testing.assert_close(ours, theirs, **IDENTITY)
    same_gradients(ours, theirs, x, (layer.feed_forward.expand.weight, peer.linear1.weight))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("masked", [False, True])
def test_the_euclidean_decoder_layer_is_torchs(norm, masked):
    layer = spread(TransformerDecoderLayer(geometry("euclidean"), 6, 2, 10, 0.3, 0.3, norm).double()).eval()
    peer = nn.TransformerDecoderLayer(6, 2, 10, 0.3, batch_first=True, norm_first=norm == "pre").double().eval()
    copy_layer(layer, peer)
    x, memory = torch.randn(3, 4, 6, dtype=F64, requires_grad=True), torch.randn(3, 5, 6, dtype=F64)
    own, other = torch.arange(4) < torch.tensor([[4], [1], [2]]), torch.arange(5) < LENGTHS[:, None]
    later = ~torch.ones(4, 4, dtype=torch.bool).tril()
    ours = layer(x, memory, own if masked else None, other if masked else None)
    hidden = {"tgt_key_padding_mask": ~own, "memory_key_padding_mask": ~other} if masked else {}
    theirs = peer(x, memory, tgt_mask=later, **hidden)
    torch.testing.assert_close(ours, theirs, **IDENTITY)
    same_gradients(ours, theirs, x, (layer.cross_merge.affine.weight, peer.multihead_attn.out_proj.weight))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_euclidean_encoder_is_torchs_on_points_with_positions(norm):
    net = encoder("euclidean", norm=norm, d_hidden=6)
    (stack,) = net.stacks
    layer = nn.TransformerEncoderLayer(6, 2, 7, 0.0, batch_first=True, norm_first=norm == "pre")
    last = nn.LayerNorm(6) if norm == "pre" else None
    peer = nn.TransformerEncoder(layer, 2, last, enable_nested_tensor=False).double()
    for ours, theirs in zip(stack.layers, peer.layers, strict=True):
        copy_layer(ours, theirs)
    if last is not None:
        peer.norm.load_state_dict(stack.norm.state_dict())
    x = points(net, 3, 5, 3)
    states, summary = net(x, LENGTHS)
    mask = torch.arange(5) < LENGTHS[:, None]
    entered = x @ stack.project.weight.T + stack.project.bias + stack.positions.table[:5]
    expected = peer(entered, src_key_padding_mask=~mask)
    torch.testing.assert_close(states, expected, **IDENTITY)
    mean = torch.stack([expected[b, :n].mean(0) for b, n in enumerate(LENGTHS)])
    torch.testing.assert_close(summary, mean, **IDENTITY)


def test_without_a_norm_the_layer_is_its_two_residuals():
    layer = spread(TransformerEncoderLayer(geometry("lorentz_tangent"), 4, 2, 7, 0.0, 0.0, "none").double())
    x = layer.attention.manifold.random(3, 5, 4, std=0.5, dtype=F64)
    first = layer.merge(layer.attention(x), x)
    torch.testing.assert_close(layer(x), layer.feed_forward(first), **IDENTITY)
    assert not layer.norms


@GEOMETRY
@NORM
def test_shapes_and_points(name, norm):
    net = encoder(name, norm=norm)
    manifold, x = manifold_of(net), points(net, 3, 5, 3)
    states, summary = net(x, LENGTHS)
    assert net.d_out == 4
    assert states.shape == (3, 5, manifold.ambient_dim(4))
    assert summary.shape == (3, manifold.ambient_dim(4))
    assert manifold.check_point_on_manifold(states.detach(), atol=1e-9)
    assert manifold.check_point_on_manifold(summary.detach(), atol=1e-9)
    whole, whole_summary = net(x)
    torch.testing.assert_close(whole, net(x, torch.full((3,), 5))[0], **IDENTITY)
    torch.testing.assert_close(whole_summary, manifold.centroid(whole), **IDENTITY)
    assert net(x[:0], LENGTHS[:0])[1].shape == (0, manifold.ambient_dim(4))
    same_size = encoder(name, d_in=4)
    assert same_size.stacks[0].project is None
    assert same_size(points(net, 3, 5, 4))[0].shape == states.shape


@GEOMETRY
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_never_changes_a_result(name, norm):
    net = encoder(name, norm=norm)
    x = points(net, 3, 5, 3)
    states, summary = net(x, LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        alone, alone_summary = net(x[b : b + 1, :length])
        torch.testing.assert_close(states[b, :length], alone[0], **MODEL)
        torch.testing.assert_close(summary[b], alone_summary[0], **MODEL)
    moved = x.clone()
    moved[1, 1:] = points(net, 4, 3)
    torch.testing.assert_close(net(moved, LENGTHS)[1], summary, **IDENTITY)


@GEOMETRY
def test_the_order_of_positions_counts(name):
    net = encoder(name)
    with torch.no_grad():
        for p in net.stacks[0].positions.parameters():
            p.mul_(10)
    x = points(net, 2, 5, 3)
    assert not torch.allclose(net(x)[1], net(x.flip(1))[1], rtol=1e-3, atol=1e-4)


@GEOMETRY
def test_streams_are_separate_encoders(name):
    both = encoder(name, streams=2)
    x, lengths = points(both, 2, 3, 5, 3), torch.tensor([[5, 1, 3], [2, 5, 4]])
    states, summary = both(x, lengths)
    assert states.shape[:3] == (2, 3, 5)
    for s in range(2):
        one = encoder(name)
        one.stacks[0].load_state_dict(both.stacks[s].state_dict())
        for inputs, expected in zip(one(x[s], lengths[s]), (states[s], summary[s]), strict=True):
            torch.testing.assert_close(inputs, expected, **IDENTITY)


@GEOMETRY
@pytest.mark.parametrize(("norm", "chunks"), [("post", (1, 1, 1, 1)), ("pre", (2, 2)), ("none", (3, 1))])
def test_decoding_step_by_step_is_decoding_at_once(name, norm, chunks):
    net = decoder(name, norm=norm)
    x, memory = points(net, 3, 4, 3), points(net, 3, 4, 4)
    lengths = torch.tensor([4, 1, 2])
    full = net(x, memory, lengths)
    assert manifold_of(net).check_point_on_manifold(full.detach(), atol=1e-9)
    state, parts = net.start(), []
    for part in x.split(chunks, 1):
        parts.append(net(part, memory, lengths, state))
    assert state.length == 4
    torch.testing.assert_close(torch.cat(parts, 1), full, **MODEL)
    changed = x.clone()
    changed[:, 3:] = points(net, 3, 1, 3)
    torch.testing.assert_close(net(changed, memory, lengths)[:, :3], full[:, :3], **IDENTITY)
    other = memory.clone()
    other[1, 1:], other[2, 2:] = points(net, 3, 4), points(net, 2, 4)
    torch.testing.assert_close(net(x, other, lengths), full, **IDENTITY)
    assert not torch.allclose(net(x, other), full)


@GEOMETRY
def test_a_beam_reorders_the_state(name):
    """Rows in another order, dropped and doubled, at several steps; memories of several lengths go with them."""
    net = decoder(name)
    x, memory, lengths = points(net, 3, 6, 3), points(net, 3, 4, 4), torch.tensor([4, 1, 2])
    rows, state = torch.arange(3), net.start(alignment=True)
    net(x[:, :3], memory, lengths, state)
    for step, order in ((3, [2, 0, 0, 1, 2, 2]), (4, [5, 5, 1, 3]), (5, [1, 0])):
        state.reorder(torch.tensor(order))
        rows = rows[order]
        out = net(x[rows, step : step + 1], memory[rows], lengths[rows], state)
        full = net(x[rows, : step + 1], memory[rows], lengths[rows], whole := net.start(alignment=True))
        torch.testing.assert_close(out, full[:, step:], **MODEL)
        torch.testing.assert_close(state.alignment, whole.alignment, **MODEL)


@GEOMETRY
def test_the_alignment_is_where_the_last_layer_looks(name):
    net = decoder(name, n_heads=2)
    x, memory, lengths = points(net, 3, 5, 3), points(net, 3, 4, 4), torch.tensor([4, 1, 2])
    state, seen = net.start(alignment=True), []
    assert state.alignment is None
    attention = net.stack.layers[-1].cross_attention
    hook = attention.register_forward_hook(lambda layer, args, result: seen.append(result[1].mean(1)))
    parts = [net(part, memory, lengths, state) for part in x.split([2, 1, 2], 1)]
    hook.remove()
    torch.testing.assert_close(state.alignment, torch.cat(seen, 1))
    assert state.alignment.shape == (3, 5, 4)
    torch.testing.assert_close(state.alignment.sum(-1), torch.ones(3, 5, dtype=F64))
    assert not state.alignment[1, :, 1:].any()  # padding of the memory
    assert not state.alignment[2, :, 2:].any()
    torch.testing.assert_close(torch.cat(parts, 1), net(x, memory, lengths), **MODEL)
    plain = net.start()
    net(x, memory, lengths, plain)
    assert plain.alignment is None


@GEOMETRY
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_no_step_depends_on_a_later_one(name, norm):
    """The gradient by later target points, and by the padding of the memory, is exactly 0."""
    net = decoder(name, norm=norm)
    x, memory = points(net, 2, 5, 3).requires_grad_(), points(net, 2, 4, 4).requires_grad_()
    out = net(x, memory, torch.tensor([3, 1]))
    for step in range(5):
        weight = torch.randn_like(out[:, step])
        by_x, by_memory = torch.autograd.grad((out[:, step] * weight).sum(), [x, memory], retain_graph=True)
        assert not by_x[:, step + 1 :].any()
        assert by_x[:, : step + 1].flatten(2).any(-1).all()
        assert not by_memory[0, 3:].any()
        assert not by_memory[1, 1:].any()
        assert by_memory[0, :3].any(-1).all()


@GEOMETRY
def test_the_residuals_reach_every_coordinate(name):
    """What a block is joined with gets to each coordinate of the result, whatever the block computes."""
    layer = spread(TransformerDecoderLayer(geometry(name), 4, 2, 7, 0.0, 0.0, "none").double())
    space = layer.attention.manifold
    x, o = space.random(4, std=0.5, dtype=F64), space.random(4, std=0.5, dtype=F64)
    first = space.ambient_dim(4) - 4
    joins = (layer.merge, layer.cross_merge, lambda o, x: layer.feed_forward(o, x))
    for join in joins:
        jacobian = torch.autograd.functional.jacobian(lambda t, join=join: join(o, t), x)
        assert jacobian[first:, first:].diagonal().abs().min() > 1e-3


@GEOMETRY
@NORM
def test_layer_states_are_what_the_layers_give(name, norm):
    net = encoder(name, norm=norm)
    x, inputs = points(net, 3, 5, 3), []
    (stack,) = net.stacks
    for layer in stack.layers:
        layer.register_forward_pre_hook(lambda layer, args: inputs.append(args[0]))
    states = net.layer_states(x, LENGTHS)
    assert len(states) == 3
    assert all(torch.equal(*pair) for pair in zip(states[:-1], inputs, strict=True))
    assert torch.equal(states[0], net.enter(x))
    assert torch.equal(states[-1], net(x, LENGTHS)[0])
    with pytest.raises(ValueError, match="layer_states: takes points .* got the shape .3, 5, .* for 2 streams"):
        encoder(name, streams=2, norm=norm).layer_states(x)
    with pytest.raises(ValueError, match="layer_states: takes points"):
        net.layer_states(x[0])


@GEOMETRY
@NORM
def test_every_parameter_gets_a_gradient(name, norm):
    source, target = encoder(name, streams=2, norm=norm), decoder(name, norm=norm)
    states, summary = source(points(source, 2, 3, 6, 3), torch.tensor([[6, 1, 3], [2, 5, 4]]))
    out = target(points(source, 3, 6, 3), states[0], torch.tensor([6, 1, 3]))
    ((out * torch.randn_like(out)).sum() + (summary * torch.randn_like(summary)).sum()).backward()
    for key, p in [*source.named_parameters(), *target.named_parameters()]:
        assert p.grad is not None, key
        assert torch.isfinite(p.grad).all(), key
        assert p.grad.any(), key


@pytest.mark.parametrize("name", [name for name in SUPPORTED if GEOMETRIES[name][0] != "Euclidean"])
def test_a_learned_curvature_gets_the_gradient_of_finite_differences(name):
    net = spread(TransformerEncoder(geometry(name, 0.8, True), **SIZES, norm="post", streams=1).double())
    manifold, u = manifold_of(net), 0.5 * torch.randn(3, 5, 3, dtype=F64)

    def value() -> torch.Tensor:
        return manifold.dist0(net(manifold.expmap0(u))[1]).square().sum()

    (grad,) = torch.autograd.grad(value(), manifold.free_c)
    ends = []
    for step in (1e-5, -1e-5):
        with torch.no_grad():
            manifold.free_c.add_(step)
            ends.append(value())
            manifold.free_c.sub_(step)
    torch.testing.assert_close(grad, (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-8)


def test_families_without_a_norm_are_those_of_hybonet_and_of_hyperbolic_networks_pp():
    assert {"lorentz", "poincare_pp"} <= set(NORMLESS)


@pytest.mark.parametrize("name", NORMLESS)
def test_families_without_a_norm_are_the_same_for_every_placement(name):
    nets = [encoder(name, norm=norm) for norm in ("post", "pre", "none")]
    x = points(nets[0], 3, 5, 3)
    for net in nets[1:]:
        net.load_state_dict(nets[0].state_dict())
        assert torch.equal(net(x, LENGTHS)[0], nets[0](x, LENGTHS)[0])


@GEOMETRY
def test_the_two_dropouts_go_where_they_are_said_to(name):
    drops = {"dropout": 0.25, "attention_dropout": 0.5}
    for net in (encoder(name, **drops), decoder(name, **drops)):
        results = {True: set(), False: set()}
        for place, module in net.named_modules():
            if isinstance(module, nn.Dropout) and module.p:
                results["attention" in place].add(module.p)
        assert results == {True: {0.5}, False: {0.25}}


@GEOMETRY
@pytest.mark.parametrize("option", ["dropout", "attention_dropout"])
def test_dropout_acts_in_training_only(name, option):
    net = encoder(name, **{option: 0.4})
    x = points(net, 3, 5, 3)
    assert not torch.allclose(net(x)[1], net(x)[1])
    plain = encoder(name)
    plain.load_state_dict(net.state_dict())
    torch.testing.assert_close(net.eval()(x)[1], plain(x)[1], **IDENTITY)


@GEOMETRY
def test_autocast(name):
    net = TransformerEncoder(geometry(name), **SIZES, norm="post", streams=1)
    x = manifold_of(net).random(3, 5, 3, std=0.5)
    states, summary = net(x, LENGTHS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low_states, low_summary = net(x, LENGTHS)
    low_summary.float().square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())
    if manifold_of(net).name == "Euclidean":
        torch.testing.assert_close(low_states.float(), states, rtol=0.1, atol=0.1)
    else:
        assert torch.equal(low_states, states)
        assert torch.equal(low_summary, summary)


@pytest.mark.parametrize("name", [name for name in SUPPORTED if GEOMETRIES[name][0] != "Euclidean"])
def test_a_point_off_the_manifold_is_found_where_it_enters(name):
    net = encoder(name, streams=2)
    validate_points(net)
    x = points(net, 2, 3, 5, 3)
    net(x, LENGTHS.expand(2, 3))
    x[1] += 7
    with pytest.raises(OffManifoldError, match=r"^stacks\.1\.project[\w.]* \(\w+\.Linear\): its input of shape"):
        net(x, LENGTHS.expand(2, 3))


def test_mistakes_are_named():
    net, x = encoder("lorentz_tangent"), geometry("lorentz_tangent").manifold.random(2, 7, 3, dtype=F64)
    for message, args in (
        ("TransformerEncoder: a sequence of 7 positions is longer than n_positions=6", (x,)),
        (r"TransformerEncoder: empty sequences, got a tensor of shape \(1, 2, 0, 4\)", (x[:, :0],)),
        (r"tangent.Linear: takes points of Lorentz with 4 coordinates", (x[:, :5, :3],)),
        ("lengths must lie in 1..5, got 0..5", (x[:, :5], torch.tensor([0, 5]))),
        ("lengths must have the shape", (x[:, :5], torch.tensor([5]))),
        ("this encoder has 1 streams", (x[None].expand(2, 2, 7, 4),)),
        ("this encoder has 1 streams", (x[0],)),
    ):
        with pytest.raises(ValueError, match=message):
            net(*args)
    target, memory = decoder("lorentz_tangent"), geometry("lorentz_tangent").manifold.random(2, 3, 4, dtype=F64)
    state = target.start()
    target(x[:, :4], memory, None, state)
    for message, args in (
        ("TransformerDecoder: a sequence of 7 positions is longer than n_positions=6", (x[:, :3], memory, None, state)),
        ("TransformerDecoder: empty sequences", (x[:, :0], memory)),
        ("TransformerDecoder: .* differ in their batch", (x[:, :2], memory[:1], None, target.start())),
        ("MultiHeadAttention: empty sequence: 5 queries, 0 keys", (x[:, :5], memory[:, :0])),
        ("lengths must lie in 1..3, got 1..4", (x[:, :5], memory, torch.tensor([1, 4]))),
    ):
        with pytest.raises(ValueError, match=message):
            target(*args)


def test_settings_that_cannot_be_are_named():
    for message, sizes in (
        ("MultiHeadAttention: the size 4 cannot be divided among 3 heads", {"n_heads": 3}),
        ("encoder.norm: unknown value 'between'; available: post, pre, none", {"norm": "between"}),
        ("encoder.n_layers must be at least 1, got 0", {"n_layers": 0}),
        ("encoder.dropout must lie in 0..1 and be less than 1, got 1.5", {"dropout": 1.5}),
        ("encoder.attention_dropout must lie in 0..1 and be less than 1, got -0.1", {"attention_dropout": -0.1}),
        ("n_positions must be at least 1, got 0", {"n_positions": 0}),
    ):
        with pytest.raises(ValueError, match=message):
            encoder("euclidean", **sizes)
    for name in GEOMETRIES:
        if name not in SUPPORTED:
            with pytest.raises(ValueError, match=f"geometry {name}: the layer family \\w+ has no MultiHeadAttention"):
                encoder(name)


@GEOMETRY
def test_the_entrance_is_what_the_first_layer_gets(name):
    """The linear layer and the positions, for one stream and for several."""
    net = encoder(name, streams=2)
    x = points(net, 2, 3, 5, 3)
    entered = net.enter(x)
    for stream, (stack, part) in enumerate(zip(net.stacks, x, strict=True)):
        torch.testing.assert_close(entered[stream], stack.positions(stack.project(part)), **IDENTITY)
        calls = []
        hook = stack.layers[0].register_forward_pre_hook(lambda layer, args, calls=calls: calls.append(args[0]))
        net(x)
        hook.remove()
        torch.testing.assert_close(calls[0], entered[stream], **IDENTITY)
    single = encoder(name)
    assert single.enter(x[0]).shape == entered[0].shape
    with pytest.raises(ValueError, match="7 positions is longer than n_positions=6"):
        single.enter(points(single, 3, 7, 3))
    with pytest.raises(ValueError, match="this encoder has 1 streams"):
        single.enter(x)
