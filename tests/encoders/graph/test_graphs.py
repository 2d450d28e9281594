"""Every encoder of graphs, as its file has it: sums over neighbours are those of dense tables, the order of the nodes does
not matter, and an isolated node has nothing from the others."""

import copy
import pickle

import pytest
import torch
from omegaconf import OmegaConf

from configs import checks, composing
from configs.build import build
from hyperbolic.encoders.graph.hybonet import HyboNet, InputDropout
from hyperbolic.geometry import make_geometry
from hyperbolic.layers.neighbours import Neighbours, with_themselves
from tests.configurations import CONFIGS
from tests.tolerances import tolerance

ENCODERS = sorted(
    file.stem for file in (CONFIGS / "encoder").glob("*.yaml") if checks.encoder_kind(OmegaConf.load(file)) == "graphs"
)
# Also what the papers' programs have as options.
WORDS = [
    *((name,) for name in ENCODERS), ("hybonet_graph", "encoder.aggregation.attention=distance"),
    ("hgcn", "encoder.aggregation.attention=additive"), ("gcn", "geometry=klein"), ("sage", "geometry=lorentz"),
    ("sgc", "geometry=poincare"),
]  # fmt: skip
N, D, ALONE = 9, 12, 8
EDGES = torch.tensor([[0, 1], [0, 2], [1, 2], [2, 3], [3, 4], [1, 5], [5, 6], [6, 7]])  # node 8 has none


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    composing.register()


def test_every_row_of_table_5_is_here():
    assert ENCODERS == ["gat", "gcn", "hat", "hgcn", "hybonet_graph", "lgcn", "sage", "sgc"]


@pytest.fixture(params=WORDS, ids=" ".join)
def encoder(request):
    """An encoder with two layers, in evaluation mode, in float64, and points that go into it."""
    name, *words = request.param
    task, _ = build(checks.check(composing.composed("task=graph_toy", f"encoder={name}", "encoder.layers=2", *words)))
    model = task.model.double().eval()
    assert model.features.shape[1] == D
    for p in model.parameters():  # biases and offsets start at 0
        if p.dim() <= 1:
            torch.nn.init.normal_(p, std=0.3)
    return model.encoder, model.manifold.expmap0(0.3 * torch.randn(N, D, dtype=torch.float64))


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, **tolerance(torch.float64, "identity"))


class Dense(Neighbours):
    """The same sums with tables (N, M) in the place of pairs."""

    def table(self, weights: torch.Tensor, empty: float = 0.0) -> torch.Tensor:
        table = weights.new_full((self.n_targets, self.n_sources), empty)
        return table.index_put((self.target, self.source), weights)

    def sum(self, x, weights):
        return self.table(weights) @ x

    def softmax(self, scores):
        columns = scores.unsqueeze(-1) if scores.dim() == 1 else scores
        weights = [
            self.table(column, -torch.inf).softmax(-1)[self.target, self.source] for column in columns.unbind(-1)
        ]
        return torch.stack(weights, -1).view_as(scores)

    def normalised(self, weights):
        return weights / self.table(weights).sum(-1)[self.target]


def test_the_result_is_that_of_dense_tables(encoder):
    network, x = encoder
    sparse = with_themselves(EDGES, N)
    dense = Dense(sparse.target, sparse.source, N, N)
    close(network(x, [sparse] * 2), network(x, [dense] * 2))


def test_the_order_of_the_nodes_does_not_matter(encoder):
    network, x = encoder
    order = torch.randperm(N)
    moved = with_themselves(order.argsort()[EDGES], N)
    result = network(x, [with_themselves(EDGES, N)] * 2)
    close(network(x[order], [moved] * 2), result[order])
    assert (result[order] - result).abs().max() > 1e-3, "results that are all equal would show nothing"


def test_an_isolated_node_has_nothing_from_the_others(encoder):
    network, x = encoder
    alone = network(x[[ALONE]], [with_themselves(torch.empty(0, 2, dtype=torch.long), 1)] * 2)
    whole = network(x, [with_themselves(EDGES, N)] * 2)
    close(whole[[ALONE]], alone)
    joined = network(x, [with_themselves(torch.cat([EDGES, torch.tensor([[3, ALONE]])]), N)] * 2)
    assert (joined[ALONE] - alone[0]).abs().max() > 1e-6, "with an edge it has"


def test_dropout_of_features_sees_that_they_were_changed():
    drop, x = InputDropout(1e-6).train(), torch.eye(3)
    assert torch.allclose(drop(x), x)
    x.mul_(5)
    assert torch.allclose(drop(x), x)
    assert torch.allclose(copy.deepcopy(drop)(x), x)
    with torch.inference_mode():
        assert torch.allclose(drop(torch.eye(3)), torch.eye(3))
    assert "_values" not in pickle.loads(pickle.dumps(drop)).__dict__


@pytest.mark.parametrize("variant", ["gcn", "paper"])
def test_hybonets_dropout_is_inside_of_all_its_linear_layers(variant):
    """So their inputs are points, which `check_points` sees, and the paper's first layer takes its time from them."""
    words = ("task=graph_nc_toy", "encoder=hybonet_graph", f"encoder.variant={variant}", "encoder.dropout=0.5")
    composing.register()
    task, data = build(checks.check(composing.composed(*words, "check_points=true")))
    train = data.splits()["train"]
    assert task.train().step(train[torch.arange(len(train))]).loss.isfinite()
    first = task.model.encoder.linear[0]
    x = task.model.manifold.expmap0(torch.rand(20, first.d_in))
    times = [first.train(training)(x)[:, 0] for training in (True, False)]
    assert torch.allclose(*times) is (variant == "paper")


@pytest.mark.parametrize(("layers", "same"), [(1, True), (2, False)])
def test_hybonets_first_layer_has_no_activation(layers, same):
    composing.register()
    words = ("task=graph_nc_toy", "encoder=hybonet_graph", f"encoder.layers={layers}")
    results = []
    for activation in ("identity", "relu"):
        torch.manual_seed(0)
        task, _ = build(checks.check(composing.composed(*words, f"encoder.activation={activation}")))
        encoder = task.model.encoder.eval()
        x = task.model.manifold.expmap0(torch.linspace(-1, 1, 3 * encoder.linear[0].d_in).view(3, -1))
        results.append(encoder(x, [with_themselves(torch.tensor([[0, 1]]), 3)] * layers))
    assert torch.equal(*results) is same


@pytest.mark.parametrize("geometry", ["poincare", "lorentz_tangent", "euclidean", "lorentz", "klein"])
@pytest.mark.parametrize("name", ["hgcn", "hat", "lgcn"])
def test_the_tasks_rate_of_dropout_holds_in_every_family(name, geometry):
    """Of weights, or of points; it was that of one family each, and others had none without a word."""
    words = (f"encoder={name}", f"geometry={geometry}", "task.others.dropout=0.5", "encoder.layers=2")
    task, _ = build(checks.check(composing.composed("task=graph_nc_toy", *words)))
    modules = task.model.encoder.named_modules()
    rates = {name.rpartition(".")[2]: m.p for name, m in modules if isinstance(m, torch.nn.Dropout) and m.p > 0}
    weights = geometry in ("poincare", "lorentz_tangent", "euclidean")
    assert rates == ({"drop_weight": 0.5} if weights else {"drop": 0.5})


@pytest.mark.parametrize("counts_time", [True, False])
def test_hybonets_size_counts_the_time_or_not(counts_time):
    """A point of d = 16 of its program has 16 coordinates, time among them, and 17 where the time is not counted."""
    geometry = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0)
    settings = {"layers": 2, "activation": "relu", "dropout": 0.0, "variant": "gcn", "aggregation": {}}
    encoder = HyboNet(geometry, d_in=3, d=16, counts_time=counts_time, **settings)
    at = with_themselves(torch.tensor([[0, 1], [1, 2]]), 3)
    x = encoder(geometry.manifold.expmap0(torch.eye(3)), [at] * encoder.layers)
    assert x.shape == (3, 16 if counts_time else 17)
    assert encoder.d_out == x.shape[1] - 1
