"""Training and evaluation on documents: accuracy, a table by class, predictions."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tasks.base import NamedPoints, Points, TaskData
from tasks.batches import TrainBatches
from tasks.classification import ClassificationTask, class_predictions
from tasks.document_classification.data import DocumentData
from tasks.document_classification.explanation import Text, explanations
from tasks.document_classification.linear import LinearClassifier
from tasks.document_classification.model import DocumentClassifier
from tasks.errors import UserError
from tasks.ragged import FIRST


class DocumentTask(ClassificationTask):
    """Classes of documents. Batches are those of `data.DocumentSplit`.

    A `LinearClassifier` is solved when training begins; steps then leave its weights as they are.
    """

    learns_from = DocumentData
    model: DocumentClassifier | LinearClassifier

    def logits(self, batch: dict[str, Any]) -> Tensor:
        return self.model(batch["words"], batch["lengths"], batch["sentences"])

    def explain(self, batch: dict[str, Any], texts: Sequence[Text]) -> list[dict[str, Any]]:
        refusal = UserError("explain=true needs a model that attends to sentences and words, as encoder=han does.")
        if not isinstance(self.model, DocumentClassifier):
            raise refusal
        documents, trace = self.model.encode(batch["words"], batch["lengths"], batch["sentences"])
        if trace is None:
            raise refusal
        predictions = class_predictions(self.model.classifier(documents), self.classes)
        traces = explanations(trace, texts)
        return [each | {"explanation": one} for each, one in zip(predictions, traces, strict=True)]

    def points(self, batch: dict[str, Any]) -> dict[str, Points]:
        if isinstance(self.model, LinearClassifier):
            return {}
        documents, _ = self.model.encode(batch["words"], batch["lengths"], batch["sentences"])
        return {"documents": Points(self.model.manifold, documents)}

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        if isinstance(self.model, LinearClassifier):
            return {}
        assert isinstance(data, DocumentData)
        names, table = data.prepared().words, self.model.words
        rows = torch.arange(FIRST, FIRST + len(names), device=self.device)
        return {"words": NamedPoints(names, table.manifold, table(rows))} | self.named_classes(self.model.classifier)

    def on_train_start(self) -> None:
        super().on_train_start()
        if isinstance(self.model, LinearClassifier):
            batches = self.trainer.train_dataloader
            assert isinstance(batches, TrainBatches)
            if self.label_smoothing or self.trainer.num_training_batches < len(batches):
                raise UserError(
                    "A linear model is solved at once on all documents of train, with their classes as they are: it "
                    "takes no task.module.label_smoothing and no trainer.limit_train_batches."
                )
            self.model.fit(batches.split, self.weights)

    def configure_optimizers(self) -> Any:
        if isinstance(self.model, LinearClassifier):
            return torch.optim.SGD(self.parameters(), lr=0.0)
        return super().configure_optimizers()
