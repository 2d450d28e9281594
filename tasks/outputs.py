"""What the steps and the models of a task give: losses and sums, points, states of layers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from hyperbolic.geometry import Geometry
from hyperbolic.manifolds.base import Manifold


class Step(NamedTuple):
    """What one batch gives: the mean loss to differentiate, and sums (a number or tensor each) to add up.

    The sums need "examples", how many examples the batch has. Those of training batches are single numbers.
    weight: how many items (as tokens) the loss is the mean of. Where it is given, a step over several batches
    (accumulate_grad_batches, or one in each process) follows the mean over all their items, ``sum_b w_b L_b / sum_b
    w_b``; otherwise every batch counts the same. What each of several processes has of a batch counts by its examples.
    """

    loss: Tensor
    sums: dict[str, Any]
    weight: float | None = None


class Points(NamedTuple):
    """Points (..., D) and the manifold they lie on."""

    manifold: Manifold
    x: Tensor


class NamedPoints(NamedTuple):
    """The names of N things, and their points (N, D) on a manifold."""

    names: Sequence[str]
    manifold: Manifold
    x: Tensor


class LayerStates(NamedTuple):
    """States of the words of B sentences in each layer of an encoder.

    geometry: of the states. points: of each layer, from the first one's input on, (B, W, D) for the most words W.
    mask (B, W): where there is a state; a sentence that is too long for the encoder has none. unknown: how many words
    have a piece that the encoder has no embedding of.
    """

    geometry: Geometry
    points: list[Tensor]
    mask: Tensor
    unknown: int = 0


def rounded(number: float) -> float:
    """To six digits, as predictions have numbers."""
    return float(f"{number:.6g}")
