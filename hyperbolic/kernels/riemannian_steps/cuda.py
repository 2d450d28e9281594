"""Steps of all tensors of an optimiser on a GPU, by the kernels of ``triton.py``, in at most five launches: a copy of
what is to be done, two for norms of gradients where they are clipped, and the steps of flat tensors and of points. Each
step ends on the manifold and within its radius, with the momentum in the tangent space, so none needs a projection
(`stabilize`)."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hyperbolic import switch
from hyperbolic.kernels.gpu import available
from hyperbolic.kernels.riemannian_steps.plain import Rows, Rule
from hyperbolic.manifolds import Klein, Lorentz, Manifold, PoincareBall
from hyperbolic.numerics import BALL_EPS, SHEET_RADIUS

ROWS = 32  # of a program
FLAT_ROW = 256  # numbers of a flat tensor that make a row
_JOB = struct.Struct("14q11d")
WORDS = _JOB.size // 8
_LEAST = 1.05 * (1 - (1 - BALL_EPS[torch.float32]) ** 2)  # gap at the margin, and what rounding may take of it
_EDGE = math.atanh(math.sqrt(1 - _LEAST))
KINDS: dict[type[Manifold], tuple[int, float]] = {  # and the largest distance from the origin, times sqrt(c)
    Lorentz: (2, SHEET_RADIUS[torch.float32]),
    PoincareBall: (3, 2 * _EDGE),
    Klein: (4, _EDGE),
}
F32, F64 = torch.float32, torch.float64


class Job(NamedTuple):
    """A step of one tensor. Flat ones have the manifold None, and moments of their own shape.

    pull: of the numbers of a flat tensor in its gradient, after clipping. part: of the tensors that have one norm.
    """

    rows: Rows
    manifold: Manifold | None
    rule: Rule
    max_radius: float | None = None
    pull: float = 0.0
    part: int = 0


def serves(tensor: Tensor) -> bool:
    """Whether there may be kernels for it: :func:`fits` says so of a step."""
    return tensor.is_cuda


def fits(jobs: Sequence[Job]) -> bool:
    """Whether the kernels may take all of them: contiguous float32, flat also float64, on one GPU that Triton knows."""
    x = jobs[0].rows.x
    can = switch.fast() and not switch.is_followed(x) and available(x.device.index)
    return can and all(_fits(job, x.device) for job in jobs)


def _fits(job: Job, device: torch.device) -> bool:
    x, *others, some = job.rows
    curved = job.manifold is not None
    return (
        (x.dtype is F32 or (x.dtype is F64 and not curved))
        and (not curved or (type(job.manifold) in KINDS and job.rule.exact_exp))
        and all(t is None or (t.dtype is x.dtype and t.is_contiguous() and t.device == device) for t in (x, *others))
        and (some is None or (some.dtype is torch.int64 and some.is_contiguous() and some.device == device))
        and (job.manifold is None or job.manifold.holder.device == device)
    )


def step(jobs: Sequence[Job], max_norm: float | None = None) -> None:
    """One step of every job, in place: :func:`plain.step`, and its rule for flat tensors, number by number.

    Args: jobs: sorted by their parts, which count from 0. max_norm: of the gradients of each part, where they are
        clipped.

    Raises:
        ValueError: a gradient or a state does not have the shape that it has for its tensor.
    """
    for job in jobs:
        job.rows.require_shapes(flat=job.manifold is None)
    packed, ends, curvatures = bytearray(), [0] * (jobs[-1].part + 1), dict[int, Tensor]()
    programs = 0
    for job in jobs:
        packed += _pack(job, programs, _curvature(job.manifold, curvatures))
        programs += -(-_shape(job.rows, job.manifold)[0] // ROWS)
        ends[job.part] = programs
    device = jobs[0].rows.x.device
    ends = list(accumulate(ends, max))  # of parts without jobs as well
    packed += struct.pack(f"d{len(ends) + 1}q", max_norm or 0, 0, *ends)
    table = torch.frombuffer(packed, dtype=torch.int64)
    table = (table.pin_memory() if device.type == "cuda" else table).to(device, non_blocking=True)
    scales = table.new_empty(len(ends), dtype=F64)
    if max_norm is not None:
        squares = table.new_empty(programs, dtype=F64)
        _launch("squares", programs, 8, table, len(jobs), squares)
        _launch("scales", len(ends), 4, table[len(jobs) * WORDS :], squares, scales)
    for points in sorted({job.manifold is not None for job in jobs}, reverse=True):
        _launch("steps", programs, 4 if points else 8, table, len(jobs), scales, max_norm is not None, points)


def _launch(name: str, programs: int, warps: int, *arguments: Any) -> None:
    from hyperbolic.kernels.riemannian_steps import triton as kernels

    with torch.cuda.device_of(arguments[0]):
        getattr(kernels, name)[(programs,)](*arguments, num_warps=warps, enable_fp_fusion=True)


def _curvature(manifold: Manifold | None, curvatures: dict[int, Tensor]) -> Tensor | None:
    """c, which is computed once for all manifolds that share it."""
    if manifold is None:
        return None
    own = id(manifold.holder)
    if own not in curvatures:
        curvatures[own] = manifold.c.detach()
    return curvatures[own]


def _shape(rows: Rows, manifold: Manifold | None) -> tuple[int, int]:
    """Rows and columns of a gradient; of a flat tensor as many numbers in a row as suit the kernel."""
    count = rows.grad.numel()
    if manifold is None and rows.some is None:
        return -(-count // FLAT_ROW), FLAT_ROW
    size = rows.x.shape[-1] if manifold is not None else rows.x[:1].numel()
    return count // max(1, size), size


def _pack(job: Job, first: int, c: Tensor | None) -> bytes:
    rows, manifold = job.rows, job.manifold
    kind, radius = (int(rows.x.dtype is F64), math.inf) if manifold is None else KINDS[type(manifold)]
    max_radius = math.inf if job.max_radius is None else job.max_radius
    addresses = [0 if t is None else t.data_ptr() for t in (*rows, c)]
    sizes = (*_shape(rows, manifold), rows.grad.numel(), job.part)
    return _JOB.pack(first, kind, *sizes, *addresses, 0, *job.rule[:8], job.pull, radius, max_radius)
