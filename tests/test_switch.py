"""The switch between eager and compiled kernels."""

import copy

import pytest
import torch

from hyperbolic import native, switch
from hyperbolic.layers import mobius
from hyperbolic.manifolds import PoincareBall


@pytest.fixture(autouse=True)
def _fresh_switch(monkeypatch):
    """Every test starts unset, in an environment that says nothing, and leaves the switch as it was."""
    monkeypatch.setattr(switch, "_switch", switch._Switch())
    monkeypatch.delenv("HYPERBOLIC_COMPILE", raising=False)
    monkeypatch.delenv("CXX", raising=False)


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Makes a machine with these compilers, and with or without Python's headers."""

    def install(*compilers: str, headers: bool = True) -> None:
        if headers:
            (tmp_path / "Python.h").touch()
        monkeypatch.setattr(switch.sysconfig, "get_path", lambda name: str(tmp_path))
        monkeypatch.setattr(switch.shutil, "which", lambda name: f"/bin/{name}" if name in compilers else None)

    return install


def test_native_by_default(compiler):
    compiler("g++")
    assert switch.mode() == "native"
    assert switch.native() is True
    assert switch.compiling() is False
    assert switch.maybe_compiled(torch.sin, 3) is torch.sin


@pytest.mark.parametrize(("mode", "native"), [("0", False), ("native", True), ("1", True), ("auto", True)])
def test_cpp_kernels(compiler, mode, native):
    compiler("g++")
    switch.use_compile(mode)
    assert switch.native() is native
    assert switch.use_compile(switch.mode()) is (mode in ("1", "auto"))  # what mode() says can be set again
    assert switch.native() is native


def test_cpp_kernels_need_no_headers_of_python(compiler):
    compiler("g++", headers=False)
    assert switch.use_compile("auto") is False
    assert switch.native() is True
    assert switch.mode() == "native"


def test_no_cpp_kernels_without_a_compiler(compiler):
    compiler()
    assert switch.native() is False
    assert switch.use_compile("native") is False
    assert switch.native() is False


@pytest.mark.parametrize(
    ("word", "on"), [("0", False), ("1", True), ("auto", True), ("AUTO", True), ("true", True), ("False", False)]
)
def test_modes(monkeypatch, compiler, word, on):
    compiler("g++")
    assert switch.use_compile(word) is on
    assert switch.compiling() is on
    monkeypatch.setattr(switch, "_switch", switch._Switch())
    monkeypatch.setenv("HYPERBOLIC_COMPILE", word)
    assert switch.compiling() is on


@pytest.mark.parametrize("mode", [True, False])
def test_booleans(compiler, mode):
    compiler("g++")
    assert switch.use_compile(mode) is mode


def test_code_wins_over_the_environment(monkeypatch, compiler):
    compiler("g++")
    monkeypatch.setenv("HYPERBOLIC_COMPILE", "1")
    switch.use_compile(False)
    assert switch.compiling() is False


@pytest.mark.parametrize("mode", ["yes", "2", "", None, 0.5])
def test_unknown_modes(mode):
    with pytest.raises(ValueError, match="compile must be false, native, true or auto"):
        switch.use_compile(mode)
    assert switch.compiling() is False


def test_unknown_mode_in_the_environment(monkeypatch):
    monkeypatch.setenv("HYPERBOLIC_COMPILE", "sometimes")
    with pytest.raises(ValueError, match="'sometimes'"):
        switch.compiling()


def test_without_a_compiler(compiler):
    compiler()
    assert switch.use_compile("auto") is False
    with pytest.raises(RuntimeError, match=r"needs a C\+\+ compiler .* use auto"):
        switch.use_compile(True)
    assert switch.compiling() is False


@pytest.mark.parametrize("name", ["g++", "clang++", "icpx"])
def test_where_a_compiler_is_looked_for(monkeypatch, compiler, name):
    compiler(name)
    assert switch.compiler_found() is (name != "icpx")
    monkeypatch.setenv("CXX", "icpx")
    assert switch.compiler_found()


def test_a_compiler_without_the_headers_of_python_is_none(compiler):
    compiler("g++", headers=False)
    assert not switch.compiler_found()
    assert switch.use_compile("auto") is False


def test_compiled_code_is_for_the_first_batch_size(monkeypatch, compiler):
    compiler("g++")
    compiled = []
    monkeypatch.setattr(switch.torch, "compile", lambda f, **options: compiled.append((f, options)) or (lambda x: f(x)))
    switch.use_compile(True)
    fast = switch.maybe_compiled(torch.sin, 8)
    assert fast is not torch.sin
    assert switch.maybe_compiled(torch.sin, 8) is fast
    assert switch.maybe_compiled(torch.sin, 5) is torch.sin  # an incomplete last batch
    assert switch.maybe_compiled(torch.cos, 5) is not torch.cos
    assert compiled == [(f, {"fullgraph": True, "dynamic": False}) for f in (torch.sin, torch.cos)]
    switch.use_compile(False)
    assert switch.maybe_compiled(torch.sin, 8) is torch.sin
    switch.use_compile(True)  # the next run has its own batch size
    assert switch.maybe_compiled(torch.sin, 5) is not torch.sin
    assert switch.maybe_compiled(torch.sin, 8) is torch.sin


def test_compiled_code_is_for_every_combination_of_sizes_up_to_a_limit(monkeypatch, compiler):
    """PyTorch raises an error at the eighth version of a function; also versions of earlier runs count."""
    compiler("g++")
    monkeypatch.setattr(switch.torch, "compile", lambda f, **options: lambda x: f(x))
    switch.use_compile(True)
    for width in range(7):
        assert switch.maybe_compiled(torch.sin, 8, width) is not torch.sin
        assert switch.maybe_compiled(torch.sin, 5, width) is torch.sin
    assert switch.maybe_compiled(torch.sin, 8, 7) is torch.sin
    assert switch.maybe_compiled(torch.sin, 8, 6) is not torch.sin
    assert switch.maybe_compiled(torch.cos, 8, 7) is not torch.cos
    switch.use_compile(True)
    assert switch.maybe_compiled(torch.sin, 9, 6) is torch.sin
    switch.use_compile(True)
    assert switch.maybe_compiled(torch.sin, 8, 6) is not torch.sin


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


@pytest.fixture
def without_cpp(monkeypatch):
    """No C++ kernels, which on a CPU come before compiled ones."""
    monkeypatch.setattr(native, "usable", lambda *_: False)


@pytest.mark.slow
@pytest.mark.usefixtures("without_cpp")
@pytest.mark.skipif(not switch.compiler_found(), reason="needs a C++ compiler")
@pytest.mark.parametrize(("kind", "nonlinearity"), [("GRU", None), ("RNN", "tanh")])
def test_compiled_equals_eager(kind, nonlinearity):
    """With a full batch and an incomplete last one."""
    ball = PoincareBall(2.0, learn_c=True)
    layer = getattr(mobius, kind)(ball, 3, 4, nonlinearity=nonlinearity, streams=2, bias_std=0.2)
    twin = copy.deepcopy(layer)
    lengths = torch.tensor([[5, 2, 3, 1], [1, 5, 4, 4]])
    for batch in (4, 4, 3):
        x = ball.random(2, batch, 5, 3, std=0.5).detach()
        results = []
        for module, mode in ((layer, True), (twin, False)):
            switch.use_compile(mode)
            free = x.clone().requires_grad_()
            states, last = module(free, lengths[:, :batch])
            grads = torch.autograd.grad(states.square().sum() + last.sum(), [free, *module.parameters()])
            results.append([states, last, *grads])
        for fast, plain in zip(*results, strict=True):
            torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("without_cpp")
@pytest.mark.skipif(not switch.compiler_found(), reason="needs a C++ compiler")
def test_compiled_linear_and_concat_equal_eager():
    """With a full batch and an incomplete last one."""
    ball = PoincareBall(2.0, learn_c=True)
    linear, concat = mobius.Linear(ball, 3, 4, bias_std=0.2), mobius.Concat(ball, (4, 3), 2, n_features=1)
    parameters = [*linear.parameters(), *(p for p in concat.parameters() if p is not ball.free_c)]
    for batch in (6, 6, 5):
        x, f = ball.random(batch, 3, std=0.5).detach(), torch.rand(batch, 1)
        results = []
        for mode in (True, False):
            switch.use_compile(mode)
            free = x.clone().requires_grad_()
            out = concat(linear(free), free, features=f)
            results.append([out, *torch.autograd.grad(out.square().sum(), [free, *parameters])])
        for fast, plain in zip(*results, strict=True):
            torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-6)
