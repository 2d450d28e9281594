"""Training and evaluation of subtree classification: cross-entropy; precision, recall and F1 of the subtree."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from tasks.base import NamedPoints, TaskData
from tasks.classification import ClassificationTask, positive_scores
from tasks.errors import UserError, whole
from tasks.wordnet_subtree.data import SubtreeData
from tasks.wordnet_subtree.model import SubtreeClassifier


class SubtreeTask(ClassificationTask):
    """Two classes: 1 for nodes below the root. Metrics: f1, precision and recall of class 1; accuracy; loss.

    starts: from how many random starts the classifier is trained, for each an equal share of the epochs. The state with
    the lowest loss on the training nodes is tested, whichever start it is of; the loss is not convex where the
    hyperplanes are geodesic. More than one is for an optimiser that keeps nothing from epoch to epoch, optim=lbfgs. The
    others are ClassificationTask's.
    """

    learns_from = SubtreeData
    metric_names = ("f1", "precision", "recall", "accuracy", "loss")

    model: SubtreeClassifier

    def __init__(
        self,
        model: SubtreeClassifier,
        optimizer: Callable[[nn.Module], Optimizer],
        classes: Sequence[str],
        select: str,
        select_mode: str,
        class_weights: str | None = None,
        class_counts: Sequence[int] = (),
        starts: int = 1,
    ):
        super().__init__(
            model, optimizer, classes, select, select_mode, class_weights=class_weights, class_counts=class_counts
        )
        self.starts = whole("task.module.starts", starts, 1)

    def on_train_start(self) -> None:
        super().on_train_start()
        if self.starts == 1:
            return
        epochs, every = self.trainer.max_epochs or -1, self.trainer.check_val_every_n_epoch or 1
        if self.select != "val/loss" or self.select_mode != "min":
            raise UserError(f"task.module.starts={self.starts} keeps the start with the lowest val/loss; select that.")
        if not all(getattr(optimizer, "needs_closure", False) for optimizer in self.trainer.optimizers):
            raise UserError(f"task.module.starts={self.starts} needs optim=lbfgs, a minimisation for each start.")
        if epochs % (self.starts * every):
            raise UserError(
                f"task.module.starts={self.starts}: trainer.max_epochs={epochs} must be as many epochs for each start, "
                f"ending with a validation, of which there is one in {every}. Take trainer=lbfgs."
            )

    def on_train_epoch_start(self) -> None:
        epoch = self.trainer.current_epoch
        if self.starts > 1 and epoch and epoch % (int(self.trainer.max_epochs or 1) // self.starts) == 0:
            self.model.restart()

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        """The nodes lie where task.embeddings has them."""
        assert isinstance(data, SubtreeData)
        nodes = NamedPoints(data.names, self.model.manifold, self.model.points)
        return {"nodes": nodes} | self.named_classes(self.model.classifier)

    def logits(self, batch: dict[str, Any]) -> Tensor:
        return self.model(batch["rows"])

    def count(self, batch: dict[str, Any], predicted: Tensor) -> dict[str, Tensor]:
        labels = batch["labels"]
        sums = {"right": (predicted * labels).sum(), "predicted": predicted.sum(), "gold": labels.sum()}
        return super().count(batch, predicted) | sums

    def summary(self, sums: dict[str, Any]) -> dict[str, float]:
        return positive_scores(sums) | super().summary(sums)
