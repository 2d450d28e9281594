"""The formulas of :mod:`hyperbolic.kernels.recurrent` in PyTorch operations: the input side of all steps, then a loop.

Layout inside: (T, S, G, H, B) with G gates; a state is (S, H, B). See :mod:`hyperbolic.kernels.gyro`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hyperbolic.kernels import gyro
from hyperbolic.nonlinearity import NONLINEARITIES
from hyperbolic.numerics import ball_gap, sqnorm
from hyperbolic.smooth import artanhc

PHI = tuple(NONLINEARITIES)  # operators take their numbers
_COMPILED = 4  # the first of them are in C++ and Triton, too
State = tuple[Tensor, ...]  # of an RNN log_0(h) (S, H, B), of a GRU the point h (S, H, B) and its gap (S, 1, B)


class Cell(NamedTuple):
    """What all steps share: ``1/sqrt(c)``, weights (S, G, H, H), bias points (S, G, H, 1) with gaps, a nonlinearity,
    the limits of points."""

    unit: Tensor
    weight: Tensor
    b: Tensor
    b_gap: Tensor
    phi: str
    limits: gyro.Constants


class Arguments(NamedTuple):
    """Of :func:`sequence`, and of the passes that are compiled."""

    x: Tensor
    lengths: Tensor | None
    weight_ih: Tensor
    weight_hh: Tensor
    bias: Tensor
    c: Tensor
    nonlinearity: int
    margin: float = 0.0  # of an RNN

    def well_formed(self) -> bool:
        """Whether the shapes are those of :func:`hyperbolic.kernels.recurrent.mobius_rnn`."""
        if self.x.dim() != 4 or self.weight_ih.dim() != 4:
            return False
        cells, gates, hidden, d_in = self.weight_ih.shape
        return (
            gates in (1, 3)
            and self.weight_hh.shape == (cells, gates, hidden, hidden)
            and self.bias.shape == (cells, gates, hidden)
            and self.x.shape[-1] == d_in
            and cells in (self.x.shape[0], 2 * self.x.shape[0])
            and (self.lengths is None or self.lengths.shape == self.x.shape[:2])
        )

    def compiles(self) -> bool:
        """Whether compiled passes may read these."""
        return self.well_formed() and 0 <= self.nonlinearity < _COMPILED


def cell(x: Tensor, weight: Tensor, bias: Tensor, c: Tensor, phi: str, margin: float = 0.0) -> Cell:
    """The cells by their weights (S, G, H, H) and bias points (S, G, H), in the layout and scale of the steps; x: a
    tensor of their dtype."""
    root = c.sqrt().to(x.dtype)
    gap = ball_gap(bias, c).to(x.dtype)
    return Cell(1 / root, weight, (root * bias).unsqueeze(-1), gap.unsqueeze(-1), phi, gyro.constants(x, margin))


def input_side(x: Tensor, weight: Tensor, c: Tensor, limits: gyro.Constants | None = None) -> tuple[Tensor, Tensor]:
    """``sqrt(c) U (x) x`` of all inputs, steps, cells and gates, with gaps ``1 - c|u|^2``.

    Args:
        x: (S', B, T, D) ball points. weight: (S, G, H, D), S = S', or S = 2S' where the second half of the cells reads
            the steps from the last to the first. c: curvature.
    Returns: u (T, S, G, H, B) and its gaps (T, S, G, 1, B), in the order in which a cell reads its inputs.
    """
    if weight.shape[0] > x.shape[0]:
        x = torch.cat([x, x.flip(2)])
    gates, hidden = weight.shape[1:3]
    limits = limits or gyro.constants(x)
    gap = gyro.clamped((1 - c * sqnorm(x)).to(x.dtype), limits.least_gap, 1)
    y = (x.flatten(1, 2) @ weight.flatten(1, 2).mT).unflatten(1, x.shape[1:3])
    y = (artanhc(gap) * c.sqrt().to(x.dtype)) * y
    y = y.permute(2, 0, 3, 1).unflatten(2, (gates, hidden)).contiguous()
    scale, u_gap = gyro.tanhc((y * y).sum(-2, keepdim=True), limits)
    return scale * y, u_gap


def _phi(tangent: Tensor, at: Cell) -> Tensor:
    """``phi(unit v) / unit``: the nonlinearity acts on tangent vectors of the ball that is not scaled."""
    return tangent if at.phi == "identity" else NONLINEARITIES[at.phi](at.unit * tangent) / at.unit


def rnn_step(state: State, u: Tensor, u_gap: Tensor, at: Cell) -> State:
    """``log_0(phi((W (x) h (+) u) (+) b))`` with u (S, 1, H, B) from :func:`input_side` (Ganea et al. 2018, Eq. 27)."""
    (v,) = state
    new = gyro.affine_point(at.weight[:, 0] @ v, u[:, 0], u_gap[:, 0], at.b[:, 0], at.b_gap[:, 0], at.limits)
    return (_phi(gyro.log_origin(*new), at),)


def gru_step(state: State, u: Tensor, u_gap: Tensor, at: Cell) -> State:
    """The next point and gap with u (S, 3, H, B), gates r, z, candidate (Ganea et al. 2018, Eq. 29-31)."""
    v = gyro.log_origin(*state)
    gates = gyro.affine_point(at.weight[:, :2] @ v.unsqueeze(1), u[:, :2], u_gap[:, :2], at.b[:, :2], at.b_gap[:, :2])
    r, z = map(torch.sigmoid, (at.unit * gyro.log_origin(*gates)).unbind(1))  # not parts of one: test_kept_results.py
    new = gyro.affine_point(at.weight[:, 2] @ (r * v), u[:, 2], u_gap[:, 2], at.b[:, 2], at.b_gap[:, 2])
    if at.phi != "identity":
        new = gyro.exp_origin(_phi(gyro.log_origin(*new), at))
    h, gap = state
    return gyro.gated_update(h, gap, *new, z)


def _step(state: State, u: Tensor, u_gap: Tensor, at: Cell) -> State:
    return (rnn_step if len(state) == 1 else gru_step)(state, u, u_gap, at)


def _point(state: State, at: Cell) -> Tensor:
    return gyro.exp_origin(*state, at.limits)[0] if len(state) == 1 else state[0]


def step(x: Tensor, h: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, c: Tensor, phi: str) -> Tensor:
    """One step of one cell: x (B, D), h (B, H), weights (G, H, D) and (G, H, H), bias (G, H) -> (B, H)."""
    u, u_gap = input_side(x[None, :, None], weight_ih[None], c)
    at = cell(x, weight_hh[None], bias[None], c, phi)
    gates, points, gap = weight_ih.shape[0], (h.mT / at.unit)[None], ball_gap(h, c).to(h.dtype).mT[None]
    state = (gyro.log_origin(points, gap),) if gates == 1 else (points, gap)
    return at.unit * _point(_step(state, u[0], u_gap[0], at), at)[0].mT


def sequence(*arguments: Any) -> Tensor:
    """States (S, B, T, H) of all cells, those of a second direction in order of position and the origin in padding."""
    x, lengths, weight_ih, weight_hh, bias, c, nonlinearity, margin = Arguments(*arguments)
    (streams, batch, steps, _), (cells, gates, hidden, _) = x.shape, weight_ih.shape
    at = cell(x, weight_hh, bias, c, PHI[nonlinearity], margin)
    u, u_gap = input_side(x, weight_ih, c, at.limits)
    if not steps:
        return u[:, :, 0].permute(1, 3, 0, 2)
    state: State = (u.new_zeros(cells, hidden, batch),)
    if gates == 3:
        state = (*state, u.new_ones(cells, 1, batch))
    points = []
    for t in range(steps):
        new = _step(state, u[t], u_gap[t], at)
        state = new if lengths is None else _choose(_inside(t, x, lengths, cells), new, state)
        points.append(_point(state, at))
    states = at.unit * torch.stack(points).permute(1, 3, 0, 2)
    if cells > streams:
        states = torch.cat([states[:streams], states[streams:].flip(2)])
    return states.contiguous()


def _inside(t: int, x: Tensor, lengths: Tensor, cells: int) -> Tensor:
    """Whether the position that a cell reads in step t is inside of the sequence, (S, 1, B)."""
    ends = lengths.unsqueeze(1)
    return t < ends if cells == x.shape[0] else torch.cat([t < ends, x.shape[2] - 1 - t < ends])


def _choose(inside: Tensor, new: State, old: State) -> State:
    return tuple(torch.where(inside, a, b) for a, b in zip(new, old, strict=True))
