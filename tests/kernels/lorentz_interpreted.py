"""Runs the Triton kernels of HyboNet's linear layer in Triton's interpreter and prints, as JSON, how far they are from float64.

For each case the errors of results and gradients, in units of their largest number, and those of the plain formula in
float32; and the operations that both passes launch. A program of its own, as Triton is told by the environment,
TRITON_INTERPRET=1.
"""

import json

import torch

from hyperbolic.kernels.lorentz_rows import cuda, plain
from tests.kernels.recurrent_interpreted import Context as Keeping
from tests.kernels.recurrent_interpreted import Launches, errors

F32, F64 = torch.float32, torch.float64


def context(inputs):
    result = Keeping()
    result.needs_input_grad = (*(t is not None for t in inputs), False, False)
    return result


def draw(points, d_in, d, heads=1, added=None, bias=True, std=1.0):
    """x, weight, bias, raw, added, scale, c."""
    size = d + 1
    return [
        torch.randn(points, d_in),
        std * torch.randn(heads * size, d_in) / d_in**0.5,
        torch.randn(heads * size) if bias else None,
        None,
        None if added is None else torch.randn(points, size if added == "points" else d),
        torch.tensor(3.0),
        torch.tensor(1.7, dtype=F64),
    ]


def run(inputs, heads=1, offset=1.1):
    at = context(inputs)
    out = cuda.forward(at, *inputs, offset, heads)
    grad = torch.randn_like(out)
    gradients = cuda.backward(at, grad)
    reference = []
    for dtype in (F32, F64):
        free = [None if t is None else t.to(F64 if t.dtype is F64 else dtype).requires_grad_() for t in inputs]
        y = plain.linear(*free, offset, heads)
        leaves = [t for t in free if t is not None]
        reference.append([y.detach(), *torch.autograd.grad(y, leaves, grad.to(dtype))])
    actual = [out, *(g for g in gradients if g is not None)]
    return {"actual": errors(actual, reference[1]), "plain": errors(reference[0], reference[1])}


def launches():
    inputs = draw(4, 3, 5)
    kernels, cuda._launch = cuda._launch, lambda *a, **k: None
    at = context([*inputs[:6], None])  # with c fixed
    with Launches() as counted:
        cuda.backward(at, torch.empty_like(cuda.forward(at, *inputs, 1.1, 1)))
    cuda._launch = kernels
    return counted.names


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    zero = draw(3, 4, 5)
    zero[1][1:], zero[2][1:] = 0, 0
    results = {
        "launches": launches(),
        "ordinary": run(draw(130, 4, 16)),
        "heads": run(draw(5, 4, 6, heads=3), heads=3),
        "added points": run(draw(5, 4, 6, added="points", bias=False)),
        "added vectors, offset": run(draw(5, 4, 33, added="vectors"), offset=1.5),
        "far": run(draw(5, 4, 6, std=30.0)),
        "near the origin": run(draw(5, 4, 6, std=1e-4)),
        "space parts of 0": run(zero),
        "one coordinate": run(draw(5, 4, 1)),
    }
    print(json.dumps(results))
