"""What of PyTorch every layer goes with, tried: torch.compile and export, tracing, torch.func, meta tensors, autocast.

python -m scripts.composability                     all layers of all geometries: results/composability.json
python -m scripts.composability mobius.Linear ...   these alone (family.Layer, geometry.Layer or Layer), not written

Each check runs the layer in evaluation mode and, but for those of shapes alone, compares numbers with eager ones.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import difflib
import json
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)
    import scripts  # noqa: F401 - Ctrl-C during the other imports

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

from hyperbolic.geometry import FAMILIES, GEOMETRIES, make_geometry  # noqa: E402
from scripts.commands import reports_errors  # noqa: E402
from scripts.subjects import First, Formula, Subject, first, subjects  # noqa: E402
from tasks.errors import UserError  # noqa: E402
from tasks.folders import write_text  # noqa: E402
from tasks.record import commit  # noqa: E402

RECORD = ROOT / "results" / "composability.json"


# ------------------------------------------------------------------------------------------------------------ checks


def _eager(s: Subject) -> None:
    assert all(t.isfinite().all() for t in s.gradients(First(s)))


def _compile(s: Subject, backend: str = "aot_eager") -> None:
    """The graph of both passes that Inductor would get, run as it is; once more for inputs that need no gradient."""
    torch._dynamo.reset()
    module = First(s)
    fast = torch.compile(module, fullgraph=True, backend=backend)
    for of_inputs in (True, False) if backend == "aot_eager" else (True,):
        for actual, expected in zip(s.gradients(fast, of_inputs), s.gradients(module, of_inputs), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)


def _export(s: Subject) -> None:
    batch = None if s.whole else torch.export.Dim("batch", min=2, max=1 << 16)
    module, inputs = First(s), tuple(x.detach() for x in s.inputs)
    fixed = {name: value for name, value in s.fixed.items() if isinstance(value, Tensor)}
    if fixed:  # tensors that depend on the batch
        module = _Positional(s, list(fixed))
        inputs = (*inputs, *fixed.values())
    shapes = None if batch is None else (tuple({0: batch} for _ in inputs),)
    program = torch.export.export(module, inputs, dynamic_shapes=shapes).module()
    more = [x.flip(0) if batch is None else torch.cat([x, x.flip(0)]) for x in inputs]
    torch.testing.assert_close(program(*more), module(*more))


class _Positional(nn.Module):
    """A layer whose tensors among the fixed arguments come after the inputs."""

    def __init__(self, subject: Subject, names: list[str]):
        super().__init__()
        self.layer, self.names = subject.layer, names
        self.others = {name: value for name, value in subject.fixed.items() if name not in names}

    def forward(self, *inputs: Tensor) -> Tensor:
        n = len(inputs) - len(self.names)
        return first(self.layer(*inputs[:n], **dict(zip(self.names, inputs[n:], strict=True)), **self.others))


def _trace(s: Subject) -> None:
    module = First(s)
    inputs = tuple(x.detach() for x in s.inputs)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, inputs, check_trace=False)
        other = tuple(x.flip(0) for x in inputs)
        torch.testing.assert_close(traced(*other), module(*other))


def _vmap(s: Subject) -> None:
    several = [torch.stack([x.detach(), x.detach().flip(0)]) for x in s.inputs]
    actual = torch.func.vmap(lambda *inputs: s.call(s.parameters, *inputs))(*several)
    expected = torch.stack([s.call(s.parameters, *(x[i] for x in several)) for i in range(2)])
    torch.testing.assert_close(actual, expected)


def _jvp(s: Subject) -> None:
    """Against the backward pass, by ``<v, J u> = <J' v, u>``."""
    function, tensors = s.differentiable()
    torch.manual_seed(1)
    directions = tuple(torch.randn_like(t) for t in tensors)
    y, along = torch.func.jvp(function, tensors, directions)
    weights = torch.randn_like(y)
    leaves = [t.clone().requires_grad_() for t in tensors]
    grads = torch.autograd.grad(function(*leaves), leaves, weights, allow_unused=True, materialize_grads=True)
    expected = sum((g * u).sum() for g, u in zip(grads, directions, strict=True))
    torch.testing.assert_close((along * weights).sum(), expected, rtol=1e-6, atol=1e-8)


def _per_sample(s: Subject) -> None:
    """Gradients of the parameters, or of the inputs where there are none, for each of two examples."""
    several = [torch.stack([x.detach(), x.detach().flip(0)]) for x in s.inputs]
    argument = 0 if s.parameters else 1

    def loss(parameters: dict[str, Tensor], *inputs: Tensor) -> Tensor:
        return s.call(parameters, *inputs).square().sum()

    grad = torch.func.grad(loss, argnums=argument)
    actual = torch.func.vmap(grad, in_dims=(None, *(0 for _ in several)))(s.parameters, *several)
    for i in range(2):
        parameters = {name: p.clone().requires_grad_() for name, p in s.parameters.items()}
        inputs = [x[i].clone() for x in several]
        if argument:
            inputs[0].requires_grad_()
        leaves = list(parameters.values()) if argument == 0 else [inputs[0]]
        expected = torch.autograd.grad(loss(parameters, *inputs), leaves, allow_unused=True, materialize_grads=True)
        values = list(actual.values()) if argument == 0 else [actual]
        for a, e in zip(values, expected, strict=True):
            torch.testing.assert_close(a[i], e, rtol=1e-6, atol=1e-8)


def _twice(s: Subject) -> None:
    function, tensors = s.differentiable()
    leaves = tuple(t.clone().requires_grad_() for t in tensors)
    used = torch.autograd.grad(function(*leaves).sum(), leaves, allow_unused=True)
    free = [i for i, g in enumerate(used) if g is not None]

    def of_those(*some: Tensor) -> Tensor:
        every = list(tensors)
        for i, t in zip(free, some, strict=True):
            every[i] = t
        return function(*every)

    assert torch.autograd.gradgradcheck(of_those, tuple(leaves[i] for i in free), fast_mode=True, atol=1e-4, rtol=1e-3)


def _on_meta(s: Subject) -> None:
    expected = s.call(s.parameters, *s.inputs)
    layer = pickle.loads(pickle.dumps(s.layer)) if not isinstance(s.layer, Formula) else s.layer
    layer = layer.to("meta")
    inputs = [x.to("meta") for x in s.inputs]
    fixed = {name: v.to("meta") if isinstance(v, (Tensor, nn.Module)) else v for name, v in s.fixed.items()}
    actual = first(layer(*inputs, **fixed))
    assert (actual.shape, actual.dtype, actual.device.type) == (expected.shape, expected.dtype, "meta")


def _fake(s: Subject) -> None:
    expected = s.call(s.parameters, *s.inputs)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        parameters = {name: mode.from_tensor(p) for name, p in s.parameters.items()}
        actual = s.call(parameters, *(mode.from_tensor(x) for x in s.inputs))
        assert actual.shape == expected.shape


def _autocast(s: Subject) -> None:
    """Of float32 layers: results near those without, and finite gradients of the inputs."""
    layer, fixed = s.layer.float(), {k: v.float() if _is_float(v) else v for k, v in s.fixed.items()}
    inputs = [x.detach().float().requires_grad_() if x.is_floating_point() else x for x in s.inputs]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = first(layer(*inputs, **fixed))
    expected = first(layer(*inputs, **fixed))
    y.float().sum().backward()
    torch.testing.assert_close(y.float(), expected, rtol=0.1, atol=0.1)
    assert all(x.grad.isfinite().all() for x in inputs if x.requires_grad and x.grad is not None)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _pickle(s: Subject) -> None:
    if isinstance(s.layer, Formula):
        return
    again = pickle.loads(pickle.dumps(s.layer))
    assert torch.equal(first(again(*s.inputs, **s.fixed)), first(s.layer(*s.inputs, **s.fixed)))


CHECKS: dict[str, Callable[[Subject], None]] = {
    "eager": _eager,
    "fullgraph": _compile,
    "compile": lambda s: _compile(s, backend="inductor"),  # ten seconds a layer
    "export": _export,
    "trace": _trace,
    "vmap": _vmap,
    "jvp": _jvp,
    "per-sample": _per_sample,
    "twice": _twice,
    "meta": _on_meta,
    "fake": _fake,
    "autocast": _autocast,
    "pickle": _pickle,
}


def problem(make: Callable[[], Subject], check: Callable[[Subject], None]) -> str:
    """What went wrong, the first line of it; empty where nothing did."""
    torch.manual_seed(0)
    try:
        check(make())
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        return f"{type(error).__name__}: {lines[0][:200]}"
    return ""


def makers(geometry: str) -> dict[str, Callable[[], Subject]]:
    """Of a new geometry of this name, by layer: export leaves traces in its manifold."""
    manifold, family = GEOMETRIES[geometry]
    every = subjects(make_geometry(geometry, manifold, family, c=None if manifold == "Euclidean" else 1.3))
    return {n: make for n, make in every.items() if n in FAMILIES[family].layers or n.islower()}


def names_of(geometry: str) -> dict[str, set[str]]:
    """By layer what the command line may call it."""
    family = GEOMETRIES[geometry][1]
    return {n: {n, f"{family}.{n}", f"{geometry}.{n}"} for n in makers(geometry)}


def tried(geometry: str, names: set[str], checks: list[str]) -> dict[str, dict[str, str]]:
    """By layer and check, the problem; of all layers where there are no names."""
    chosen = [n for n, own in names_of(geometry).items() if not names or names & own]
    return {n: {c: problem(lambda n=n: makers(geometry)[n](), CHECKS[c]) for c in checks} for n in chosen}


@reports_errors
def main(arguments: list[str] | None = None, record: Path = RECORD) -> int:
    """Run the command; returns 0, or 1 where a name is of no layer."""
    parser = argparse.ArgumentParser(prog="python -m scripts.composability", description=__doc__)
    parser.add_argument("names", nargs="*", help="family.Layer, geometry.Layer or Layer")
    parser.add_argument("--checks", nargs="+", choices=CHECKS, default=list(CHECKS))
    parser.add_argument("--geometries", nargs="+", choices=GEOMETRIES, default=list(GEOMETRIES))
    options = parser.parse_args(arguments)
    known = {name for geometry in options.geometries for own in names_of(geometry).values() for name in own}
    if unknown := [name for name in options.names if name not in known]:
        near = difflib.get_close_matches(unknown[0], sorted(known), n=1)
        hint = f" Did you mean {near[0]}?" if near else " Names are as mobius.Linear, poincare.Linear or Linear."
        raise UserError(f"{unknown[0]!r} is no layer of {', '.join(options.geometries)}.{hint}")
    results, of_commit = {}, commit()  # as the code is when it is tried
    for geometry in options.geometries:
        start = time.perf_counter()
        if not (result := tried(geometry, set(options.names), options.checks)):
            continue
        results[geometry] = result
        bad = [(layer, c, text) for layer, row in result.items() for c, text in row.items() if text]
        count = sum(map(len, result.values()))
        print(f"{geometry}: {count - len(bad)} of {count} in {time.perf_counter() - start:.0f} s", flush=True)
        for layer, c, text in bad:
            print(f"    {layer:20} {c:10} {text}", flush=True)
    if not options.names and options.checks == list(CHECKS) and options.geometries == list(GEOMETRIES):
        origin = {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        origin |= dict(zip(("commit", "dirty"), of_commit, strict=True))
        write_text(record, json.dumps({"torch": torch.__version__, **origin, "layers": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
