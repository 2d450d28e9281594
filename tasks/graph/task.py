"""Links of a graph by the distance of their ends, and classes of its nodes."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Optimizer

from tasks.base import NamedPoints, Points, Step, Task, TaskData
from tasks.classification import ClassificationTask, class_predictions, positive_scores
from tasks.errors import UserError, number, one_of, whole
from tasks.graph.data import LinkData, NodeData
from tasks.graph.graph_data import GraphData
from tasks.graph.links import is_known, wrong_links
from tasks.graph.model import LinkModel, NodeModel
from tasks.metrics import average_precision, roc_auc
from tasks.names import NO_NAME
from tasks.outputs import rounded

LINK_OBJECTIVES = ("fermi_dirac", "hinge")
NODE_OBJECTIVES = ("cross_entropy", "hinge")


class _WholeGraph(Task):
    """A task whose evaluations compute all points once, however many batches there are."""

    model: LinkModel | NodeModel
    _points: Tensor | None = None  # of all nodes, while an evaluation lasts
    _state: list[tuple[int, int, int]] | None = None  # of the parameters that gave them

    def all_points(self) -> Tensor:
        """Points (N, D) of all nodes."""
        if self.training or torch.is_grad_enabled():
            return self.model.encode()[0]
        # without an evaluation, others may be loaded, and they may have moved
        state = [(id(p), p.data_ptr(), 0 if p.is_inference() else p._version) for p in self.model.parameters()]
        if self._points is None or state != self._state:
            self._points, self._state = self.model.encode()[0], state
        return self._points

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        self._points = None

    def on_test_epoch_start(self) -> None:
        super().on_test_epoch_start()
        self._points = None

    def points(self, batch: dict[str, Tensor]) -> dict[str, Points]:
        return {"nodes": Points(self.model.manifold, self.all_points())}

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        assert isinstance(data, GraphData)
        return {"nodes": NamedPoints(data.node_names.names, self.model.manifold, self.all_points())}


class LinkTask(_WholeGraph):
    """Which pairs of nodes have an edge? Areas under the curves of the test's edges and as many other pairs.

    Metrics: auc, the area under the ROC curve (scikit-learn's roc_auc_score); average_precision; auc_and_precision,
    their mean, which selects in HGCN's program; loss, of the objective, with as many wrong links as edges.

    objective: fermi_dirac, binary cross-entropy of the model's probabilities, the mean over edges plus the mean over
    wrong links; hinge (HyboNet's program), the mean of ``max(0, margin - s_edge + s_wrong)`` and of the constant margin
    over pairs of an edge and a wrong link, with scores s = -d^2. negatives: wrong links to each edge. margin: of hinge.
    top_k: how many links of a node `predict` names. known_links, all_links, names, n_evaluated: from the data: numbers
    of the edges that are not drawn as wrong links, see `links.wrong_links`, and of all edges, sorted; names of the
    nodes, none where they are the numbers; most pairs that are evaluated at once.
    """

    learns_from = LinkData
    metric_names = ("auc", "average_precision", "auc_and_precision", "loss")
    model: LinkModel

    def __init__(
        self,
        model: LinkModel,
        optimizer: Callable[..., Optimizer],
        known_links: Tensor,
        all_links: Tensor,
        names: Sequence[str],
        n_evaluated: int,
        objective: str,
        margin: float,
        negatives: int,
        top_k: int,
        select: str,
        select_mode: str,
    ):
        super().__init__(model, optimizer, select, select_mode)
        self.objective = one_of("task.module.objective", objective, LINK_OBJECTIVES)
        self.margin, self.negatives = number("task.module.margin", margin), whole("task.module.negatives", negatives, 1)
        self.top_k = whole("task.module.top_k", top_k, 1)
        self.register_buffer("known_links", known_links, persistent=False)
        self.register_buffer("all_links", all_links, persistent=False)
        self.names, self.n_evaluated = names, n_evaluated

    known_links: Tensor
    all_links: Tensor

    def step(self, batch: dict[str, Tensor]) -> Step:
        if not self.training:
            return self._evaluation(batch)
        edges = batch["pair"]
        total = len(edges) if self.share is None else self.share.total
        drawn = wrong_links(total * self.negatives, self.model.n_nodes, self.known_links, self.draws)
        wrong = self.own(drawn.view(total, self.negatives, 2)).flatten(0, 1)
        points, places = self.model.encode(torch.cat([edges, wrong]) if self.model.fanouts else None, self.draws)
        pairs = torch.cat([edges, wrong]) if places is None else places
        scores = self.model.scores(points, pairs)
        loss = self._loss(scores[: len(edges)], scores[len(edges) :])
        return Step(loss, {"examples": len(edges), "loss": loss.detach() * len(edges)})

    def _loss(self, right: Tensor, wrong: Tensor) -> Tensor:
        """Of scores (E,) of edges and (E N,) of wrong links."""
        if self.objective == "hinge":
            gaps = F.relu(self.margin - right.repeat_interleave(len(wrong) // len(right)) + wrong)
            return (self.margin + gaps.mean()) / 2
        return F.softplus(-self.model.logits(right)).mean() + F.softplus(self.model.logits(wrong)).mean()

    def _evaluation(self, batch: dict[str, Tensor]) -> Step:
        scores = self.model.scores(self.all_points(), batch["pair"])
        columns = scores.new_zeros(3, self.n_evaluated, dtype=torch.float64)  # each pair has a place in the sums
        columns[:, batch["row"]] = torch.stack(
            [scores.double(), batch["label"].double(), torch.ones_like(scores).double()]
        )
        return Step(scores.new_zeros(()), {"examples": len(scores), "scores": columns})

    def summary(self, sums: dict[str, Any]) -> dict[str, float]:
        if "scores" not in sums:
            return {"loss": sums["loss"] / sums["examples"]}
        scores, labels, there = sums["scores"]
        scores, labels = scores[there > 0], labels[there > 0] > 0
        if labels.all() or not labels.any():
            raise UserError(
                f"The evaluation of {len(labels)} pairs has {'only' if labels.any() else 'no'} edges, and an area "
                "under a curve needs both kinds: evaluate more of them (trainer.limit_val_batches, "
                "trainer.limit_test_batches, task.data.eval_batch_size)."
            )
        auc, precision = roc_auc(scores, labels), average_precision(scores, labels)
        right, wrong = scores[labels], scores[~labels]
        pairs = min(len(right), len(wrong))  # equally many where all are evaluated
        loss = self._loss(right[:pairs], wrong[:pairs]).item()
        return {"loss": loss, "auc": auc, "average_precision": precision, "auc_and_precision": (auc + precision) / 2}

    def predict(self, batch: dict[str, Tensor]) -> list[dict[str, Any]]:
        """{"probability": p, "score": s} of each pair: that they are linked, and minus their squared distance as
        `task.model.distance` takes it, see `LinkModel`; of a single node {"links": [{"node": name, "probability": p,
        "score": s}, ...]}, the likeliest nodes first, of those that no edge of the graph joins with it."""
        pairs = batch["pair"]
        is_pair = pairs[:, 1] != NO_NAME
        answers: list[dict[str, Any]] = [{}] * len(pairs)
        with torch.no_grad():
            rows = is_pair.nonzero().squeeze(-1)
            for row, answer in zip(rows.tolist(), self._answers(pairs[rows]), strict=True):
                answers[row] = answer
            for row in (~is_pair).nonzero().squeeze(-1).tolist():
                answers[row] = {"links": self._new_links(pairs[row, 0])}
        return answers

    def _answers(self, pairs: Tensor) -> list[dict[str, Any]]:
        """Probability and score of pairs (P, 2)."""
        scores = self.model.scores(self.all_points(), pairs)
        columns = zip(torch.sigmoid(self.model.logits(scores)).tolist(), scores.tolist(), strict=True)
        return [{"probability": rounded(p), "score": rounded(s)} for p, s in columns]

    def _new_links(self, node: Tensor) -> list[dict[str, Any]]:
        """The `top_k` likeliest links of a node () that the graph does not have, the likeliest first."""
        n = self.model.n_nodes
        others = torch.arange(n, device=node.device)
        pairs = torch.stack([node.expand(n), others], -1)
        is_new = (others != node) & ~is_known(pairs.sort(-1).values, n, self.all_links)
        pairs = pairs[is_new]
        best = self.model.scores(self.all_points(), pairs).topk(min(self.top_k, len(pairs))).indices
        names = [self.names[k] if self.names else str(k) for k in pairs[best, 1].tolist()]
        return [{"node": name} | answer for name, answer in zip(names, self._answers(pairs[best]), strict=True)]


class NodeTask(_WholeGraph, ClassificationTask):
    """Which class has a node? Scores of the likeliest one.

    Metrics: those of ClassificationTask; and f1, as HGCN's program has it: of class 1 where there are two classes, else
    the micro average, which is the accuracy.

    objective: cross_entropy; or hinge (HyboNet's program), the mean of ``max(0, margin - l_right + l_k)`` over all
    classes k, the right one among them. margin: of hinge. class_weights: of the nodes in either loss, as in
    ClassificationTask, where the others are explained, too.
    """

    learns_from = NodeData
    metric_names = ("f1", "accuracy", "macro_f1", "loss")
    model: NodeModel

    def __init__(
        self,
        model: NodeModel,
        optimizer: Callable[..., Optimizer],
        classes: Sequence[str],
        objective: str,
        margin: float,
        select: str,
        select_mode: str,
        class_weights: str | None = None,
        class_counts: Sequence[int] = (),
    ):
        super().__init__(
            model, optimizer, classes, select, select_mode, class_weights=class_weights, class_counts=class_counts
        )
        self.objective = one_of("task.module.objective", objective, NODE_OBJECTIVES)
        self.margin = number("task.module.margin", margin)

    def logits(self, batch: dict[str, Any]) -> Tensor:
        rows = batch["rows"]
        if self.model.fanouts and self.training:
            points, places = self.model.encode(rows, self.draws)
        else:
            points, places = self.all_points(), rows
        logits = self.model.logits(points)
        if getattr(self.model.encoder, "averages_logits", False):
            logits = self.model.neighbours.mean(logits)
        return logits[places]

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.objective == "cross_entropy":
            return super()._loss(logits, labels)
        losses = F.relu(self.margin - logits.gather(1, labels.unsqueeze(1)) + logits).mean(1)
        return (losses if self.weights is None else losses * self.weights[labels]).mean()

    def summary(self, sums: dict[str, Any]) -> dict[str, float]:
        metrics = super().summary(sums)
        if "confusion" in sums:
            table = sums["confusion"].sum(0)
            ones = {"right": table[1, 1], "predicted": table[:, 1].sum(), "gold": table[1].sum()}
            metrics = {"f1": positive_scores(ones)["f1"] if len(self.classes) == 2 else metrics["accuracy"]} | metrics
        return metrics

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        return super().named_points(data) | self.named_classes(self.model.classifier)

    def predict(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        with torch.no_grad():
            return class_predictions(self.logits(batch), self.classes)
