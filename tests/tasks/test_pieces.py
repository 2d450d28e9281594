"""A word's state is the centroid of its pieces' states, whatever stands in the sentences beside it."""

import pytest
import torch

from hyperbolic.manifolds import MANIFOLDS
from tasks.pieces import words_of_pieces
from tests.tolerances import tolerance

COUNTS = [[1, 3, 2], [2], [1, 0, 1, 1]]


@pytest.mark.parametrize("name", ["Euclidean", "PoincareBall", "Lorentz"])
def test_a_word_is_the_centroid_of_its_pieces(name):
    manifold = MANIFOLDS[name]()
    layers = [manifold.random(3, 6, 4, dtype=torch.float64) for _ in range(2)]
    for states, words in zip(layers, words_of_pieces(manifold, layers, COUNTS), strict=True):
        assert words.shape[:2] == (3, 4)
        for k, sizes in enumerate(COUNTS):
            first = 0
            for place, size in enumerate(sizes):
                if size:
                    expected = manifold.centroid(states[k, first : first + size])
                    torch.testing.assert_close(words[k, place], expected, **tolerance(torch.float64, "identity"))
                first += size


def test_a_word_of_one_piece_is_that_piece():
    states = torch.randn(1, 3, 2)
    (words,) = words_of_pieces(MANIFOLDS["Euclidean"](), [states], [[1, 1, 1]])
    assert torch.equal(words, states)
