"""Metrics of classification against scikit-learn, by group and by class; weights, tables and predictions."""

import csv
import types

import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score
from torch.nn import functional as F

from tasks.classification import ClassificationTask, class_predictions, class_scores
from tasks.errors import UserError

CLASSES = ("entailment", "neutral", "contradiction")
GROUPS = (("matched", "fiction"), ("matched",), ("mismatched", "oup"), ())


class Answers(ClassificationTask):
    """Predicts what the batch says, by logits of 0 and 5."""

    def logits(self, batch):
        return 5.0 * F.one_hot(batch["answers"], len(CLASSES)).float()


class Plain(Answers):
    metric_names = ("accuracy", "loss")


def make(kind=Answers, select="val/accuracy", groups=GROUPS, **settings) -> ClassificationTask:
    return kind(torch.nn.Identity(), lambda module: None, CLASSES, select, "max", groups, **settings)


def batches(size: int, labels: torch.Tensor, answers: torch.Tensor, group: torch.Tensor):
    for part in torch.arange(len(labels)).split(size):
        yield {"labels": labels[part], "answers": answers[part], "group": group[part]}


def evaluate(monkeypatch, task: ClassificationTask, found, stage: str = "test") -> dict[str, float]:
    """The metrics of a split, in the same way as in a run."""
    monkeypatch.setattr(type(task), "trainer", None, raising=False)
    task.eval()
    strategy = types.SimpleNamespace(reduce=lambda x, reduce_op: x)
    task.trainer = types.SimpleNamespace(loggers=[], strategy=strategy, world_size=1, callback_metrics={})
    task.log = lambda *_, **__: None
    for batch in found:
        getattr(task, f"{stage}_step")(batch, 0)
    getattr(task, f"on_{stage}_epoch_end")()
    return task.metrics


def draw(n: int = 500) -> tuple[torch.Tensor, ...]:
    return torch.randint(3, (n,)), torch.randint(3, (n,)), torch.randint(4, (n,))


def test_metrics_are_those_of_scikit_learn_whatever_the_batches(monkeypatch):
    labels, answers, group = draw()
    metrics = evaluate(monkeypatch, make(), batches(70, labels, answers, group))
    assert metrics["test/accuracy"] == pytest.approx(accuracy_score(labels, answers))
    assert metrics["test/macro_f1"] == pytest.approx(f1_score(labels, answers, average="macro"))
    loss = F.cross_entropy(5.0 * F.one_hot(answers, 3).double(), labels)
    assert metrics["test/loss"] == pytest.approx(float(loss), rel=1e-6)
    for name, members in (("matched", (0, 1)), ("fiction", (0,)), ("mismatched", (2,)), ("oup", (2,))):
        part = torch.isin(group, torch.tensor(members))
        assert metrics[f"test/{name}/accuracy"] == pytest.approx(accuracy_score(labels[part], answers[part]))
    assert len(metrics) == 3 + 4


@pytest.mark.parametrize("n", [2, 5, 40])
def test_scores_of_a_confusion_are_those_of_scikit_learn(n):
    """Of five classes, so that with few examples some are nowhere."""
    labels, answers = torch.randint(5, (2, n))
    scores = class_scores(torch.from_numpy(confusion_matrix(labels, answers, labels=range(5))).double())
    expected = f1_score(labels, answers, average="macro")
    assert scores == pytest.approx({"accuracy": accuracy_score(labels, answers), "macro_f1": expected})


def test_a_class_that_is_nowhere_does_not_count_and_an_empty_group_has_no_metric(monkeypatch):
    labels, answers = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1])
    metrics = evaluate(monkeypatch, make(), batches(4, labels, answers, torch.full((4,), 3)))
    assert metrics["test/macro_f1"] == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert set(metrics) == {"test/accuracy", "test/macro_f1", "test/loss"}


def test_a_task_may_name_fewer_metrics(monkeypatch):
    task = make(Plain, groups=((),))
    assert task.validated == ("accuracy", "loss")
    assert set(evaluate(monkeypatch, task, batches(50, *draw()))) == {"test/accuracy", "test/loss"}


def test_the_tables_of_classes_add_up(monkeypatch, tmp_path):
    task = make()
    assert task.export(tmp_path) == {}, "nothing was tested"
    labels, answers, group = draw()
    evaluate(monkeypatch, task, batches(100, labels, answers, group))
    paths = task.export(tmp_path)
    with paths["classes"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == list(CLASSES)
    table = confusion_matrix(labels, answers)
    for k, row in enumerate(rows):
        counts = tuple(int(row[c]) for c in ("gold", "predicted", "true_positives"))
        assert (row["split"], *counts) == ("test", table[k].sum(), table[:, k].sum(), table[k, k])
    with paths["confusion"].open(newline="") as file:
        header, *matrix = csv.reader(file)
    assert header == ["gold", *CLASSES]
    assert [[row[0], *map(int, row[1:])] for row in matrix] == [[c, *t] for c, t in zip(CLASSES, table.tolist(), strict=True)]
    assert sorted(f.name for f in tmp_path.iterdir()) == ["classes.csv", "confusion.csv"]


def test_the_metric_that_selects_may_be_of_a_group_that_dev_has():
    make(select="val/matched/accuracy")
    make(select="val/oup/accuracy", dev_groups=(2, 3))
    message = r"select must be one of .*, val/loss, val/mismatched/accuracy, val/oup/accuracy, and it is 'val/matched/accuracy'"
    with pytest.raises(UserError, match=message):
        make(select="val/matched/accuracy", dev_groups=(2, 3))
    with pytest.raises(UserError, match=r"task\.module\.select must be one of val/accuracy, val/macro_f1"):
        make(select="val/matched/accuracy", groups=((),))


def test_a_validation_without_the_metric_that_selects_is_reported(monkeypatch):
    """As with trainer.limit_val_batches: the part that is measured has no example of the group."""
    task = make(select="val/matched/accuracy")
    labels, answers, _ = draw(5)
    with pytest.raises(UserError, match=r"select=val/matched/accuracy: this validation has val/.*val/oup/accuracy; take"):
        evaluate(monkeypatch, task, batches(5, labels, answers, torch.full((5,), 2)), "validation")
    metrics = evaluate(monkeypatch, task, batches(5, labels, answers, torch.full((5,), 1)), "validation")
    assert "val/matched/accuracy" in metrics


def test_smoothing_and_weights_are_those_of_torch():
    labels, answers, group = draw(60)
    (batch,) = batches(60, labels, answers, group)
    logits, counts = 5.0 * F.one_hot(answers, 3).float(), (10, 20, 60)
    smooth = make(label_smoothing=0.1)
    torch.testing.assert_close(smooth.step(batch).loss, F.cross_entropy(logits, labels, label_smoothing=0.1))
    torch.testing.assert_close(smooth.eval().step(batch).loss, F.cross_entropy(logits, labels))
    weights = torch.tensor([3.0, 1.5, 0.5])  # 90 examples of three classes
    expected = (F.cross_entropy(logits, labels, reduction="none") * weights[labels]).mean()
    torch.testing.assert_close(make(class_weights="balanced", class_counts=counts).step(batch).loss, expected)
    torch.testing.assert_close(make(class_weights="equal").step(batch).loss, F.cross_entropy(logits, labels))
    with pytest.raises(UserError, match=r"task\.module\.class_weights must be one of equal, balanced"):
        make(class_weights="heavy")
    with pytest.raises(UserError, match=r"task\.module\.label_smoothing"):
        make(label_smoothing=1.0)


def test_predictions_have_a_label_and_probabilities():
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 3.0, 0.0]])
    first, second = class_predictions(logits, CLASSES)
    assert first["label"] == "neutral"
    assert list(first["probabilities"]) == list(CLASSES)
    assert list(first["probabilities"].values()) == pytest.approx(logits[0].softmax(-1).tolist(), rel=1e-5)
    assert second["label"] == "entailment", "the first of equal ones"
    close = torch.tensor([[0.0, 1e-6, 0.0]])
    assert class_predictions(close, CLASSES)[0]["label"] == "neutral", "of the scores, not of rounded probabilities"


def test_a_class_that_is_predicted_and_not_there_counts_in_macro_f1():
    """As in scikit-learn; one that is neither does not."""
    gold, predicted = [0, 0, 1, 1], [0, 2, 1, 1]
    confusion = torch.bincount(torch.tensor([4 * g + p for g, p in zip(gold, predicted, strict=True)]), minlength=16)
    scores = class_scores(confusion.double().view(4, 4))
    assert scores["macro_f1"] == pytest.approx(f1_score(gold, predicted, average="macro"))
    assert scores["macro_f1"] == pytest.approx((2 / 3 + 1 + 0) / 3)
