"""Small arguments of the operators on tables and graphs."""

import torch

from hyperbolic.layers.neighbours import with_themselves
from tests.kernels.samples_lorentz import points
from tests.kernels.samples_mlr import draw


def _scores():
    h, r, t = torch.tensor([0, 3]), torch.tensor([1, 0]), torch.tensor([[1, 2, 2], [0, 4, 3]])
    yield points(5, 3), draw(2, 4, 4), draw(2, 3), draw(5, 1), draw(5, 1), h, r, t, 2.0, 2.5, 1.3


def _neighbours():
    n = with_themselves(torch.tensor([[0, 1], [1, 2]]), 4)
    pairs = (n.target, n.source, n.offsets, n.reverse_offsets, n.reverse_target, n.order)
    yield draw(4, 3), draw(len(n.target)), *pairs, 4


SAMPLES = {
    "relation_scores": lambda: list(_scores()),
    "table_products": lambda: [
        (draw(2, 3), draw(5, 3), torch.tensor([[0, 4, 4], [1, 2, 0]]), bias) for bias in (None, draw(5, 1))
    ],
    "neighbour_sum": lambda: list(_neighbours()),
    "table_rows": lambda: [(draw(5, d), torch.tensor([[0, 4], [4, 2]])) for d in (1, 3)],
    "relation_linear": lambda: [  # with gathered matrices, and relation by relation
        (draw(3, 2), draw(4, 3, 2), torch.tensor([1, 3, 1])),
        (draw(17, 512), draw(2, 512, 512), torch.arange(17) % 2),
    ],
    "modulus_sums": lambda: [(draw(2, 3, 4),)],
    "modulus_distances": lambda: [(draw(2, 4), draw(3, 4))],
}
