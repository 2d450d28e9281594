"""What the recurrent layers of all families share: streams, lengths, the two directions and how they are joined."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import check_choice, check_range, check_sizes, name_of
from hyperbolic.layers.initial import glorot
from hyperbolic.manifolds import Manifold
from hyperbolic.nonlinearity import check_nonlinearity
from hyperbolic.switch import is_followed
from hyperbolic.typing import Context, Function


def reverse_sequences(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence of x (S, B, T, D) backwards, padding left at the end; without lengths the whole axis."""
    if lengths is None:
        return x.flip(2)
    steps = torch.arange(x.shape[2], device=x.device)
    index = lengths.unsqueeze(-1) - 1 - steps
    index = torch.where(index >= 0, index, steps)  # (S, B, T)
    first = torch.arange(0, index.numel(), x.shape[2], device=x.device).view(*x.shape[:2], 1)
    order = (first + index).flatten()
    if is_followed(x):
        return x.reshape(-1, x.shape[-1]).index_select(0, order).view(x.shape)
    return _Swap.apply(x, order)


class _Swap(Function[Tensor]):
    """Rows of x (..., D) in another order (n,), one that is its own inverse: the gradient goes the same way."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x.reshape(-1, x.shape[-1]).index_select(0, order).view(x.shape)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        return _Swap.apply(grad, order), None


def check_lengths(lengths: Tensor | None, x: Tensor, layer: nn.Module | None = None) -> None:
    """Refuse lengths that are not of these sequences.

    Args: lengths (...) of sequences x (..., T, D). layer: that the error names.
    Raises:
        ValueError: lengths that are no tensor of whole numbers, of another shape than the batch, or outside 1..T (the
            last on a GPU: a device-side assertion).
    """
    if lengths is None:
        return
    place = "" if layer is None else f"{name_of(layer)}: "
    if not isinstance(lengths, Tensor):
        raise ValueError(f"{place}lengths must be a tensor, got {lengths!r}")
    if lengths.is_floating_point() or lengths.dtype is torch.bool:
        raise ValueError(f"{place}lengths must be whole numbers (int64), got {lengths.dtype}")
    if lengths.shape != x.shape[:-2]:
        raise ValueError(
            f"{place}lengths must have the shape {tuple(x.shape[:-2])} of the batch, got {tuple(lengths.shape)}"
        )
    rule = f"lengths must lie in 1..{x.shape[-2]}"
    check_range(layer, lengths, 1, x.shape[-2], rule, ": drop empty sequences first")


def length_mask(lengths: Tensor | None, x: Tensor, layer: nn.Module | None = None) -> Tensor | None:
    """True at the positions (..., T) of x (..., T, D) that count; after :func:`check_lengths`. None without lengths."""
    check_lengths(lengths, x, layer)
    return None if lengths is None else torch.arange(x.shape[-2], device=x.device) < lengths.unsqueeze(-1)


class Recurrence(nn.Module):
    """Base of the RNN and GRU layers: ``(x, lengths) -> (states, last)``.

    Args:
        manifold: space of inputs and states.
        d_in, d_hidden: intrinsic sizes.
        gates: 1 (RNN) or 3 (GRU: r, z, candidate).
        nonlinearity: a name in ``NONLINEARITIES``.
        bidirectional: also run backwards; states of both directions (forward first) are joined.
        streams: number of independent cells of equal size, run side by side.
        join: how; "linear": by ``concat``; "plain": ``exp_0((log_0 a, log_0 b))``, side by side in the
            tangent space at the origin.
        concat: builds the layer that joins two directions of size d_hidden into 2 d_hidden.

    Raises:
        ValueError: an unknown join, a size below 1.

    Subclasses set the parameters ``weight_ih (S, G, H, d_in)``, ``weight_hh (S, G, H, H)`` and ``bias (S, G, H)``,
    S counting directions as streams, and implement ``run``.
    """

    stacked_axes = dict.fromkeys(("weight_ih", "weight_hh", "bias", "bias_hh"), 2)  # cells and gates

    def __init__(
        self,
        manifold: Manifold,
        d_in: int,
        d_hidden: int,
        gates: int,
        nonlinearity: str,
        bidirectional: bool,
        streams: int,
        join: str,
        concat: Callable[..., nn.Module],
    ):
        super().__init__()
        check_choice(f"{name_of(self)}.join", join, ("linear", "plain"))
        check_sizes(self, d_in, d_hidden)
        if streams < 1:
            raise ValueError(f"{name_of(self)}: needs streams >= 1, got streams={streams}")
        self.manifold = manifold
        self.d_in, self.d_hidden, self.gates, self.streams = d_in, d_hidden, gates, streams
        self.bidirectional = bidirectional
        self.nonlinearity = check_nonlinearity(nonlinearity)
        cells = streams * (2 if bidirectional else 1)
        self.weight_ih = nn.Parameter(glorot(torch.empty(cells, gates, d_hidden, d_in)))
        self.weight_hh = nn.Parameter(glorot(torch.empty(cells, gates, d_hidden, d_hidden)))
        self.join = None
        if bidirectional and join == "linear":
            self.join = nn.ModuleList(concat(manifold, (d_hidden, d_hidden), 2 * d_hidden) for _ in range(streams))

    extra_repr = shows("d_in", "d_hidden", "nonlinearity", "bidirectional", "streams")

    @property
    def d_out(self) -> int:
        return self.d_hidden * (2 if self.bidirectional else 1)

    def run(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """States (S, B, T, D) of all cells for inputs (S, B, T, D); after the end they repeat the last state."""
        raise NotImplementedError

    def both(self, ahead: Tensor, back: Tensor) -> Tensor:
        """States (S, ..., D) of both directions, joined: points of twice the dimension."""
        space = self.manifold
        if self.join is None:
            return space.expmap0(torch.cat([space.logmap0(ahead), space.logmap0(back)], -1))
        return torch.stack([join(f, b) for join, f, b in zip(self.join, ahead, back, strict=True)])

    def run_both(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """States (2S, B, T, D) of both directions, forward first, in order of position; after the end those of the
        forward direction repeat its last state."""
        states = self.run(
            torch.cat([x, reverse_sequences(x, lengths)]), None if lengths is None else lengths.repeat(2, 1)
        )
        ahead, back = states.split(self.streams)
        return torch.cat([ahead, reverse_sequences(back, lengths)])

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """
        Args:
            x: (B, T, D), or (S, B, T, D) when the layer has several streams; padding, which must be finite, at the
                end of T.
            lengths: (B,) or (S, B) true lengths, 1..T; without them every position counts.
        Returns:
            states (..., T, D') and the state at the true end, (..., D'); backward states are those of the same
            position, and the last state of the backward direction is the one at position 0.
        Raises:
            ValueError: another number of axes or streams, T = 0, lengths of another shape than the batch or outside
                1..T (the last on a GPU: a device-side assertion).
        """
        if x.dim() not in (3, 4) or x.shape[-2] == 0:
            raise ValueError(
                f"{name_of(self)}: takes sequences (B, T, D) or (S, B, T, D) with T > 0, got the shape {tuple(x.shape)}"
            )
        check_lengths(lengths, x, self)
        single = x.dim() == 3
        if single:
            x, lengths = x.unsqueeze(0), None if lengths is None else lengths.unsqueeze(0)
        if x.shape[0] != self.streams:
            raise ValueError(
                f"{name_of(self)}: this layer has {self.streams} streams, got inputs of shape {tuple(x.shape)}"
            )
        if self.bidirectional:
            ahead, back = self.run_both(x, lengths).split(self.streams)
            states, last = self.both(ahead, back), self.both(ahead[:, :, -1], back[:, :, 0])
        else:
            states = self.run(x, lengths)
            last = states[:, :, -1]
        return (states[0], last[0]) if single else (states, last)
