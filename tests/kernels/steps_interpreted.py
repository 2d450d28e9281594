"""Runs the Triton kernels of optimiser steps in Triton's interpreter and prints, as JSON, how far they are from float64.

For each case the errors of points, momenta and second moments, in units of their largest number; those of whole
optimisers, against a CPU's, of all or of those that are named, and then of fewer points and rules; and what a step
launches, with 1 and with 50 tensors of each kind. A program of its own, as Triton is told by the environment, TRITON_INTERPRET=1.
"""

import json
import sys

import torch
from geoopt import ManifoldParameter
from torch import nn

from hyperbolic.kernels.riemannian_steps import Rows, Rule, cuda, plain
from hyperbolic.manifolds import Klein, Lorentz, PoincareBall
from hyperbolic.numerics import ball_gap, dot
from hyperbolic.optim import RiemannianAdam, RiemannianOptimizer
from tests.kernels.recurrent_interpreted import Launches

F32, F64 = torch.float32, torch.float64
KINDS = (PoincareBall, Lorentz, Klein)
ADAM = Rule(0.05, 0.8, 0.2, 0.9, 0.1, 10.0, 1e-6)
RULES = {
    "Adam": ADAM,
    "Adam, decay": ADAM._replace(keep=0.9),
    "Adagrad": Rule(0.05, eps=1e-6),
    "SGD": Rule(0.05, 0.8),
}


def points(manifold, share, n, d=11):
    """Points at this share of the stated radius."""
    e = torch.nn.functional.normalize(torch.randn(n, d), dim=-1)
    return manifold.expmap0(share * manifold.max_radius() / manifold.origin_scale * e)


def rows_of(manifold, share, rule_name, n=12):
    """Gradients and momenta of all lengths; of SGD, where what float32 adds to a far gradient is a step, momenta alone."""
    x = points(manifold, share, n)
    lengths = 10.0 ** torch.linspace(-6, 0, n)[:, None]
    m, h = (manifold.egrad2rgrad(x, torch.randn_like(x)) for _ in range(2))
    m, h = (lengths * u / manifold.norm(x, u, keepdim=True) for u in (m, h))
    square = None if rule_name == "SGD" else 0.5 * lengths.square()
    largest = None if square is None else 2 * square
    h = 0 * h if rule_name == "SGD" else h
    return Rows(x, lowered(manifold, x, h), None if rule_name == "Adagrad" else m, square, largest)


def lowered(manifold, x, u):
    """The Euclidean gradient whose Riemannian gradient is u."""
    if isinstance(manifold, Lorentz):
        return torch.cat([-u[:, :1], u[:, 1:]], -1)
    gap = ball_gap(x, manifold.c)
    if isinstance(manifold, PoincareBall):
        return (4 * u / gap.square()).to(x.dtype)
    return (u / gap + manifold.c * dot(x, u) * x / gap.square()).to(x.dtype)


def errors(actual, exact):
    pairs = [(a.double(), b) for a, b in zip(actual, exact, strict=True) if a is not None]
    return [((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() for a, b in pairs]


def copied(rows, dtype=F32):
    return Rows(*(t if t is None or t.dtype is torch.int64 else t.to(dtype).clone() for t in rows))


def one(manifold, rows, rule, radius=None):
    actual, exact = copied(rows), copied(rows, F64)
    cuda.step([cuda.Job(actual, manifold, rule, radius)])
    plain.step(exact, manifold, rule)
    if radius is not None:
        far = manifold.beyond(exact.x, radius)
        exact.x[far], exact.momentum[far] = manifold.shorten(exact.x[far], radius, exact.momentum[far])
    return errors(actual, exact)


def single_steps(shares, rules):
    results = {}
    for kind in KINDS:
        manifold = kind(2.5)
        for share in shares:
            for name in rules:
                results[f"{kind.__name__}, {name}, {share}"] = one(manifold, rows_of(manifold, share, name), RULES[name])
        rows = rows_of(manifold, 0.1, "Adam", 37)
        some = torch.tensor([4, 0, 36])
        results[f"{kind.__name__}, some"] = one(manifold, rows._replace(grad=rows.grad[some], some=some), ADAM)
        radius = 0.1 * manifold.max_radius() - 1e-3
        results[f"{kind.__name__}, radius"] = one(manifold, rows, ADAM, radius)
    return results


def extremes(shares):
    """Gradients of all sizes, on points at the edge too, and long steps back through the origin: whether all stays
    finite, and inside."""
    ends = {}
    for kind in KINDS:
        manifold = kind(1.0)
        for share in shares:
            sizes = torch.tensor([0.0, 1e-38, 1e-30, 1.0, 1e10, 1e30, 3e38]).repeat(4)[:, None]
            x = points(manifold, share, len(sizes))
            rows = Rows(x, (sizes * torch.randn_like(x)).clamp(-3e38, 3e38), torch.zeros_like(x))
            for _ in range(3):
                cuda.step([cuda.Job(rows, manifold, Rule(0.5, 0.9))])
            inside = manifold.dist0(x).max() <= 1.05 * manifold.max_radius()
            on_it = manifold.check_point_on_manifold(x)
            ends[f"{kind.__name__}, {share}"] = bool(inside and on_it and rows.momentum.isfinite().all())
        x = points(manifold, torch.linspace(0.3, 0.9, 60)[:, None], 60)
        inward = manifold.logmap(x, manifold.expmap0(1e-3 * torch.randn(60, 11)))
        rows = Rows(x, torch.zeros_like(x), -2 * inward)
        cuda.step([cuda.Job(rows, manifold, Rule(1.0, 1.0))])
        inside = manifold.dist0(x).max() <= manifold.max_radius() * (1 + 1e-6)
        ends[f"{kind.__name__}, inward"] = bool(inside and manifold.check_point_on_manifold(x, atol=1e-4, rtol=1e-4))
    return ends


def parameters(count, learn_c=False, axes=False):
    """Points in so many tensors of each kind, and in two of three axes and of one; as many flat tensors, and numbers of
    curvatures."""
    torch.manual_seed(0)
    manifolds = [kind(0.7, learn_c) for kind in KINDS]
    sizes = [n % 7 + 1 for n in range(count)]
    shapes = [(n, 5) for n in sizes] + [(2, 3, 5), (5,)] * axes
    points = [ManifoldParameter(space.random(*shape), manifold=space) for space in manifolds for shape in shapes]
    flat = [nn.Parameter(torch.randn(n, 300)) for n in sizes]
    return points, flat + [space.free_c for space in manifolds if learn_c]


def give_gradients(params, step):
    generator = torch.Generator().manual_seed(step)
    for p in params:
        p.grad = torch.randn(p.shape, dtype=p.dtype, generator=generator).to(p.device)
        if p.dim() == 2 and step > 1:
            p.grad[::2] = 0  # rows that a lazy step leaves


def whole(count=2, learn_c=False, group=None, axes=False, **options):
    """Two steps; the largest relative difference from a CPU's."""
    ends = []
    for served in (False, True):
        cuda.serves = lambda p, served=served: served
        points, flat = parameters(count, learn_c, axes)
        params = [*points, *flat]
        unused = nn.Parameter(torch.zeros(1))
        groups = [{"params": some, **(group or {})} for some in ([unused], flat, points[1::2])]
        optimizer = RiemannianOptimizer([{"params": points[::2]}, *groups], **options)
        for step in range(1, 3):
            give_gradients(params, step)
            optimizer.step()
        states = [t for p in params for t in (p.detach(), *optimizer.state[p].values()) if isinstance(t, torch.Tensor)]
        ends.append(states)
    pairs = zip(*ends, strict=True)
    return max(((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() for b, a in pairs)


def optimisers(names):
    clips = {f"clip {clip}": {"clip": clip, "max_grad_norm": 0.3} for clip in ("global", "group", "tensor")}
    settings = {
        **clips,
        "AMSGrad, decay": {"amsgrad": True, "weight_decay": 0.3, "group": {"lr": 0.01}},
        "pull, learned curvature": {"weight_decay": 0.3, "decoupled": False, "learn_c": True},
        "projection, learned curvature": {"stabilize": 1, "max_radius": 0.8, "learn_c": True},
        "Adagrad, SGD": {"rule": "adagrad", "group": {"rule": "sgd", "momentum": 0.5, "max_radius": 0.8}},
        "lazy": {"lazy": True, "group": {"rule": "sgd"}},
        "projection": {"stabilize": 2, "max_radius": 0.8, "axes": True},
    }
    return {name: whole(**settings[name]) for name in names or settings}


def launches(count):
    """Of a step of so many tensors of each kind, clipped, on which a CPU projects."""
    launched, (points, flat) = [], parameters(count)
    params = [*points, *flat]
    optimizer = RiemannianAdam(params, max_grad_norm=1.0, stabilize=1)
    kernels, cuda._launch = cuda._launch, lambda name, *rest: launched.append(name)
    cuda.serves = lambda p: True
    give_gradients(params, 1)
    optimizer.step()  # makes the state
    launched.clear()
    with Launches() as counted:
        optimizer.step()
    cuda._launch = kernels
    return [*launched, *counted.names, "the copy of the table"]


def main():
    from hyperbolic.kernels.riemannian_steps import triton

    assert (triton.WORDS.value, triton.ROWS.value) == (cuda.WORDS, cuda.ROWS)
    cuda.fits = lambda jobs: all(cuda._fits(job, jobs[0].rows.x.device) for job in jobs)
    names = sys.argv[1:]
    steps = single_steps((1e-7, 0.7), ("Adam",)) if names else single_steps((1e-7, 0.1, 0.4, 0.7), RULES)
    ends = extremes((1.0,) if names else (0.0, 0.3, 1.0))
    results = {"launches": [launches(1), launches(50)], "steps": steps, "extremes": ends}
    print(json.dumps({**results, "optimisers": optimisers(names)}))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main()
