"""Training and evaluation on documents: accuracy, a table by class, predictions."""

from typing import Any

import torch
from torch import Tensor

from tasks.base import Points
from tasks.classification import ClassificationTask
from tasks.document_classification.linear import LinearClassifier
from tasks.document_classification.model import DocumentClassifier


class DocumentTask(ClassificationTask):
    """Classes of documents. Batches are those of `data.DocumentSplit`.

    A `LinearClassifier` is solved when training begins; steps then leave its weights as they are.
    """

    model: DocumentClassifier | LinearClassifier

    def logits(self, batch: dict[str, Any]) -> Tensor:
        return self.model(batch["words"], batch["lengths"], batch["sentences"])

    def points(self, batch: dict[str, Any]) -> dict[str, Points]:
        if isinstance(self.model, LinearClassifier):
            return {}
        documents, _ = self.model.encode(batch["words"], batch["lengths"], batch["sentences"])
        return {"documents": Points(self.model.manifold, documents)}

    def on_fit_start(self) -> None:
        super().on_fit_start()
        if isinstance(self.model, LinearClassifier):
            self.model.fit(self.trainer.datamodule.splits()["train"])

    def configure_optimizers(self) -> Any:
        if isinstance(self.model, LinearClassifier):
            return torch.optim.SGD(self.parameters(), lr=0.0)
        return super().configure_optimizers()
