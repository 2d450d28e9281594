"""Small networks of entity typing and batches for them, for tests."""
import functools

import pytest
import torch
from geoopt import ManifoldParameter

from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.encoders.transformer import TransformerEncoder
from hyperbolic.geometry import FAMILIES, GEOMETRIES, make_geometry
from tasks.entity_typing.hybonet import HyboNetSettings
from tasks.entity_typing.hyfi import HyFiSettings
from tasks.entity_typing.model import EntityTyper
from tasks.entity_typing.types import TypeInventory
from tasks.word_vectors import WordVectors
from tests.tolerances import tolerance

F64 = torch.float64
MODEL = tolerance(F64, "model")
GRU = functools.partial(RecurrentEncoder, cell="gru", nonlinearity=None, bidirectional=False)
RNN = functools.partial(RecurrentEncoder, cell="rnn", nonlinearity=None, bidirectional=False)
SIZES = {"n_layers": 1, "n_heads": 2, "d_feed_forward": 9, "n_positions": 25, "norm": "post"}
TRANSFORMER = functools.partial(TransformerEncoder, **SIZES, dropout=0.0, attention_dropout=0.0)
BALL = {
    "Dropout": {"space": "coordinates"}, "Linear": {"bias_std": 0.3}, "RNN": {"bias_std": 0.3},
    "GRU": {"bias_std": 0.3}, "Concat": {"bias_std": 0.3}, "Logits": {"point_std": 0.3},
}  # fmt: skip
FLAT = {"Logits": {"scale": 4.0}}
LAYERS = {
    "mobius": BALL, "klein": BALL, "poincare_pp": {layer: BALL[layer] for layer in ("Dropout", "RNN", "GRU")},
    "euclidean": FLAT, "hatt": FLAT, "tangent": FLAT,
}  # fmt: skip
N_WORDS, D_WORD, N_CHARACTERS, K = 30, 6, 13, 9
SETTINGS = {
    "design": "auto", "s": 3, "d": 8, "max_mention": 5, "max_context": 25, "input_dropout": 0.0, "concat_dropout": 0.0,
    "mask_padding": True, "hyfi": HyFiSettings(bidirectional=True, nonlinearity="tanh", layers=LAYERS),
    "hybonet": HyboNetSettings(layers={}),
}  # fmt: skip
# what of the text belongs to which component
PLACES = {
    "hyfi": {
        "encoder": ("words", "mention", "activation", "characters", "spelling", "midpoint", "context"),
        "attention": ("mention_attention", "context_attention"),
        "concat": ("dropout", "concat"),
    },
    "hybonet": {
        "encoder": ("words", "context", "centroid"),
        "attention": ("context_attention",),
        "concat": ("dropout", "concat"),
    },
}
HYFI = [(GRU, name) for name in GEOMETRIES] + [(RNN, name) for name in ("poincare", "euclidean")]
HYBONET = [(TRANSFORMER, name) for name, (_, f) in GEOMETRIES.items() if "MultiHeadAttention" in FAMILIES[f].layers]
EVERYWHERE = pytest.mark.parametrize(("encoder", "name"), HYFI + HYBONET)


def words(n: int = N_WORDS, d: int = D_WORD) -> WordVectors:
    tangent = 0.4 * torch.randn(n, d)
    tangent[0] = 0
    return WordVectors({}, tangent, "words.txt", "0", "euclidean")


def inventory(k: int) -> TypeInventory:
    return TypeInventory(tuple(f"type{i}" for i in range(k)), torch.arange(k) % 3, lambda: torch.zeros(0, 3).long())


def geometry(name: str, c: float = 0.7, **options):
    manifold, layers = GEOMETRIES[name]
    if manifold == "Euclidean" and "parts" not in options:
        c, options = None, {}
    return make_geometry(name, manifold, layers, c=c, **options)


def model(name="poincare", encoder=GRU, settings=None, **options) -> EntityTyper:
    made = geometry(name, **options)
    net = EntityTyper(made, encoder, words(), inventory(K), N_CHARACTERS, **{**SETTINGS, **(settings or {})}).double()
    with torch.no_grad():
        for p in net.parameters():  # zeros and ones away from their start
            if not isinstance(p, ManifoldParameter) and p.dim() < 2:
                p.add_(0.2 * torch.randn_like(p))
    return net


def example(batch: dict, i: int) -> dict:
    """One example without any padding."""
    alone = {k: v[i : i + 1] for k, v in batch.items()}
    for name in ("mention", "characters", "context"):
        alone[name] = alone[name][:, : alone[f"{name}_length"]]
    return {**alone, "positions": alone["positions"][:, : alone["context_length"]]}


def wider(batch: dict, extra: int, fill) -> dict:
    """The same examples with more padding, filled with anything."""
    made = dict(batch)
    for name, length, high in (
        ("mention", "mention_length", N_WORDS),
        ("characters", "characters_length", N_CHARACTERS),
        ("context", "context_length", N_WORDS),
        ("positions", "context_length", 52),
    ):
        old = batch[name]
        new = torch.cat([old, old.new_zeros(len(old), extra)], 1)
        outside = torch.arange(new.shape[1]) >= batch[length].unsqueeze(-1)
        made[name] = torch.where(outside, fill(high, new.shape), new)
    return made


def zeros(high: int, shape: torch.Size) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.long)


def anything(high: int, shape: torch.Size) -> torch.Tensor:
    return torch.randint(1, high, shape)
