"""The optimiser: parameter groups, clipping, and which tensors are updated together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, overload

import torch
from torch import Tensor

from hyperbolic.kernels.riemannian_steps import cuda
from hyperbolic.optim import flat, gradients
from hyperbolic.optim.checks import check_names, check_options, check_state, require
from hyperbolic.optim.gradients import Gradient
from hyperbolic.optim.points import (
    MOMENTS,
    SMALL,
    check_manifold,
    jobs_of,
    manifold_of,
    new_state,
    project,
    rows_of,
    space_of,
    step_rows,
)
from hyperbolic.optim.roles import CURVATURES

Update = tuple[Tensor, Gradient, dict[str, Any]]  # parameter, gradient, state
CLIPS = ("global", "group", "tensor")


class RiemannianOptimizer(torch.optim.Optimizer):
    """Updates points along geodesics and everything else as usual.

    Adam, one row of a manifold parameter (a point x) at a time, with ``g = grad f(x)`` the Riemannian gradient::

        m <- b1 m + (1 - b1) g            v <- b2 v + (1 - b2) <g, g>_x        (one v per point)
        x' = exp_x(-lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps))        m <- transport of m from x to x'

    SGD: ``x' = exp_x(-lr m)`` with ``m <- momentum m + g``. Adagrad: ``x' = exp_x(-lr g / (sqrt(v) + eps))`` with
    ``v <- v + <g, g>_x`` (Bécigneul & Ganea 2019, section 3). Euclidean tensors: Adam or Adagrad with one v per
    coordinate, or SGD.

    Args:
        params: parameters or groups. rule: "adam", "adagrad" or "sgd", the default of groups that do not say.
        lr, betas, eps, amsgrad, momentum: the usual ones; amsgrad keeps the largest v.
        weight_decay: decoupled. Euclidean tensors shrink by ``1 - lr * weight_decay``; points move that share of their
            way along the geodesic to the origin, ``exp_0((1 - lr * weight_decay) log_0(x))``.
        decoupled: False: Euclidean tensors do not shrink; ``weight_decay * p`` is added to their gradients instead,
            after clipping (an L2 penalty, as in ``torch.optim.Adam``). Points move as above.
        exact_exp: exponential map and transport along it; False: the manifold's retraction.
        lazy: of tensors with rows (two axes or more, points of two), update only the rows with a gradient: the others
            are neither read nor moved and their moments do not decay (as in ``torch.optim.SparseAdam``; t counts
            the steps of the tensor). Rows are those of a sparse gradient, else those named to :meth:`touch`, else
            those whose gradient is not zero. False: a sparse gradient means the same as the dense one.
        stabilize: every so many steps project points, and move their momenta along (None: never; every update
            already ends with a projection of the point, and where kernels on a GPU make it, of the momentum).
        max_radius: keep points within that distance of the origin: what a step moves further is moved back along
            the geodesic from there, its momentum with it (None: as far as the manifold allows).
        max_grad_norm: clip gradients to this norm (None, inf: no clipping).
        clip: "global", one norm for all parameters; "group", each group of parameters by its own; or "tensor", every
            tensor by its own (Ganea et al.).
        stacked: along so many first axes several tensors are stacked, each of which clip="tensor" takes by its own.

    float32 keeps few digits of the direction of a momentum far out on the hyperboloid: beyond about 14 / sqrt(c) from
    the origin steps of Adam go astray. Give max_radius, or float64, where points go there.

    Points move, and are projected and drawn back, by the curvature c of their gradients; a learned c moves after that,
    and all points on its manifold are projected, also those without a gradient; rows of lazy tables when they are used.
    A finite gradient never makes a parameter NaN. On a GPU nothing waits for the device, but for the rows of lazy
    tensors (unless a sparse gradient is already coalesced) and for points beyond max_radius.

    Raises:
        ValueError: a value out of range, or a gradient that is sparse along other axes than the first.
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
        decoupled: bool = True,
        exact_exp: bool = True,
        stabilize: int | None = None,
        max_grad_norm: float | None = None,
        clip: str = "global",
        lazy: bool = False,
        max_radius: float | None = None,
        stacked: int = 0,
    ):
        require(clip in CLIPS, f"clip must be {' or '.join(map(repr, CLIPS))}, got {clip!r}")
        require(max_grad_norm is None or max_grad_norm > 0, f"max_grad_norm must be positive, got {max_grad_norm}")
        require(stabilize is None or stabilize >= 1, f"stabilize must be at least 1, got {stabilize}")
        self.stabilize, self.clip = stabilize, clip
        self.max_grad_norm = None if max_grad_norm == math.inf else max_grad_norm
        self._touched: dict[Tensor, Tensor] = {}
        defaults = {
            "rule": rule,
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "amsgrad": amsgrad,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "decoupled": decoupled,
            "exact_exp": exact_exp,
            "lazy": lazy,
            "max_radius": max_radius,
            "stacked": stacked,
        }
        super().__init__(params, defaults)

    def __getstate__(self) -> dict[str, Any]:
        clipping = {"stabilize": self.stabilize, "max_grad_norm": self.max_grad_norm, "clip": self.clip}
        return {**super().__getstate__(), **clipping, "_touched": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("lazy", False)
            group.setdefault("decoupled", True)
            group.setdefault("max_radius", None)
            group.setdefault("stacked", 0)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        check_names(param_group, self.defaults)
        if not isinstance(param_group["params"], Tensor):  # a shared curvature is listed by every layer on it
            param_group = {**param_group, "params": list(dict.fromkeys(param_group["params"]))}
        check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            check_manifold(p)
            require(not p.is_complex(), f"a parameter of shape {tuple(p.shape)} is complex; split it into real ones")

    def touch(self, parameter: Tensor, index: Tensor) -> None:
        """Names rows that the next step's dense gradient of a lazy tensor is about, besides those named since the last
        step; duplicates are allowed.

        Saves the search for them in the gradient. Rows that have a gradient and are not named are not moved. Numbers
        are those from 0; the step raises an IndexError for others.
        """
        earlier = self._touched.get(parameter)
        self._touched[parameter] = index if earlier is None else torch.cat([earlier.flatten(), index.flatten()])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over the state of another optimiser of the same parameters.

        Raises:
            ValueError: state of another rule (Adam's, SGD's), or that does not fit its parameter or is not finite,
                other groups, or options of a group that are out of range; nothing is taken over then.
        """
        for group in state_dict["param_groups"]:
            check_names(group, self.defaults)
            check_options({**self.defaults, **group})
        for own, group in zip(self.param_groups, state_dict["param_groups"], strict=False):
            if (rule := group.get("rule", own["rule"])) != own["rule"]:
                raise ValueError(f"the state is of the rule {rule!r}, and the optimiser's is {own['rule']!r}")
        both = self.param_groups, state_dict["param_groups"]
        ours, theirs = ({group.get("role") for group in groups} for groups in both)
        if CURVATURES in ours - theirs:
            raise ValueError("it is from before learned curvatures had a group of their own, without weight decay")
        indices = [index for group in state_dict["param_groups"] for index in group["params"]]
        params = [p for group in self.param_groups for p in group["params"]]
        for number, (index, p) in enumerate(zip(indices, params, strict=False)):
            check_state(number, p, state_dict["state"].get(index, {}))
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state.update({key: value.contiguous() for key, value in state.items() if isinstance(value, Tensor)})

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch._disable_dynamo  # torch.compile takes a ManifoldParameter for a flat tensor
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of all parameters that have a gradient; compiled code runs it as it is."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        grads = self._gradients()
        project([(p, g.rows) for p, g in grads.items() if g.rows is not None and _learns_c(p)])  # c has moved since
        for group in self.param_groups:
            for p in group["params"]:
                if p in grads:
                    state = self.state[p]
                    state["step"] = state.get("step", 0) + 1
                    for name, value in new_state(p, group).items() if _lacks_state(state, group) else ():
                        state.setdefault(name, value)
        if not self._step_in_few_launches(grads):
            grads = self._clip(grads)
            groups = [({p: grads[p] for p in group["params"] if p in grads}, group) for group in self.param_groups]
            for some, group in groups:
                self._step_curved(some, group)
            for some, group in groups:
                self._step_flat([(p, g, self.state[p]) for p, g in some.items() if manifold_of(p) is None], group)
        torch.autograd.graph.increment_version(list(grads))  # kernels that take addresses leave it as it was
        project([(p, None) for p in self._left_behind(grads)])
        return loss

    def _left_behind(self, grads: Mapping[Tensor, Gradient]) -> Iterator[Tensor]:
        """Tensors of points whose c may have moved after them; rows of lazy tables are projected when they are used."""
        for group in self.param_groups:
            for p in group["params"]:
                if _learns_c(p) and (
                    grads[p].rows is None if p in grads else p.manifold.free_c in grads and not _is_lazy(p, group)
                ):
                    yield p

    def _gradients(self) -> dict[Tensor, Gradient]:
        """Gradients as they are."""
        grads = {}
        touched, self._touched = self._touched, {}  # also where one of them is an error
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    grads[p] = gradients.read(p, p.grad, _is_lazy(p, group), touched.get(p))
        return grads

    def _clip(self, grads: dict[Tensor, Gradient]) -> dict[Tensor, Gradient]:
        """Gradients after clipping, without changing ``p.grad``."""
        if self.max_grad_norm is None:
            return grads
        if self.clip != "group":
            stacked = {p: group["stacked"] for group in self.param_groups for p in group["params"]}
            return gradients.clip(grads, self.max_grad_norm, self.clip, stacked)
        clipped: dict[Tensor, Gradient] = {}
        for group in self.param_groups:
            own = {p: grads[p] for p in group["params"] if p in grads}
            clipped |= gradients.clip(own, self.max_grad_norm, "global")
        return clipped

    def _step_in_few_launches(self, grads: dict[Tensor, Gradient]) -> bool:
        """Clips and updates all tensors together, where kernels on a GPU take all of them; whether they do."""
        stacks = self.clip == "tensor" and any(group["stacked"] for group in self.param_groups)
        if not (grads and cuda.serves(next(iter(grads)))) or (stacks and self.max_grad_norm is not None):
            return False
        jobs = jobs_of(grads, self.state, self.param_groups, self.clip)
        if cuda.fits(jobs):
            cuda.step(jobs, self.max_grad_norm)
            return True
        return False

    def _projects(self, number: int) -> bool:
        return self.stabilize is not None and number % self.stabilize == 0

    def _step_curved(self, grads: dict[Tensor, Gradient], group: dict[str, Any]) -> None:
        """Updates the points among these tensors."""
        point_updates: dict[object, list[Update]] = {}
        for p, gradient in grads.items():
            state, manifold = self.state[p], manifold_of(p)
            if manifold is None:
                continue
            alone = p.numel() > SMALL or gradient.rows is not None
            key = id(p) if alone else (space_of(manifold), p.shape[-1], p.dtype, p.device, state["step"])
            point_updates.setdefault(key, []).append((p, gradient, state))
        for updates in point_updates.values():
            self._step_points(updates, group)

    def _step_flat(self, updates: list[Update], group: dict[str, Any]) -> None:
        """Updates Euclidean tensors with their gradients and states; of those with a row gradient, the rows."""
        whole = [(p, gradient.values, state) for p, gradient, state in updates if gradient.rows is None]
        if whole:
            params, grads, states = zip(*whole, strict=True)
            self._flat_rule([p.detach().as_subclass(Tensor) for p in params], list(grads), list(states), group)
        for p, (values, index), state in updates:
            if index is not None:
                table = p.detach().as_subclass(Tensor)
                rows = {key: value[index] if isinstance(value, Tensor) else value for key, value in state.items()}
                new = table[index]
                self._flat_rule([new], [values], [rows], group)
                table.index_copy_(0, index, new)
                for key, value in rows.items():
                    if isinstance(value, Tensor):
                        state[key].index_copy_(0, index, value)

    def _flat_rule(
        self, params: list[Tensor], grads: list[Tensor], states: list[dict[str, Any]], group: dict[str, Any]
    ) -> None:
        if group["weight_decay"] and not group["decoupled"]:
            grads = list(torch._foreach_add(grads, params, alpha=group["weight_decay"]))
            group = {**group, "weight_decay": 0.0}
        if group["rule"] == "adam":
            flat.adam(params, grads, states, group, bounded=self.max_grad_norm is not None)
        elif group["rule"] == "adagrad":
            flat.adagrad(params, grads, states, group)
        else:
            flat.sgd(params, grads, states, group)

    def _step_points(self, updates: list[Update], group: dict[str, Any]) -> None:
        """Updates several tensors of points of one space at once, as rows of one tensor."""
        params, grads, states = zip(*updates, strict=True)
        number, manifold = states[0]["step"], manifold_of(params[0])
        assert manifold is not None
        projects = self._projects(number)
        points = [p.detach().as_subclass(Tensor) for p in params]
        moments = [key for key in MOMENTS if key in states[0]]
        index = grads[0].rows  # of a table's rows
        one = [points[0], *(states[0][key] for key in moments)]
        if index is not None or (len(params) == 1 and all(t.is_contiguous() for t in one)):
            own = {key: rows_of(states[0][key]) for key in moments}
            step_rows(rows_of(points[0]), rows_of(grads[0].values), own, number, group, manifold, projects, index)
            return
        tables = [points, *([s[key] for s in states] for key in moments)]
        rows = [torch.cat([rows_of(t) for t in each]) for each in tables]
        grad = torch.cat([rows_of(g.values) for g in grads])
        step_rows(rows[0], grad, dict(zip(moments, rows[1:], strict=True)), number, group, manifold, projects)
        sizes = [p.numel() // p.shape[-1] for p in params]
        for each, joined in zip(tables, rows, strict=True):
            parts = joined.split(sizes)
            torch._foreach_copy_(each, [part.view_as(t) for part, t in zip(parts, each, strict=True)])


def _learns_c(p: Tensor) -> bool:
    return (manifold := manifold_of(p)) is not None and manifold.learn_c


def _is_lazy(p: Tensor, group: dict[str, Any]) -> bool:
    return bool(group["lazy"]) and (p.dim() == 2 or manifold_of(p) is None)


def _lacks_state(state: dict[str, Any], group: dict[str, Any]) -> bool:
    if group["rule"] == "sgd":
        return group["momentum"] > 0 and "momentum" not in state
    largest = group["amsgrad"] and group["rule"] == "adam"
    return "square" not in state or (largest and "largest_square" not in state)


class RiemannianAdam(RiemannianOptimizer):
    """:class:`RiemannianOptimizer` with rule "adam"."""

    def __init__(self, params: Any, lr: float = 1e-3, **options: Any):
        super().__init__(params, rule="adam", lr=lr, **options)


class RiemannianSGD(RiemannianOptimizer):
    """:class:`RiemannianOptimizer` with rule "sgd"."""

    def __init__(self, params: Any, lr: float = 1e-2, **options: Any):
        super().__init__(params, rule="sgd", lr=lr, **options)
