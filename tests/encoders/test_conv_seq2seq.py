"""Convolutions from sequence to sequence: the formulas written out, decoding by steps, masks, what is refused."""

import pytest
import torch

from hyperbolic.encoders.conv_seq2seq import ConvDecoder, ConvSeq2Seq
from hyperbolic.geometry import GEOMETRIES, make_geometry
from tests.tolerances import tolerance

F64 = torch.float64
IDENTITY, MODEL = tolerance(F64, "identity"), tolerance(F64, "model")
FLAT = make_geometry("euclidean", "Euclidean", "euclidean")
SIZES = {"d_in": 3, "d_hidden": 4, "n_layers": 2, "kernel_size": 3, "dropout": 0.0, "n_positions": 7}
LENGTHS = torch.tensor([5, 1, 3])
HALF = 0.5**0.5


def networks(**sizes) -> tuple[ConvSeq2Seq, ConvDecoder]:
    """Encoder and decoder, their biases away from zero."""
    sizes = {**SIZES, **sizes}
    pair = ConvSeq2Seq(FLAT, **sizes, streams=1).double(), ConvSeq2Seq.decoder(FLAT, **sizes).double()
    with torch.no_grad():
        for net in pair:
            for p in net.parameters():
                if p.dim() == 1:
                    p.add_(0.3 * torch.randn_like(p))
    return pair


def vectors(*size: int) -> torch.Tensor:
    return torch.randn(*size, dtype=F64)


def gated(layer, window: torch.Tensor) -> torch.Tensor:
    """A convolution's result (d,) at one place, from the vectors (k, d) that it sees."""
    convolution = layer.convolution
    a = sum(convolution.weight[:, :, k] @ window[k] for k in range(len(window))) + convolution.bias
    return a[: len(a) // 2] * torch.sigmoid(a[len(a) // 2 :])


def written_out(net: ConvSeq2Seq, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of one sequence x (T, d_in), place by place."""
    e = x + net.entrance.table[: len(x)]
    h = [net.first(row) for row in e]
    zero = torch.zeros_like(h[0])
    for layer in net.layers:
        wide = [zero, *h, zero]
        h = [(gated(layer, torch.stack(wide[t : t + 3])) + h[t]) * HALF for t in range(len(x))]
    z = torch.stack([net.last(row) for row in h])
    return z, (z + e) * HALF


def test_the_encoder_is_its_formulas_and_padding_changes_nothing():
    net, _ = networks()
    x = vectors(3, 5, 3)
    states, summary = net(x, LENGTHS)
    assert states.shape == (3, 5, net.d_out)
    for b, n in enumerate(LENGTHS.tolist()):
        expected = torch.cat(written_out(net, x[b, :n]), -1)
        torch.testing.assert_close(states[b, :n], expected, **IDENTITY)
        torch.testing.assert_close(summary[b], expected.mean(0), **IDENTITY)
    torch.testing.assert_close(net(x)[0], net(x, torch.full((3,), 5))[0], **IDENTITY)
    torch.testing.assert_close(net(x)[1], net(x)[0].mean(1), **IDENTITY)


def test_the_decoder_is_its_formulas():
    _, net = networks()
    y, memory, m = vectors(1, 4, 3), vectors(1, 5, 6), 3
    out = net(y, memory, torch.tensor([m]))[0]
    torch.testing.assert_close(net(y, memory[:, :m])[0], out, **IDENTITY)
    z, v = memory[0, :m].chunk(2, -1)
    g = y[0] + net.entrance.table[:4]
    h = [net.first(row) for row in g]
    zero = torch.zeros_like(h[0])
    for layer in net.layers:
        wide, results = [zero, zero, *h], []
        for t in range(4):
            inner = gated(layer.convolution, torch.stack(wide[t : t + 3]))
            scores = torch.stack([(layer.query(inner) + g[t]) * HALF @ key for key in z])
            weights = scores.exp() / scores.exp().sum()
            context = layer.context(m**0.5 * sum(w * value for w, value in zip(weights, v, strict=True)))
            results.append(((inner + context) * HALF + h[t]) * HALF)
        h = results
    torch.testing.assert_close(out, torch.stack([net.last(row) for row in h]), **IDENTITY)


@pytest.mark.parametrize("chunks", [(1, 1, 1, 1, 1), (2, 3), (4, 1)])
@pytest.mark.parametrize("kernel_size", [1, 3, 5])
def test_decoding_step_by_step_is_decoding_at_once(chunks, kernel_size):
    _, net = networks(kernel_size=kernel_size)
    y, memory = vectors(3, 5, 3), vectors(3, 6, 6)
    full, state = net(y, memory, LENGTHS), net.start()
    parts = [net(part, memory, LENGTHS, state) for part in y.split(chunks, 1)]
    assert state.length == 5
    assert state.alignment is None
    torch.testing.assert_close(torch.cat(parts, 1), full, **MODEL)


def test_a_beam_reorders_the_state_and_its_alignment():
    _, net = networks()
    y, memory = vectors(3, 5, 3), vectors(3, 6, 6)
    rows, state = torch.arange(3), net.start(alignment=True)
    net(y[:, :3], memory, LENGTHS, state)
    for step, order in ((3, [2, 0, 0, 1]), (4, [3, 1])):
        state.reorder(torch.tensor(order))
        rows = rows[order]
        out = net(y[rows, step : step + 1], memory[rows], LENGTHS[rows], state)
        full = net(y[rows, : step + 1], memory[rows], LENGTHS[rows], whole := net.start(alignment=True))
        torch.testing.assert_close(out, full[:, step:], **MODEL)
        torch.testing.assert_close(state.alignment, whole.alignment, **MODEL)
    assert state.alignment.shape == (2, 5, 6)
    torch.testing.assert_close(state.alignment.sum(-1), torch.ones(2, 5, dtype=F64))
    assert not state.alignment[0, :, LENGTHS[rows[0]] :].any()


def test_no_step_depends_on_a_later_one_or_on_padding():
    _, net = networks()
    y, memory = vectors(2, 5, 3).requires_grad_(), vectors(2, 4, 6).requires_grad_()
    out = net(y, memory, torch.tensor([3, 1]))
    for step in range(5):
        by_y, by_memory = torch.autograd.grad(out[:, step].sum(), [y, memory], retain_graph=True)
        assert not by_y[:, step + 1 :].any()
        assert by_y[:, step].any(-1).all()
        assert not by_memory[0, 3:].any()
        assert not by_memory[1, 1:].any()


def test_the_encoders_gradient_is_divided_by_the_number_of_attentions():
    """Of z, and not of the vectors that go into the values beside it."""
    net, _ = networks(n_layers=3)
    states, _ = net(vectors(1, 4, 3))
    keys, values = states.chunk(2, -1)
    weight = torch.randn_like(keys)
    by_keys, by_values = (
        torch.autograd.grad((weight * part).sum(), net.last.bias, retain_graph=True)[0] for part in (keys, values)
    )
    torch.testing.assert_close(by_keys, weight.sum((0, 1)) / 3, **IDENTITY)
    torch.testing.assert_close(by_values, HALF * weight.sum((0, 1)) / 3, **IDENTITY)
    torch.testing.assert_close(
        torch.autograd.grad((weight * values).sum(), net.entrance.table, retain_graph=True)[0][:4]
        - torch.autograd.grad(HALF * (weight * keys).sum(), net.entrance.table)[0][:4],
        HALF * weight[0],
        **IDENTITY,
    )


def test_the_variance_of_the_start_is_kept():
    """Results of a deep stack are neither small nor large, with dropout and without."""
    for dropout in (0.0, 0.3):
        net = ConvSeq2Seq(FLAT, 64, 64, 6, 3, dropout, 40, 1)
        keys, _ = net(torch.randn(20, 30, 64))[0].chunk(2, -1)
        assert 0.3 < keys.std() < 3


def test_every_parameter_gets_a_gradient():
    encoder, decoder = networks(dropout=0.2)
    memory, _ = encoder(vectors(3, 7, 3), torch.tensor([7, 1, 3]))
    decoder(vectors(3, 7, 3), memory, torch.tensor([7, 1, 3])).square().sum().backward()
    for key, p in [*encoder.named_parameters(), *decoder.named_parameters()]:
        assert p.grad is not None, key
        assert p.grad.any(), key


def test_mistakes_are_named():
    for message, sizes in (
        ("encoder.n_layers must be at least 1, got 0", {"n_layers": 0}),
        ("encoder.kernel_size must be odd, .* got 4", {"kernel_size": 4}),
        ("encoder.dropout must lie in 0..1 and be less than 1, got 1.0", {"dropout": 1.0}),
        ("encoder.n_positions must be at least 1, got 0", {"n_positions": 0}),
    ):
        with pytest.raises(ValueError, match=message):
            networks(**sizes)
    for name, (manifold, family) in GEOMETRIES.items():
        if manifold != "Euclidean":
            curved = make_geometry(name, manifold, family, c=1.0)
            with pytest.raises(ValueError, match=f"ConvSeq2Seq is defined on Euclidean, not with geometry={name}"):
                ConvSeq2Seq(curved, **SIZES, streams=1)
    with pytest.raises(ValueError, match="ConvSeq2Seq has one stream, got streams=2"):
        ConvSeq2Seq(FLAT, **SIZES, streams=2)
    encoder, decoder = networks()
    state = decoder.start()
    decoder(vectors(2, 5, 3), vectors(2, 3, 6), None, state)
    for message, call in (
        ("ConvSeq2Seq: a sequence of 8 positions is longer than n_positions=7", lambda: encoder(vectors(2, 8, 3))),
        ("ConvSeq2Seq: takes sequences .* got the shape .2, 0, 3.", lambda: encoder(vectors(2, 0, 3))),
        ("lengths must lie in 1..4, got 0..4", lambda: encoder(vectors(2, 4, 3), torch.tensor([0, 4]))),
        ("ConvDecoder: a sequence of 8", lambda: decoder(vectors(2, 3, 3), vectors(2, 3, 6), None, state)),
        ("ConvDecoder: takes points .* got the shapes", lambda: decoder(vectors(2, 3, 3), vectors(1, 3, 6))),
        ("ConvDecoder: takes points .* got the shapes", lambda: decoder(vectors(2, 3, 3), vectors(2, 3, 3))),
    ):
        with pytest.raises(ValueError, match=message):
            call()
