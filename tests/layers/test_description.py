"""Printed layers say how large they are and how they are set."""

import re

import pytest
import torch

from hyperbolic.geometry import GEOMETRIES
from hyperbolic.layers import mobius
from hyperbolic.manifolds import PoincareBall
from tests.layers.test_guard import SIZED, cases, geometry


@pytest.mark.parametrize(("name", "layer"), SIZED)
def test_a_printed_layer_shows_its_sizes(name, layer):
    module, sizes, _ = cases(geometry(name))[layer]
    shown = [tuple(map(int, re.findall(r"\d+", results))) for results in re.findall(r"(?:d|d_in|dims)=(\d+|\([\d, ]+\))", repr(module))]
    assert sizes in shown or sizes[:1] in shown


@pytest.mark.parametrize("name", GEOMETRIES)
def test_settings_are_shown(name):
    g = geometry(name)
    assert "n=5, d=3, sparse=True" in repr(g.embedding(5, 3, sparse=True))
    assert "fn=tanh" in repr(g.activation("tanh"))
    assert re.search(r"d=3, n_classes=7", repr(g.logits(3, 7)))
    assert "bidirectional=True" in repr(g.gru(3, 5, bidirectional=True))


def test_a_layer_without_memory_is_shown():
    with torch.device("meta"):
        assert "PoincareBall(c=2)" in repr(mobius.Linear(PoincareBall(2.0), 3, 4))
