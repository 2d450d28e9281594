"""What stands between the attentions of a Transformer, written once for all families: residual and feed-forward."""

from __future__ import annotations

from torch import Tensor, nn

from hyperbolic.layers.description import shows
from hyperbolic.layers.guard import takes_points
from hyperbolic.manifolds import Manifold


class Residual(nn.Module):
    """``add(x, dropout(linear(phi(o))))``: the linear layer that ends a block, joined with the block's input x.

    Subclasses name the layers of their family in ``linear``, ``activation`` and ``drop``, implement ``add``, and guard
    ``forward``. Families whose papers join otherwise (HyboNet, Eq. 7) have a class of their own.

    Args:
        manifold: space of all points. d_in: intrinsic size of o. d_out: intrinsic size of x and of the result.
        activation: phi, a name in ``NONLINEARITIES``. dropout: of what is added (Vaswani et al. 2017, section 5.4).
    """

    linear: type[nn.Module]
    activation: type[nn.Module]
    drop: type[nn.Module]

    def __init__(self, manifold: Manifold, d_in: int, d_out: int, activation: str = "identity", dropout: float = 0.0):
        super().__init__()
        self.manifold, self.d_in, self.d_out = manifold, d_in, d_out
        self.phi, self.affine = self.activation(manifold, activation), self.linear(manifold, d_in, d_out)
        self.dropout = self.drop(manifold, dropout)

    extra_repr = shows("d_in", "d_out")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """The family's sum of points x and y, (..., D)."""
        raise NotImplementedError

    def forward(self, o: Tensor, x: Tensor) -> Tensor:
        """
        Args: o (..., D_in), the block's inner result; x (..., D_out), the block's input.
        Returns: (..., D_out).
        """
        return self.add(x, self.dropout(self.affine(self.phi(o))))


class FeedForward(nn.Module):
    """``Residual(Linear(x), x)``: d -> d_hidden -> d, the activation inside the residual.

    In flat space ``x + W_2 phi(W_1 x + b_1) + b_2`` (Vaswani et al. 2017, Eq. 2); in HyboNet the same with Lorentz
    linear layers (Chen et al. 2022). Subclasses name the layers of their family in ``linear`` and ``residual``, and
    these check sizes and points.

    Args:
        manifold: space of inputs and outputs. d, d_hidden: intrinsic sizes.
        activation: a name in ``NONLINEARITIES``. dropout: of the family's ``Residual``.
    """

    linear: type[nn.Module]
    residual: type[nn.Module]

    def __init__(self, manifold: Manifold, d: int, d_hidden: int, activation: str = "relu", dropout: float = 0.0):
        super().__init__()
        self.manifold, self.d, self.d_hidden = manifold, d, d_hidden
        self.expand = self.linear(manifold, d, d_hidden)
        self.join = self.residual(manifold, d_hidden, d, activation, dropout)

    extra_repr = shows("d", "d_hidden")

    def forward(self, x: Tensor, base: Tensor | None = None) -> Tensor:
        """
        Args: x (..., D) points; base (..., D): what the result is joined with, x where it is left out (a Transformer
            with the norm in front joins with the point before the norm).
        Returns: (..., D).
        """
        result: Tensor = self.join(self.expand(x), x if base is None else base)
        return result


class NoNorm(nn.Module):
    """The point itself, for families whose papers have no norm for points."""

    def __init__(self, manifold: Manifold, d: int):
        super().__init__()
        self.manifold, self.d = manifold, d

    extra_repr = shows("d")

    @takes_points("d")
    def forward(self, x: Tensor) -> Tensor:
        return x
