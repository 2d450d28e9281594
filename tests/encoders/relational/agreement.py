"""What models of knowledge graphs have in common, as checks that their tests call."""

import pytest
import torch

from hyperbolic.geometry import GEOMETRIES, make_geometry
from tests.tolerances import tolerance

F64 = torch.float64
N_ENTITIES, N_RELATIONS = 7, 3
OTHERS = torch.tensor([5, 0, 3, 3, 6])  # entities that all queries of a batch are compared with, one of them twice
WAYS = {  # of asking for scores, given heads and relations (B,) and tails (B, N)
    "triples": lambda scorer, h, r, t: scorer(h, r, t),
    "all": lambda scorer, h, r, t: scorer.tails(h, r, 1, 6),
    "shared": lambda scorer, h, r, t: scorer.with_shared(h, r, t[:, :2], OTHERS),
}
CURVED = [name for name, (manifold, _) in GEOMETRIES.items() if manifold != "Euclidean"]


def geometry(name: str = "euclidean"):
    manifold, layers = GEOMETRIES[name]
    return make_geometry(name, manifold, layers, c=None if manifold == "Euclidean" else 0.7)


def built(cls, dtype=F64, sparse=False, place="euclidean", **settings):
    """A scorer in evaluation, all its numbers random: parameters, and statistics of batch norms."""
    torch.manual_seed(3)
    scorer = cls(geometry(place), N_ENTITIES, N_RELATIONS, sparse, **settings)
    with torch.no_grad():
        for parameter in scorer.parameters():
            parameter.normal_(std=0.5)
        for name, buffer in scorer.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(std=0.3)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 2)
    return scorer.to(dtype).eval()


def triples():
    """Four of them, with a relation twice and an entity that is its own tail."""
    return torch.tensor([0, 4, 6, 2]), torch.tensor([2, 0, 2, 1]), torch.tensor([3, 4, 1, 0])


def all_triples_one_by_one(scorer, h, r):
    """Scores (B, n_entities), each from a call with one triple."""
    tails = range(scorer.n_entities)
    one = torch.tensor
    return torch.stack(
        [
            torch.cat([scorer(one([a]), one([b]), one([t])) for t in tails])
            for a, b in zip(h.tolist(), r.tolist(), strict=True)
        ]
    )


def check_directions(scorer, dtype):
    """Rows, blocks and both directions give what triples give."""
    same = tolerance(dtype, "identity")
    h, r, t = triples()
    expected = all_triples_one_by_one(scorer, h, r)
    assert expected.dtype == dtype
    torch.testing.assert_close(scorer.tails(h, r), expected, **same)
    torch.testing.assert_close(scorer.tails(h, r, 2, 5), expected[:, 2:5], **same)
    torch.testing.assert_close(scorer(h, r, t), expected.gather(1, t[:, None])[:, 0], **same)
    some = torch.tensor([[0, 3], [6, 6], [5, 1], [2, 4]])
    torch.testing.assert_close(scorer(h, r, some), expected.gather(1, some), **same)
    entities = torch.arange(scorer.n_entities)
    of_heads = torch.stack(
        [
            scorer(entities, torch.full_like(entities, b), torch.full_like(entities, a))
            for a, b in zip(t.tolist(), r.tolist(), strict=True)
        ]
    )
    torch.testing.assert_close(scorer.heads(r, t), of_heads, **same)
    torch.testing.assert_close(scorer.heads(r, t, 1, 4), of_heads[:, 1:4], **same)
    torch.testing.assert_close(scorer.of_heads(some, r, t), of_heads.gather(1, some), **same)
    check_shared(scorer, h, r, t, dtype)


def check_shared(scorer, h, r, t, dtype):
    """Entities that a batch shares have the scores of triples, after those of the tails of their own; an index of
    entities means the same as a slice."""
    same = tolerance(dtype, "identity")
    candidates = torch.cat([t.unsqueeze(-1), OTHERS.expand(len(h), -1)], -1)
    expected = scorer(h, r, candidates)
    torch.testing.assert_close(expected[1, 3], scorer(h[1:2], r[1:2], candidates[1:2, 3])[0], **same)
    scores = scorer.with_shared(h, r, t.unsqueeze(-1), OTHERS)
    assert scores.dtype is dtype
    torch.testing.assert_close(scores, expected, **same)
    with torch.no_grad():
        torch.testing.assert_close(scorer.with_shared(h, r, t.unsqueeze(-1), OTHERS), expected, **same)
        query = scorer.query(h, r)
        of_index = scorer.compare_all(query, r, torch.arange(2, 6))
        torch.testing.assert_close(of_index, scorer.compare_all(query, r, slice(2, 6)), **same)
        assert scorer.with_shared(h, r, t.unsqueeze(-1), OTHERS[:0]).shape == (len(h), 1)
        with pytest.raises(ValueError, match=r"with_shared takes tails \(B, K\)"):
            scorer.with_shared(h, r, t, OTHERS)


def check_gradients(scorer):
    """gradcheck of the scores of given, all and shared tails and of given heads, by every parameter."""
    names = [name for name, _ in scorer.named_parameters()]
    values = tuple(p.detach().clone().requires_grad_() for p in scorer.parameters())
    h, r, t = triples()
    some = torch.tensor([[0, 3], [6, 5], [5, 1], [3, 4]])

    def scores(*inputs):
        def call(function, *args):
            return torch.func.functional_call(
                _Calling(scorer, function), {f"inner.{n}": v for n, v in zip(names, inputs, strict=True)}, args
            )

        shared = call("with_shared", h, r, t.unsqueeze(-1), OTHERS)
        return call("__call__", h, r, some), call("tails", h, r), call("of_heads", some, r, t), shared

    assert torch.autograd.gradcheck(scores, values, fast_mode=True)


class _Calling(torch.nn.Module):
    def __init__(self, inner, function):
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, *args):
        return getattr(self.inner, self.function)(*args)


def check_sparse(cls, **settings):
    """The same gradients, of the rows used only where tails are given."""
    h, r, t = triples()
    t = torch.stack([t, t.flip(0)], 1)
    heads_and = {"triples": [h, t.flatten()], "shared": [h, t[:, 0], OTHERS]}
    for way, scores in WAYS.items():
        grads = check_sparse_is_dense(lambda sparse: built(cls, sparse=sparse, **settings), scores, (h, r, t))
        if way in heads_and:
            for name, used in (("entity.weight", torch.cat(heads_and[way])), ("relation.weight", r)):
                assert grads[name].is_sparse, name
                assert grads[name].coalesce().indices()[0].tolist() == used.unique().tolist()


def check_sparse_is_dense(make, scores, triples):
    """Gradients of ``make(sparse=True)`` by name, which are those of ``make(sparse=False)`` written otherwise."""
    results = []
    for sparse in (False, True):
        torch.manual_seed(1)
        scorer = make(sparse)
        values = scores(scorer, *triples)
        (values * torch.linspace(-1, 2, values.numel(), dtype=values.dtype).view_as(values)).sum().backward()
        results.append({name: p.grad for name, p in scorer.named_parameters()})
    dense, grads = results
    for name, gradient in dense.items():
        other = grads[name]
        if gradient is None:
            assert other is None, name
        else:
            torch.testing.assert_close(
                other.to_dense() if other.is_sparse else other, gradient, **tolerance(F64, "identity")
            )
    return grads


def check_refuses_curvature(cls, **settings):
    for name in CURVED:
        with pytest.raises(ValueError, match=f"{cls.__name__} is defined on Euclidean, not with geometry={name}; choose"):
            built(cls, place=name, **settings)
