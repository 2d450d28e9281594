"""Losses and metrics are their formulas, wrong links are clean, and evaluation computes the graph once."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score

from configs import checks, composing
from configs.build import build
from hyperbolic.layers import lorentz
from hyperbolic.layers.neighbours import with_themselves
from hyperbolic.manifolds import Lorentz
from tasks.errors import UserError
from tasks.graph.links import wrong_links
from tasks.graph.model import LinkModel
from tasks.graph.sampling import sampled_neighbours
from tests import cli


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    composing.register()


def toy(*words: str):
    return build(checks.check(composing.composed(*words)))


def split(data, name: str):
    part = data.splits()[name]
    return part[torch.arange(len(part))]


def test_links_are_split_and_wrong_ones_are_no_edges():
    _, data = toy("task=graph_toy")
    edges = {tuple(edge) for edge in data.graph.edges.tolist()}
    visible = {tuple(edge) for edge in data.model_sizes["edges"].tolist()}
    for name in ("dev", "test"):
        batch = split(data, name)
        pairs = [tuple(pair) for pair in batch["pair"].tolist()]
        assert [pair in edges for pair in pairs] == batch["label"].bool().tolist()
        assert not visible & set(pairs)
        assert batch["label"].float().mean() == 0.5


def test_points_are_those_of_the_weights_that_there_are():
    task, data = toy("task=graph_toy")
    batch = split(data, "test")
    task.eval()
    with torch.no_grad():
        before = task.all_points()
        assert task.all_points() is before, "computed once"
        task.load_state_dict({key: 0.5 * value for key, value in task.state_dict().items()})
        assert not torch.equal(task.all_points(), before)
        assert task.double().all_points().dtype is torch.float64
        task.float()
        assert len(task.predict(batch)) == len(batch["pair"])


@pytest.mark.parametrize("objective", ["fermi_dirac", "hinge"])
def test_the_loss_of_an_evaluation_is_that_of_the_objective(objective):
    task, data = toy("task=graph_toy", f"task.module.objective={objective}")
    batch = split(data, "test")
    task.eval()
    with torch.no_grad():
        loss = task.summary(task.step(batch).sums)["loss"]
        points = task.all_points()
        right, wrong = (task.model.scores(points, batch["pair"][batch["label"] == k]).double() for k in (1, 0))
    if objective == "hinge":
        terms = [max(0, task.margin - r + w) for r, w in zip(right.tolist(), wrong.tolist(), strict=True)]
        expected = (task.margin + np.mean(terms)) / 2
    else:
        right, wrong = (torch.sigmoid(task.model.logits(scores)) for scores in (right, wrong))
        expected = -right.log().mean() - (1 - wrong).log().mean()
    assert loss == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize("limit", [10, 1])
def test_part_of_an_evaluation_has_both_kinds_of_pairs_or_is_refused(tmp_path, limit):
    words = ("task=graph_toy", "trainer.max_epochs=1", "trainer.limit_val_batches=1", f"task.data.eval_batch_size={limit}")
    result = cli.toy(tmp_path, *words)
    assert result.code == (0 if limit > 1 else 1), result.err
    assert limit > 1 or "The evaluation of 1 pairs has only edges" in result.err


@pytest.mark.long
@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("graph_toy", ("task.data.split_seed=1", "task.data.shares.test=0.3", "task.data.shares.dev=0.15")),
        ("graph_nc_toy", ("task.data.split_seed=1", "task.data.shares.test=0.25", "task.data.shares.dev=0.15")),
    ],
)
def test_other_splits_are_other_data(task, changes):
    """So a checkpoint is refused that was trained on what would test it, and its runs are not compared."""
    (_, same), (_, again) = toy(f"task={task}"), toy(f"task={task}", "seed=3")
    assert same.identity == again.identity
    assert same.fingerprint()["sha256"] == again.fingerprint()["sha256"]
    assert len(set(same.fingerprint()["sha256"].values())) == 3
    for change in changes:
        _, other = toy(f"task={task}", change)
        assert same.identity["graph"] == other.identity["graph"]
        assert same.identity["splits"] != other.identity["splits"], change
        assert same.fingerprint()["sha256"]["test"] != other.fingerprint()["sha256"]["test"], change


@pytest.mark.parametrize("words", [(), ("task.data.known_in_training=[test,train,dev]",)])
def test_wrong_links_of_training_are_drawn_from_all_pairs_that_are_not_known(words):
    """Of test, too, as training must not tell of it, unless it is asked for."""
    _, data = toy("task=graph_toy", *words, "task.data.toy.depth=2")
    n, known = data.graph.n, data.model_sizes["known_links"]
    drawn = {tuple(pair) for pair in wrong_links(5000, n, known).tolist()}
    train, every = ({tuple(e) for e in part.tolist()} for part in (data.model_edges(), data.graph.edges))
    pairs = {(a, b) for a in range(n) for b in range(a + 1, n)}
    assert drawn == pairs - (every if words else train)
    with pytest.raises(UserError, match="needs train"):
        toy("task=graph_toy", "task.data.known_in_training=[dev]")


def test_a_graph_with_all_edges_has_no_wrong_links():
    with pytest.raises(UserError, match="no wrong links can be drawn"):
        wrong_links(3, 3, torch.tensor([1, 2, 5]))


def evaluated(task, data, name: str) -> dict:
    task.eval()
    with torch.no_grad():
        step = task.step(split(data, name))
    return summary(task, step.sums)


def summary(task, sums: dict) -> dict:
    """As `Task` makes it: numbers are numbers, tables float64."""
    values = {k: torch.as_tensor(v, dtype=torch.float64) for k, v in sums.items()}
    return task.summary({k: v if v.dim() else float(v) for k, v in values.items()})


def test_the_areas_of_links_are_those_of_scikit_learn():
    task, data = toy("task=graph_toy")
    batch, metrics = split(data, "test"), evaluated(task, data, "test")
    points = task.model.encode()[0]
    a, b = (points[batch["pair"][:, k]].double() for k in (0, 1))
    distance = -2 - 2 * ((a[:, 1:] * b[:, 1:]).sum(-1) - a[:, 0] * b[:, 0])
    assert metrics["auc"] == pytest.approx(roc_auc_score(batch["label"], -distance.detach()), abs=1e-6)
    assert metrics["auc_and_precision"] == (metrics["auc"] + metrics["average_precision"]) / 2


def test_results_do_not_depend_on_the_size_of_evaluation_batches():
    task, data = toy("task=graph_toy")
    whole = evaluated(task, data, "test")
    part, sums = data.splits()["test"], {}
    with torch.no_grad():
        for index in torch.arange(len(part)).split(5):
            for key, value in task.step(part[index]).sums.items():
                sums[key] = sums.get(key, 0) + value
    assert summary(task, sums) == pytest.approx(whole)


def test_f1_is_that_of_scikit_learn():
    task, data = toy("task=graph_nc_toy")
    batch, metrics = split(data, "test"), evaluated(task, data, "test")
    predicted = task.logits(batch).argmax(-1)
    assert metrics["f1"] == pytest.approx(f1_score(batch["labels"], predicted, average="micro"))
    task.classes = ("0", "1")
    table = torch.tensor([[3.0, 2.0], [1.0, 4.0]])
    sums = {"confusion": table.unsqueeze(0), "examples": 10, "loss": 0.0}
    assert task.summary(sums)["f1"] == pytest.approx(f1_score([0] * 5 + [1] * 5, [0, 0, 0, 1, 1, 0, 1, 1, 1, 1]))


def test_losses_are_their_formulas():
    task, _ = toy("task=graph_toy", "fidelity=code", "task.module.margin=3")
    right, wrong = torch.tensor([-1.0, -6.0]), torch.tensor([-2.0, -9.0])
    assert task._loss(right, wrong) == pytest.approx((3 + (2 + 0) / 2) / 2)
    task.objective = "fermi_dirac"
    p, q = (1 / (((-s - 2) / 1).exp() + 1) for s in (right, wrong))
    assert task._loss(right, wrong) == pytest.approx(float(-p.log().mean() - (1 - q).log().mean()))
    nodes, _ = toy("task=graph_nc_toy", "fidelity=code")
    logits = torch.tensor([[1.0, 0.5, -4.0]])
    assert nodes._loss(logits, torch.tensor([0])) == pytest.approx((2 + 1.5 + 0) / 3)


@pytest.mark.parametrize("fidelity", ["paper", "code"])
def test_balanced_classes_weigh_the_same_in_either_loss(fidelity):
    """The root and the nodes below its three children: 0 has one node more. Weights are N / (K N_k) of train."""
    words = ("task=graph_nc_toy", f"fidelity={fidelity}")
    (plain, data), (balanced, _) = toy(*words), toy(*words, "task.module.class_weights=balanced")
    gold = split(data, "train")["labels"]
    counts = torch.bincount(gold, minlength=3)
    assert data.model_sizes["class_counts"] == tuple(counts.tolist())
    logits, labels = torch.randn(3, 3), torch.tensor([0, 1, 1])
    each = torch.stack([plain._loss(logits[[k]], labels[[k]]) for k in range(3)])
    expected = (each * (len(gold) / (3 * counts))[labels]).mean()
    torch.testing.assert_close(balanced._loss(logits, labels), expected)
    assert not torch.isclose(plain._loss(logits, labels), expected, rtol=1e-4)


def test_an_evaluation_computes_the_graph_once(monkeypatch):
    task, data = toy("task=graph_toy", "task.data.eval_batch_size=3")
    calls, encode = [], task.model.encode
    monkeypatch.setattr(task.model, "encode", lambda *a: calls.append(1) or encode(*a))
    task.eval()
    task.on_validation_epoch_start()
    with torch.no_grad():
        for batch in data.val_dataloader():
            task.step(batch)
            task.points(batch)
    assert len(calls) == 1
    task.on_validation_epoch_start()
    with torch.no_grad():
        task.step(batch)
    assert len(calls) == 2, "another evaluation has other weights"


@pytest.mark.parametrize("name", ["graph_toy", "graph_nc_toy"])
def test_predictions_are_for_nodes_by_name(name):
    task, data = toy(f"task={name}")
    lines = [b"0.1\t0.1.2\n", b"0\t0.2.2.2\n"] if name == "graph_toy" else [b"0.1\n", b"0.2.2.2\n"]
    inputs = list(data.read_inputs(lines, "file"))
    part = data.encode(inputs)
    task.eval()
    predictions = task.predict(part[torch.arange(len(part))])
    assert len(predictions) == 2
    if name == "graph_toy":
        assert data.describe(inputs[0]) == {"nodes": ["0.1", "0.1.2"]}
        assert predictions[0]["probability"] == pytest.approx(
            float(torch.sigmoid(torch.tensor(2 + predictions[0]["score"]))), abs=1e-4
        )
    else:
        assert data.describe(inputs[1]) == {"node": "0.2.2.2"}
        assert set(predictions[0]["probabilities"]) == {"0", "1", "2"}
    with pytest.raises(UserError, match=r"line 1.*has no node '0\.9'"):
        list(data.read_inputs([lines[0].replace(b"0.1", b"0.9", 1)], "file"))


@pytest.mark.parametrize("top_k", [3, 1000])
def test_the_likeliest_links_of_a_node_are_the_best_of_those_that_it_does_not_have(top_k):
    """All pairs of the node are scored one by one; edges of dev and test are no new links, either."""
    task, data = toy("task=graph_toy", f"task.module.top_k={top_k}", "task.data.toy.depth=3")
    names, node = data.node_names.names, data.node_names.number_of("0.1")
    task.eval()

    def predicted(inputs):
        part = data.encode(inputs)
        return task.predict(part[torch.arange(len(part))])

    pair, single = predicted([(0, 5), (node,)])
    assert pair == predicted([(0, 5)])[0]
    assert data.describe((node,)) == {"node": "0.1"}
    linked = {node, *(int(end) for edge in data.graph.edges if node in edge for end in edge)}
    free = [k for k in range(len(names)) if k not in linked]
    expected = [{"node": names[k]} | answer for k, answer in zip(free, predicted([(node, k) for k in free]), strict=True)]
    found = single["links"]
    assert len(linked) == 5, "itself, the root and three children"
    assert len(found) == min(top_k, len(free))
    assert [link["score"] for link in found] == sorted((each["score"] for each in expected), reverse=True)[: len(found)]
    assert all(link in expected for link in found)


def test_sampled_neighbours_reach_the_nodes_and_average_to_the_whole():
    task, _ = toy("task=graph_toy", "encoder=gcn")
    whole, nodes = task.model.neighbours, torch.tensor([4, 0, 120])
    x = torch.randn(task.model.n_nodes, 2)
    total, draws = torch.zeros(3, 2), 400
    for _ in range(draws):
        reached, (block,) = sampled_neighbours(whole, nodes, [2])
        assert reached[:3].tolist() == nodes.tolist()
        assert len(reached.unique()) == len(reached)
        total += block.mean(x[reached])
    torch.testing.assert_close(total / draws, whole.mean(x)[nodes], rtol=0.2, atol=0.15)
    reached, blocks = sampled_neighbours(whole, nodes, [3, 2])
    assert [b.n_targets for b in blocks] == [blocks[1].n_sources, 3]
    assert blocks[0].n_sources == len(reached)


@pytest.mark.parametrize("options", [{"attention": "additive"}, {"attention": "distance", "temperature": 1e12}])
@pytest.mark.parametrize("gate", ["softmax", "sigmoid"])
def test_attention_to_a_sample_weighs_each_neighbour_as_in_the_whole(options, gate):
    """Equal scores are the mean over all neighbours: of a leaf half itself, however many are drawn, and of a hub next to
    nothing."""
    edges = torch.tensor([[0, 1], *([2, k] for k in range(3, 43))])
    whole, x = with_themselves(edges, 43), Lorentz(1.0).expmap0(torch.ones(43, 3).index_fill(0, torch.tensor([0, 2]), 0.0))
    layer = lorentz.Aggregation(Lorentz(1.0), 3, gate=gate, **options)
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    reached, (block,) = sampled_neighbours(whole, torch.tensor([0, 2]), [40])
    torch.testing.assert_close(layer(x[reached], block), layer(x, whole)[torch.tensor([0, 2])])


def test_a_node_draws_the_same_neighbours_whoever_asks():
    """So two processes that have a part of a batch each draw what one with all of it does."""
    task, _ = toy("task=graph_toy", "encoder=gcn")
    whole, nodes = task.model.neighbours, torch.tensor([4, 0, 120])
    x = torch.randn(task.model.n_nodes, 2)

    def after_two_layers(some):
        reached, (first, second) = sampled_neighbours(whole, some, [3, 2], torch.Generator().manual_seed(5))
        return second.mean(first.mean(x[reached]))

    together = after_two_layers(nodes)
    assert torch.equal(torch.cat([after_two_layers(nodes[:1]), after_two_layers(nodes[1:])]), together)
    reached, _ = sampled_neighbours(whole, nodes, [3, 2], torch.Generator().manual_seed(6))
    assert not torch.equal(reached, sampled_neighbours(whole, nodes, [3, 2], torch.Generator().manual_seed(5))[0])


def test_features_are_kept_as_points_that_training_may_use():
    task, _ = toy("task=graph_nc_toy", "encoder=hgcn", "geometry=lorentz")
    with torch.inference_mode():
        task.model.encode()
    task.model.encode()[0].sum().backward()


@pytest.mark.parametrize("words", [("task=graph_toy",), ("task=graph_nc_toy", "encoder=sage")])
def test_sampling_trains(words):
    task, data = toy(
        *words, "task.model.fanouts=[2,2]", "task.data.batch_size=16", *(["encoder.layers=2"] if len(words) > 1 else [])
    )
    before = [p.detach().clone() for p in task.model.parameters()]
    optimizer = task.optimizer(task)
    task.train()
    for batch in data.train_dataloader():
        optimizer.zero_grad()
        task.step(batch).loss.backward()
        optimizer.step()
    assert all(torch.isfinite(p).all() for p in task.model.parameters())
    assert all(not torch.equal(p, q) for p, q in zip(task.model.parameters(), before, strict=True))


def test_the_network_of_knowledge_graphs_names_that_of_graphs():
    with pytest.raises(UserError, match=r"needs an encoder of graphs, .* of triples; take encoder=hybonet_graph or gat or"):
        toy("task=graph_toy", "encoder=hybonet")


def test_fanouts_that_do_not_fit_are_told():
    with pytest.raises(UserError, match=r"fanouts=\[2\] needs a number for each of the 2 layers"):
        toy("task=graph_toy", "task.model.fanouts=[2]")
    with pytest.raises(UserError, match="encoder.averages_logits=false"):
        toy("task=graph_nc_toy", "encoder=gcn", "task.model.fanouts=[2]", "encoder.layers=1")


def train(task, data, epochs: int) -> None:
    optimizer = task.optimizer(task)
    for epoch in range(epochs):
        batches = data.train_dataloader()
        batches.set_epoch(epoch)
        task.train()
        for batch in batches:
            optimizer.zero_grad()
            task.step(batch).loss.backward()
            optimizer.step()


MARGIN = 0.03  # of the area under the ROC curve, the mean of three seeds


@pytest.mark.long
def test_a_tree_in_two_dimensions_is_learnt_better_in_hyperbolic_space():
    """Both with as many layers, without an activation, and the same optimiser."""
    area = {"hybonet_graph": 0.0, "gcn": 0.0}
    words = {"hybonet_graph": "encoder.counts_time=false", "gcn": "encoder.activation=identity"}
    for encoder in area:
        for seed in range(3):
            torch.manual_seed(seed)
            sizes = ("encoder.d=2", "task.data.toy.depth=5")
            task, data = toy("task=graph_toy", f"encoder={encoder}", *sizes, words[encoder])
            train(task, data, 60)
            area[encoder] += evaluated(task, data, "test")["auc"] / 3
    assert area["gcn"] > 0.6, "guessing has 0.5"
    assert area["hybonet_graph"] > area["gcn"] + MARGIN


def test_the_classes_of_the_tree_are_learnt():
    torch.manual_seed(0)
    task, data = toy("task=graph_nc_toy")
    train(task, data, 20)
    assert evaluated(task, data, "test")["f1"] > 0.9, "each class has a third of the nodes"


def test_edges_that_cut_parts_off_are_told(capsys):
    """Of a tree, every edge does; of a graph in which all nodes are joined, none."""
    _, data = toy("task=graph_toy")
    data.load()
    assert "the graph falls into" in capsys.readouterr().out
    pairs = np.stack(np.triu_indices(data.graph.n, 1), 1)
    parts = {"dev": pairs[:20], "test": pairs[20:60], "train": pairs[60:]}
    vars(data).update(graph=dataclasses.replace(data.graph, edges=pairs), _edges=parts)
    data._note_parts()
    assert capsys.readouterr().out == ""


def test_logits_of_links_are_those_of_fermi_and_dirac():
    """(r - d^2) / t of the scores -d^2, with r and t that are not 1."""
    own = SimpleNamespace(r=2.0, t=4.0)
    torch.testing.assert_close(LinkModel.logits(own, torch.tensor([-6.0, 0.0])), torch.tensor([-1.0, 0.5]))
