"""Losses against plain formulas, number by number; what is ruled out has no part in them."""

import math

import pytest
import torch
from torch.nn import functional as F

from tasks.kg_completion.losses import EXCLUDED, all_bce, negative_bce, power, self_adversarial
from tests.tolerances import tolerance

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def softplus(x: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0.0)


def assert_equal(loss: torch.Tensor, expected: float) -> None:
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=loss.dtype), **tolerance(loss.dtype, "identity"))


def random_scores(dtype: torch.dtype, rows: int = 6, columns: int = 8) -> torch.Tensor:
    return (3 * torch.randn(rows, columns, dtype=torch.float64)).to(dtype)


def ruled_out(scores: torch.Tensor) -> torch.Tensor:
    """bool like the scores: some negatives, in the second row all of them, in the third none."""
    out = torch.rand(scores.shape) < 0.4
    out[1], out[2] = True, False
    out[:, 0] = False
    return out


@DTYPES
def test_binary_cross_entropy_is_the_mean_over_the_right_and_the_wrong_answers(dtype):
    scores = random_scores(dtype)
    targets = torch.zeros_like(scores)
    targets[:, 0] = 1
    expected = float(F.binary_cross_entropy_with_logits(scores.double(), targets.double()))
    assert_equal(negative_bce(scores, 7), expected)
    assert expected == pytest.approx(
        sum(softplus(s if k else -s) for row in scores.tolist() for k, s in enumerate(row)) / 48
    )


@DTYPES
@pytest.mark.parametrize("count", [1, 3, 50])
def test_a_sample_of_another_size_weighs_as_count_wrong_answers(dtype, count):
    scores = random_scores(dtype)
    rows = [
        (softplus(-s) + count * sum(map(softplus, wrong)) / len(wrong)) / (1 + count) for s, *wrong in scores.tolist()
    ]
    assert_equal(negative_bce(scores, count), sum(rows) / len(rows))


def test_what_is_ruled_out_has_no_part_in_binary_cross_entropy():
    scores = random_scores(torch.float32)
    out = ruled_out(scores)
    expected = 0.0
    for row, gone in zip(scores.tolist(), out.tolist(), strict=True):
        wrong = [softplus(s) for s, g in zip(row[1:], gone[1:], strict=True) if not g]
        expected += (softplus(-row[0]) + 5 * sum(wrong) / max(len(wrong), 1)) / 6 / len(scores)
    assert_equal(negative_bce(scores.masked_fill(out, EXCLUDED), 5), expected)


@DTYPES
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_self_adversarial_is_the_formula_of_the_paper(dtype, temperature):
    scores = random_scores(dtype)
    expected = 0.0
    for s, *wrong in scores.tolist():
        weights = [math.exp(temperature * x) for x in wrong]
        mean = sum(w * softplus(x) for w, x in zip(weights, wrong, strict=True)) / sum(weights)
        expected += (softplus(-s) + mean) / 2 / len(scores)
    assert_equal(self_adversarial(scores, temperature), expected)


def test_without_temperature_all_wrong_answers_weigh_the_same():
    scores = random_scores(torch.float64)
    mean = (F.softplus(-scores[:, 0]) + F.softplus(scores[:, 1:]).mean(-1)).mean() / 2
    assert_equal(self_adversarial(scores, 0.0), float(mean))


def test_weights_are_not_differentiated():
    scores = random_scores(torch.float64).requires_grad_()
    (result,) = torch.autograd.grad(self_adversarial(scores, 1.0), scores)
    weights = torch.softmax(scores.detach()[:, 1:], -1)
    wrong = weights * torch.sigmoid(scores.detach()[:, 1:])
    right = -torch.sigmoid(-scores.detach()[:, :1])
    torch.testing.assert_close(
        result, torch.cat([right, wrong], -1) / 2 / len(scores), **tolerance(torch.float64, "identity")
    )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_is_ruled_out_has_no_part_in_self_adversarial(temperature):
    scores = random_scores(torch.float64)
    out = ruled_out(scores)
    rows = []
    for row, gone in zip(scores, out, strict=True):
        left = row[~gone]
        rows.append(self_adversarial(left[None], temperature) if len(left) > 1 else F.softplus(-left[0]) / 2)
    assert_equal(self_adversarial(scores.masked_fill(out, EXCLUDED), temperature), float(sum(rows) / len(rows)))


@pytest.mark.parametrize(
    "loss",
    [
        lambda s: negative_bce(s, 7),
        lambda s: self_adversarial(s, 1.0),
        lambda s: self_adversarial(s, 0.0),
        lambda s: F.cross_entropy(s, torch.zeros(len(s), dtype=torch.long)),
    ],
    ids=["bce", "self_adversarial", "uniform", "cross_entropy"],
)
@DTYPES
def test_no_gradient_reaches_what_is_ruled_out(loss, dtype):
    scores = random_scores(dtype)
    out = ruled_out(scores)
    free = scores.clone().requires_grad_()
    (through,) = torch.autograd.grad(loss(free.masked_fill(out, EXCLUDED)), free)
    assert (through[out] == 0).all()
    assert through.isfinite().all()
    last = ~out
    last[1] = False  # a row without negatives: cross entropy is 0 there
    assert (through[last] != 0).all()
    direct = scores.masked_fill(out, EXCLUDED).requires_grad_()
    (at,) = torch.autograd.grad(loss(direct), direct)
    assert (at[out] == 0).all()


@DTYPES
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_scores_of_all_entities_against_dense_targets(dtype, smoothing):
    scores = random_scores(dtype, rows=5, columns=9).requires_grad_()
    true = torch.rand(5, 9) < 0.3
    true[3] = False  # a query without answers
    rows, answers = true.nonzero(as_tuple=True)
    targets = (1 - smoothing) * true.double() + smoothing / 9
    expected = F.binary_cross_entropy_with_logits(scores.double(), targets)
    result = all_bce(scores, rows, answers, smoothing)
    assert_equal(result.detach(), float(expected.detach()))
    torch.testing.assert_close(
        *(torch.autograd.grad(loss, scores)[0] for loss in (result, expected)), **tolerance(dtype, "identity")
    )


def test_large_scores_stay_finite():
    scores = torch.tensor([[200.0, -200.0, 300.0], [-300.0, 200.0, 0.0]], requires_grad=True)
    rows, answers = torch.tensor([0, 1]), torch.tensor([1, 2])
    for loss in (negative_bce(scores, 2), self_adversarial(scores, 1.0), all_bce(scores, rows, answers, 0.1)):
        assert loss.isfinite()
        assert torch.autograd.grad(loss, scores)[0].isfinite().all()


@pytest.mark.parametrize("exponent", [2, 3])
def test_powers_are_summed_over_factors_and_meant_over_the_batch(exponent):
    factors = [torch.randn(4, 3), torch.randn(4, 2, 2)]
    expected = sum(abs(x) ** exponent for factor in factors for x in factor.flatten().tolist()) / 4
    assert_equal(power(factors, exponent), expected)
