"""What `auto` stands for in a task's file: settings that follow from the size of a user's own data.

A run whose configuration gives one of KEYS the value `auto` reads its data first. The rule of its kind of task
(`graph`, `hierarchy`, `pairs`, `documents`, `mentions`: each says what it settles, and on what evidence) then settles
these settings from the counts of the training split, as the record has them; the run prints them with the reason and
goes on as if they had stood on the command line, so that record and checkpoint hold the values. What is set is never
settled, and what follows from it, as the epochs from the batch size, follows from the value that was set.

`task=graph`, `graph_nc` and `translation` have no rule. Graphs are trained on as a whole, where `task.model.fanouts`
does not say otherwise, so each pass is one step whatever their size. Batches of translations have a number of words
already (`task.data.batch_tokens`), and no rule for epochs was measured.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from tasks.errors import UserError

AUTO = "auto"
KEYS = (
    "task.data.batch_size", "task.d_word", "task.model.sparse", "task.model.loop_bias", "task.model.d_word",
    "task.model.start_step",
    "task.module.lazy",
    "task.module.objective", "task.module.negatives", "task.module.pool", "task.module.self_share",
    "task.module.regulariser", "trainer.max_epochs", "trainer.check_val_every_n_epoch",
)  # fmt: skip
FOLLOW = {"task.module.lazy": "task.model.sparse", "task.model.d_word": "task.d_word"}  # KEYS that are another one
VALIDATIONS = 10  # of a run, about
MOST_ENTITIES = 10_000  # that a softmax is taken over
POOL = 3000  # entities of a softmax over some
DENSE_ENTITIES = 50_000  # whose rows all move at each step


class Settings:
    """The settings of a run by dotted key, of which those that are AUTO are settled, each once. examples: that an epoch
    has, of the kind that batches are made of."""

    def __init__(self, values: Mapping[str, Any], examples: int):
        self.values, self.examples = dict(values), examples
        self.settled: dict[str, Any] = {}

    def settle(self, key: str, value: Any) -> Any:
        """The value of a setting: the one that was set, or, where it is AUTO, `value`."""
        if self.values.get(key) == AUTO:
            self.values[key] = self.settled[key] = value
        return self.values.get(key)

    def follow(self) -> None:
        """Let those of FOLLOW that are AUTO be what they follow."""
        for key, other in FOLLOW.items():
            if self.values.get(other, AUTO) != AUTO:
                self.settle(key, self.values[other])

    def has(self, key: str) -> bool:
        """Whether a setting was set to something, neither to null nor to 0."""
        return self.values.get(key) not in (AUTO, None, 0)

    def settle_epochs(self, steps: int, least: int, most: int) -> str:
        """Let a run have about so many steps, in from `least` to `most` passes over the examples; says how many. With
        trainer.max_steps these are the end, whatever the epochs."""
        per_step = self.values["task.data.batch_size"] * self.values["trainer.accumulate_grad_batches"]
        batches = math.ceil(self.examples / per_step)
        epochs = min(max(least, round(steps / batches)), most)
        epochs = self.settle("trainer.max_epochs", epochs if self.values["trainer.max_steps"] == -1 else -1)
        passes = epochs if epochs is not None and epochs > 0 else 1
        self.settle("trainer.check_val_every_n_epoch", max(1, passes // VALIDATIONS))
        return f"{batches:,} steps an epoch"


Rule = Callable[[Mapping[str, Any], Settings], tuple[str, str]]  # counts -> what was counted, and why


def graph(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """A knowledge graph of T triples and E entities.

    - The objective is the softmax over all entities with L2: 0.5 of HyboNet's points on the hyperboloid, 0.05 of other
      models. On 8,000 triples of FB15k-237 and of WN18RR 30 epochs of batches of 1000 with 50 negatives to each
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
    objective = of.settle("task.module.objective", "cross_entropy")
    reason = _settle_answers(objective, entities, of)
    is_lorentz = str(of.values.get("encoder._target_")).endswith(".HyboNet")
    of.settle("task.module.regulariser", (0.5 if is_lorentz else 0.05) if objective == "cross_entropy" else 0.0)
    of.settle("task.model.loop_bias", True)
    of.settle("task.model.sparse", entities > DENSE_ENTITIES)
    steps = of.settle_epochs(2500, least=20, most=300)
    return f"{triples:,} triples of {entities:,} entities", f"{steps}; {reason}"


def _settle_answers(objective: str, entities: int, of: Settings) -> str:
    """Let the answers that a right one is compared with be all entities, a pool of them for each batch, or wrong ones
    that are drawn for each triple; says which, and why."""
    keys = ("task.module.negatives", "task.module.pool", "task.module.self_share")
    negatives, pool, _ = (of.values.get(key) for key in keys)
    is_softmax, are_many, has_pool = objective == "cross_entropy", entities > MOST_ENTITIES, of.has(keys[1])
    both = of.values.get("task.module.corrupt") == "both"  # sides, which are drawn
    are_few = negatives == AUTO and not (are_many or has_pool or both or of.has(keys[2]))
    settled: tuple[int | None, int | None, float]
    why = "as it is set"
    if objective == "all_bce" or (is_softmax and (negatives is None or are_few)):
        settled, over = (None, None, 0.0), "all entities"
        why = "which are few enough" if is_softmax and are_few else why
    elif has_pool or (is_softmax and negatives == pool == AUTO and not both):
        size = pool if has_pool else min(POOL, entities)
        settled, over = (50, size, 0.01), f"{size:,} entities that are drawn for each batch"
        why = "as there are many" if are_many and not has_pool else why
    else:
        settled = (50, None, 0.1)
        over = f"{50 if negatives == AUTO else negatives} negatives that are drawn for each triple"
    for key, value in zip(keys, settled, strict=True):
        of.settle(key, value)
    return f"{'a softmax' if is_softmax else objective} over {over}, {why}"


def hierarchy(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """A hierarchy of M pairs of a node and one above it: batches of M / 40 pairs, 16 to 2000, and about 3000 steps, in
    30 to 300 epochs; for WordNet's 743,241 pairs 30 epochs of batches of 2000, as its records have. Small trees need
    steps: in 10 dimensions random and balanced trees of 100 to 10,000 nodes and WordNet's mammals have a reconstruction
    MAP of 0.93 to 0.99 so, and one of 200 nodes had 0.31 with WordNet's batches and epochs.

    At the start the steps from a node to those below it are 0.6 (WordNet's), and shorter where the mean depth, pairs /
    nodes, is over 25: with 0.6 the nodes of 100 steps and more begin at the edge of the ball, and stay there. A path of
    200 nodes with 100 leaves, of mean depth 99, has a MAP of 0.99 with 0.15, as settled, and had 0.41 with 0.6; a tree
    of 2,000 nodes, of mean depth 70, has 0.95 with 0.2 and 0.70 with 0.6; one of 300, of mean depth 24, 0.98 with 0.6
    and 0.94 with 0.3."""
    pairs, nodes = size["pairs"], size["nodes"]
    of.settle("task.model.start_step", float(f"{min(0.6, 15 * nodes / pairs):.2g}"))
    of.settle("task.data.batch_size", min(2000, _power_of_two(pairs / 40, 16, 2048)))
    steps = of.settle_epochs(3000, least=30, most=300)
    return f"{pairs:,} pairs of a node and one above it, {nodes:,} nodes", steps


def pairs(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """N pairs of sentences: words of the size of their vectors, or 50; batches of N / 80 pairs, 32 to 64, and about
    1000 steps, in 5 to 30 epochs: with 5,000 pairs the best epoch is one of the first 8. With batches of 16 the points
    of the Poincaré GRU, at its rate of 0.01, ran to the edge of the ball."""
    words = _settle_words("task.model.d_word", size, of)
    of.settle("task.data.batch_size", _power_of_two(size["pairs"] / 80, 32, 64))
    steps = of.settle_epochs(1000, least=5, most=30)
    return f"{size['pairs']:,} pairs", f"{steps}; {words}"


def documents(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """N documents: words of the size of their vectors, or 50; batches of N / 80 documents, 16 to 64, and about 2000
    steps, in 5 to 30 epochs. By analogy with pairs, twice the steps as documents are longer; not measured."""
    words = _settle_words("task.d_word", size, of)
    of.settle("task.data.batch_size", _power_of_two(size["documents"] / 80, 16, 64))
    steps = of.settle_epochs(2000, least=5, most=30)
    return f"{size['documents']:,} documents", f"{steps}; {words}"


def mentions(size: Mapping[str, Any], of: Settings) -> tuple[str, str]:
    """N mentions with types: batches of N / 20 mentions, 16 to 128, and about 400 steps, in 5 to 30 epochs: as many as
    the experiments on Ultra-Fine's crowd part of 1,998 mentions have, whose batches are of 100."""
    of.settle("task.data.batch_size", _power_of_two(size["mentions"] / 20, 16, 128))
    return f"{size['mentions']:,} mentions", of.settle_epochs(400, least=5, most=30)


def _settle_words(key: str, size: Mapping[str, Any], of: Settings) -> str:
    """Let words have the size of their vectors, or 50; says which."""
    d = size["words"].get("dimension")
    of.settle(key, d or 50)
    return f"word vectors of {d} numbers" if d else "no word vectors"


def _power_of_two(x: float, least: int, most: int) -> int:
    """The power of two that is nearest to x by ratio, from `least` to `most`."""
    return min(max(2 ** round(math.log2(max(x, 1))), least), most)


RULES: dict[str, Rule] = {
    "kg_completion": graph, "poincare_embeddings": hierarchy, "nli": pairs, "document_classification": documents,
    "entity_typing": mentions,
}  # fmt: skip


def settle(
    kind: str, fingerprint: Mapping[str, Any], values: Mapping[str, Any], examples: int
) -> tuple[dict[str, Any], tuple[str, str]]:
    """The values of the settings that are AUTO, and two lines that say which and why.

    kind: of the task, its folder in tasks/. fingerprint: of its data (`TaskData.fingerprint`). values: all settings by
    dotted key. examples: see `Settings`. Raises UserError for a setting that no rule of this kind settles.
    """
    settings = Settings(values, examples)
    counted = reason = ""
    if kind in RULES:
        size = {**fingerprint["counts"]["train"], "words": fingerprint.get("words", {})}
        counted, reason = RULES[kind](size, settings)
    words = " ".join(f"{key}={_word(value)}" for key, value in settings.settled.items())
    settings.follow()
    for key in KEYS:
        if settings.values.get(key) == AUTO:
            raise UserError(f"{key}={AUTO}: task={values['task.name']} has no rule for it; set a value.")
    return settings.settled, (
        f"chosen for {counted}: {words}",
        f"({reason}; what is set on the command line is not chosen)",
    )


def _word(value: Any) -> str:
    """A value as it is written on the command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
