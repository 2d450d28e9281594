"""One optimiser for all parameters: Riemannian Adam or SGD on manifold parameters, Adam or SGD on the rest.

Clipping acts on the Euclidean gradients, before the Riemannian rescale, as in all official codes. Per parameter
group: ``rule`` ("adam" or "sgd"), ``lr``, ``betas``, ``eps``, ``amsgrad``, ``momentum``, ``weight_decay``,
``exact_exp``. Sources: Bonnabel 2013 (Riemannian SGD), Bécigneul & Ganea 2019 (Riemannian Adam and AMSGrad).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.manifolds import Euclidean, Manifold
from hyperbolic.numerics import wide

_SMALL = 1 << 16  # tensors of points up to this size are updated together
ROLES = ("embeddings", "biases", "matrices")


class RiemannianOptimizer(torch.optim.Optimizer):
    """Updates points along geodesics and everything else as usual.

    Adam, one row of a manifold parameter (a point x) at a time, with ``g = grad f(x)`` the Riemannian gradient::

        m <- b1 m + (1 - b1) g            v <- b2 v + (1 - b2) <g, g>_x        (one v per point)
        x' = exp_x(-lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps))        m <- transport of m from x to x'

    SGD: ``x' = exp_x(-lr m)`` with ``m <- momentum m + g``. Euclidean tensors: Adam with one v per coordinate, or SGD.

    Args:
        params: parameters or groups. rule: "adam" or "sgd", the default of groups that do not say.
        lr, betas, eps, amsgrad, momentum: the usual ones; amsgrad keeps the largest v.
        weight_decay: decoupled. Euclidean tensors shrink by ``1 - lr * weight_decay``; points move that share of their
            way along the geodesic to the origin, ``exp_0((1 - lr * weight_decay) log_0(x))``.
        exact_exp: exponential map and transport along it; False: the manifold's retraction.
        stabilize: every so many steps project points, and move their momenta along (None: never; every update
            already ends with a projection of the point).
        max_grad_norm: clip gradients to this norm (None: no clipping).
        clip: "global", one norm for all parameters, or "tensor", every tensor by its own (Ganea et al.).

    A finite gradient never makes a parameter NaN.

    Raises:
        ValueError: a value out of range. RuntimeError: sparse gradients.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        rule: str = "adam",
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        amsgrad: bool = False,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        exact_exp: bool = True,
        stabilize: int | None = None,
        max_grad_norm: float | None = None,
        clip: str = "global",
    ):
        _require(clip in ("global", "tensor"), f"clip must be 'global' or 'tensor', got {clip!r}")
        _require(max_grad_norm is None or max_grad_norm > 0, f"max_grad_norm must be positive, got {max_grad_norm}")
        _require(stabilize is None or stabilize >= 1, f"stabilize must be at least 1, got {stabilize}")
        self.stabilize, self.max_grad_norm, self.clip = stabilize, max_grad_norm, clip
        defaults = {
            "rule": rule,
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "amsgrad": amsgrad,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "exact_exp": exact_exp,
        }
        super().__init__(params, defaults)

    def __getstate__(self) -> dict[str, Any]:
        clipping = {"stabilize": self.stabilize, "max_grad_norm": self.max_grad_norm, "clip": self.clip}
        return {**super().__getstate__(), **clipping}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        group = {**self.defaults, **param_group}
        _require(group["rule"] in ("adam", "sgd"), f"rule must be 'adam' or 'sgd', got {group['rule']!r}")
        _require(group["lr"] >= 0, f"lr must not be negative, got {group['lr']}")
        _require(len(group["betas"]) == 2, f"betas must be two numbers, got {group['betas']}")
        _require(all(0 <= beta < 1 for beta in group["betas"]), f"betas must lie in [0, 1), got {group['betas']}")
        _require(group["eps"] > 0, f"eps must be positive, got {group['eps']}")
        _require(0 <= group["momentum"] < 1, f"momentum must lie in [0, 1), got {group['momentum']}")
        _require(group["weight_decay"] >= 0, f"weight_decay must not be negative, got {group['weight_decay']}")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """One update of all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = self._clipped()
        for group in self.param_groups:
            flat, points = [], {}
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                manifold = _manifold(p)
                if manifold is None:
                    flat.append(p)
                else:
                    small = p.numel() <= _SMALL or p
                    key = (id(manifold), p.shape[-1], p.dtype, p.device, state["step"], small)
                    points.setdefault(key, []).append(p)
            if flat:
                update = _adam_flat if group["rule"] == "adam" else _sgd_flat
                update(flat, [gradients[p] for p in flat], [self.state[p] for p in flat], group)
            for params in points.values():
                self._step_points(params, [gradients[p] for p in params], group)
        return loss

    def _clipped(self) -> dict[Tensor, Tensor]:
        """Gradients after clipping, without changing ``p.grad``."""
        params = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        if any(p.grad.is_sparse for p in params):
            raise RuntimeError("sparse gradients are not supported: build embeddings with sparse=False")
        grads = [p.grad.as_subclass(Tensor) for p in params]
        if self.max_grad_norm is not None and grads:
            norms = torch.stack([torch.linalg.vector_norm(g, dtype=torch.float64) for g in grads])
            if self.clip == "global":
                norms = torch.linalg.vector_norm(norms).expand_as(norms)
            scales = (self.max_grad_norm / norms.clamp_min(self.max_grad_norm)).unbind(0)
            grads = [g * s.to(g.dtype) for g, s in zip(grads, scales, strict=True)]
        return dict(zip(params, grads, strict=True))

    def _step_points(self, params: list[Tensor], grads: list[Tensor], group: dict) -> None:
        """Updates several tensors of points of one space at once, as rows of one tensor."""
        states = [self.state[p] for p in params]
        joined = {
            key: torch.cat([s[key].reshape(-1, s[key].shape[-1]) for s in states]) for key in states[0] if key != "step"
        }
        joined["step"] = states[0]["step"]
        x = torch.cat([p.as_subclass(Tensor).reshape(-1, p.shape[-1]) for p in params])
        grad = torch.cat([g.reshape(-1, g.shape[-1]) for g in grads])
        x = self._step_rows(x, grad, joined, group, _manifold(params[0]))
        sizes = [p.numel() // p.shape[-1] for p in params]
        for p, rows in zip(params, x.split(sizes), strict=True):
            p.copy_(rows.view_as(p))
        for key, value in joined.items():
            if key != "step":
                for p, state, rows in zip(params, states, value.split(sizes), strict=True):
                    state[key] = rows.reshape(*p.shape[:-1], -1).clone()

    def _step_rows(self, x: Tensor, grad: Tensor, state: dict, group: dict, manifold: Manifold) -> Tensor:
        """The new points of the rows of x (N, D); moments in ``state`` are replaced."""
        g = _bounded(manifold.egrad2rgrad(x, grad))
        lr, (beta1, beta2) = group["lr"], group["betas"]
        if group["weight_decay"]:
            moved = manifold.expmap0((1 - lr * group["weight_decay"]) * manifold.logmap0(x))
            g = _bounded(manifold.transp(x, moved, g))
            if "momentum" in state:
                state["momentum"] = _bounded(manifold.transp(x, moved, state["momentum"]))
            x = moved
        keeps_momentum = group["rule"] == "adam" or group["momentum"] > 0
        if keeps_momentum and "momentum" not in state:
            state["momentum"] = torch.zeros_like(x)
        if group["rule"] == "adam":
            if "square" not in state:
                state["square"] = torch.zeros_like(x[..., :1])
            square = manifold.inner(x, wide(g), keepdim=True).clamp_min_(0)
            longest = torch.finfo(x.dtype).max ** 0.5 / 8  # a longer gradient has a square that overflows
            far = square > longest**2
            shrink = torch.where(far, longest * torch.where(far, square, 1).rsqrt(), 1)
            g, square = (g * shrink).to(x.dtype), (square * shrink.square()).to(x.dtype)
            m = state["momentum"].mul_(beta1).add_(g, alpha=1 - beta1)
            v = _second_moment(state, square, beta2, group["amsgrad"])
            scale = lr / (1 - beta1 ** state["step"])
            denominator = (v / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
            u = m * (-scale / denominator)
        elif keeps_momentum:
            m = _bounded(state["momentum"].mul_(group["momentum"]).add_(g))
            u = -lr * m
        else:
            m, u = None, -lr * g
        new = manifold.expmap(x, u) if group["exact_exp"] else manifold.retr(x, u)
        if m is not None:
            m = _bounded(manifold.transp(x, new, m))
        if self.stabilize is not None and state["step"] % self.stabilize == 0:
            projected = manifold.projx(new)
            m = m if m is None else _bounded(manifold.transp(new, projected, m))
            new = projected
        if m is not None:
            state["momentum"] = m
        return new


def _bounded(x: Tensor) -> Tensor:
    """x with infinities, from overflow of finite gradients at far points, made the largest finite numbers."""
    return x.clamp(-torch.finfo(x.dtype).max, torch.finfo(x.dtype).max)


def _second_moment(state: dict, square: Tensor, beta2: float, amsgrad: bool) -> Tensor:
    v = state["square"].lerp_(square, 1 - beta2)
    if not amsgrad:
        return v
    state["largest_square"] = torch.maximum(state.get("largest_square", v), v)
    return state["largest_square"]


def _adam_flat(params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
    """Adam with decoupled weight decay on Euclidean tensors, all of a group at once."""
    beta1, beta2 = group["betas"]
    for p, state in zip(params, states, strict=True):
        if "momentum" not in state:
            state["momentum"], state["square"] = torch.zeros_like(p), torch.zeros_like(p)
    momenta, squares = [s["momentum"] for s in states], [s["square"] for s in states]
    if group["weight_decay"]:
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
    torch._foreach_mul_(momenta, beta1)
    torch._foreach_add_(momenta, grads, alpha=1 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
    largest = squares
    if group["amsgrad"]:
        for state in states:
            state["largest_square"] = torch.maximum(state.get("largest_square", state["square"]), state["square"])
        largest = [s["largest_square"] for s in states]
    corrections = [(1 - beta2 ** s["step"]) ** 0.5 for s in states]
    denominators = torch._foreach_sqrt(largest)
    torch._foreach_div_(denominators, corrections)
    torch._foreach_add_(denominators, group["eps"])
    steps = [-group["lr"] / (1 - beta1 ** s["step"]) for s in states]
    torch._foreach_addcdiv_(params, momenta, denominators, steps)


def _sgd_flat(params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
    """SGD with momentum and decoupled weight decay on Euclidean tensors."""
    if group["weight_decay"]:
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
    if group["momentum"]:
        for p, state in zip(params, states, strict=True):
            state.setdefault("momentum", torch.zeros_like(p))
        momenta = [s["momentum"] for s in states]
        torch._foreach_mul_(momenta, group["momentum"])
        torch._foreach_add_(momenta, grads)
        grads = momenta
    torch._foreach_add_(params, grads, alpha=-group["lr"])


def _manifold(p: Tensor) -> Manifold | None:
    """The curved manifold a parameter lives on."""
    if isinstance(p, ManifoldParameter) and isinstance(p.manifold, Manifold) and not isinstance(p.manifold, Euclidean):
        return p.manifold
    return None


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(f"optimiser: {message}")


class RiemannianAdam(RiemannianOptimizer):
    """:class:`RiemannianOptimizer` with rule "adam"."""

    def __init__(self, params, lr: float = 1e-3, **options: Any):
        super().__init__(params, rule="adam", lr=lr, **options)


class RiemannianSGD(RiemannianOptimizer):
    """:class:`RiemannianOptimizer` with rule "sgd"."""

    def __init__(self, params, lr: float = 1e-2, **options: Any):
        super().__init__(params, rule="sgd", lr=lr, **options)


def parameter_role(module: nn.Module, parameter: Tensor) -> str:
    """ "embeddings" for tables of points, "biases" for all other points, "matrices" for Euclidean tensors."""
    if _manifold(parameter) is None:
        return "matrices"
    return getattr(module, "parameter_role", "biases")


def parameter_groups(
    module: nn.Module,
    embeddings: Mapping[str, Any] | None = None,
    biases: Mapping[str, Any] | None = None,
    matrices: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Optimiser groups by role, each with options of its own (Ganea et al. 2018 use three learning rates).

    Args:
        embeddings: options of tables of points; biases: of all other points (biases, points of hyperplanes);
        matrices: of Euclidean tensors. What is left out takes the optimiser's defaults.
    Returns: non-empty groups in the order of ``ROLES``, with the key "role".
    """
    options = {"embeddings": embeddings, "biases": biases, "matrices": matrices}
    found: dict[str, list[Tensor]] = {role: [] for role in ROLES}
    seen: set[int] = set()
    for owner in module.modules():
        for parameter in owner.parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                found[parameter_role(owner, parameter)].append(parameter)
    return [{"params": found[role], "role": role, **(options[role] or {})} for role in ROLES if found[role]]
