"""HyboNet's scores of triples in one C++ pass over the questions, and their gradients in one over the tables.

What :class:`hyperbolic.encoders.relational.hybonet.HyboNet` makes of :mod:`~hyperbolic.kernels.relation_linear`,
:mod:`~hyperbolic.kernels.lorentz_rows` and :mod:`~hyperbolic.kernels.table_products`, without the steps between them:
heads and tails are rows of one table, whose gradient is written once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hyperbolic import fusion, native
from hyperbolic.kernels.lorentz_rows import OFFSET
from hyperbolic.kernels.relation_linear import gathers
from hyperbolic.kernels.relation_scores import plain
from hyperbolic.kernels.relation_scores.plain import Tables
from hyperbolic.operator import Operator, operator
from hyperbolic.typing import Context

LIBRARY = native.Library("relation_scores")


def usable(tables: Tables, h: Tensor, r: Tensor, t: Tensor) -> bool:
    """Whether :func:`scores` does better than its steps: in C++ on a CPU, and compiled on a GPU."""
    return _in_one_pass(tables, h, r, t) or (fusion.compiles(*tables) and _has_sizes(tables, h, r, t))


def _has_sizes(tables: Tables, h: Tensor, r: Tensor, t: Tensor) -> bool:
    """h and r (B,) with tails t (B, M), of a number whose products with gathered matrices are quickest."""
    sizes_fit = t.dim() == 2 and t.numel() > 0 and h.shape == r.shape == t.shape[:1] and tables.well_formed()
    return sizes_fit and gathers(h, tables.matrix)


def _in_one_pass(tables: Tables, h: Tensor, r: Tensor, t: Tensor) -> bool:
    return (
        _has_sizes(tables, h, r, t)
        and all(map(native.takes_index, (h, r, t)))
        and LIBRARY.readable(*tables)
        and all(table.is_contiguous() for table in tables)
    )


def scores(tables: Tables, h: Tensor, r: Tensor, t: Tensor, margin: float, scale: float, c: float) -> Tensor:
    """``margin + 2 <f_r(x_h), x_t>_L + b_h + b'_t`` (B, M) of heads h and relations r (B,) with tails t (B, M).

    ``f_r(x)`` is ``normalise(W_r x + (0, b_r), scale, c)``, see :func:`hyperbolic.kernels.lorentz_rows.normalise`;
    scale and c are numbers. For tensors that are :func:`usable`.

    Raises:
        IndexError: an entity or a relation that is not there, on a CPU; elsewhere the caller looks.
    """
    result: Tensor = _Scores.run(*tables, h, r, t, margin, scale, c)
    return result


@operator(
    "relation_scores(Tensor table, Tensor matrix, Tensor bias, Tensor head_bias, Tensor tail_bias, Tensor h, Tensor r, "
    "Tensor t, float margin, float scale, float c) -> Tensor"
)
class _Scores(Operator):
    plain = staticmethod(plain.scores)

    @staticmethod
    def fits(*arguments: Any) -> bool:
        return _in_one_pass(Tables(*arguments[:5]), *arguments[5:8])

    @staticmethod
    def forward(ctx: Context, *arguments: Any) -> Tensor:
        tables, (h, r, t, margin, scale, c) = Tables(*arguments[:5]), arguments[5:]
        table, matrix = tables[:2]
        h, t = (native.checked_index(index, len(table), "relation_scores", "entities") for index in (h, t))
        r = native.checked_index(r, len(matrix), "relation_scores", "relations")
        radius = c**-0.5
        ctx.times = (scale * radius, (OFFSET - 1) * radius, radius)
        y = table.new_empty(len(h), table.shape[1])
        q, row_numbers, out = torch.empty_like(y), y.new_empty(2, len(h), dtype=torch.float64), y.new_empty(t.shape)
        ctx.shapes, size = [table.shape for table in tables], table.shape[1]
        LIBRARY.run("scores", *tables, h, r, t, y, q, row_numbers, out, *t.shape, size, margin, *ctx.times)
        ctx.save_for_backward(table, matrix, h, r, t, y, q, row_numbers)
        return out

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        table, matrix, h, r, t, y, q, row_numbers = ctx.saved_tensors
        relations, (entities, size) = len(matrix), table.shape
        grads = tuple(y.new_empty(shape) for shape in ctx.shapes)  # all: they are made together
        scratch = y.new_empty(len(h), 3 * size + 1)
        tensors = (table, matrix, h, r, t, grad.contiguous(), y, q, row_numbers, *grads, scratch)
        LIBRARY.run("grads", *tensors, *t.shape, size, entities, relations, *ctx.times)
        return *grads, *[None] * 6


__all__ = ["Tables", "scores", "usable"]
