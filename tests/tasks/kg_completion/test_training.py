"""The loss of a batch from the scores of single triples, and that no negative of it is true."""

import math

import pytest
import torch
from torch.nn import functional as F

from tasks.batches import SPLITS
from tasks.kg_completion.losses import EXCLUDED
from tasks.kg_completion.task import LinkPredictionTask
from tests.tasks.kg_completion.graphs import every, folder_data, graph_data, link_prediction, score, truths

RECIPROCAL = pytest.mark.parametrize("reciprocal", [True, False])


def train_batch(data, batch, **changes) -> tuple[LinkPredictionTask, float, torch.Tensor, dict]:
    """The task, its loss of a batch, the gradient of the score of each triple [r, h, t], and the sums."""
    task = link_prediction(data, **changes)
    task.model.scorer.table.data.normal_()
    task.train()
    step = task.step(batch)
    step.loss.backward()
    return task, float(step.loss.detach()), task.model.scorer.table.grad, step.sums


def cells(mask: torch.Tensor) -> set[tuple[int, int, int]]:
    """The triples (h, r, t) of a mask [r, h, t]."""
    return {(h, r, t) for r, h, t in mask.nonzero().tolist()}


def dense_data(tmp_path, **changes):
    """Of 12 entities each query has 7 answers in train, and one more in dev and in test each."""
    pairs = [(h, t) for h in range(12) for t in range(12) if (t - h) % 12 >= 5]
    train = ",".join(f"e{h} {r} e{t}" for r in ("r", "s") for h, t in pairs)
    dev, test = (",".join(f"e{h} {r} e{(h + k) % 12}" for h in range(12) for r in ("r", "s")) for k in (1, 2))
    return folder_data(tmp_path, train, dev, test, **changes)


@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        ("bce", {}),
        ("self_adversarial", {}),
        ("cross_entropy", {}),
        ("bce", {"pool": 20}),
        ("self_adversarial", {"pool": 100}),
        ("cross_entropy", {"pool": 20}),
        ("bce", {"corrupt": "both"}),
        ("self_adversarial", {"corrupt": "both"}),
        ("bce", {"self_share": 0.5}),
        ("bce", {"double_neg": True}),
        ("cross_entropy", {"self_share": 0.5, "pool": 100}),
    ],
)
@pytest.mark.parametrize("splits", [["train"], list(SPLITS)])
def test_wrong_answers_are_never_true(tmp_path, objective, changes, splits):
    data = dense_data(tmp_path, reciprocal="corrupt" not in changes, known_in_training=splits)
    batch = every(data)
    _, _, gradient, _ = train_batch(data, batch, objective=objective, negatives=10, **changes)
    right = set(zip(*(batch[k].tolist() for k in "hrt"), strict=True))
    grown = cells(gradient < 0)
    assert grown <= right
    small = changes.get("pool") == 20  # in which some queries may have no negative
    assert small or grown == right
    wrong, truth = cells(gradient > 0), truths(data, *splits)
    assert wrong
    assert not wrong & truth
    possible = {(h, r, t) for h in range(12) for r in range(len(gradient)) for t in range(12)} - truth
    if splits == ["train"]:
        assert wrong & truths(data, "test"), "what training does not know is drawn"
    assert len(wrong) > (0.4 if small else 0.9) * len(possible), "nothing else is left out"


@pytest.mark.parametrize("changes", [{}, {"corrupt": "both"}])
def test_the_entity_of_the_question_is_drawn_where_it_is_wrong(tmp_path, changes):
    rows = "a r a, a r b, b r c, c s c, c r a, b s a"
    data = folder_data(tmp_path, rows, "a s b", "b s b", reciprocal="corrupt" not in changes)
    batch = every(data)
    *_, gradient, _ = train_batch(data, batch, self_share=1.0, negatives=1, **changes)
    truth, loops, others = truths(data, "train"), set(), set()
    for k, (h, r, t) in enumerate(zip(*(batch[k].tolist() for k in "hrt"), strict=True)):
        is_head = bool(changes) and k % 2 == 1
        entity = t if is_head else h
        if (entity, r, entity) in truth:
            others |= {(x, r, t) if is_head else (h, r, x) for x in range(3)} - truth
        else:
            loops.add((entity, r, entity))
    assert loops
    assert others
    wrong = cells(gradient > 0)
    assert loops <= wrong <= loops | others
    assert wrong & others, "one is drawn for a loop that is true"


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_pool_and_the_entity_of_the_question(tmp_path, share):
    data = folder_data(tmp_path, "a r a, a r b, b r c, c s c, c r a, b s a", "a s b", "b s b")
    batch = every(data)
    *_, gradient, _ = train_batch(data, batch, objective="cross_entropy", self_share=share, pool=1)
    loops = {(h, r, h) for h, r in zip(batch["h"].tolist(), batch["r"].tolist(), strict=True)} - truths(data, "train")
    wrong = cells(gradient > 0)
    assert (loops <= wrong) == bool(share)
    assert wrong - loops, "the pool's"
    assert not wrong & truths(data, "train")


def test_a_pool_has_the_entity_of_a_share_of_the_questions():
    data = graph_data()
    batch = {key: value.repeat(2000) for key, value in data.splits()["train"][torch.tensor([0])].items()}
    task = link_prediction(data, objective="cross_entropy", self_share=0.1, pool=1)
    scores = task._negative_scores(batch["h"], batch["r"], batch["t"], task.options.negatives)
    count = int((scores[:, 1] > EXCLUDED / 2).sum())
    assert abs(count - 200) < 70, "5 standard deviations"


def test_every_second_triple_has_wrong_heads():
    data = graph_data(reciprocal=False)
    batch = data.splits()["train"][torch.arange(6)]
    _, _, gradient, _ = train_batch(data, batch, corrupt="both", negatives=40)
    h, r, t = (batch[k].tolist() for k in "hrt")
    wrong = cells(gradient > 0)
    expected = set()
    truth = truths(data, "train")
    for k in range(6):
        changed = [(x, r[k], t[k]) if k % 2 else (h[k], r[k], x) for x in range(13)]
        expected |= set(changed) - truth
    assert wrong <= expected
    assert len(wrong) > 0.8 * len(expected)


def test_both_ends_of_a_wrong_triple_are_drawn():
    data = graph_data(reciprocal=False)
    batch = data.splits()["train"][torch.arange(6)]
    _, _, gradient, _ = train_batch(data, batch, double_neg=True, negatives=400)
    relations, wrong = set(batch["r"].tolist()), cells(gradient > 0)
    expected = {(h, r, t) for h in range(13) for r in relations for t in range(13)} - truths(data, "train")
    assert wrong <= expected
    assert len(wrong) > 0.9 * len(expected)


@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("objective", ["bce", "self_adversarial", "cross_entropy"])
def test_triples_weigh_by_how_frequent_their_ends_are(reciprocal, objective):
    """RotatE's program: counts of (h, r) and of (r, t) begin at 4, and a triple weighs the root of their inverse sum."""
    data = graph_data(reciprocal=reciprocal)
    batch, n = every(data), len(data.graph.relations)
    counts: dict = {}
    for h, r, t in data.graph.triples["train"].tolist():
        for key in ((h, r), (t, -r - 1)):
            counts[key] = counts[key] + 1 if key in counts else 4
    expected = []
    for h, r, t in zip(*(batch[k].tolist() for k in "hrt"), strict=True):
        head, tail, relation = (h, t, r) if r < n else (t, h, r - n)
        expected.append((counts[head, relation] + counts[tail, -relation - 1]) ** -0.5)
    weights = torch.tensor(expected, dtype=torch.float64)
    task = link_prediction(data, subsampling=True, objective=objective)
    torch.testing.assert_close(task._weights(*(batch[k] for k in "hrt")).double(), weights, rtol=1e-6, atol=0)
    scores = torch.randn(len(weights), 4, dtype=torch.float64)
    single = torch.stack([task._negative_loss(row[None], 3, None) for row in scores])
    loss = task._negative_loss(scores, 3, weights)
    torch.testing.assert_close(loss, (weights * single).sum() / weights.sum())
    task.train()
    step = task.step(batch)
    assert step.weight == pytest.approx(float(weights.sum()), rel=1e-5)
    assert float(step.loss.detach()) > 0


def test_wrong_answers_that_stand_for_tails_leave_the_heads_alone():
    data = graph_data(reciprocal=False)
    batch = data.splits()["train"][torch.arange(6)]
    _, _, gradient, _ = train_batch(data, batch, negatives=40)
    queries = set(zip(batch["h"].tolist(), batch["r"].tolist(), strict=True))
    assert {(h, r) for h, r, _ in cells(gradient != 0)} == queries


@pytest.mark.parametrize("objective", ["bce", "self_adversarial", "cross_entropy"])
def test_a_pool_of_all_entities_gives_the_loss_over_all_wrong_answers(objective):
    data = graph_data()
    batch = data.splits()["train"][torch.arange(0, 40, 3)]
    task, loss, _, sums = train_batch(data, batch, objective=objective, pool=500, negatives=5, temperature=0.5)
    truth, expected = truths(data, "train"), 0.0
    for h, r, t in zip(*(batch[k].tolist() for k in "hrt"), strict=True):
        right = score(task, h, r, t)
        wrong = torch.tensor([score(task, h, r, x) for x in range(13) if (h, r, x) not in truth])
        if objective == "bce":
            expected += (math.log1p(math.exp(-right)) + 5 * F.softplus(wrong).mean()) / 6
        elif objective == "self_adversarial":
            expected += (math.log1p(math.exp(-right)) + (torch.softmax(wrong / 2, 0) * F.softplus(wrong)).sum()) / 2
        else:
            expected += torch.cat([wrong, torch.tensor([right])]).logsumexp(0) - right
    assert loss == pytest.approx(float(expected) / len(batch["h"]), rel=1e-5)
    assert float(sums["weighted_loss"]) == pytest.approx(float(expected), rel=1e-5)


def test_cross_entropy_over_all_entities():
    data = graph_data()
    batch = every(data)
    task, loss, _, _ = train_batch(data, batch, objective="cross_entropy", negatives=None)
    expected = F.cross_entropy(task.model.scorer.table[batch["r"], batch["h"]], batch["t"])
    assert loss == pytest.approx(float(expected.detach()))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@RECIPROCAL
def test_all_answers_of_a_query_at_once(smoothing, reciprocal):
    data = graph_data(examples="queries", reciprocal=reciprocal)
    batch = every(data)
    task, loss, _, _ = train_batch(data, batch, objective="all_bce", smoothing=smoothing)
    truth = truths(data, "train")
    queries = zip(batch["h"].tolist(), batch["r"].tolist(), strict=True)
    targets = torch.tensor([[float((h, r, x) in truth) for x in range(13)] for h, r in queries])
    expected = F.binary_cross_entropy_with_logits(
        task.model.scorer.table.detach()[batch["r"], batch["h"]],
        ((1 - smoothing) * targets + smoothing / 13).double(),
    )
    assert loss == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("exponent", [2, 3])
def test_the_regulariser_is_added_to_what_is_minimised_and_not_to_what_is_told(exponent):
    data = graph_data(examples="triples")
    batch = every(data)
    objective = "cross_entropy"
    result = []
    for weight in (0.0, 0.3):
        torch.manual_seed(0)
        changes = {"regulariser": weight, "exponent": exponent, "negatives": None, "objective": objective}
        result.append(train_batch(data, batch, **changes))
    task = result[0][0]
    factors = task.model.scorer.factors(batch["h"], batch["r"], batch["t"])
    size = sum(float(x.detach().abs().pow(exponent).sum()) for x in factors) / len(batch["h"])
    assert result[1][1] - result[0][1] == pytest.approx(0.3 * size)
    assert float(result[1][3]["weighted_loss"]) == pytest.approx(float(result[0][3]["weighted_loss"]))
    sums = {k: float(v) for k, v in result[1][3].items()}
    assert task.summary(sums) == {"loss": pytest.approx(result[0][1])}
