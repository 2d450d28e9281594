"""Tables of which a few rows are used: lazy steps, sparse gradients, and what they are equal to."""

import copy

import pytest
import torch
from geoopt import ManifoldParameter
from torch import Tensor, nn

from hyperbolic.layers import euclidean, lorentz, mobius
from hyperbolic.manifolds import Euclidean, Klein, Lorentz, PoincareBall
from hyperbolic.optim import RiemannianAdam, RiemannianOptimizer
from tests.tolerances import tolerance

pytestmark = pytest.mark.usefixtures("each_path")

F64 = torch.float64
SPACES = pytest.mark.parametrize("kind", [PoincareBall, Lorentz, Klein, Euclidean])
RULES = pytest.mark.parametrize(
    "options",
    [{}, {"amsgrad": True, "weight_decay": 0.3}, {"rule": "adagrad"}, {"rule": "sgd"}, {"rule": "sgd", "momentum": 0.8}],
    ids=str,
)


def plain(p) -> Tensor:
    return p.detach().clone().as_subclass(Tensor)


def space(kind):
    return Euclidean() if kind is Euclidean else kind(2.5)


def table(manifold, n=9, d=3, dtype=F64):
    rows = manifold.random(n, d, std=0.4, dtype=dtype)
    return nn.Parameter(rows) if isinstance(manifold, Euclidean) else ManifoldParameter(rows, manifold=manifold)


def twin(p):
    return copy.deepcopy(p)


def dense(p, index, values) -> Tensor:
    return torch.zeros_like(plain(p)).index_add_(0, index, values)


def sparse(p, index, values) -> Tensor:
    return torch.sparse_coo_tensor(index[None], values, p.shape, check_invariants=False)


def give(p, grad) -> None:
    p.grad = grad


@SPACES
@RULES
def test_lazy_steps_are_dense_steps_of_the_rows_that_are_touched(kind, options):
    """The rows {2, 5, 7} alone, in a table of their own, take the same steps; the others stay."""
    p = table(space(kind))
    rows = torch.tensor([2, 5, 7])
    small, begin = twin(p), plain(p)
    small.data = small.data[rows]
    lazy, full = (RiemannianOptimizer([q], lr=0.05, lazy=q is p, **options) for q in (p, small))
    for _ in range(5):
        values = torch.randn(3, p.shape[1], dtype=F64)
        give(p, dense(p, rows, values))
        give(small, values)
        lazy.step()
        full.step()
    torch.testing.assert_close(plain(p)[rows], plain(small), **tolerance(F64, "identity"))
    others = torch.tensor([0, 1, 3, 4, 6, 8])
    assert torch.equal(plain(p)[others], begin[others])
    for value in lazy.state[p].values():
        assert not isinstance(value, Tensor) or (value[others] == 0).all()


@SPACES
@RULES
@pytest.mark.parametrize("lazy", [True, False])
def test_a_sparse_gradient_means_the_same_as_the_dense_one(kind, options, lazy):
    """With duplicates, with rows that change from step to step, and with clipping."""
    p = table(space(kind))
    q = twin(p)
    optimizers = [RiemannianOptimizer([r], lr=0.05, lazy=lazy, max_grad_norm=1.0, **options) for r in (p, q)]
    for index in ([1, 4, 4], [4, 0, 8], [1, 1, 1]):
        index, values = torch.tensor(index), torch.randn(3, p.shape[1], dtype=F64)
        give(p, sparse(p, index, values))
        give(q, dense(q, index, values))
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(plain(p), plain(q), **tolerance(F64, "identity"))
    assert (plain(p)[4] - plain(q)[2]).abs().max() > 0


@SPACES
def test_rows_can_be_named(kind):
    """Also with duplicates; a row that is named and has no gradient goes on along its momentum."""
    p = table(space(kind))
    q, begin = twin(p), plain(p)
    named, small = RiemannianAdam([p], lr=0.05, lazy=True), RiemannianAdam([q], lr=0.05)
    q.data = q.data[[3, 6]]
    for values in (torch.randn(2, p.shape[1], dtype=F64), torch.zeros(2, p.shape[1], dtype=F64)):
        give(p, dense(p, torch.tensor([3, 6]), values))
        give(q, values)
        named.touch(p, torch.tensor([[6, 3], [3, 3]]))
        named.step()
        small.step()
    torch.testing.assert_close(plain(p)[[3, 6]], plain(q), **tolerance(F64, "identity"))
    give(p, torch.zeros_like(begin))
    before = plain(p)
    named.step()  # the names were for one step
    assert torch.equal(plain(p), before)


@SPACES
@pytest.mark.parametrize("wrong", [-1, 9])
def test_rows_that_are_none_are_refused(kind, wrong):
    p = table(space(kind))
    begin, optimizer = plain(p), RiemannianAdam([p], lazy=True)
    give(p, torch.ones_like(begin))
    optimizer.touch(p, torch.tensor([3, wrong]))
    with pytest.raises(IndexError, match=rf"touch: index {wrong} of 9 rows"):
        optimizer.step()
    assert torch.equal(plain(p), begin)
    optimizer.touch(p, torch.tensor([], dtype=torch.long))
    optimizer.step()
    assert torch.equal(plain(p), begin)


def test_lazy_adam_of_euclidean_rows_is_sparse_adam():
    p = nn.Parameter(torch.randn(6, 4, dtype=F64))
    q = twin(p)
    ours, theirs = RiemannianAdam([p], lr=0.1, lazy=True), torch.optim.SparseAdam([q], lr=0.1)
    for index in ([0, 3], [3, 3], [5, 1]):
        for r in (p, q):
            generator = torch.Generator().manual_seed(sum(index))
            values = torch.randn(2, 4, dtype=F64, generator=generator)
            give(r, sparse(r, torch.tensor(index), values))
        ours.step()
        theirs.step()
    torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)  # SparseAdam adds eps before the bias correction


@pytest.mark.parametrize("layers", [mobius, lorentz, euclidean], ids=lambda m: m.__name__)
def test_embeddings_give_sparse_gradients(layers):
    manifold = {mobius: PoincareBall(2.5), lorentz: Lorentz(2.5), euclidean: Euclidean()}[layers]
    one = layers.Embedding(manifold, 8, 3, sparse=True)
    other = copy.deepcopy(one)
    other.sparse = False
    index = torch.tensor([[1, 1], [6, 2]])
    for module in (one, other):
        optimizer = RiemannianAdam(module.parameters(), lr=0.1, lazy=True, max_grad_norm=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            module(index).square().sum().backward()
            assert module.weight.grad.is_sparse == module.sparse
            optimizer.step()
    torch.testing.assert_close(plain(one.weight), plain(other.weight), **tolerance(torch.float32, "identity"))


@SPACES
def test_no_row_touched(kind):
    p = table(space(kind))
    begin = plain(p)
    optimizer = RiemannianAdam([p], lr=0.1, lazy=True, weight_decay=0.5)
    for grad in (torch.zeros_like(begin), sparse(p, torch.zeros(0, dtype=torch.long), begin[:0])):
        give(p, grad)
        optimizer.step()
    assert torch.equal(plain(p), begin)


@SPACES
def test_lazy_training_goes_on_from_a_state_dict(kind):
    p = table(space(kind))
    gradients = [(torch.randint(9, (3,)), torch.randn(3, p.shape[1], dtype=F64)) for _ in range(6)]

    def train(q, optimizer, steps):
        for index, values in steps:
            give(q, sparse(q, index, values))
            optimizer.step()

    half = twin(p)
    train(p, RiemannianAdam([p], lr=0.1, lazy=True, amsgrad=True), gradients)
    first = RiemannianAdam([half], lr=0.1, lazy=True, amsgrad=True)
    train(half, first, gradients[:3])
    resumed = twin(half)
    second = RiemannianAdam([resumed], lr=0.1, lazy=True, amsgrad=True)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(resumed, second, gradients[3:])
    assert torch.equal(plain(p), plain(resumed))


def test_other_sparse_axes_are_refused():
    p = nn.Parameter(torch.zeros(3, 2))
    p.grad = torch.eye(3, 2).to_sparse()
    with pytest.raises(ValueError, match=r"\(3, 2\) has 2 sparse axes"):
        RiemannianAdam([p]).step()


def test_rows_that_are_named_in_several_steps_of_an_accumulation_all_move():
    table = nn.Parameter(torch.zeros(4, 2))
    optimizer = RiemannianAdam([table], lr=0.1, lazy=True)
    for rows in (torch.tensor([[0, 1]]), torch.tensor([3])):
        table[rows].sum().backward()
        optimizer.touch(table, rows)
    optimizer.step()
    assert (table.detach()[:, 0] != 0).tolist() == [True, True, False, True]
