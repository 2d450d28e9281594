"""What `auto` stands for in a task's file: settings that follow from the size of a user's own data.

A run whose configuration gives one of KEYS the value `auto` reads its data first. The rule of its kind of task
(`graph`, `hierarchy`, `pairs`, `documents`: each says what it settles, and on what evidence) then settles these
settings from the counts of the training split, as the record has them; the run prints them with the reason and goes on
as if they had stood on the command line, so that record and checkpoint hold the values. What is set is never settled,
and what follows from it, as the epochs from the batch size, follows from the value that was set.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from tasks.errors import UserError

AUTO = "auto"
KEYS = (
    "task.data.batch_size", "task.model.sparse", "task.model.loop_bias", "task.model.d_word", "task.module.lazy",
    "task.module.objective", "task.module.negatives", "task.module.pool", "task.module.self_share",
    "task.module.regulariser", "trainer.max_epochs", "trainer.check_val_every_n_epoch",
)  # fmt: skip
FOLLOW = ("task.module.lazy",)  # those of KEYS that are another one: ${task.model.sparse}
VALIDATIONS = 10  # of a run, about
MOST_ENTITIES = 10_000  # that a softmax is taken over
POOL = 3000  # entities of a softmax over some
DENSE_ENTITIES = 50_000  # whose rows all move at each step


class Settings:
    """The settings of a run by dotted key, of which those that are AUTO are settled, each once."""

    def __init__(self, values: Mapping[str, Any]):
        self.values = dict(values)
        self.settled: dict[str, Any] = {}

    def settle(self, key: str, value: Any) -> Any:
        """The value of a setting: the one that was set, or, where it is AUTO, `value`."""
        if self.values.get(key) == AUTO:
            self.values[key] = self.settled[key] = value
        return self.values.get(key)

    def has(self, key: str) -> bool:
        """Whether a setting was set to something, neither to null nor to 0."""
        return self.values.get(key) not in (AUTO, None, 0)

    def settle_epochs(self, examples: int, steps: int, least: int, most: int) -> str:
        """Let a run have about so many steps, in from `least` to `most` passes over the examples; says how many. With
        trainer.max_steps these are the end, whatever the epochs."""
        per_step = self.values["task.data.batch_size"] * self.values["trainer.accumulate_grad_batches"]
        batches = max(1, round(examples / per_step))
        epochs = min(max(least, round(steps / batches)), most)
        epochs = self.settle("trainer.max_epochs", epochs if self.values["trainer.max_steps"] == -1 else -1)
        passes = epochs if epochs is not None and epochs > 0 else 1
        self.settle("trainer.check_val_every_n_epoch", max(1, passes // VALIDATIONS))
        return f"{batches:,} steps an epoch"


Rule = Callable[[Mapping[str, Any], Settings], tuple[str, str]]  # counts -> what was counted, and why


def graph(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """A knowledge graph of T triples and E entities.

    - The objective is the softmax over all entities with L2: 0.5 of HyboNet's points on the hyperboloid, 0.05 of other
      models. On 8,000 triples of FB15k-237 and of WN18RR 30 epochs of batches of 1000 with 50 wrong answers to each
      triple have a test MRR of 0.27 and 0.03, and these defaults 0.51 and 0.33.
    - With E > MOST_ENTITIES the softmax is over POOL of them, drawn for each batch: on 40,000 triples of WN18RR with
      16,836 entities the validation MRR was the same at the same step, and a step five times as quick. With
      E > DENSE_ENTITIES only the rows of a batch move.
    - The batch has T / 25 triples, 16 to 256: small graphs need steps, not large batches.
    - About 2500 steps, in 20 to 300 epochs.
    - Relations have a bias for self-loops: where no triple is one, no answer is the question's own entity.
    """
    triples, entities = size["triples"], size["entities"]
    of.settle("task.data.batch_size", _power_of_two(triples / 25, 16, 256))
    softmax = of.settle("task.module.objective", "cross_entropy") == "cross_entropy"
    are_many = entities > MOST_ENTITIES or of.has("task.module.pool") or of.has("task.module.self_share")
    negatives = of.settle("task.module.negatives", 50 if are_many or not softmax else None)
    has_set = "task.module.negatives" not in of.settled  # so many wrong answers to each triple, and no pool
    pool = of.settle("task.module.pool", POOL if softmax and negatives is not None and not has_set else None)
    is_lorentz = str(of.values.get("encoder._target_")).endswith(".HyboNet")
    of.settle("task.module.regulariser", (0.5 if is_lorentz else 0.05) if softmax else 0.0)
    has_wrong_answers_drawn = negatives is not None and of.values["task.module.objective"] != "all_bce"
    of.settle("task.module.self_share", (0.01 if pool else 0.1) if has_wrong_answers_drawn else 0.0)
    of.settle("task.model.loop_bias", True)
    of.settle("task.model.sparse", entities > DENSE_ENTITIES)
    steps = of.settle_epochs(2 * triples, 2500, least=20, most=300)
    over = "all entities, which are few enough" if negatives is None else "entities that are drawn, as there are many"
    counted = f"{triples:,} triples of {entities:,} entities"
    return counted, f"{steps}; {f'a softmax over {over}' if softmax else 'wrong answers are drawn'}"


def hierarchy(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """A hierarchy of M pairs of a node and one above it: batches of M / 40 pairs, 16 to 2000, and about 3000 steps, in
    30 to 300 epochs; for WordNet's 743,241 pairs 30 epochs of batches of 2000."""
    pairs = size["pairs"]
    of.settle("task.data.batch_size", min(2000, _power_of_two(pairs / 40, 16, 2048)))
    steps = of.settle_epochs(pairs, 3000, least=30, most=300)
    return f"{pairs:,} pairs of a node and one above it, {size['nodes']:,} nodes", steps


def pairs(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """N pairs of sentences: words of the size of their vectors, or 50; batches of N / 80 pairs, 16 to 64, and about
    1000 steps, in 5 to 30 epochs: with 5,000 pairs the best epoch is one of the first 8."""
    d = size["words"].get("dimension")
    of.settle("task.model.d_word", d or 50)
    of.settle("task.data.batch_size", _power_of_two(size["pairs"] / 80, 16, 64))
    steps = of.settle_epochs(size["pairs"], 1000, least=5, most=30)
    return f"{size['pairs']:,} pairs", f"{steps}; {f'word vectors of {d} numbers' if d else 'no word vectors'}"


def documents(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """N documents: batches of N / 80 documents, 16 to 64, and about 2000 steps, in 5 to 30 epochs."""
    of.settle("task.data.batch_size", _power_of_two(size["documents"] / 80, 16, 64))
    return f"{size['documents']:,} documents", of.settle_epochs(size["documents"], 2000, least=5, most=30)


def _power_of_two(x: float, least: int, most: int) -> int:
    """The power of two that is nearest to x by ratio, from `least` to `most`."""
    return min(max(2 ** round(math.log2(max(x, 1))), least), most)


RULES: dict[str, Rule] = {
    "kg_completion": graph, "poincare_embeddings": hierarchy, "nli": pairs, "document_classification": documents,
}  # fmt: skip


def settle(
    kind: str, fingerprint: Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, str]]:
    """The values of the settings that are AUTO, and two lines that say which and why.

    kind: of the task, its folder in tasks/. fingerprint: of its data (`TaskData.fingerprint`). values: all settings by
    dotted key. Raises UserError for a setting that no rule of this kind settles.
    """
    settings = Settings(values)
    counted = reason = ""
    if kind in RULES:
        size = {**fingerprint["counts"]["train"], "words": fingerprint.get("words", {})}
        counted, reason = RULES[kind](size, settings)
    for key in KEYS:
        if settings.values.get(key) == AUTO and key not in FOLLOW:
            raise UserError(f"{key}={AUTO}: task={values['task.name']} has no rule for it; set a value.")
    words = " ".join(f"{key}={_word(value)}" for key, value in settings.settled.items())
    return settings.settled, (
        f"chosen for {counted}: {words}",
        f"({reason}; what is set on the command line is not chosen)",
    )


def _word(value: Any) -> str:
    """A value as it is written on the command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
