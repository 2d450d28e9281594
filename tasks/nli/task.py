"""Training and evaluation on pairs of sentences: accuracy by group, a table by class, predictions with attention."""

from typing import Any

from tasks.base import NamedPoints, TaskData
from tasks.nli.data import NliData
from tasks.outputs import rounded
from tasks.ragged import FIRST
from tasks.sentence_pairs import PairTask


class NliTask(PairTask):
    """Classes of pairs, with metrics by group, see `NliData.groups`."""

    learns_from = NliData

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        assert isinstance(data, NliData)
        return self.named_words(data.prepared().words, FIRST)

    def predict(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        """{"label": name, "probabilities": {name: p}} of each pair; with an encoder that attends, also "attention",
        the premise's words as the model has them, each with its weight."""
        predictions = super().predict(batch)
        weights = self.model.attention(batch["words"], batch["lengths"])
        if weights is not None:
            for prediction, tokens, row in zip(predictions, batch["tokens"], weights.tolist(), strict=True):
                pairs = zip(tokens, row[: len(tokens)], strict=True)
                prediction["attention"] = [[token, rounded(weight)] for token, weight in pairs]
        return predictions
