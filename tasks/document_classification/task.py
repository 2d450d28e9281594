"""Training and evaluation on documents: accuracy, a table by class, predictions."""

from typing import Any

from torch import Tensor

from tasks.base import Points
from tasks.classification import ClassificationTask
from tasks.document_classification.model import DocumentClassifier


class DocumentTask(ClassificationTask):
    """Classes of documents. Batches are those of `data.DocumentSplit`."""

    model: DocumentClassifier

    def logits(self, batch: dict[str, Any]) -> Tensor:
        return self.model(batch["words"], batch["lengths"], batch["sentences"])

    def points(self, batch: dict[str, Any]) -> dict[str, Points]:
        documents, _ = self.model.encode(batch["words"], batch["lengths"], batch["sentences"])
        return {"documents": Points(self.model.manifold, documents)}
