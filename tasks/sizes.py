"""What `auto` stands for in a task's file: settings that follow from the size of a user's own data.

A run whose configuration gives one of KEYS the value `auto` reads its data first. The rule of its kind of task (RULES)
then settles these settings from the counts of the training split, as the record has them; the run prints them with the
reason and goes on as if they had stood on the command line, so that record and checkpoint hold the values. What is set
is never settled, and what follows from it, as epochs from the batch size, follows from the value that was set.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from tasks.errors import UserError

AUTO = "auto"
KEYS = (
    "task.data.batch_size", "task.model.sparse", "task.model.loop_bias", "task.model.d_word", "task.model.d_hidden",
    "task.model.d_ffnn", "task.module.lazy", "task.module.objective", "task.module.negatives", "task.module.pool",
    "task.module.self_share", "trainer.max_epochs", "trainer.check_val_every_n_epoch",
)  # fmt: skip
VALIDATIONS = 10  # of a run at most, about


class Settings:
    """The settings of a run by dotted key, of which those that are AUTO are settled, each once."""

    def __init__(self, values: Mapping[str, Any]):
        self.values = dict(values)
        self.settled: dict[str, Any] = {}

    def settle(self, key: str, value: Any) -> Any:
        """The value of a setting: the one that was set, or, where it is AUTO, `value`."""
        if self.values.get(key) == AUTO:
            self.values[key] = self.settled[key] = value
        return self.values[key]

    def settle_epochs(self, examples: int, steps: int, least: int = 1, most: int = 1000) -> str:
        """Let a run have about so many steps, in from `least` to `most` passes over the examples; says how many."""
        batches = max(1, examples // (self.values["task.data.batch_size"] * self.values["trainer.accumulate_grad_batches"]))
        limited = self.values["trainer.max_steps"] != -1  # then these are the end
        epochs = self.settle("trainer.max_epochs", -1 if limited else min(max(least, round(steps / batches)), most))
        known = epochs if isinstance(epochs, int) and epochs > 0 else 1
        self.settle("trainer.check_val_every_n_epoch", max(1, known // VALIDATIONS))
        return f"about {batches * known:,} steps" if known > 1 else f"{batches:,} steps an epoch"


Rule = Callable[[Mapping[str, Any], Settings], tuple[str, str]]


def graph(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """A knowledge graph."""
    triples, entities = size["triples"], size["entities"]
    of.settle("task.data.batch_size", 256)
    objective = of.settle("task.module.objective", "cross_entropy")
    is_small = entities <= MOST_ENTITIES
    takes_all = is_small and objective == "cross_entropy"
    negatives = of.settle("task.module.negatives", None if takes_all else 50)
    of.settle("task.module.pool", None if negatives is None or objective != "cross_entropy" else POOL)
    of.settle("task.model.loop_bias", True)
    of.settle("task.module.self_share", 0.0 if negatives is None or objective == "all_bce" else 0.1)
    of.settle("task.module.lazy", of.settle("task.model.sparse", not is_small))
    steps = of.settle_epochs(2 * triples, 3000, 30)
    return f"{triples:,} triples of {entities:,} entities", steps


MOST_ENTITIES, POOL = 50_000, 3000


def hierarchy(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """A tree or another hierarchy."""
    pairs = size["pairs"]
    of.settle("task.data.batch_size", min(2000, max(10, 2 ** round(math.log2(pairs / 40)))))
    return f"{size['nodes']:,} nodes, {pairs:,} pairs of a node and one above it", of.settle_epochs(pairs, 12_000, 30)


def pairs(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """Pairs of sentences."""
    of.settle("task.model.d_word", size["words"].get("dimension", 50))
    of.settle("task.data.batch_size", 64)
    return f"{size['pairs']:,} pairs", of.settle_epochs(size["pairs"], 1500, 3, 30)


RULES: dict[str, Rule] = {"kg_completion": graph, "poincare_embeddings": hierarchy, "nli": pairs}


def settle(kind: str, fingerprint: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The values of the settings that are AUTO, and the lines that say which and why.

    kind: of the task, its folder in tasks/. fingerprint: of its data (`TaskData.fingerprint`). values: all settings by
    dotted key. Raises UserError for a setting that no rule of this kind settles.
    """
    open_keys = [key for key in KEYS if values.get(key) == AUTO]
    settings = Settings(values)
    if kind in RULES:
        size = {**fingerprint["counts"]["train"], "words": fingerprint.get("words", {})}
        measured, reason = RULES[kind](size, settings)
    if unsettled := [key for key in open_keys if key not in settings.settled]:
        raise UserError(f"{unsettled[0]}={AUTO}: task={values['task.name']} has no rule for it; set a value.")
    words = " ".join(f"{key}={'null' if value is None else str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.settled.items())
    return settings.settled, [f"chosen for {measured}: {words}", f"({reason}; what is set on the command line is not chosen)"]
