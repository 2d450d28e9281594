"""Training and evaluation on PREFIX: cross-entropy, accuracy."""

from tasks.sentence_pairs import PairTask


class PrefixTask(PairTask):
    """Two classes: 1 where the second sentence is a noisy prefix of the first."""

    metric_names = ("accuracy", "loss")
