"""Streamed losses by C++ passes against PyTorch operations, in sizes that vectors and threads do not divide."""

import pytest
import torch

from hyperbolic import switch
from hyperbolic.kernels.class_losses import passes, streamed_bce, streamed_cross_entropy
from tests.kernels.paths import assert_paths_agree, path, results

pytestmark = pytest.mark.skipif(switch.cpp_compiler() is None, reason="needs a C++ compiler")
F32, F64 = torch.float32, torch.float64
DTYPES = pytest.mark.parametrize(("dtype", "relative"), [(F32, 1e-5), (F64, 1e-13)], ids=["float32", "float64"])
KINDS = pytest.mark.parametrize("kind", ["scale", "bias", "plain"])
SIZES = pytest.mark.parametrize(("batch", "classes"), [(0, 5), (1, 1), (1, 77), (37, 3), (350, 211)])
D = 6


@pytest.fixture(autouse=True)
def several_tiles(monkeypatch):
    """Of rows and of classes; the whole ones are worth two threads."""
    monkeypatch.setattr(passes, "_ROWS", 300)
    monkeypatch.setattr(passes, "_ENTRIES", 300 * 128)


def arguments(kind: str, batch: int, classes: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """x, w, and scale or bias."""
    x, w = torch.randn(batch, D, dtype=dtype), torch.randn(classes, D, dtype=dtype)
    return [x, w] + ([torch.rand(classes, dtype=dtype) + 0.5] if kind != "plain" else [])


def filled(kind: str, x, w, vector=None):
    return (x, w, vector, None) if kind == "scale" else (x, w, None, vector)


@KINDS
@SIZES
@DTYPES
@pytest.mark.parametrize(
    ("form", "weighting"),
    [
        ("lists", "mean"),
        ("lists", "groups"),
        ("matrix", "mean"),
        ("matrix", "groups"),
        ("booleans", "rows"),
        ("columns of a matrix", "rows"),
    ],
)
def test_bce(kind, batch, classes, dtype, relative, form, weighting):
    lists = torch.rand(batch, classes).argsort(-1)[:, :7]
    lists = lists.masked_fill(torch.rand(lists.shape) < 0.3, -1)
    if form != "lists":
        lists = torch.rand(batch, classes, dtype=dtype)
        lists = lists > 0.5 if form == "booleans" else lists
        lists = lists.T.contiguous().T if form == "columns of a matrix" else lists
    groups = torch.randint(3, (classes,)) if weighting == "groups" else None
    weights = None if weighting == "mean" else torch.rand(batch, 1 if groups is None else 3)
    if weights is not None and batch > 1:
        weights[::3] = 0
    assert_paths_agree(
        lambda *leaves: streamed_bce(*filled(kind, *leaves), lists, weights, groups),
        arguments(kind, batch, classes, dtype), relative,
    )  # fmt: skip


@KINDS
@SIZES
@DTYPES
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy(kind, batch, classes, dtype, relative, smoothing):
    target, counted = torch.randint(classes, (batch,)), torch.rand(batch) < 0.7
    assert_paths_agree(
        lambda *leaves: streamed_cross_entropy(*filled(kind, *leaves), target, counted, smoothing),
        arguments(kind, batch, classes, dtype), relative,
    )  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
def test_a_pass_gives_the_same_numbers_every_time(threads):
    leaves, targets, counted = arguments("scale", 300, 211, F32), torch.randint(211, (300, 1)), torch.ones(300) > 0
    losses = (
        lambda *leaves: streamed_bce(*filled("scale", *leaves), targets),
        lambda *leaves: streamed_cross_entropy(*filled("scale", *leaves), targets.squeeze(1), counted, 0.1),
    )
    for loss in losses:
        first, *others = (results("fast", loss, leaves, threads) for _ in range(3))
        for other in others:
            assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("loss", ["bce", "cross entropy"])
@pytest.mark.parametrize("size", [1e2, 1e6, 1e19])
@pytest.mark.parametrize("kind", ["scale", "plain"])
def test_huge_products_have_finite_losses_and_gradients(loss, size, kind):
    x, w, *scale = arguments(kind, 5, 80, F32)
    x = x * size

    def of(x, w, *scale):
        inputs = filled(kind, x, w, *scale)
        if loss == "bce":
            return streamed_bce(*inputs, torch.tensor([[3, 70]]).expand(5, 2)) / size
        return streamed_cross_entropy(*inputs, torch.full((5,), 70), torch.ones(5, dtype=torch.bool)) / size

    assert all(torch.isfinite(t).all() for t in results("fast", of, [x, w, *scale]))


def test_sure_logits_leave_no_denormal_numbers():
    """They would make the matrix products after them hundreds of times slower."""
    z, total = torch.full((8, 64), -80.0), torch.zeros((), dtype=F64)
    classes = passes.Classes(slice(0, 64), z, None, None, None, None, None)
    with path("fast"):
        lists = (torch.full((8, 1), -1), 1, 0)
        passes.LIBRARY.run("bce", *classes.arguments(z, total), None, 0, *lists, None, 0, None, 1e-7)
    assert not z.any()
    assert total > 0
    assert torch.tensor(1e-39) * 2 > 0, "which holds in the pass only"


def test_a_logit_that_is_no_number_shows_in_the_loss():
    for kind in ("scale", "plain"):
        x, w, *scale = arguments(kind, 5, 80, F32)
        x[2, 1] = torch.nan
        with path("fast"):
            assert torch.isnan(streamed_bce(*filled(kind, x, w, *scale), torch.full((5, 1), 3)))
            counted = torch.ones(5, dtype=torch.bool)
            assert torch.isnan(streamed_cross_entropy(*filled(kind, x, w, *scale), torch.full((5,), 3), counted))
