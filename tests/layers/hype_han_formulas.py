"""The equations of Hype-HAN (Zhang & Gao) written out, for any c."""

import torch


def act(u, c):
    """Eq. 5, time coordinate first."""
    r = c**0.5 * u.norm(dim=-1, keepdim=True)
    return torch.cat([torch.cosh(r), torch.sinh(r) / r * c**0.5 * u], -1) / c**0.5


def lorentz_distance(x, y, c):
    product = (x[..., 1:] * y[..., 1:]).sum(-1) - x[..., 0] * y[..., 0]
    return torch.acosh(-c * product) / c**0.5


def lorentz_to_klein(x, c):
    """Eq. 4."""
    return x[..., 1:] / (c**0.5 * x[..., :1])


def poincare_to_klein(x, c):
    """Eq. 3."""
    return 2 * x / (1 + c * x.square().sum(-1, keepdim=True))


def klein_to_poincare(x, c):
    """Its inverse."""
    return x / (1 + (1 - c * x.square().sum(-1, keepdim=True)).sqrt())


def poincare_to_lorentz(x, c):
    """The inverse of Eq. 2."""
    square = c * x.square().sum(-1, keepdim=True)
    return torch.cat([(1 + square) / c**0.5, 2 * x], -1) / (1 - square)


def einstein_midpoint(k, alpha, c):
    """Eq. 8, 9 and 12: points k (..., N, d) of the Klein disk."""
    gamma = 1 / (1 - c * k.square().sum(-1)).sqrt()
    weight = alpha * gamma / (alpha * gamma).sum(-1, keepdim=True)
    return (weight.unsqueeze(-1) * k).sum(-2)


def mobius_sum(x, y, c):
    """Ganea et al. 2018, Eq. 4."""
    xy, xx, yy = (x * y).sum(-1, keepdim=True), x.square().sum(-1, keepdim=True), y.square().sum(-1, keepdim=True)
    return ((1 + 2 * c * xy + c * yy) * x + (1 - c * xx) * y) / (1 + 2 * c * xy + c * c * xx * yy)


def log0(x, c):
    """Ganea et al. 2018, Eq. 11."""
    norm = c**0.5 * x.norm(dim=-1, keepdim=True)
    return torch.where(norm == 0, x, torch.atanh(norm) / norm * x)


def exp0(u, c):
    """Ganea et al. 2018, Eq. 11."""
    norm = c**0.5 * u.norm(dim=-1, keepdim=True)
    return torch.where(norm == 0, u, torch.tanh(norm) / norm * u)


def mobius_product(weight, x, c):
    """Ganea et al. 2018, Lemma 6."""
    return exp0(log0(x, c) @ weight.T, c)


def gru(x, layer):
    """States (T, H) of the Euclidean GRU of section 3.2 over x (T, D), with the parameters of one direction: weight_ih,
    weight_hh and bias, (3, ...) each, gates r, z, candidate."""
    u, w, b = layer
    h, states = x.new_zeros(w.shape[-1]), []
    for x_t in x:
        r, z = (torch.sigmoid(u[gate] @ x_t + w[gate] @ h + b[gate]) for gate in (0, 1))
        new = torch.tanh(u[2] @ x_t + w[2] @ (r * h) + b[2])
        h = z * new + (1 - z) * h
        states.append(h)
    return torch.stack(states)


def mobius_gru(x, layer, c):
    """As :func:`gru`, with Möbius operations on points x (T, D) of the ball."""
    u, w, b = layer
    h, states = x.new_zeros(w.shape[-1]), []

    def affine(gate, h, x):
        return mobius_sum(mobius_sum(mobius_product(w[gate], h, c), mobius_product(u[gate], x, c), c), b[gate], c)

    for x_t in x:
        r, z = (torch.sigmoid(log0(affine(gate, h, x_t), c)) for gate in (0, 1))
        new = affine(2, exp0(r * log0(h, c), c), x_t)  # diag(r) (x) h, so that W diag(r) (x) h follows
        h = mobius_sum(h, exp0(z * log0(mobius_sum(-h, new, c), c), c), c)
        states.append(h)
    return torch.stack(states)


def both_directions(step, x, layer):
    """States (T, 2, H) of ``step`` forwards and backwards, with the parameters (2, 3, ...) of a layer."""
    ahead, back = ([part[k] for part in (layer.weight_ih, layer.weight_hh, layer.bias)] for k in (0, 1))
    return torch.stack([step(x, ahead), step(x.flip(0), back).flip(0)], 1)
