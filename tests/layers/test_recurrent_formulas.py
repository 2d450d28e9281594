"""The recurrent cells and layers of Ganea et al. 2018 against their equations, written out in NumPy from the paper alone."""

import numpy as np
import pytest
import torch

from hyperbolic.layers import euclidean, mobius
from hyperbolic.manifolds import Euclidean, PoincareBall

STEPS, D_IN, D_HIDDEN = 4, 3, 4


def add(x, y, c):
    """Eq. 4: Möbius addition."""
    xx, yy, xy = x @ x, y @ y, x @ y
    return ((1 + 2 * c * xy + c * yy) * x + (1 - c * xx) * y) / (1 + 2 * c * xy + c**2 * xx * yy)


def times(matrix, x, c):
    """Lemma 6: ``tanh(|Mx|/|x| artanh(sqrt(c)|x|)) Mx / (sqrt(c) |Mx|)``, 0 for Mx = 0."""
    mx, root = matrix @ x, np.sqrt(c)
    if not mx.any():
        return mx
    length, size = np.linalg.norm(x), np.linalg.norm(mx)
    return np.tanh(size / length * np.arctanh(root * length)) * mx / (size * root)


def log0(x, c):
    length = np.linalg.norm(x)
    return np.arctanh(np.sqrt(c) * length) * x / (np.sqrt(c) * length) if length else x


def exp0(u, c):
    length = np.linalg.norm(u)
    return np.tanh(np.sqrt(c) * length) * u / (np.sqrt(c) * length) if length else u


def sigma(x):
    return 1 / (1 + np.exp(-x))


def mobius_rnn(h, x, W, U, b, phi, c):
    """Eq. 27."""
    return exp0(phi(log0(add(add(times(W[0], h, c), times(U[0], x, c), c), b[0], c), c)), c)


def mobius_gru(h, x, W, U, b, phi, c):
    """Eq. 29 to 31; rows of the parameters are r, z, candidate."""
    r = sigma(log0(add(add(times(W[0], h, c), times(U[0], x, c), c), b[0], c), c))
    z = sigma(log0(add(add(times(W[1], h, c), times(U[1], x, c), c), b[1], c), c))
    proposal = add(add(times(W[2] @ np.diag(r), h, c), times(U[2], x, c), c), b[2], c)
    proposal = exp0(phi(log0(proposal, c)), c)
    return add(h, times(np.diag(z), add(-h, proposal, c), c), c)


def flat_rnn(h, x, W, U, b, phi, c):
    """Before Eq. 27."""
    return phi(W[0] @ h + U[0] @ x + b[0])


def flat_gru(h, x, W, U, b, phi, c):
    """Eq. 28."""
    r, z = sigma(W[0] @ h + U[0] @ x + b[0]), sigma(W[1] @ h + U[1] @ x + b[1])
    proposal = phi(W[2] @ (r * h) + U[2] @ x + b[2])
    return (1 - z) * h + z * proposal


CASES = [(euclidean, "RNN", flat_rnn, 0.0, "tanh"), (euclidean, "GRU", flat_gru, 0.0, "tanh")]
for _c, _phi in ((0.4, "tanh"), (2.5, "identity")):
    CASES += [(mobius, "RNN", mobius_rnn, _c, _phi), (mobius, "GRU", mobius_gru, _c, _phi)]


@pytest.mark.parametrize(("family", "name", "formula", "c", "phi"), CASES)
def test_every_step_is_the_papers(family, name, formula, c, phi):
    manifold = PoincareBall(c) if c else Euclidean()
    cell = getattr(family, f"{name}Cell")(manifold, D_IN, D_HIDDEN, phi).double()
    layer = getattr(family, name)(manifold, D_IN, D_HIDDEN, phi).double()
    with torch.no_grad():
        cell.weight_ih.normal_(std=0.5)
        cell.weight_hh.normal_(std=0.5)
        cell.bias.copy_(manifold.random(len(cell.bias), D_HIDDEN, std=0.3, dtype=torch.float64))
        for own, other in ((layer.weight_ih, cell.weight_ih), (layer.weight_hh, cell.weight_hh), (layer.bias, cell.bias)):
            own.copy_(other.unsqueeze(0))
    x = manifold.random(2, STEPS, D_IN, std=0.4, dtype=torch.float64)
    U, W, b = (p.detach().numpy() for p in (cell.weight_ih, cell.weight_hh, cell.bias))
    states, last = layer(x)
    for row, sequence in enumerate(x):
        h, state = np.zeros(D_HIDDEN), torch.zeros(D_HIDDEN, dtype=torch.float64)
        for step, point in enumerate(sequence):
            h = formula(h, point.numpy(), W, U, b, np.tanh if phi == "tanh" else lambda u: u, c)
            state = cell(point, state)
            for result in (state, states[row, step]):
                np.testing.assert_allclose(result.detach().numpy(), h, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(last[row].detach().numpy(), h, rtol=1e-10, atol=1e-12)


def test_a_bias_of_the_gates_makes_states_last_longer():
    """As in TensorFlow's own cell, r and its z, the share of the old state, start at sigmoid(1) where U = W = 0."""
    layer = euclidean.GRU(Euclidean(), D_IN, D_HIDDEN, gate_bias=1.0)
    for name in ("weight_ih", "weight_hh"):
        getattr(layer, name).data.zero_()
    layer.bias.data[:, 2] = 0.5
    states = layer(torch.zeros(1, STEPS, D_IN))[0][0].detach().numpy()
    expected = [np.tanh(0.5) * (1 - sigma(1.0) ** (t + 1)) for t in range(STEPS)]
    np.testing.assert_allclose(states, np.array(expected)[:, None].repeat(D_HIDDEN, 1), rtol=1e-6)
