"""Adam, Adagrad and SGD on Euclidean tensors, all of a group at once, with decoupled weight decay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_FUSED = (torch.float32, torch.float64, torch.bfloat16)


State = dict[str, Any]


def adam(params: list[Tensor], grads: list[Tensor], states: list[State], group: dict[str, Any], bounded: bool) -> None:
    """Adam. Moments are in ``states``; their "step" is the number of this step.

    Args:
        bounded: gradients are far from the largest number of their dtype.
    """
    fused: dict[tuple[torch.dtype, torch.device, int], list[int]] = {}
    plain = []
    moments = ("momentum", "square", "largest_square") if group["amsgrad"] else ("momentum", "square")
    for i, (p, grad, state) in enumerate(zip(params, grads, states, strict=True)):
        dtype, shape, device = p.dtype, p.shape, p.device
        own = (grad, *(state[name] for name in moments))
        alike = p.is_contiguous() and all(
            t.dtype is dtype and t.shape == shape and t.device == device and t.is_contiguous() for t in own
        )
        if alike and p.dtype in _FUSED and (p.is_cpu or p.is_cuda):
            fused.setdefault((p.dtype, p.device, state["step"]), []).append(i)
        else:
            plain.append(i)
    for (dtype, device, step), bucket in fused.items():
        some = [grads[i] for i in bucket]
        some = some if bounded else _bound(some, dtype, device)
        number = torch.full((), step, dtype=torch.float32, device=device)
        _fuse_adam([params[i] for i in bucket], some, [states[i] for i in bucket], number, group)
    if plain:
        _adam_foreach([params[i] for i in plain], [grads[i] for i in plain], [states[i] for i in plain], group)


def _bound(grads: list[Tensor], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Gradients cut to a quarter of the largest number: the fused kernel forms ``grad - momentum``."""
    most = torch.finfo(dtype).max / 4
    if device.type == "cpu":  # elsewhere looking at the numbers would wait for the device
        ends = [end.item() for g in grads if g.numel() for end in torch.aminmax(g)]
        if not any(abs(end) > most for end in ends):
            return grads
    cut = list(torch._foreach_clamp_min(grads, -most))
    torch._foreach_clamp_max_(cut, most)
    return cut


def _fuse_adam(
    params: list[Tensor], grads: list[Tensor], states: list[State], step: Tensor, group: dict[str, Any]
) -> None:
    """One pass over memory, by PyTorch's own kernel."""
    beta1, beta2 = group["betas"]
    torch._fused_adamw_(
        params,
        grads,
        [s["momentum"] for s in states],
        [s["square"] for s in states],
        [s["largest_square"] for s in states] if group["amsgrad"] else [],
        [step] * len(params),
        lr=group["lr"],
        beta1=beta1,
        beta2=beta2,
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=group["amsgrad"],
        maximize=False,
    )


def _adam_foreach(params: list[Tensor], grads: list[Tensor], states: list[State], group: dict[str, Any]) -> None:
    beta1, beta2 = group["betas"]
    momenta, squares = [s["momentum"] for s in states], [s["square"] for s in states]
    if group["weight_decay"]:
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
    torch._foreach_mul_(momenta, beta1)
    torch._foreach_add_(momenta, grads, alpha=1 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
    largest = squares
    if group["amsgrad"]:
        largest = [s["largest_square"] for s in states]
        torch._foreach_maximum_(largest, squares)
    corrections = [(1 - beta2 ** s["step"]) ** 0.5 for s in states]
    denominators = torch._foreach_sqrt(largest)
    torch._foreach_div_(denominators, corrections)
    torch._foreach_add_(denominators, group["eps"])
    steps = [-group["lr"] / (1 - beta1 ** s["step"]) for s in states]
    torch._foreach_addcdiv_(params, momenta, denominators, steps)


def adagrad(params: list[Tensor], grads: list[Tensor], states: list[State], group: dict[str, Any]) -> None:
    """Adagrad, ``v <- v + g^2``, ``p <- p - lr g / (sqrt(v) + eps)`` (Duchi et al. 2011), as `torch.optim.Adagrad`."""
    if group["weight_decay"]:
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
    squares = [s["square"] for s in states]
    torch._foreach_addcmul_(squares, grads, grads)
    denominators = torch._foreach_sqrt(squares)
    torch._foreach_add_(denominators, group["eps"])
    torch._foreach_addcdiv_(params, grads, denominators, -group["lr"])


def sgd(params: list[Tensor], grads: list[Tensor], states: list[State], group: dict[str, Any]) -> None:
    """SGD with momentum."""
    if group["weight_decay"]:
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
    if group["momentum"]:
        momenta = [s["momentum"] for s in states]
        torch._foreach_mul_(momenta, group["momentum"])
        torch._foreach_add_(momenta, grads)
        grads = momenta
    torch._foreach_add_(params, grads, alpha=-group["lr"])
