"""Words that start from vectors, as points of any space: what tasks on texts share."""

import torch
from torch import Tensor, nn

from hyperbolic.geometry import Geometry
from hyperbolic.kernels.table_rows import table_rows
from tasks.errors import UserError
from tasks.ragged import FIRST
from tasks.text import PAD
from tasks.word_vectors import VectorRows


class WordTable(nn.Module):
    """A point for each word, ``exp_0(dropout(u))`` of a table of tangent vectors u at the origin: rows (...) to points
    (..., D).

    Words with a vector start there (`VectorRows.tangents`); others start normal, with the mean square of those, or with
    a standard deviation of 0.1 where there are no vectors. Padding is the origin.

    geometry: of the points. n_words: rows, with padding and the unknown word. d: size. vectors: of the words from row
    FIRST on, or None. c: curvature -c of the points that vectors become on a curved manifold. trained: false: the table
    stays as it starts. dropout: of the tangent vectors.
    """

    def __init__(
        self,
        geometry: Geometry,
        n_words: int,
        d: int,
        vectors: VectorRows | None,
        c: float,
        trained: bool,
        dropout: float,
    ):
        super().__init__()
        if vectors is not None and vectors.matrix.shape[1] != d:
            raise UserError(
                f"task.model.d_word={d}, and the word vectors of {vectors.source} have {vectors.matrix.shape[1]} "
                "numbers; make them equal, or go without vectors by task.data.vectors=null."
            )
        self.manifold = geometry.manifold
        table = 0.1 * torch.randn(n_words, d)
        if vectors is not None:
            known = vectors.tangents(geometry.manifold, c)
            table *= 10 * known[vectors.has_row].square().mean().sqrt()
            rows = table[FIRST : FIRST + len(known)]
            rows.copy_(torch.where(vectors.has_row.unsqueeze(-1), known, rows))
        table[PAD] = 0
        self.weight = nn.Parameter(table, requires_grad=trained)
        self.dropout = geometry.dropout(dropout)

    def forward(self, rows: Tensor) -> Tensor:
        from_tangent = self.dropout.from_tangent
        assert callable(from_tangent)  # of every family's dropout
        return from_tangent(table_rows(self.weight, rows))
