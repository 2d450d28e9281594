"""MultiTask and LabelGCN are the networks of their papers, and padding does not count."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from configs import checks, composing
from configs.build import build
from hyperbolic.geometry import make_geometry
from hyperbolic.layers.classes import group_mean_weights
from tasks.entity_typing.baselines import (
    AttentiveSum,
    CharacterCNN,
    Fusion,
    LabelGCN,
    MultiTask,
    locations,
)
from tasks.entity_typing.types import TypeInventory
from tasks.errors import UserError
from tasks.word_vectors import WordVectors
from tests.cli import places
from tests.tolerances import tolerance

MARGIN = 0.15  # in macro F1, above the best set of types that is the same for every mention

EXACT = tolerance(torch.float64, "identity")
SIZES = {
    "d_hidden": 4, "d_attention": 3, "d_location": 2, "d_character": 5, "filters": 6, "width": 3,
    "input_dropout": 0.2, "mention_dropout": 0.5,
}  # fmt: skip
GRAPH = {
    "attention_dropout": 0.1, "output_dropout": 0.2, "interaction": True, "edges": "counts", "similarity": True,
    "residual": False,
}  # fmt: skip
NAMES = ("person", "place", "artist", "big_town", "painter", "unheard_of")
PAIRS = torch.tensor([[0, 2, 4], [2, 4, 1], [0, 4, 2], [1, 3, 3]])
MODELS = [MultiTask, LabelGCN]


def vectors(d=5, n=12, names=NAMES) -> WordVectors:
    words = [word for name in names for word in name.split("_") if word not in ("unheard", "of")]
    index = {word: 2 + i for i, word in enumerate(words)}
    tangent = torch.randn(max(n, 2 + len(words)), d)
    tangent[0] = 0
    return WordVectors(index=index, tangent=tangent, source="test", sha256="0", space="euclidean")


def inventory(names=NAMES, pairs=PAIRS) -> TypeInventory:
    granularity = torch.tensor([0, 0, 1, 1, 2, 2])[: len(names)]
    return TypeInventory(names, granularity, lambda: pairs)


def model(kind, geometry=None, **changes) -> nn.Module:
    settings = {**SIZES, **(GRAPH if kind is LabelGCN else {}), **changes}
    net = kind(
        geometry=geometry or make_geometry("euclidean", "Euclidean", "euclidean"),
        words=vectors(), types=inventory(), n_characters=9, **settings,
    )  # fmt: skip
    return net.double()


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    """Three mentions: in the middle of a context, as the whole of it, at its beginning."""
    return {
        "context": torch.tensor([[2, 3, 4, 5, 6, 7], [8, 0, 0, 0, 0, 0], [9, 3, 2, 0, 0, 0]]),
        "context_length": torch.tensor([6, 1, 3]),
        "positions": torch.tensor([[3, 2, 1, 1, 27, 28], [1, 0, 0, 0, 0, 0], [1, 27, 28, 0, 0, 0]]),
        "mention": torch.tensor([[4, 5], [8, 0], [9, 0]]),
        "mention_length": torch.tensor([2, 1, 1]),
        "characters": torch.tensor([[1, 2, 3, 4, 5], [6, 0, 0, 0, 0], [7, 8, 1, 0, 0]]),
        "characters_length": torch.tensor([5, 1, 3]),
        "targets": torch.tensor([[0, 2, 4], [1, -1, -1], [3, 5, -1]]),
    }


def totals(task, batches) -> dict[str, float]:
    """The metrics of evaluated batches."""
    found: dict[str, float] = {}
    with torch.no_grad():
        for batch in batches:
            for name, value in task.eval().step(batch).sums.items():
                found[name] = found.get(name, 0.0) + float(value)
    return task.summary(found)


def constant(targets: list[set[int]]) -> float:
    """The best macro F1 of naming the n most frequent types for every mention."""
    counts = torch.bincount(torch.tensor([k for types in targets for k in types]))
    order, best = counts.argsort(descending=True).tolist(), 0.0
    for n in range(1, len(order) + 1):
        named = set(order[:n])
        precision = sum(len(named & types) / n for types in targets) / len(targets)
        recall = sum(len(named & types) / len(types) for types in targets) / len(targets)
        best = max(best, 2 * precision * recall / (precision + recall))
    return best


def rows(batch, index) -> dict[str, torch.Tensor]:
    return {name: value[index] for name, value in batch.items()}


def wider(batch) -> dict[str, torch.Tensor]:
    """The same batch with more padding, of arbitrary words, characters and positions."""
    found = dict(batch)
    for name, length, high in (
        ("context", "context_length", 12), ("positions", "context_length", 40), ("mention", "mention_length", 12),
        ("characters", "characters_length", 9),
    ):  # fmt: skip
        value = F.pad(batch[name], (0, 4))
        real = torch.arange(value.shape[1]) < batch[length].unsqueeze(1)
        noise = torch.randint(2, high, value.shape)  # 1 would be the mention's position
        found[name] = torch.where(real, value, noise)
    return found


@pytest.mark.parametrize("kind", MODELS)
def test_padding_and_the_company_in_a_batch_do_not_change_a_prediction(kind, batch):
    net = model(kind).eval()
    together = net(batch)
    assert together.shape == (3, 6)
    torch.testing.assert_close(net(wider(batch)), together, **EXACT)
    torch.testing.assert_close(net(rows(batch, [2, 0, 1])), together[[2, 0, 1]], **EXACT)
    for k in range(3):
        one = rows(batch, slice(k, k + 1))
        for name in ("context", "mention", "characters"):
            one[name] = one[name][:, : int(one[f"{name}_length"])]
        one["positions"] = one["positions"][:, : int(one["context_length"])]
        torch.testing.assert_close(net(one), together[k : k + 1], **EXACT)


@pytest.mark.parametrize("kind", MODELS)
def test_every_parameter_gets_a_gradient_of_the_task_s_loss(kind, batch):
    net = model(kind).eval()
    net.pool_mention.key.weight.data[0] = net.words.table[4]  # the relu of its scores lets the first mention's words through
    weights = group_mean_weights(batch["targets"], net.groups, 3).double()
    net.classifier.bce(net.features(batch), batch["targets"], weights, net.groups).backward()
    for name, p in net.named_parameters():
        assert p.grad is not None, name
        assert torch.isfinite(p.grad).all(), name
        assert p.grad.abs().sum() > 0, name


@pytest.mark.parametrize("kind", MODELS)
def test_dropout_acts_in_training_alone(kind, batch):
    net = model(kind)
    assert not torch.equal(net.train()(batch), net(batch))
    torch.testing.assert_close(net.eval()(batch), net(batch), rtol=0, atol=0)


def test_words_are_marked_by_where_they_stand_to_the_mention(batch):
    left, whole, part, right = range(4)
    found = locations(batch["positions"])
    assert found[0].tolist() == [left, left, part, part, right, right]
    assert found[1, 0] == whole
    assert found[2, :3].tolist() == [whole, right, right]


def test_attention_is_the_formula_of_the_paper():
    """sum_t softmax(v^T relu(W x_t)) x_t, by loops over the words that count."""
    x, lengths = torch.randn(3, 4, 5).double(), torch.tensor([4, 1, 2])
    pool = AttentiveSum(5, 7).double()
    found, weights = pool(x, lengths)
    for b, n in enumerate(lengths):
        scores = torch.stack([pool.score.weight[0] @ (pool.key.weight @ x[b, t]).clamp_min(0) for t in range(n)])
        shares = scores.exp() / scores.exp().sum()
        torch.testing.assert_close(found[b], sum(shares[t] * x[b, t] for t in range(n)), **EXACT)
        torch.testing.assert_close(weights[b, :n], shares, **EXACT)
        assert (weights[b, n:] == 0).all()
    simple = AttentiveSum(5, None).double()
    shares = (x[0] @ simple.key.weight[0]).clamp_min(0).softmax(0)
    torch.testing.assert_close(simple(x, lengths)[0][0], shares @ x[0], **EXACT)


def test_the_character_network_takes_the_largest_value_of_each_filter():
    net = CharacterCNN(n_characters=9, d=4, filters=3, width=3).double()
    text = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 0, 0, 0]])
    found = net(text, torch.tensor([5, 2]))
    w, b, table = net.convolution.weight, net.convolution.bias, net.embedding.weight
    windows = [table[text[0, t : t + 3]] for t in range(3)]
    expected = torch.stack([torch.einsum("fdw,wd->f", w, window) + b for window in windows]).relu().amax(0)
    torch.testing.assert_close(found[0], expected, **EXACT)
    short = torch.cat([table[text[1, :2]], torch.zeros(1, 4)])  # filled up with zeros to one window
    torch.testing.assert_close(found[1], (torch.einsum("fdw,wd->f", w, short) + b).relu(), **EXACT)


def test_multitask_joins_context_and_mention(batch):
    net = model(MultiTask).eval()
    states, _ = net.lstm(
        torch.cat([net.words(batch["context"][:1]), net.location(F.one_hot(locations(batch["positions"][:1]), 4).double())], -1)
    )
    context, _ = net.pool(states, batch["context_length"][:1])
    words, _ = net.pool_mention(net.words(batch["mention"][:1]), batch["mention_length"][:1])
    characters = net.characters(batch["characters"][:1], batch["characters_length"][:1])
    joined = torch.cat([context, characters, words], -1)
    torch.testing.assert_close(net.features(batch)[:1], joined, **EXACT)
    torch.testing.assert_close(net(batch)[:1], joined @ net.classifier.linear.weight.T, **EXACT)


def test_labelgcn_lets_the_mention_attend_to_its_context(batch):
    """By loops over the words that count: r = sum_t softmax(<B m + b, c_t>) c_t, then the gated fusion of r and m."""
    net = model(LabelGCN).eval()
    states, mention = net.context(batch), torch.tanh(net.project(net.mention(batch)))
    pooled, _ = net.pool(states, batch["context_length"])
    for b, n in enumerate(batch["context_length"]):
        query = net.attend.weight @ mention[b] + net.attend.bias
        shares = torch.stack([query @ states[b, t] for t in range(n)]).softmax(0)
        r, m = sum(shares[t] * states[b, t] for t in range(n)), mention[b]
        three = torch.cat([r, m, r - m])
        g = torch.sigmoid(net.fusion.gate.weight @ three + net.fusion.gate.bias)
        changed = F.gelu(net.fusion.change.weight @ three + net.fusion.change.bias)
        torch.testing.assert_close(net.features(batch)[b], torch.cat([g * changed + (1 - g) * r, pooled[b]]), **EXACT)


def test_a_closed_gate_keeps_what_was_found():
    fusion = Fusion(3)
    nn.init.constant_(fusion.gate.bias, -50.0)
    x, y = torch.rand(2, 3), torch.rand(2, 3)
    torch.testing.assert_close(fusion(x, y), x)


def test_without_interaction_labelgcn_reads_what_multitask_reads(batch):
    net = model(LabelGCN, interaction=False).eval()
    torch.testing.assert_close(net.features(batch), MultiTask.features(net, batch), rtol=0, atol=0)


@pytest.mark.parametrize("kind", MODELS)
def test_another_geometry_is_refused(kind):
    for geometry in (
        make_geometry("poincare", "PoincareBall", "mobius", c=1.0),
        make_geometry("hatt", "Euclidean", "hatt"),
        make_geometry("euclidean", "Euclidean", "euclidean", c=1.0, parts={"classifier": "poincare"}),
    ):
        with pytest.raises(ValueError, match=rf"{kind.__name__} .*takes geometry=euclidean"):
            model(kind, geometry)


@pytest.mark.parametrize("setting", ["d_hidden", "d_attention", "d_location", "d_character", "filters", "width"])
def test_a_size_below_one_is_named(setting):
    with pytest.raises(UserError, match=f"task.model.{setting} must be a whole number of at least 1"):
        model(MultiTask, **{setting: 0})


@pytest.mark.parametrize("setting", ["input_dropout", "mention_dropout", "attention_dropout", "output_dropout"])
def test_a_dropout_of_one_is_named(setting):
    with pytest.raises(UserError, match=f"task.model.{setting} must be at least 0 and less than 1, and it is 1"):
        model(LabelGCN, **{setting: 1})


def test_they_have_the_sizes_that_the_papers_report():
    """6.1M and 5.1M parameters (Lopez and Strube 2020, Table 1) with 10,331 types and vectors of 300 dimensions."""
    n = 10331
    types = TypeInventory(tuple(map(str, range(n))), torch.full((n,), 2), lambda: PAIRS)
    words = WordVectors(index={}, tangent=torch.zeros(2, 300), source="test", sha256="0", space="euclidean")
    sizes = {"d_hidden": 100, "d_attention": 100, "d_location": 50, "d_character": 100, "filters": 50, "width": 5}
    with torch.device("meta"):
        geometry = make_geometry("euclidean", "Euclidean", "euclidean")
    settings = {**SIZES, **sizes, "geometry": geometry, "words": words, "types": types, "n_characters": 115}
    counts = {
        kind: sum(p.numel() for p in kind(**settings, **(GRAPH if kind is LabelGCN else {})).parameters())
        for kind in MODELS
    }
    assert {kind: round(count / 1e6, 1) for kind, count in counts.items()} == {MultiTask: 6.1, LabelGCN: 5.1}


@pytest.mark.parametrize("kind", MODELS)
def test_word_vectors_are_neither_trained_nor_stored(kind):
    net = model(kind)
    stored = net.state_dict()
    assert not any(name in stored for name in ("words.table", "groups", "classifier.index", "classifier.vectors"))
    other = model(kind)
    other.load_state_dict(stored)
    for (name, a), b in zip(net.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.long
@pytest.mark.parametrize("name", ["multitask", "labelgcn"])
def test_the_toy_task_is_learnt_beyond_a_constant_answer(tmp_path, name):
    composing.register()
    sizes = {"d_hidden": 12, "d_attention": 8, "d_location": 4, "d_character": 4, "filters": 4}
    values = checks.check(
        composing.composed(
            "task=entity_typing_toy", f"task/model={name}", "geometry=euclidean", "optim.lr=0.02", *places(tmp_path),
            "task.data.sizes={train: 900, dev: 60, test: 200}", "task.data.batch_size=32", "task.data.limits.context=8",
            *(f"task.model.{key}={size}" for key, size in sizes.items()),
        )
    )  # fmt: skip
    task, data = build(values)
    optimizer, batches = task.configure_optimizers(), data.train_dataloader()
    for epoch in range(4):
        batches.set_epoch(epoch)
        for batch in batches:
            optimizer.zero_grad()
            task.train().step(batch).loss.backward()
            optimizer.step()
    tested = data.splits()["test"]
    right = [set(types.tolist()) - {-1} for types in tested[torch.arange(len(tested))]["targets"]]
    found = totals(task, data.test_dataloader())
    assert found["macro_f1"] >= constant(right) + MARGIN
    assert found["coarse/macro_f1"] >= 0.9
