"""Möbius RNN and GRU (Ganea et al. 2018, section 3.3) over whole sequences, and one step of a cell.

Everything that depends on the inputs alone, ``U (x) x`` for all steps and gates, is made before the loop. Several
independent cells of one size (S streams, or two directions) run side by side.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hyperbolic.autocast import leaves_autocast
from hyperbolic.kernels.recurrent import passes, plain
from hyperbolic.nonlinearity import check_nonlinearity


def mobius_rnn(
    x: Tensor, lengths: Tensor | None, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, c: Tensor,
    nonlinearity: str = "identity", margin: float = 0.0,
) -> Tensor:  # fmt: skip
    """``h_t = phi((W (x) h_{t-1} (+) U (x) x_t) (+) b)`` with the Möbius version of phi (Eq. 27), h_0 = 0.

    Args:
        x: (S, B, T, D) ball points; lengths: (S, B), states after the end repeat the last one. With 2S cells for S
            streams, the second half runs from the end to the start, and its states are those of the same position.
        weight_ih: (S, 1, H, D); weight_hh: (S, 1, H, H); bias: (S, 1, H) ball points; c: curvature.
        nonlinearity: a key of ``NONLINEARITIES``.
        margin: in (0, 0.05], products ``W (x) h`` and ``U (x) x`` are clipped to ``sqrt(c)|x| <= 1 - margin``, and
            states to the logarithms of such points; nothing is learned from how far beyond they were, as in the program
            of Ganea et al., which clips every sum besides. 0: the dtype's margin, beyond which the gradient goes on.
    Returns: (S, B, T, H) states of S cells. Raises ValueError for sizes that do not fit and other nonlinearities.
    """
    arguments = x, lengths, weight_ih, weight_hh, bias, c, plain.PHI.index(check_nonlinearity(nonlinearity)), margin
    out: Tensor = passes.Rnn.run(*_with_sizes("mobius_rnn", 1, *arguments))
    return _pad(out, lengths, x.shape[0])


def mobius_gru(
    x: Tensor, lengths: Tensor | None, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, c: Tensor,
    nonlinearity: str = "identity",
) -> Tensor:  # fmt: skip
    """Möbius GRU (Eq. 29-31), gates in the order r, z, candidate, h_0 = 0.

    ``r, z = sigma(log_0((W (x) h (+) U (x) x) (+) b))``, ``h~ = phi((W diag(r) (x) h (+) U (x) x) (+) b)`` and
    ``h' = h (+) diag(z) (x) ((-h) (+) h~)``.

    Args: as of :func:`mobius_rnn`, with three gates: weight_ih (S, 3, H, D), weight_hh (S, 3, H, H), bias (S, 3, H).
    Returns: (S, B, T, H) states of S cells. Raises ValueError as there.
    """
    arguments = x, lengths, weight_ih, weight_hh, bias, c, plain.PHI.index(check_nonlinearity(nonlinearity))
    out: Tensor = passes.Gru.run(*_with_sizes("mobius_gru", 3, *arguments))
    return _pad(out, lengths, x.shape[0])


def _with_sizes(name: str, gates: int, *arguments: Any) -> tuple[Any, ...]:
    """The arguments. Raises ValueError where their sizes do not fit."""
    if not plain.Arguments(*arguments).well_formed() or arguments[2].shape[1] != gates:
        shapes = ", ".join("none" if t is None else str(tuple(t.shape)) for t in arguments[:5])
        raise ValueError(
            f"{name} takes x (S, B, T, D), lengths (S, B) or none, weight_ih (S, {gates}, H, D), "
            f"weight_hh (S, {gates}, H, H) and bias (S, {gates}, H), or weights and a bias of 2S cells; got {shapes}"
        )
    return arguments


def _pad(out: Tensor, lengths: Tensor | None, streams: int) -> Tensor:
    """States of a second direction after the end repeat the one at the start, where it is last."""
    if lengths is None or out.shape[0] == streams:
        return out
    ended = (torch.arange(out.shape[2], device=out.device) >= lengths.unsqueeze(-1)).unsqueeze(-1)
    ahead, back = out.split(streams)
    return torch.cat([ahead, torch.where(ended, back[:, :, :1], back)])


@leaves_autocast
def mobius_cell(
    x: Tensor, h: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, c: Tensor, nonlinearity: str = "identity"
) -> Tensor:
    """One step of :func:`mobius_rnn` (G = 1) or :func:`mobius_gru` (G = 3) from states h.

    Args: x (..., D), h (..., H) ball points; weight_ih (G, H, D); weight_hh (G, H, H); bias (G, H); c: curvature.
    Returns: (..., H).
    """
    lead = torch.broadcast_shapes(x.shape[:-1], h.shape[:-1])
    x, h = (v.expand(*lead, v.shape[-1]).reshape(-1, v.shape[-1]) for v in (x, h))
    y = plain.step(x, h, weight_ih, weight_hh, bias, c, nonlinearity)
    return y.view(*lead, y.shape[-1])


__all__ = ["mobius_cell", "mobius_gru", "mobius_rnn"]
