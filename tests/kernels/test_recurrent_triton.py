"""Möbius RNN and GRU in Triton: in its interpreter against float64, as code for two kinds of GPU, and on a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hyperbolic import fusion, switch
from hyperbolic.kernels import gpu
from hyperbolic.kernels.recurrent import cuda, mobius_gru, mobius_rnn, plain
from hyperbolic.kernels.recurrent.passes import Gru
from tests.kernels.test_recurrent_native import arguments

F32 = torch.float32
KINDS = pytest.mark.parametrize("kind", ["rnn", "gru"])
HERE = Path(__file__).parent
WITH_TRITON = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1", "TRITON_DEFAULT_FP_FUSION": "1"}


def printed(name: str, *words: str, **environment: str) -> object:
    """What a program beside this one prints last, as JSON."""
    pytest.importorskip("triton")
    command = [sys.executable, str(HERE / name), *words]
    done = subprocess.run(command, env=WITH_TRITON | environment, capture_output=True, text=True, check=False)
    if "only 0-dimensional arrays can be converted to Python scalars" in done.stderr:
        pytest.skip("the interpreter of this Triton needs numpy<2.4")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("words", [*(pytest.param((kind,), marks=pytest.mark.long) for kind in ("rnn", "gru")), ("gru", "few")])
def test_in_the_interpreter_as_exact_as_the_plain_loop(words):
    """Near the origin, in the middle and near the boundary; and few launches, whatever the number of steps."""
    results = printed("recurrent_interpreted.py", *words, TRITON_INTERPRET="1")
    launches = results.pop("launches")
    assert len(launches) + 2 <= 8, launches  # and the two loops
    for name, errors in results.items():
        for actual, usual in zip(errors["actual"], errors["plain"], strict=True):
            assert actual <= 2 * usual + 2e-6, (name, errors)


@pytest.mark.parametrize(("capability", "shared"), [pytest.param(80, 163 << 10, marks=pytest.mark.long), (90, 227 << 10)])
@pytest.mark.parametrize("kind", ["rnn", pytest.param("gru", marks=pytest.mark.long)])
def test_built_for_gpus(kind, capability, shared, tmp_path):
    """Both passes, of the largest states, without a GPU: within its registers and its memory on the chip."""
    built = printed("cubins.py", kind, str(capability), TRITON_CACHE_DIR=str(tmp_path))
    assert set(built) == {f"{kind}_forward", f"{kind}_backward"}
    for size, on_chip in built.values():
        assert size > 0
        assert 2 * on_chip <= shared  # two programs


def fitting(monkeypatch):
    monkeypatch.setattr(cuda, "available", lambda device: True)
    (x, w_ih, w_hh, bias, c), lengths = arguments("gru", 4, dtype=F32, ended=True)
    return x, lengths, w_ih, w_hh, bias, c


def test_which_arguments_it_is_for(monkeypatch):
    x, lengths, w_ih, w_hh, bias, c = fitting(monkeypatch)
    assert cuda.fits(x, lengths, w_ih, w_hh, bias, c, 1, 0.0)
    assert not cuda.fits(x, lengths, w_ih, w_hh, bias, c, 1, 1e-5), "points that are clipped"
    assert not cuda.fits(x, lengths[:, :3], w_ih, w_hh, bias, c, 1, 0.0)
    assert not cuda.fits(x.double(), lengths, w_ih, w_hh, bias, c, 1, 0.0)
    assert not cuda.fits(x[:, :0], lengths[:, :0], w_ih, w_hh, bias, c, 1, 0.0)
    large = [torch.empty(1, 3, 65, d) for d in (3, 65)]
    assert not cuda.fits(x, lengths, *large, torch.empty(1, 3, 65), c, 1, 0.0)
    mode = switch.mode()
    switch.use_kernels("plain")
    assert not cuda.fits(x, lengths, w_ih, w_hh, bias, c, 1, 0.0)
    switch.use_kernels(mode)


def test_a_gpu_that_is_too_old_or_no_triton_is_warned_of_once(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    for found, reason in ((None, r"Triton is not installed \(pip install triton\)"), (object(), "Tesla T4 has .* 7.5")):
        gpu.available.cache_clear()
        monkeypatch.setattr(fusion, "_messages", [])
        monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name, found=found: found)
        with pytest.warns(RuntimeWarning, match=reason):
            assert not gpu.available(0)
        assert not gpu.available(0)  # without another warning
    gpu.available.cache_clear()
    assert not gpu.available(0), "nor with one of another reason"
    gpu.available.cache_clear()


def test_a_triton_that_fails_is_warned_of_once(monkeypatch):
    """It needs a C compiler for its launcher, and a driver that it knows; steps and layers go on without it."""

    def fail(device):
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(gpu, "_try_kernel", fail)
    monkeypatch.setattr(fusion, "_messages", [])
    gpu.available.cache_clear()
    reason = r"small kernel here \(RuntimeError: Failed to find C compiler\.\); HYPERBOLIC_KERNELS=plain"
    with pytest.warns(RuntimeWarning, match=reason):
        assert not gpu.available(0)
    assert not gpu.available(0)  # without another warning
    monkeypatch.setattr(gpu, "_try_kernel", lambda device: None)
    gpu.available.cache_clear()
    assert gpu.available(0)
    gpu.available.cache_clear()


def test_tensors_on_a_cpu_do_not_reach_them(monkeypatch):
    monkeypatch.setattr(cuda, "forward", None)
    (x, *rest), _ = arguments("gru", 4, dtype=F32)
    assert Gru.run(x, None, *rest, 0).shape == (1, 4, 4, 5)


@pytest.mark.gpu
@KINDS
@pytest.mark.parametrize("phi", ["identity", "tanh"])
@pytest.mark.parametrize("length", [1e-6, 0.4, 0.9])
def test_on_a_gpu(kind, phi, length):
    """As close to float64 as float32 is on a CPU: near the boundary an RNN makes a percent of the last bits."""
    free, lengths = arguments(kind, 37, 6, 20, 50, 2, 4, F32, length, ended=True)
    results = []
    for dtype, device in ((F32, "cuda"), (F32, "cpu"), (torch.float64, "cpu")):
        x, *rest = (t.detach().to(device, torch.float64 if t.dim() == 0 else dtype).requires_grad_() for t in free)
        there = lengths.to(device)
        if device == "cuda":
            assert cuda.fits(x, there, *rest, plain.PHI.index(phi), 0.0)
        states = {"rnn": mobius_rnn, "gru": mobius_gru}[kind](x, there, *rest, phi)
        torch.manual_seed(1)
        grad = torch.randn(states.shape, dtype=torch.float64).to(states)
        results.append([t.cpu().double() for t in (states, *torch.autograd.grad(states, (x, *rest[:3]), grad))])
    for actual, on_cpu, exact in zip(*results, strict=True):
        room = 3 * (on_cpu - exact).abs().max() + 1e-5 * exact.abs().max()
        torch.testing.assert_close(actual, exact, rtol=0, atol=room.item())


@pytest.mark.gpu
@KINDS
def test_launches_on_a_gpu(kind):
    (x, *rest), _ = arguments(kind, 350, 25, 100, 50, dtype=F32)
    x, *rest = (t.detach().cuda().requires_grad_(t.dim() > 0) for t in (x, *rest))

    def both():
        states = {"rnn": mobius_rnn, "gru": mobius_gru}[kind](x, None, *rest)
        torch.autograd.grad(states, (x, *rest[:3]), torch.empty_like(states))

    both()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        both()
    kernels = [e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    ours = [name for name in kernels if "splitKreduce" not in name]  # cuBLAS may cut a product in two launches
    assert len(ours) <= 8, kernels
