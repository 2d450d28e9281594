"""Recurrent layers keep no part of a result of theirs for the gradient beside the whole of it.

Both share their memory, and code that Inductor (torch 2.13) compiles takes either for its own to write into: the
gradients of ``torch.compile(mobius.GRUCell(...))`` were wrong where its state was a view, as ``h[:, -1]``.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hyperbolic.layers import mobius
from hyperbolic.manifolds import PoincareBall
from hyperbolic.switch import use_kernels
from scripts import composability
from scripts.subjects import B, D, Subject, T


class _Sigmoids(TorchDispatchMode):
    """Keeps the results of all sigmoids."""

    def __init__(self):
        super().__init__()
        self.results = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten.sigmoid:
            self.results.append(out)
        return out


@pytest.mark.parametrize(
    ("geometry", "layer"), [("poincare", "GRUCell"), ("poincare", "GRU"), ("poincare", "GRU of HyperA"), ("euclidean", "GRU")]
)
@pytest.mark.usefixtures("kernels_restored")
def test_gates_are_kept_apart(geometry, layer):
    use_kernels("plain")
    if layer == "GRU of HyperA":
        space = PoincareBall()
        subject = Subject(mobius.GRU(space, D, 4, variant="hypera"), space.random(B, T, D, dtype=torch.float64))
    else:
        subject = composability.makers(geometry)[layer]()
    kept = []
    with _Sigmoids() as sigmoids, torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        subject.call({name: p.requires_grad_() for name, p in subject.parameters.items()}, *subject.inputs)
    sizes = {gate.untyped_storage().data_ptr(): gate.numel() for gate in sigmoids.results}
    assert len(sizes) > 1
    parts = [t for t in kept if t.numel() < sizes.get(t.untyped_storage().data_ptr(), 0)]
    assert not parts
