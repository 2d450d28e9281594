"""Quasi-Newton minimisation of a loss of all data; points are moved as vectors of the tangent space at the origin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hyperbolic.optim.checks import require
from hyperbolic.optim.points import check_manifold, manifold_of


class RiemannianLBFGS(torch.optim.Optimizer):
    """L-BFGS with a strong-Wolfe line search (Nocedal & Wright 2006, Algorithms 3.5 and 7.5; ``torch.optim.LBFGS``).

    A step is a whole minimisation: from an empty history on to a stationary point or ``max_iter``. It is of a function
    of flat coordinates: a Euclidean tensor is its own; a point x is ``exp_0(v)`` of a tangent vector v at the origin,
    which reaches every point of a hyperbolic space once, so the minima are those over the points::

        min_v f(exp_0(v)),        grad_v = (d exp_0 / dv)^T grad_x f

    Nothing is kept from step to step. The loss must be the same function throughout: of all data, without dropout.

    Args:
        params: parameters or groups, whose options besides "params" are ignored.
        lr: length of the first try of each line search. max_iter: most iterations of a step.
            A step also ends after 2 max_iter computations of the loss.
        history_size: pairs of steps and changes of the gradient that stand for the Hessian.
        tolerance_grad: the step ends where no entry of the gradient is larger. tolerance_change: and where neither the
            loss nor a coordinate changes by more.

    Raises:
        ValueError: an option out of range; in ``step``, no closure, or a sparse gradient.
    """

    needs_closure = True  # `step` takes a function that sets the gradients and returns the loss, and calls it often

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        max_iter: int = 1000,
        history_size: int = 50,
        tolerance_grad: float = 1e-9,
        tolerance_change: float = 1e-12,
    ):
        for name, count in (("max_iter", max_iter), ("history_size", history_size)):
            require(isinstance(count, int) and count >= 1, f"lbfgs.{name} must be a whole number above 0, got {count}")
        require(math.isfinite(lr) and lr > 0, f"lr must be positive for rule 'lbfgs', got {lr}")
        for name, value in (("tolerance_grad", tolerance_grad), ("tolerance_change", tolerance_change)):
            require(math.isfinite(value) and value >= 0, f"lbfgs.{name} must not be negative, got {value}")
        super().__init__(params, {"lr": lr})
        for p in (p for group in self.param_groups for p in group["params"]):
            check_manifold(p)
        manifolds = [manifold_of(p) for group in self.param_groups for p in group["params"]]
        learned = any(manifold is not None and manifold.learn_c for manifold in manifolds)
        require(not learned, "rule 'lbfgs' does not know how a learned c moves points; use rule 'adam' or a fixed c")
        self.settings: dict[str, Any] = {
            "max_iter": max_iter,
            "max_eval": 2 * max_iter,
            "history_size": history_size,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "settings": self.settings}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Minimise, in place. Returns what the first call of ``closure`` returned, a loss."""
        require(closure is not None, "rule 'lbfgs' needs a closure that computes the loss and its gradients")
        assert closure is not None
        params = [p for group in self.param_groups for p in group["params"]]
        with torch.no_grad():
            flat = [_coordinates(p).clone().requires_grad_() for p in params]

        def evaluate() -> Any:
            moved = [_place(p, v) for p, v in zip(params, flat, strict=True)]
            with torch.no_grad():
                for p, x in zip(params, moved, strict=True):
                    p.copy_(x)
            with torch.enable_grad():
                loss = closure()
            for p, v, x in zip(params, flat, moved, strict=True):
                grad = torch.zeros_like(v) if p.grad is None else p.grad
                require(not grad.is_sparse, "rule 'lbfgs' takes no sparse gradients; use rule 'adam' or 'sgd'")
                grad = grad.as_subclass(Tensor)
                v.grad = grad.clone() if x is v else torch.autograd.grad(x, v, grad)[0]
            return loss

        inner = torch.optim.LBFGS(flat, lr=self.param_groups[0]["lr"], line_search_fn="strong_wolfe", **self.settings)
        loss = inner.step(evaluate)
        with torch.no_grad():
            for p, v in zip(params, flat, strict=True):
                p.copy_(_place(p, v))
        return loss


def _coordinates(p: Tensor) -> Tensor:
    """Flat coordinates of a parameter: v with ``exp_0(v)`` the points."""
    manifold, x = manifold_of(p), p.detach().as_subclass(Tensor)
    return x if manifold is None else manifold.logmap0(x)


def _place(p: Tensor, v: Tensor) -> Tensor:
    """The parameter that has the flat coordinates v: v itself where it is Euclidean."""
    manifold = manifold_of(p)
    if manifold is None:
        return v
    with torch.enable_grad():
        return manifold.expmap0(v)
