"""The graph of the types and the layer that passes class weights along it."""

import pytest
import torch

from hyperbolic.manifolds import Euclidean
from tasks.entity_typing.label_graph import GraphLogits, adjacency, label_vectors
from tasks.entity_typing.types import TypeInventory
from tasks.errors import UserError
from tasks.word_vectors import WordVectors
from tests.tolerances import tolerance

EXACT = tolerance(torch.float64, "identity")
# person-artist in 4 mentions, artist-painter in 1, person-painter in 2; town stands alone
PAIRS = torch.tensor([[0, 1, 4], [1, 2, 1], [0, 2, 2]])
COUNTS = torch.tensor([[1.0, 4.0, 2.0, 0.0], [4.0, 1.0, 1.0, 0.0], [2.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])


def dense(index, value, n) -> torch.Tensor:
    found = torch.zeros(n, n)
    found[index[0], index[1]] = value
    return found


def layer(vectors=None, edges="counts", residual=False, d=3) -> GraphLogits:
    return GraphLogits(Euclidean(), d, 4, PAIRS, edges, vectors, residual).double()


def directions(n=4, d=5) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(n, d, dtype=torch.float64), dim=-1)


def test_the_graph_is_symmetric_with_an_edge_from_each_type_to_itself():
    torch.testing.assert_close(dense(*adjacency(PAIRS, 4, "counts"), 4), COUNTS)
    torch.testing.assert_close(dense(*adjacency(PAIRS, 4, "binary"), 4), (COUNTS > 0).float())


def test_rows_of_one_pair_add_up_and_a_type_with_itself_is_one_edge():
    twice = torch.tensor([[0, 1, 4], [1, 0, 3], [2, 2, 9]])
    found = dense(*adjacency(twice, 3, "counts"), 3)
    assert found.tolist() == [[1, 7, 0], [7, 1, 0], [0, 0, 1]]
    assert dense(*adjacency(twice, 3, "binary"), 3).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


def test_without_pairs_every_type_keeps_its_weights():
    empty = torch.zeros(0, 3, dtype=torch.long)
    net = GraphLogits(Euclidean(), 3, 4, empty, "counts", None, False)
    torch.testing.assert_close(net.class_weights(), net.linear.weight @ net.transform.weight.T)


def test_another_kind_of_edge_is_refused():
    with pytest.raises(UserError, match=r"task.model.edges must be one of counts, binary"):
        adjacency(PAIRS, 4, "weights")


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("edges", ["counts", "binary"])
@pytest.mark.parametrize("similar", [False, True])
def test_the_layer_is_the_dense_formula(edges, similar, residual):
    """W' = D^-1 (A + I + lambda (1 + V V^T) / 2) W T, with whole matrices."""
    v = directions()
    v[3] = 0  # a type without a known word
    net = layer(v if similar else None, edges, residual)
    a = COUNTS.double() if edges == "counts" else (COUNTS > 0).double()
    if similar:
        net.weight_of_similarity.data.fill_(-0.7)
        a = a + 0.7 * (1 + v @ v.T) / 2
    w = net.linear.weight
    expected = torch.diag(1 / a.sum(1)) @ a @ w @ net.transform.weight.T
    expected = expected + w if residual else expected
    torch.testing.assert_close(net.class_weights(), expected, **EXACT)
    x = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(net(x), x @ expected.T, **EXACT)


def test_gradients_are_those_of_the_dense_formula():
    v, x = directions(), torch.randn(5, 3, dtype=torch.float64)
    targets = torch.tensor([[0, 1], [2, -1], [3, -1], [-1, -1], [1, 2]])
    net = layer(v)
    net.bce(x, targets).backward()
    w, t, lam = (p.detach().clone().requires_grad_() for p in net.parameters())
    by_name = dict(zip((name for name, _ in net.named_parameters()), (w, t, lam), strict=True))
    a = COUNTS.double() + by_name["weight_of_similarity"] * (1 + v @ v.T) / 2
    weights = (a @ by_name["linear.weight"]) / a.sum(1, keepdim=True) @ by_name["transform.weight"].T
    y = torch.zeros(5, 4, dtype=torch.float64)
    for row, classes in enumerate(targets.tolist()):
        for k in classes:
            if k >= 0:
                y[row, k] = 1
    torch.nn.functional.binary_cross_entropy_with_logits(x @ weights.T, y).backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.grad, by_name[name].grad, **EXACT)


def test_the_vector_of_a_type_is_the_sum_of_its_words():
    words = WordVectors(
        index={"political": 2, "party": 3, "person": 4}, source="test", sha256="0", space="euclidean",
        tangent=torch.tensor([[0.0, 0.0], [9.0, 9.0], [3.0, 0.0], [0.0, 4.0], [0.0, 2.0]]),
    )  # fmt: skip
    names = ("political_party", "/person", "/person/unheard", "unheard")
    types = TypeInventory(names, torch.zeros(4, dtype=torch.long), lambda: PAIRS)
    found = label_vectors(types, words)
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]]))


def test_what_it_is_can_be_printed():
    assert "links=3, edges=counts, residual=False" in repr(layer())
