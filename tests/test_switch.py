"""The switch between plain formulas and kernels, and what it says of tensors that something follows."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from hyperbolic import switch


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
    with pytest.raises(ValueError, match="HYPERBOLIC_KERNELS must be plain or fast, got 'sometimes'"):
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
