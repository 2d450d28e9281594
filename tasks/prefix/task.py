"""Training and evaluation on PREFIX: cross-entropy, accuracy."""

from torch import Tensor
from torch.nn import functional as F

from tasks.base import Points, Step, Task


class PrefixTask(Task):
    """Two classes: 1 where the second sentence is a noisy prefix of the first."""

    metric_names = ("accuracy", "loss")

    def step(self, batch: dict[str, Tensor]) -> Step:
        labels = batch["labels"]
        logits = self.model(batch["words"], batch["lengths"])
        loss = F.cross_entropy(logits, labels)
        correct = (logits.argmax(dim=-1) == labels).sum()
        return Step(loss, {"examples": len(labels), "loss": loss.detach() * len(labels), "correct": correct})

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["examples"], "accuracy": sums["correct"] / sums["examples"]}

    def points(self, batch: dict[str, Tensor]) -> dict[str, Points]:
        return {"sentences": Points(self.model.manifold, self.model.encode(batch["words"], batch["lengths"]))}
