"""Training and evaluation on PREFIX: cross-entropy, accuracy."""

from tasks.base import NamedPoints, TaskData
from tasks.prefix.data import PrefixData
from tasks.sentence_pairs import PairTask


class PrefixTask(PairTask):
    """Two classes: 1 where the second sentence is a noisy prefix of the first."""

    learns_from = PrefixData
    metric_names = ("accuracy", "loss")

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        """Words are named by their ids, from 0 on."""
        assert isinstance(data, PrefixData)
        return self.named_words([str(k) for k in range(data.model_sizes["n_words"])], first=0)
