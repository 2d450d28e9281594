"""The switch between plain formulas and kernels, and what it says of tensors that something follows."""

import copy

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from hyperbolic import switch
from hyperbolic.layers import mobius
from hyperbolic.manifolds import PoincareBall


@pytest.fixture(autouse=True)
def _fresh_switch(monkeypatch):
    """Every test starts unset, in an environment that says nothing, and leaves the switch as it was."""
    monkeypatch.setattr(switch, "_switch", switch._Switch())
    monkeypatch.delenv("HYPERBOLIC_KERNELS", raising=False)
    monkeypatch.delenv("CXX", raising=False)


@pytest.fixture
def compiler(monkeypatch):
    """Makes a machine with these compilers."""

    def install(*compilers: str) -> None:
        monkeypatch.setattr(switch.shutil, "which", lambda name: f"/bin/{name}" if name in compilers else None)

    return install


def test_fast_by_default(compiler):
    compiler("g++")
    assert switch.mode() == "fast"
    assert switch.fast()
    assert switch.native()


def test_plain(compiler):
    compiler("g++")
    switch.use_kernels("plain")
    assert switch.mode() == "plain"
    assert not switch.fast()
    assert not switch.native()


def test_no_cpp_kernels_without_a_compiler(compiler):
    compiler()
    assert switch.fast()
    assert not switch.native()


def test_code_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("HYPERBOLIC_KERNELS", "plain")
    assert switch.mode() == "plain"
    switch.use_kernels("fast")
    assert switch.mode() == "fast"


@pytest.mark.parametrize("mode", ["native", "", None, True, 0.5])
def test_unknown_modes(mode):
    with pytest.raises(ValueError, match="kernels must be plain or fast"):
        switch.use_kernels(mode)
    assert switch.mode() == "fast"


def test_unknown_mode_in_the_environment(monkeypatch):
    monkeypatch.setenv("HYPERBOLIC_KERNELS", "sometimes")
    with pytest.raises(ValueError, match="'sometimes'"):
        switch.mode()


@pytest.mark.parametrize("name", ["g++", "clang++", "icpx"])
def test_where_a_compiler_is_looked_for(monkeypatch, compiler, name):
    compiler(name)
    assert (switch.cpp_compiler() is None) == (name == "icpx")
    monkeypatch.setenv("CXX", "icpx")
    assert switch.cpp_compiler() == f"/bin/{name}"


def test_what_follows_operations():
    x, seen = torch.ones(2), []

    def look(x):
        seen.append((switch.is_traced([x]), switch.is_transformed()))
        return x * 2

    look(x)
    torch.func.vmap(look)(x)
    torch.func.jvp(look, (x,), (x,))
    with torch.autograd.forward_ad.dual_level():
        look(x)
    torch.jit.trace(look, x, check_trace=False)
    make_fx(look)(x)
    look(x.to("meta"))
    with torch._subclasses.FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
    look(fake)
    assert seen == [(False, False), *[(False, True)] * 3, *[(True, False)] * 4]


def test_cuda_graphs_need_a_gpu(compiler):
    layer = mobius.GRU(PoincareBall(1.0), 3, 4)
    with pytest.raises(ValueError, match="sample arguments on a GPU, got cpu"):
        switch.use_cuda_graphs(layer, torch.zeros(2, 5, 3))
    with pytest.raises(ValueError, match="got none"):
        switch.use_cuda_graphs(layer)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["GRU", "RNN"])
def test_cuda_graphs_equal_eager(kind):
    ball = PoincareBall(2.0).cuda()
    layer = getattr(mobius, kind)(ball, 3, 4, bias_std=0.2).cuda()
    twin = copy.deepcopy(layer)
    x = ball.random(6, 5, 3, std=0.5, device="cuda")
    lengths = torch.tensor([5, 2, 3, 1, 4, 5], device="cuda")
    switch.use_cuda_graphs(layer, x.clone().requires_grad_(), lengths)
    for batch in (6, 6, 4):  # an incomplete batch runs eagerly
        results = []
        for module in (layer, twin):
            free = x[:batch].clone().requires_grad_()
            states, last = module(free, lengths[:batch])
            grads = torch.autograd.grad(states.square().sum() + last.sum(), [free, *module.parameters()])
            results.append([states, last, *grads])
        for fast, plain in zip(*results, strict=True):
            torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-6)
    assert torch.equal(layer.eval()(x, lengths)[1], twin.eval()(x, lengths)[1])
