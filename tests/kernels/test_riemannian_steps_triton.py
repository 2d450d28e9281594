"""Steps of a whole optimiser in Triton: in its interpreter, as code for two kinds of GPU, and on a GPU."""

import pytest
import torch

from hyperbolic.kernels.riemannian_steps import Rows, cuda
from hyperbolic.kernels.riemannian_steps.cuda import Job
from hyperbolic.manifolds import PoincareBall
from hyperbolic.optim import RiemannianAdam
from tests.kernels.steps_interpreted import give_gradients, parameters
from tests.kernels.test_recurrent_triton import printed
from tests.kernels.test_riemannian_steps import ADAM, rows_of

F64 = torch.float64


@pytest.mark.parametrize("names", [["projection, learned curvature", "lazy"], pytest.param([], marks=pytest.mark.long)])
def test_in_the_interpreter(names):
    """Points near the origin, in the middle and near the boundary; rules; clipping; and few launches."""
    results = printed("steps_interpreted.py", *names, TRITON_INTERPRET="1")
    one, many = results["launches"]
    assert one == many
    assert len(one) <= 8, one
    for name, errors in results["steps"].items():
        assert max(errors) <= 1e-5, (name, errors)
    assert all(results["extremes"].values()), results["extremes"]
    for name, error in results["optimisers"].items():
        assert error <= 1e-5, name


@pytest.mark.parametrize("capability", [pytest.param(80, marks=pytest.mark.long), 90])
def test_built_for_gpus(capability, tmp_path):
    built = printed("cubins.py", "steps", str(capability), TRITON_CACHE_DIR=str(tmp_path))
    assert len(built) == 4
    assert all(size > 0 for size, _ in built.values())


def test_which_tensors_it_is_for(monkeypatch):
    monkeypatch.setattr(cuda, "available", lambda device: True)
    rows, ball = rows_of(torch.zeros(3, 4), ADAM, torch.zeros(3, 4)), PoincareBall()
    wide = rows_of(torch.zeros(3, 4, dtype=F64), ADAM, torch.zeros(3, 4, dtype=F64))
    assert cuda.fits([Job(rows, ball, ADAM), Job(wide._replace(square=wide.momentum), None, ADAM)])
    assert not cuda.fits([Job(rows, ball, ADAM), Job(wide, ball, ADAM)])
    assert not cuda.fits([Job(rows, ball, ADAM._replace(exact_exp=False))])
    assert not cuda.fits([Job(rows._replace(x=torch.zeros(4, 3).mT), ball, ADAM)])
    assert not cuda.fits([Job(rows._replace(some=torch.arange(6)[::2]), ball, ADAM)])
    assert not cuda.serves(rows.x)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("name", ["x", "grad", "momentum", "square", "largest", "some"])
def test_other_shapes_are_refused_before_their_addresses_are_taken(name, flat, monkeypatch):
    """As by the kernels in C++; a table whose data were replaced by fewer rows has the moments of more."""
    monkeypatch.setattr(cuda, "_pack", None)
    x, some = torch.zeros(5, 3), torch.arange(5)
    square = x if flat else x[:, :1]
    rows = Rows(x, x, x, square, square, some)
    wrong = rows._replace(**{name: getattr(rows, name)[:4]})
    with pytest.raises(ValueError, match=r"take a tensor of shape \([45],.*\) here, got \([45],"):
        cuda.step([Job(wrong, None if flat else PoincareBall(), ADAM)])
    if not flat:
        with pytest.raises(ValueError, match=r"take a tensor of shape \(2, 3\) here, got \(2, 5, 3\)"):
            cuda.step([Job(Rows(torch.zeros(2, 5, 3), x), PoincareBall(), ADAM)])


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 50])
def test_on_a_gpu(count):
    """As on a CPU, in few launches."""
    ends = []
    for device in ("cpu", "cuda"):
        points, flat = parameters(count)
        for p in (*points, *flat):
            if hasattr(p, "manifold"):
                p.manifold.to(device)
            p.data = p.data.to(device)
        optimizer = RiemannianAdam([*points, *flat], lr=0.1, max_grad_norm=1.0)
        for step in range(1, 4):
            give_gradients([*points, *flat], step)
            optimizer.step()
        ends.append([p.detach().cpu() for p in (*points, *flat)])
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        optimizer.step()
    launched = [e.name for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    assert len(launched) <= 8, launched
