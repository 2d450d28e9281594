"""The whole-sequence kernels against the papers' formulas, step by step with the same parameters."""

import copy

import pytest
import torch

from hyperbolic.kernels.recurrent import mobius_gru, mobius_rnn
from hyperbolic.layers import mobius
from hyperbolic.manifolds import PoincareBall
from hyperbolic.nonlinearity import NONLINEARITIES
from tests.kernels import plain
from tests.tolerances import tolerance

pytestmark = pytest.mark.usefixtures("each_path")
F32, F64 = torch.float32, torch.float64
LAYERS = {"gru": mobius.GRU, "rnn": mobius.RNN}
KERNELS = {"gru": mobius_gru, "rnn": mobius_rnn}
KINDS = pytest.mark.parametrize("kind", LAYERS)
CURVATURES = pytest.mark.parametrize("c", [0.1, 2.0])


def step_by_step(layer, x, lengths) -> torch.Tensor:
    """States (S, B, T, H) by the papers' formulas in the unit ball, sqrt(c) times the points, in float64."""
    root, phi = layer.manifold.c.sqrt(), NONLINEARITIES[layer.nonlinearity]
    streams = []
    for s in range(x.shape[0]):
        w, u, b = (getattr(layer, name)[s].double() for name in ("weight_hh", "weight_ih", "bias"))

        def affine(gate, v, x_t, w=w, u=u, b=b):
            ux = plain.exp0(u[gate] @ plain.log0(x_t))
            return plain.add(plain.add(plain.exp0(w[gate] @ v), ux), root * b[gate].unsqueeze(-1))

        h, states = x.new_zeros(layer.d_hidden, x.shape[1], dtype=F64), []
        for t in range(x.shape[2]):
            v, x_t = plain.log0(h), root * x[s, :, t].double().mT
            if layer.gates == 3:
                r, z = (torch.sigmoid(plain.log0(affine(gate, v, x_t)) / root) for gate in (0, 1))
                v = r * v
            new = affine(layer.gates - 1, v, x_t)
            if layer.nonlinearity != "identity":
                new = plain.exp0(root * phi(plain.log0(new) / root))
            if layer.gates == 3:
                new = plain.gated(h, new, z)
            h = new if lengths is None else torch.where(t < lengths[s], new, h)
            states.append(h.mT / root)
        streams.append(torch.stack(states, 1))
    return torch.stack(streams)


def build(kind, c, d_in=3, d_hidden=4, streams=1, nonlinearity=None, learn_c=False, dtype=F64, bias_std=0.3):
    ball = PoincareBall(c, learn_c=learn_c)
    layer = LAYERS[kind](ball, d_in, d_hidden, nonlinearity, streams=streams, bias_std=bias_std / c**0.5)
    return layer.to(dtype)


def compare(layer, x, lengths=None, kind="identity"):
    """States, and gradients of everything that has one, for a random cotangent."""
    x = x.detach().requires_grad_()
    inputs = [x, *layer.parameters()]
    states = layer(x, lengths)[0]
    expected = step_by_step(layer, x, lengths)
    torch.testing.assert_close(states, expected, **tolerance(states.dtype, kind))
    cotangent = torch.randn_like(states)
    actual = torch.autograd.grad((states * cotangent).sum(), inputs)
    expected_grads = torch.autograd.grad((expected * cotangent).sum(), inputs)
    names = ["x", *(name for name, _ in layer.named_parameters())]
    for name, a, b in zip(names, actual, expected_grads, strict=True):
        room = tolerance(b.dtype, kind) | {"atol": tolerance(b.dtype, kind)["rtol"] * b.abs().max().item()}
        torch.testing.assert_close(a, b, **room, msg=lambda text, name=name: f"gradient of {name}: {text}")


def inputs(ball, *size, std=0.4, dtype=F64):
    return ball.random(*size, std=std / float(ball.c.detach()) ** 0.5, dtype=dtype).detach()


@KINDS
@pytest.mark.parametrize(
    ("c", "nonlinearity", "with_lengths"),
    [
        *((c, "identity", with_lengths) for c in (0.1, 2.0) for with_lengths in (False, True)),
        *((2.0, name, True) for name in ("tanh", "relu", "sigmoid")),
    ],
)
def test_equals_the_formulas(kind, c, nonlinearity, with_lengths):
    layer = build(kind, c, streams=2, nonlinearity=nonlinearity)
    lengths = torch.tensor([[6, 1, 3], [2, 6, 5]]) if with_lengths else None
    compare(layer, inputs(layer.manifold, 2, 3, 6, 3), lengths)


@KINDS
@CURVATURES
@pytest.mark.parametrize("nonlinearity", ["identity", "tanh"])
def test_gradient_of_a_learned_curvature(kind, c, nonlinearity):
    layer = build(kind, c, streams=2, nonlinearity=nonlinearity, learn_c=True)
    assert "manifold.free_c" in dict(layer.named_parameters())
    compare(layer, inputs(layer.manifold, 2, 3, 5, 3), torch.tensor([[5, 2, 3], [1, 5, 4]]))


@KINDS
@CURVATURES
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("steps", [1, 3])
def test_small_batches_and_short_sequences(kind, c, batch, steps):
    layer = build(kind, c)
    compare(layer, inputs(layer.manifold, 1, batch, steps, 3))


@KINDS
@pytest.mark.parametrize(("d_in", "d_hidden"), [(1, 1), (1, 4), (5, 1)])
def test_one_coordinate(kind, d_in, d_hidden):
    layer = build(kind, 2.0, d_in, d_hidden)
    compare(layer, inputs(layer.manifold, 1, 3, 4, d_in))


@KINDS
@CURVATURES
def test_zero_inputs_and_zero_biases(kind, c):
    layer = build(kind, c, bias_std=0.0)
    x = inputs(layer.manifold, 1, 3, 5, 3)
    x[:, 0] = 0
    x[:, 1, ::2] = 0
    compare(layer, x)


@KINDS
@CURVATURES
def test_inputs_near_the_boundary(kind, c):
    """Gaps 1 - c|x|^2 down to 1e-6; gradients through a gap g have relative errors of about eps/g."""
    layer = build(kind, c)
    x = torch.nn.functional.normalize(torch.randn(1, 6, 4, 3, dtype=F64), dim=-1)
    x = x * ((1 - torch.logspace(-1, -6, 6, dtype=F64)[:, None, None]) / c).sqrt()
    with torch.no_grad():
        layer.weight_ih *= 0.3
    compare(layer, x, kind="model")


@KINDS
def test_layout_of_the_inputs_does_not_matter(kind):
    layer = build(kind, 2.0)
    x = inputs(layer.manifold, 4, 5, 3)
    states = layer(x)[0]
    for other in (x.transpose(0, 1).contiguous().transpose(0, 1), torch.stack([x, x], -1)[..., 0]):
        assert not other.is_contiguous()
        free, same = other.detach().requires_grad_(), x.detach().requires_grad_()
        assert torch.equal(layer(free)[0], states)
        cotangent = torch.randn_like(states.transpose(0, 1)).transpose(0, 1)
        torch.testing.assert_close(*(torch.autograd.grad((layer(v)[0] * cotangent).sum(), v)[0] for v in (free, same)))


@KINDS
def test_streams_are_independent(kind):
    layer = build(kind, 2.0, streams=2)
    x = inputs(layer.manifold, 2, 3, 5, 3).requires_grad_()
    states = layer(x)[0]
    for s in range(2):
        one = build(kind, 2.0)
        with torch.no_grad():
            for name in ("weight_ih", "weight_hh", "bias"):
                getattr(one, name).copy_(getattr(layer, name)[s : s + 1])
        torch.testing.assert_close(states[s], one(x[s])[0], rtol=1e-12, atol=1e-14)
    (grad,) = torch.autograd.grad(states[0].sum(), x)
    assert grad[0].any()
    assert not grad[1].any()


@KINDS
def test_padding_reaches_neither_states_nor_gradients(kind):
    layer = build(kind, 2.0)
    x, lengths = inputs(layer.manifold, 3, 6, 3), torch.tensor([6, 2, 4])
    other = x.clone()
    other[1, 2:], other[2, 4:] = 0.6, -0.3
    states, last = layer(x, lengths)
    assert torch.equal(states, layer(other, lengths)[0])
    for i, length in enumerate(lengths):
        assert torch.equal(states[i, length - 1 :], states[i, length - 1].expand(7 - length, 4))
        assert torch.equal(last[i], states[i, length - 1])
    x = x.requires_grad_()
    (grad,) = torch.autograd.grad(last.square().sum() + layer(x, lengths)[1].square().sum(), x)
    assert not grad[1, 2:].any()
    assert grad[1, :2].any()


@KINDS
def test_an_empty_batch(kind):
    layer = build(kind, 2.0)
    x = inputs(layer.manifold, 0, 5, 3).requires_grad_()
    states, last = layer(x, torch.zeros(0, dtype=torch.long))
    assert (states.shape, last.shape) == ((0, 5, 4), (0, 4))
    last.sum().backward()
    assert not any(p.grad.any() for p in layer.parameters())


@KINDS
def test_gradients_can_be_asked_for_twice(kind):
    layer = build(kind, 2.0)
    loss = layer(inputs(layer.manifold, 2, 3, 3))[0].square().sum()
    parameters = list(layer.parameters())
    first = torch.autograd.grad(loss, parameters, retain_graph=True)
    for a, b in zip(first, torch.autograd.grad(loss, parameters), strict=True):
        assert torch.equal(a, b)


@KINDS
@pytest.mark.parametrize("nonlinearity", ["identity", "tanh"])
def test_second_derivatives_are_those_of_the_formulas(kind, nonlinearity):
    layer = build(kind, 2.0, nonlinearity=nonlinearity, learn_c=True)
    x = inputs(layer.manifold, 1, 2, 3, 3).requires_grad_()
    free, gradients = [x, *layer.parameters()], []
    for states in (layer(x)[0], step_by_step(layer, x, None)):
        grads = torch.autograd.grad(states.square().sum(), free, create_graph=True)
        gradients.append(torch.autograd.grad(sum(g.square().sum() for g in grads), free))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8 * b.abs().max().item())


@KINDS
def test_functional_transforms(kind):
    """Gradients of each sequence by itself, and forward-mode derivatives."""
    layer = build(kind, 2.0)
    x, lengths, c = inputs(layer.manifold, 1, 3, 4, 3), torch.tensor([[4, 1, 3]]), torch.tensor(2.0, dtype=F64)
    weights = tuple(p.detach().as_subclass(torch.Tensor) for p in (layer.weight_ih, layer.weight_hh, layer.bias))

    def loss(weights, x, length):
        return KERNELS[kind](x[None, None], length[None, None], *weights, c).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(weights, x[0], lengths[0])
    free = tuple(w.requires_grad_() for w in weights)
    for i in range(3):
        expected = torch.autograd.grad(loss(free, x[0, i], lengths[0, i]), free)
        for a, b in zip(each, expected, strict=True):
            torch.testing.assert_close(a[i], b, **tolerance(F64, "identity"))
    direction = torch.randn_like(x)
    _, along = torch.func.jvp(lambda x: KERNELS[kind](x, lengths, *weights, c).square().sum(), (x,), (direction,))
    x.requires_grad_()
    (grad,) = torch.autograd.grad(KERNELS[kind](x, lengths, *weights, c).square().sum(), x)
    torch.testing.assert_close(along, (grad * direction).sum(), **tolerance(F64, "identity"))


@KINDS
def test_a_cell_is_one_step(kind):
    """From states that are not the origin, of any leading axes."""
    layer = build(kind, 2.0, nonlinearity="tanh")
    cell = {"gru": mobius.GRUCell, "rnn": mobius.RNNCell}[kind](layer.manifold, 3, 4, "tanh").double()
    cell.load_state_dict({name: p.data[0] for name, p in layer.named_parameters()}, strict=False)
    x = inputs(layer.manifold, 2, 5, 3)
    states = layer(x)[0]
    for t in range(1, 5):
        torch.testing.assert_close(cell(x[:, t], states[:, t - 1]), states[:, t], **tolerance(F64, "identity"))
    torch.testing.assert_close(cell(x[:1, 1:], states[:1, :-1]), states[:1, 1:], **tolerance(F64, "identity"))
    assert cell(x[0, 0], states[1]).shape == (5, 4)


@KINDS
def test_only_some_arguments_need_a_gradient(kind):
    layer = build(kind, 2.0)
    x, c = inputs(layer.manifold, 1, 2, 3, 3), torch.tensor(2.0, dtype=F64)
    weights = [p.detach().as_subclass(torch.Tensor) for p in (layer.weight_ih, layer.weight_hh, layer.bias)]
    assert not KERNELS[kind](x, None, *weights, c).requires_grad
    expected = torch.autograd.grad(layer(x)[0].sum(), [layer.weight_ih, layer.weight_hh, layer.bias])
    for i, expected_grads in enumerate(expected):
        free = [w.clone().requires_grad_(i == j) for j, w in enumerate(weights)]
        (grad,) = torch.autograd.grad(KERNELS[kind](x, None, *free, c).sum(), free[i])
        torch.testing.assert_close(grad, expected_grads.as_subclass(torch.Tensor))


@KINDS
@CURVATURES
def test_float32_is_float64_rounded(kind, c):
    layer = build(kind, c, streams=2, dtype=F32)
    x = inputs(layer.manifold, 2, 4, 8, 3, dtype=F32).requires_grad_()
    wide, x_wide = copy.deepcopy(layer).double(), x.detach().double().requires_grad_()
    states, expected = layer(x)[0], wide(x_wide)[0]
    torch.testing.assert_close(states.double(), expected, **tolerance(F32, "model"))
    cotangent = torch.randn_like(states)
    actual = torch.autograd.grad((states * cotangent).sum(), [x, *layer.parameters()])
    expected_grads = torch.autograd.grad((expected * cotangent).sum(), [x_wide, *wide.parameters()])
    for a, b in zip(actual, expected_grads, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-3 * b.abs().max().item())


@KINDS
@pytest.mark.parametrize("c", [0.1, 1.0, 2.0])
def test_float32_inputs_near_the_boundary_keep_their_digits(kind, c):
    """Gaps down to 1e-5: log_0 of the exact bits, for every curvature."""
    layer = build(kind, c, dtype=F32)
    with torch.no_grad():
        layer.weight_ih *= 0.3
    x = torch.nn.functional.normalize(torch.randn(50, 1, 3, dtype=F64), dim=-1)
    x = (x * ((1 - torch.logspace(-1, -5, 50, dtype=F64)[:, None, None]) / c).sqrt()).to(F32)
    states = layer(x)[1].double()
    expected = copy.deepcopy(layer).double()(x.double())[1]
    error = layer.manifold.dist(states, expected) * c**0.5
    assert error.max() <= 3e-5


@KINDS
@pytest.mark.parametrize(("dtype", "room"), [(F32, 3e-5), (F64, 1e-12)], ids=str)
def test_long_sequences_do_not_drift(kind, dtype, room):
    """Errors of carried quantities must not grow from step to step: 100 steps against float64."""
    layer = build(kind, 2.0, dtype=dtype)
    with torch.no_grad():
        layer.weight_ih *= 0.5
        layer.weight_hh *= 0.5
        x = inputs(layer.manifold, 1, 20, 100, 3, dtype=dtype)
        states, expected = layer(x)[0], step_by_step(layer, x, None)
    assert layer.manifold.dist(states, expected).max() <= room


@KINDS
def test_what_does_not_fit_is_said(kind):
    gates = LAYERS[kind].gates
    x, weight, recurrent = torch.zeros(1, 2, 3, 4), torch.zeros(1, gates, 5, 4), torch.zeros(1, gates, 5, 5)
    bias, c = torch.zeros(1, gates, 5), torch.tensor(1.0, dtype=F64)
    two = torch.zeros(1, 2, 5, 4), torch.zeros(1, 2, 5, 5), torch.zeros(1, 2, 5)
    for *wrong, parameters in (
        (x[0], None, (weight, recurrent, bias)),
        (x[..., 1:], None, (weight, recurrent, bias)),
        (x, torch.ones(2, dtype=torch.long), (weight, recurrent, bias)),
        (x, None, (weight, recurrent, bias[..., 1:])),
        (x, None, two),
    ):
        with pytest.raises(ValueError, match=rf"mobius_{kind} takes x \(S, B, T, D\).*\(S, {gates}, H, D\).*; got \("):
            KERNELS[kind](*wrong, *parameters, c)
    with pytest.raises(ValueError, match="unknown nonlinearity 'gelu'; available: identity"):
        KERNELS[kind](x, None, weight, recurrent, bias, c, "gelu")
    states = KERNELS[kind](x[:, :, :0], None, weight.requires_grad_(), recurrent, bias, c)
    assert states.shape == (1, 2, 0, 5)
    states.sum().backward()
    assert not weight.grad.any()
