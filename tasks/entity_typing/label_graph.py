"""The label graph of LabelGCN: types that stand together, and a classifier whose weights are passed along its edges."""

import re

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hyperbolic.layers.classes import ClassLogits
from hyperbolic.manifolds import Manifold
from tasks.entity_typing.types import TypeInventory
from tasks.errors import one_of
from tasks.text import UNK
from tasks.word_vectors import WordVectors

EDGES = ("counts", "binary")


def adjacency(pairs: Tensor, n: int, edges: str) -> tuple[Tensor, Tensor]:
    """``A + I`` of the label graph, as index (2, E) and value (E,).

    pairs: long (P, 3), type i, type j, number of training mentions that have both. n: number of types. edges: "counts",
    ``A_ij = A_ji`` is that number, or "binary", it is 1 (several rows of one pair add up before).
    """
    one_of("task.model.edges", edges, EDGES)
    i, j, count = pairs.long().unbind(-1)
    differ = i != j
    i, j, count = i[differ], j[differ], count[differ]
    loops = torch.arange(n)
    index = torch.stack([torch.cat([i, j, loops]), torch.cat([j, i, loops])])
    value = torch.cat([count, count, torch.ones_like(loops)]).to(torch.get_default_dtype())
    graph = torch.sparse_coo_tensor(index, value, (n, n), check_invariants=True).coalesce()
    value = graph.values()
    return graph.indices(), value if edges == "counts" else (value > 0).to(value.dtype)


def label_vectors(types: TypeInventory, words: WordVectors) -> Tensor:
    """(K, d): the sum of the vectors of a type's words (``political_party``, ``/person/artist``), of length 1.

    Words without a vector are left out; a type whose words all lack one gets zeros.
    """
    vectors = torch.zeros(len(types.names), words.d)
    for k, name in enumerate(types.names):
        if rows := _rows(name, words):
            vectors[k] = words.tangent[rows].to(vectors.dtype).sum(0)
    return F.normalize(vectors, dim=-1)


def rows_of_types(types: TypeInventory, words: WordVectors) -> set[int]:
    """The rows of the vectors of all words of types."""
    return {row for name in types.names for row in _rows(name, words)}


def _rows(name: str, words: WordVectors) -> list[int]:
    rows = [words.row(word) for word in re.split(r"[\s/_]+", name) if word]
    return [row for row in rows if row > UNK]


class GraphLogits(ClassLogits):
    """``<x, w'_k>`` with class weights ``W' = D^-1 (A + I + lambda S) W T`` that one layer of a graph network made.

    W (K, d) and T (d, d) are learned, D is the diagonal of the row sums. ``S_kl = (1 + cos(v_k, v_l)) / 2`` compares
    the words of the types, and lambda = |``weight_of_similarity``| is learned from a start in [0, 1]. S is never built:
    ``S W = (1 1^T W + V V^T W) / 2`` with the rows of V of length 1 costs K d as much as its rank.

    Args:
        pairs: long (P, 3), see :func:`adjacency`. edges: "counts" or "binary".
        vectors: (K, e), rows of length 1 or 0; None: without S.
        residual: ``W' + W`` takes the place of W'.

    Source: Xiong et al. 2019, section 3 (from memory), and their code (model_utils.py, label_corr.py). In the code A is
    not symmetric, for it follows the order in which an example names its types; lambda may become negative; and only
    entity-linking examples get their logits from W', all others, the evaluated ones among them, from W itself. Here, as
    in the paper, all logits come from W'.
    """

    index: Tensor
    value: Tensor
    vectors: Tensor | None

    def __init__(
        self,
        manifold: Manifold,
        d: int,
        n_classes: int,
        pairs: Tensor,
        edges: str,
        vectors: Tensor | None,
        residual: bool,
    ):
        super().__init__(manifold, d, n_classes)
        self.residual, self.edges = residual, edges
        index, value = adjacency(pairs, n_classes, edges)
        # Dense, and not one sparse tensor, which several processes could not share as a buffer.
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("value", value, persistent=False)
        self.register_buffer("vectors", vectors, persistent=False)
        self.linear = nn.Linear(d, n_classes, bias=False)
        self.transform = nn.Linear(d, d, bias=False)
        self.weight_of_similarity = None if vectors is None else nn.Parameter(torch.rand(()))

    def class_weights(self) -> Tensor:
        """W' (K, d)."""
        w, k = self.linear.weight, self.n_classes
        graph = torch.sparse_coo_tensor(
            self.index, self.value.to(w.dtype), (k, k), is_coalesced=True, check_invariants=False
        )
        mixed = torch.sparse.mm(graph, w)
        degree = w.new_zeros(k).index_add_(0, self.index[0], self.value.to(w.dtype))
        if self.vectors is not None:
            assert self.weight_of_similarity is not None
            v, half = self.vectors.to(w.dtype), 0.5 * self.weight_of_similarity.abs()
            mixed = mixed + half * (w.sum(0) + v @ (v.T @ w))
            degree = degree + half * (k + v @ v.sum(0))
        mixed = self.transform(mixed / degree.unsqueeze(-1))
        return mixed + w if self.residual else mixed

    def operands(self, x: Tensor) -> tuple[Tensor, Tensor, None, None]:
        return x, self.class_weights(), None, None

    def extra_repr(self) -> str:
        links = (self.index.shape[1] - self.n_classes) // 2
        return f"{self.d}, {self.n_classes}, links={links}, edges={self.edges}, residual={self.residual}"
