"""Whether kernels in Triton can be used on a GPU, and their launches."""

from __future__ import annotations

import functools
import importlib.util

import torch

from hyperbolic import fusion

CAPABILITY = (8, 0)  # of the GPU, the least


@functools.cache
def available(device: int) -> bool:
    """Whether Triton is installed, knows this GPU and launches a small kernel on it; warns once where it does not."""
    capability = torch.cuda.get_device_capability(device)
    if importlib.util.find_spec("triton") is None:
        return _missing("Triton is not installed (pip install triton)")
    if capability < CAPABILITY:
        actual, least = (".".join(map(str, c)) for c in (capability, CAPABILITY))
        return _missing(f"{torch.cuda.get_device_name(device)} has compute capability {actual}; {least} is needed")
    try:
        _try_kernel(device)
    except Exception as error:  # of a compiler, a driver, or a Triton of another version
        what = (str(error).strip() or "no message").splitlines()[0]
        return _missing(f"Triton fails to build or launch a small kernel here ({type(error).__name__}: {what})")
    return True


def _try_kernel(device: int) -> None:
    from hyperbolic.kernels import triton_trial

    with torch.cuda.device(device):
        triton_trial.write[(1,)](torch.empty(1, device="cuda"))


def _missing(reason: str) -> bool:
    fusion.warn_of_gpu(
        f"the kernels for recurrent layers and optimisers on a GPU are not used, PyTorch operations take their place: "
        f"{reason}; HYPERBOLIC_KERNELS=plain does so without this warning"
    )
    return False
