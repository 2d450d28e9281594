"""ConvE: its score against the formula, both directions, gradients, blocks, batch norms and its sizes."""

import pytest
import torch

from hyperbolic.encoders.relational import conve
from hyperbolic.encoders.relational.conve import ConvE
from tests.encoders.relational.agreement import (
    F64,
    N_ENTITIES,
    built,
    check_directions,
    check_gradients,
    check_refuses_curvature,
    check_sparse,
    geometry,
    triples,
)
from tests.tolerances import tolerance

SETTINGS = {
    "d": 12,
    "height": 3,
    "n_filters": 2,
    "input_dropout": 0.2,
    "feature_dropout": 0.3,
    "hidden_dropout": 0.4,
}
PLAIN = SETTINGS | {"input_dropout": 0.0, "feature_dropout": 0.0, "hidden_dropout": 0.0}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, F64])


def formula(scorer, h, r, t, batch=None):
    """Written with loops; batch: a function that gives mean and variance of a norm in training."""

    def norm(layer, x, axes):
        if batch:
            mean, variance = x.mean(axes, keepdim=True), x.var(axes, unbiased=False, keepdim=True)
        else:
            shape = [1, -1, *[1] * (x.dim() - 2)]
            mean, variance = (b.double().view(shape) for b in (layer.running_mean, layer.running_var))
        weight, bias = (p.detach().double().view([1, -1, *[1] * (x.dim() - 2)]) for p in (layer.weight, layer.bias))
        return (x - mean) / (variance + 1e-5).sqrt() * weight + bias

    e, v = scorer.entity.weight.detach().double(), scorer.relation.weight.detach().double()
    image = torch.cat([e[h].view(-1, 3, 4), v[r].view(-1, 3, 4)], 1).unsqueeze(1)
    image = norm(scorer.image_norm, image, (0, 2, 3))
    filters = scorer.filters.weight.detach().double()
    maps = torch.empty(len(h), 2, 4, 2, dtype=F64)
    for i in range(4):
        for j in range(2):
            maps[:, :, i, j] = torch.einsum("bij,fij->bf", image[:, 0, i : i + 3, j : j + 3], filters[:, 0])
    maps = norm(scorer.map_norm, maps, (0, 2, 3)).relu()
    x = maps.reshape(len(h), -1) @ scorer.project.weight.detach().double().T + scorer.project.bias.detach().double()
    x = norm(scorer.query_norm, x, (0,)).relu()
    return (x * e[t]).sum(-1) + scorer.bias.detach().double()[t, 0]


@DTYPES
def test_the_score_is_the_papers(dtype):
    scorer = built(ConvE, dtype, **SETTINGS)
    h, r, t = triples()
    torch.testing.assert_close(scorer(h, r, t), formula(scorer, h, r, t).to(dtype), **tolerance(dtype, "identity"))


def test_in_training_norms_use_the_batch():
    scorer = built(ConvE, **PLAIN).train()
    h, r, t = triples()
    torch.testing.assert_close(scorer(h, r, t), formula(scorer, h, r, t, batch=True), **tolerance(F64, "identity"))


@DTYPES
def test_all_directions_agree(dtype):
    check_directions(built(ConvE, dtype, **SETTINGS), dtype)


def test_gradients():
    check_gradients(built(ConvE, **SETTINGS))


def test_sparse_gradients_are_the_same():
    check_sparse(ConvE, **SETTINGS)


def test_a_curved_geometry_is_refused_by_name():
    check_refuses_curvature(ConvE, **SETTINGS)


def test_a_batch_of_one_in_training_uses_the_running_statistics_and_leaves_them():
    scorer = built(ConvE, **PLAIN)
    one = torch.tensor([2])
    before = {name: buffer.clone() for name, buffer in scorer.named_buffers()}
    expected = scorer.tails(one, one)
    results = scorer.train().tails(one, one)
    torch.testing.assert_close(results, expected, **tolerance(F64, "identity"))
    results.sum().backward()
    assert scorer.filters.weight.grad.isfinite().all()
    for name, buffer in scorer.named_buffers():
        assert torch.equal(buffer, before[name]), name


def test_evaluation_in_blocks_changes_nothing(monkeypatch):
    scorer = built(ConvE, **SETTINGS)
    h, r, _ = triples()
    expected = scorer.tails(h, r)
    sizes = []
    scorer.filters.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    monkeypatch.setattr(conve, "_BLOCK", 3 * scorer.project.in_features)
    torch.testing.assert_close(scorer.tails(h, r), expected, **tolerance(F64, "identity"))
    assert sizes == [3, 1]


def test_dropout_acts_in_training_only():
    scorer = built(ConvE, **SETTINGS)
    h, r, _ = triples()
    assert torch.equal(scorer.tails(h, r), scorer.tails(h, r))
    scorer.train()
    torch.manual_seed(0)
    assert not torch.equal(scorer.tails(h, r), scorer.tails(h, r))


def test_the_papers_sizes():
    scorer = ConvE(geometry(), 5, 3, sparse=False, **PLAIN | {"d": 200, "height": 20, "n_filters": 32})
    assert scorer.project.in_features == 9728  # as in the paper's program
    assert scorer.bias.shape == (5, 1)
    assert not scorer.bias.any()


def test_points_and_factors_are_rows():
    scorer = built(ConvE, **SETTINGS)
    h, r, t = triples()
    assert torch.equal(scorer.points()[1], scorer.entity.weight)
    assert scorer.points()[1].shape == (N_ENTITIES, 12)
    for factor, row in zip(
        scorer.factors(h, r, t), (scorer.entity(h), scorer.relation(r), scorer.entity(t)), strict=True
    ):
        assert torch.equal(factor, row)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"height": 5}, "ConvE: height must divide d=12, got 5"),
        ({"height": 0}, "ConvE: height must divide d=12, got 0"),
        ({"height": 6}, "with d=12 and height=6 the image is 12 x 2, smaller than the filters of 3 x 3"),
        ({"height": 1}, "with d=12 and height=1 the image is 2 x 12, smaller than the filters of 3 x 3"),
        ({"n_filters": 0}, "ConvE: n_filters must be at least 1, got 0"),
    ],
)
def test_mistakes_are_named(changed, message):
    with pytest.raises(ValueError, match=message):
        built(ConvE, **SETTINGS | changed)
