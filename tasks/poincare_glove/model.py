"""GloVe with a distance in the place of the inner product, written against a geometry."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hyperbolic.geometry import Geometry
from hyperbolic.layers.initial import norm_of_bound
from hyperbolic.smooth import cosh_sqrt
from tasks.errors import one_of, positive, whole

# h as a function of the squared distance at curvature -1; the names are those of the authors' code.
SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "dist-sq": lambda t: t,
    "cosh-dist": cosh_sqrt,
    "cosh-dist-sq": lambda t: cosh_sqrt(t).square(),
    "log-dist-sq": torch.log1p,
}
EXPORTS = ("words", "midpoints")


class PoincareGlove(nn.Module):
    """The logarithm of a co-occurrence count from two points and two biases (Tifrea et al. 2019, Eq. 3)::

        log X_ij = -h(d(w_i, w~_j)) + b_i + b~_j

    Every word has two points, as a word w and as a context w~. d is the distance at curvature -1, sqrt(c) times that
    of the manifold; in the flat space the usual distance.

    geometry: of the only component, `vectors`. words: the vocabulary, most frequent first. d: dimension. h: a key of
    SHAPES. init_bound: coordinates start from U(-init_bound, init_bound). sparse: gradients of the rows that a batch
    uses, for an optimiser with lazy=True. export: words | midpoints of word and context.
    """

    components = ("vectors",)

    def __init__(
        self, geometry: Geometry, words: Sequence[str], d: int, h: str, init_bound: float, sparse: bool, export: str
    ):
        super().__init__()
        geometry.check_components(self.components)
        whole("task.model.d", d, 1)
        one_of("task.model.h", h, tuple(SHAPES))
        one_of("task.model.export", export, EXPORTS)
        positive("task.model.init_bound", init_bound)
        vectors = geometry.part("vectors")
        self.manifold, self.h, self.sparse, self.export, self.d = vectors.manifold, SHAPES[h], sparse, export, d
        self.words = tuple(words)
        options = {"init_norm": norm_of_bound(d, init_bound), "sparse": sparse}
        self.word, self.context = (vectors.embedding(len(words), d, **options) for _ in range(2))
        self.word_bias, self.context_bias = (nn.Parameter(torch.zeros(len(words), 1)) for _ in range(2))

    def forward(self, words: Tensor, contexts: Tensor) -> Tensor:
        """words, contexts (B,) rows -> predicted log X (B,), float64."""
        square = self.manifold.dist2(self.word(words), self.context(contexts)).double()
        if self.manifold.is_curved:
            square = square * self.manifold.c
        return self._bias(self.word_bias, words) + self._bias(self.context_bias, contexts) - self.h(square)

    def _bias(self, table: Tensor, index: Tensor) -> Tensor:
        return nn.functional.embedding(index, table, sparse=self.sparse).squeeze(-1).double()

    @torch.no_grad()
    def points(self) -> Tensor:
        """(V, D) the points of all words, or the midpoints of each word and its context, as `export` says."""
        rows = torch.arange(len(self.words), device=self.word_bias.device)
        points = self.word(rows)
        if self.export == "midpoints":
            points = self.manifold.centroid(torch.stack([points, self.context(rows)], -2))
        return points
