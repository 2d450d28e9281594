"""What decoding step by step keeps saves most of the time of long translations."""

import dataclasses
import functools
import time

import pytest
import torch

from hyperbolic.encoders.transformer import TransformerEncoder
from hyperbolic.geometry import GEOMETRIES, make_geometry
from tasks.translation.decoding import SPECIAL, Continuations
from tasks.translation.model import Translator
from tasks.translation.search import SearchOptions, search
from tests.tasks.translation.test_decoding import Recomputed

LENGTH, FASTER = 50, 5
BEAM = SearchOptions(
    beam_size=4, n_best=1, length_penalty="wu", alpha=1.0, min_length=LENGTH, max_length_ratio=1.0, max_length_constant=1
)


@pytest.mark.slow
@pytest.mark.parametrize("geometry", ["euclidean", "lorentz"])
def test_beam_search_is_faster_with_what_was_kept(geometry):
    torch.manual_seed(0)
    manifold, layers = GEOMETRIES[geometry]
    encoder = functools.partial(
        TransformerEncoder, n_layers=6, n_heads=4, d_feed_forward=256, dropout=0.1, attention_dropout=0.1,
        n_positions=128, norm="pre",
    )  # fmt: skip
    space = make_geometry(geometry, manifold, layers, c=None if manifold == "Euclidean" else 1.0)
    net = Translator(space, encoder, 4000, 4000, max_length=100, d=64, layers={}, copy_embedding=False).eval()
    source, lengths = torch.randint(4, 4000, (8, LENGTH)), torch.full((8,), LENGTH)
    seconds = {}
    with torch.no_grad():
        for kind in (Continuations, Recomputed):
            search(kind(net, source, lengths), torch.full((8,), 3), SPECIAL, dataclasses.replace(BEAM, min_length=0))
            start = time.process_time()
            results = search(kind(net, source, lengths), torch.full((8,), LENGTH + 1), SPECIAL, BEAM)
            seconds[kind] = time.process_time() - start
            assert len(results[0][0].tokens) == LENGTH
    assert seconds[Recomputed] > FASTER * seconds[Continuations]
