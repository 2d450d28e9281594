"""Formulas compiled in eager code, as on a GPU; here on a CPU, mostly with a compiler that keeps PyTorch's operations."""

import warnings
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import aot_eager
from torch.utils.checkpoint import checkpoint

from hyperbolic import fusion, switch
from hyperbolic.encoders.relational.hybonet import HyboNet
from hyperbolic.geometry import make_geometry
from hyperbolic.kernels.lorentz_rows import lift
from hyperbolic.layers import lorentz, mobius
from hyperbolic.manifolds import Lorentz, PoincareBall
from hyperbolic.operator import OPERATORS
from tests.kernels.test_operators import flat, function, results, samples


@pytest.fixture
def graphs(monkeypatch, kernels_restored) -> Iterator[list[str]]:
    """Compiled as on a GPU; a word for each graph that was compiled."""
    made: list[str] = []

    def backend(graph, inputs):
        made.append("graph")
        return aot_eager(graph, inputs)

    switch.use_kernels("fast")
    monkeypatch.setattr(fusion, "DEVICES", ("cpu",))
    monkeypatch.setattr(fusion, "BACKEND", backend)
    monkeypatch.setattr(fusion.Fusion, "compiled", {})
    monkeypatch.setattr(fusion.Fusion, "broken", set())
    monkeypatch.setattr(fusion, "_messages", [])
    yield made
    torch._dynamo.reset()


def gradient(call, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(call(x).square().sum(), x)[0]


def points(n: int, d: int = 4) -> Tensor:
    return Lorentz(1.0).random(n, d)


def compare(name: str) -> None:
    for arguments in samples(name):
        call, inputs = function(name, arguments)
        actual = results(call, inputs)
        switch.use_kernels("plain")
        expected = results(call, inputs)
        switch.use_kernels("fast")
        for a, e in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, e, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["lorentz_lift", "mlr_logits", "streamed_bce", "row_products"])
def test_values_and_gradients_are_those_of_the_plain_formula(name, graphs):
    compare(name)
    assert graphs


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator(name, graphs):
    compare(name)
    assert graphs or not OPERATORS[name].fuses


WIDE = {"row_products": 1, "weighted_sum": 1}  # how many arguments stay float64 beside float32 ones


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # PyTorch's own, of what it would compile otherwise
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_on_a_gpu(name, kernels_restored):
    """Kernels against the plain formula there, both dtypes."""
    for arguments in samples(name):
        for dtype, close in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
            moved = [
                a.detach()
                .to("cuda", dtype if a.dim() and a.requires_grad and place >= WIDE.get(name, 0) else None)
                .requires_grad_(a.requires_grad)
                if isinstance(a, Tensor)
                else a
                for place, a in enumerate(flat(arguments))
            ]
            call, inputs = function(name, tuple(moved))
            runs = []
            for mode in ("fast", "plain"):
                switch.use_kernels(mode)
                runs.append(results(call, inputs))
            for actual, expected in zip(*runs, strict=True):
                torch.testing.assert_close(actual, expected, rtol=close, atol=close)
    assert not fusion.Fusion.broken


@pytest.mark.slow
def test_inductor_makes_kernels_of_it(graphs, monkeypatch):
    monkeypatch.setattr(fusion, "BACKEND", "inductor")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own
        s, c = torch.randn(5, 3), torch.tensor(1.3, dtype=torch.float64)
        actual = gradient(lambda s: lift(s, c), s)
    switch.use_kernels("plain")
    torch.testing.assert_close(actual, gradient(lambda s: lift(s, c), s))


def test_operations_of_the_ball(graphs):
    ball, x = PoincareBall(1.3), 0.1 * torch.randn(3, 2)
    actual = gradient(lambda x: ball.expmap0(ball.logmap0(x)), x)
    assert graphs
    torch.testing.assert_close(actual, 2 * x)


@pytest.mark.parametrize("call", [lambda x: lift(x, torch.tensor(1.3)), PoincareBall(1.3).expmap0])
def test_a_loss_keeps_nothing_alive_after_its_backward_pass(call, graphs):
    x = torch.randn(3, 2, requires_grad=True)
    between = 0.1 * x
    loss, alive = call(between).square().sum(), weakref.ref(between)
    del between
    assert alive() is not None
    loss.backward()
    assert graphs
    assert alive() is None


def test_second_derivatives(graphs):
    c = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    s = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lift, (s, c), fast_mode=True)
    assert torch.autograd.gradgradcheck(lift, (s, c), fast_mode=True)
    assert graphs


@pytest.mark.long
def test_a_batch_of_another_size_is_compiled_once(graphs):
    layer = lorentz.Linear(Lorentz(1.0), 4, 4)
    gradient(layer, points(5))
    gradient(layer, points(6))
    n = len(graphs)
    for size in (7, 8, 50):
        assert gradient(layer, points(size)).shape == (size, 5)
    assert len(graphs) == n


@pytest.mark.long
def test_rows_that_lie_apart_are_not_compiled_again(graphs):
    """As the last states of sequences: HyFi's first step compiled its largest formula but one once more for them."""
    layer, states = mobius.Linear(PoincareBall(1.0), 4, 3), PoincareBall(1.0).random(5, 2, 4)
    gradient(layer, states[:, 1].contiguous())
    n = len(graphs)
    gradient(layer, states[:, 1])
    assert len(graphs) == n > 0


def test_of_more_sizes_than_pytorch_keeps_the_others_run_plainly(graphs):
    c = torch.tensor(1.0, dtype=torch.float64)
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False, recompile_limit=2):
        counts = []
        for size in (3, 4, 5, 6, 3):
            assert gradient(lambda s: lift(s, c), torch.randn(size, 2)).shape == (size, 2)
            counts.append(len(graphs))
    assert counts[0] < counts[1] == counts[-1]


def test_of_more_structures_than_are_kept_the_others_run_plainly(graphs, monkeypatch):
    monkeypatch.setattr(fusion, "VERSIONS", 2)
    lift = OPERATORS["lorentz_lift"].run
    c, counts = torch.tensor(1.0, dtype=torch.float64), []
    for axes in (1, 2, 3, 4):
        assert lift(torch.randn(2, 2, 2, 2), c, axes).shape[-1] == 2**axes + 1
        counts.append(len(graphs))
    assert counts[0] < counts[1] == counts[-1]


def test_what_cannot_be_compiled_runs_plainly_with_one_warning(graphs, monkeypatch):
    def broken(graph, inputs):
        raise RuntimeError("there is no Triton")

    monkeypatch.setattr(fusion, "BACKEND", broken)
    ball, sheet = mobius.Linear(PoincareBall(1.0), 4, 4), lorentz.Linear(Lorentz(1.0), 4, 4)
    with pytest.warns(RuntimeWarning, match=r"mobius_affine failed with .*there is no Triton.*pip install triton"):
        gradient(ball, 0.1 * torch.randn(3, 4))
    gradient(ball, 0.1 * torch.randn(3, 4))  # a warning is an error in tests
    gradient(sheet, points(3))


def test_a_gradient_that_cannot_be_compiled_comes_from_the_plain_formula(graphs, monkeypatch):
    def broken(graph, inputs):
        raise torch._dynamo.exc.TorchDynamoException("no gradient")

    backend = aot_autograd(fw_compiler=lambda graph, inputs: graph, bw_compiler=broken)
    monkeypatch.setattr(fusion, "BACKEND", backend)
    c = torch.tensor(1.0, dtype=torch.float64)
    with pytest.warns(RuntimeWarning, match="lorentz_lift failed"):
        actual = gradient(lambda s: lift(s, c), torch.ones(3, 2))
    torch.testing.assert_close(actual, gradient(lambda s: lift(s, c), torch.ones(3, 2)))


def test_wrong_arguments_raise_what_they_raise_in_the_plain_formula(graphs):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        OPERATORS["mlr_logits"].run(torch.randn(3, 4), torch.randn(5, 6), torch.randn(5))
    assert not fusion.Fusion.broken


def test_a_graph_that_is_kept_or_made_again_gives_the_same_gradients(graphs):
    layer = lorentz.Linear(Lorentz(1.0), 4, 4)
    x = points(3)
    expected = gradient(layer, x)
    for use_reentrant in (True, False):
        leaf = x.detach().requires_grad_()
        checkpoint(layer, leaf, use_reentrant=use_reentrant).square().sum().backward()
        torch.testing.assert_close(leaf.grad, expected)
    leaf = x.detach().requires_grad_()
    loss = layer(leaf).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close(leaf.grad, 2 * expected)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_transforms_traces_and_plain_mode_are_not_compiled_here(graphs):
    c = torch.tensor(1.0, dtype=torch.float64)
    s = torch.randn(3, 2)
    torch.func.vmap(lambda s: lift(s, c))(s)
    torch.func.jvp(lambda s: lift(s, c), (s,), (s,))
    torch.jit.trace(lambda s: lift(s, c), s, check_trace=False)
    lift(s.to("meta"), c.to("meta"))
    switch.use_kernels("plain")
    lift(s, c)
    assert not graphs


@pytest.mark.long
def test_hybonets_scores_are_one_graph(graphs):
    geometry = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0)
    scorer = HyboNet(geometry, 7, 3, False, 4, False, 2.0, 8.0, 1.5)
    h, r, t = torch.tensor([0, 6]), torch.tensor([2, 1]), torch.tensor([[1, 2, 0], [0, 6, 3]])
    actual = scorer(h, r, t)
    assert 1 <= len(graphs) <= 2  # with the check of the numbers
    leaves = [scorer.entity.weight, scorer.matrix, scorer.bias, scorer.head_bias, scorer.tail_bias]
    gradients = torch.autograd.grad(actual.square().sum(), leaves)
    switch.use_kernels("plain")
    expected = scorer(h, r, t)
    torch.testing.assert_close(actual, expected)
    for a, e in zip(gradients, torch.autograd.grad(expected.square().sum(), leaves), strict=True):
        torch.testing.assert_close(a, e)


def test_float64_points_are_compiled_without_contracted_products(monkeypatch):
    settings = []
    monkeypatch.setattr(torch, "compile", lambda formula, **options: settings.append(options["options"]))
    c = torch.tensor(1.0, dtype=torch.float64)
    for dtype in (torch.float32, torch.float64):
        fusion._compile(fusion.Fusion("sum", torch.add), [torch.ones(3, dtype=dtype), c])
    assert [each.get("emulate_precision_casts", False) for each in settings] == [False, True]
