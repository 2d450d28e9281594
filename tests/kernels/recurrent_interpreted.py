"""Runs the Triton kernels of recurrent sequences in Triton's interpreter and prints, as JSON, how far they are from float64.

For each case, or with one more argument the first of them, the errors of states and gradients, in units of their
largest number, and those of the plain loop in float32; and the operations that a pass launches. A program of its own,
as Triton is told by the environment, TRITON_INTERPRET=1.
"""

import json
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hyperbolic.kernels.recurrent import cuda, plain
from tests.kernels.test_recurrent_native import arguments

F32, F64 = torch.float32, torch.float64
WITHOUT_A_KERNEL = ("empty", "view", "transpose", "permute", "select", "expand", "detach", "slice", "alias", "_record_function")


class Context:
    needs_input_grad = (True, False, True, True, True, True, False)

    def save_for_backward(self, *tensors):
        self.saved_tensors = tensors


class Launches(TorchDispatchMode):
    """The operations that are kernels on a GPU, by name."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if not any(part in name for part in WITHOUT_A_KERNEL):
            self.names.append(name)
        return function(*args, **(kwargs or {}))


def errors(results, exact):
    sizes = [b.abs().max().item() or 1.0 for b in exact]
    sizes[-1] = max(sizes[1:])  # terms of the curvature's gradient cancel
    return [((a.double() - b).abs().max().item() / size) for a, b, size in zip(results, exact, sizes, strict=True)]


def run(kind, batch=3, steps=2, phi="identity", **options):
    free, lengths = arguments(kind, batch, steps, 3, 5, dtype=F32, **options)
    numbers = [t.detach() for t in free]
    context = Context()
    out = cuda.forward(context, numbers[0], lengths, *numbers[1:], plain.PHI.index(phi), 0.0)
    grad = torch.randn_like(out)
    gradients = cuda.backward(context, grad)
    reference = []
    for dtype in (F32, F64):
        inputs = [t.to(F64 if t.dim() == 0 else dtype).requires_grad_() for t in numbers]
        states = plain.sequence(inputs[0], lengths, *inputs[1:], plain.PHI.index(phi), 0.0)
        reference.append([states, *torch.autograd.grad(states, inputs, grad.to(dtype))])
    exact = [t.detach() for t in reference[1]]
    actual = [out, *(g for g in gradients if g is not None)]
    return {"actual": errors(actual, exact), "plain": errors([t.detach() for t in reference[0]], exact)}


def launches(kind):
    """Of both passes of an ordinary layer, besides the two loops."""
    free, _ = arguments(kind, 3, 25, 3, 5, dtype=F32)
    x, *rest = (t.detach() for t in free)
    context = Context()
    context.needs_input_grad = (True, False, True, True, True, False, False, False)
    kernels, cuda._launch = cuda._launch, lambda *a: None
    with Launches() as counted:
        grad = torch.empty_like(cuda.forward(context, x, None, *rest, 0, 0.0))
        cuda.backward(context, grad)
    cuda._launch = kernels
    return counted.names


def cases(kind, few):
    torch.manual_seed(0)
    results = {"launches": launches(kind)}
    for length in (1e-6, 0.4, 0.9, 0.999):
        results[f"length {length}"] = run(kind, length=length)
    both = {"streams": 2, "cells": 4, "ended": True}
    results["both directions, padding, tanh"] = run(kind, 2, 2, "tanh", **both)
    if few:
        return results
    results["both directions of one"] = run(kind, 2, 2, cells=2)
    results["relu, padding"] = run(kind, 5, 3, "relu", ended=True)
    results["sigmoid"] = run(kind, 2, 2, "sigmoid")
    return results


if __name__ == "__main__":
    torch.set_num_threads(1)
    kind, *few = sys.argv[1:]
    print(json.dumps(cases(kind, bool(few))))
