"""What a step reads: gradients after clipping, of all rows of a tensor or of the rows that were used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from hyperbolic import native

_RUN = 1024  # numbers whose squares are added up in float32
_SMALL = 1 << 16  # numbers of a gradient that are copied in less time than a few operations take


class Gradient(NamedTuple):
    """Gradient of a tensor; with row numbers (K,), of these rows (axis 0) only, each named once."""

    values: Tensor
    rows: Tensor | None = None


def read(p: Tensor, grad: Tensor, lazy: bool, touched: Tensor | None) -> Gradient:
    """The gradient of p from ``p.grad``.

    Args:
        lazy: give touched rows only, for tensors of at least two axes. A dense gradient's are ``touched`` or, when
            that is None, the rows that are not all zero; finding them waits for a GPU to finish.

    Raises:
        ValueError: a sparse gradient whose sparse axes are not axis 0 alone.
        IndexError: a touched row that is not one of p: kernels would write outside of its memory.
    """
    if grad.is_sparse:
        if grad.sparse_dim() != 1:
            raise ValueError(
                f"optimiser: a sparse gradient of a tensor of shape {tuple(p.shape)} has {grad.sparse_dim()} sparse "
                "axes; rows of axis 0 are supported (embeddings with sparse=True)"
            )
        if not lazy:
            return Gradient(grad.to_dense())
        grad = grad.coalesce()
        return Gradient(grad.values(), grad.indices()[0])
    grad = grad.as_subclass(Tensor)
    if not lazy or p.dim() < 2:
        return Gradient(grad)
    if touched is None:
        index = (grad != 0).flatten(1).any(1).nonzero().squeeze(1)
    else:
        index = touched.flatten().unique().long()
        index = native.checked_index(index, len(p), "RiemannianOptimizer.touch", "rows") if len(index) else index
    return Gradient(grad[index], index)


def clip(
    gradients: Mapping[Tensor, Gradient], max_norm: float, kind: str, stacked: Mapping[Tensor, int] | None = None
) -> dict[Tensor, Gradient]:
    """Gradients scaled down to ``max_norm``: all by one norm (kind "global"), or every tensor by its own. stacked: the
    first axes of some tensors, along which several are stacked, each of which then has a norm of its own."""
    if kind == "global":
        return _clip_together(gradients, max_norm)
    apart = {
        p: g._replace(values=_clip_stack(g.values, max_norm, stacked[p]))
        for p, g in gradients.items()
        if stacked and stacked.get(p)  # rows are some of the tensors along the first axis
    }
    gradients = {p: g for p, g in gradients.items() if p not in apart}
    if not gradients:
        return apart
    device = next(iter(gradients)).device
    norms = torch.stack([_norm(g.values).to(device) for g in gradients.values()])
    if device.type == "cpu" and norms.max() <= max_norm:  # elsewhere looking at the numbers would wait for the device
        return {**gradients, **apart}
    scales = (max_norm / norms.clamp_min(max_norm)).unbind(0)
    pairs = zip(gradients.items(), scales, strict=True)
    return {p: g._replace(values=g.values * s.to(g.values)) for (p, g), s in pairs} | apart


def _clip_together(gradients: Mapping[Tensor, Gradient], max_norm: float) -> dict[Tensor, Gradient]:
    """All scaled down by one norm, of which the small ones are joined: most of the time is that of many operations."""
    alike: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for g in gradients.values():
        alike.setdefault((g.values.dtype, g.values.device), []).append(g.values)
    if not alike:
        return {}
    parts = []
    for values in alike.values():
        small = [v for v in values if v.numel() <= _SMALL]
        parts += [v for v in values if v.numel() > _SMALL]
        parts += [torch._utils._flatten_dense_tensors(small)] if small else []
    device = parts[0].device
    norm = torch.linalg.vector_norm(torch.stack([_norm(part).to(device) for part in parts]))
    if device.type == "cpu" and norm <= max_norm:  # elsewhere looking at the number would wait for the device
        return dict(gradients)
    scale = max_norm / norm.clamp_min(max_norm)
    scaled = {key: iter(torch._foreach_mul(values, scale.to(values[0]))) for key, values in alike.items()}
    return {p: g._replace(values=next(scaled[g.values.dtype, g.values.device])) for p, g in gradients.items()}


def _clip_stack(values: Tensor, max_norm: float, axes: int) -> Tensor:
    """Each of the tensors that are stacked along the first axes, scaled down to ``max_norm``."""
    norms = torch.linalg.vector_norm(values.reshape(*values.shape[:axes], -1), dim=-1, dtype=torch.float64)
    scales = (max_norm / norms.clamp_min(max_norm)).to(values)
    result: Tensor = values * scales.view(*scales.shape, *(1 for _ in values.shape[axes:]))
    return result


def _norm(values: Tensor) -> Tensor:
    """The norm of all numbers, in float64: on a CPU that of the norms of short runs in float32, unless their squares
    overflow. Squares of numbers below 1e-20 may be lost."""
    whole = values.numel() // _RUN * _RUN
    if values.device.type == "cpu" and values.dtype is torch.float32 and whole:
        flat = values.reshape(-1)
        runs = torch.linalg.vector_norm(flat[:whole].view(-1, _RUN), dim=1)
        norm: Tensor = torch.linalg.vector_norm(torch.cat([runs, flat[whole:]]), dtype=torch.float64)
        if norm.isfinite():
            return norm
    norm = torch.linalg.vector_norm(values, dtype=torch.float64)
    return norm
