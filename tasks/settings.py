"""The settings of a run by dotted key: which decide whether two runs go together, and how older ones are read."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tasks.local_paths import portable

# What must be the same for a run to go on; training may still be made longer (trainer.max_epochs, max_steps).
CONTINUED = (
    "task",
    "data",
    "geometry",
    "encoder",
    "optim",
    "seed",
    "fidelity",
    "trainer.precision",
    "trainer.accumulate_grad_batches",
    "trainer.limit_train_batches",
    "trainer.limit_val_batches",  # what the best state was chosen on
    "trainer.val_check_interval",
    "trainer.average_last",
)
# What must be besides for `trainer.resume=auto` to take a run for the one that it begins.
TAKEN_UP = (*CONTINUED, "trainer.check_val_every_n_epoch")
# Settings that may differ between two runs that are the same run.
WITHOUT_EFFECT = (
    "paths", "skip_finished", "logger",
    "trainer.resume", "trainer.checkpoint_every_n_steps", "trainer.checkpoint_every_s", "trainer.log_every_n_steps",
    "trainer.enable_progress_bar", "trainer.progress_every_n_steps", "trainer.nan_check_every_n_steps",
)  # fmt: skip
# What decides which examples are drawn for dev and test.
DRAWING = ("task.data.held_out.dev", "task.data.held_out.test", "task.data.held_out_seed")
# What may differ all the same: results do not depend on it.
IRRELEVANT = (
    "task.data.root",
    "task.data.folder",
    "task.data.cache",
    "task.data.download",
    "task.data.eval_batch_size",
    "task.module.file",
    "task.module.top_k",
    "task.module.hide_known",
    "task.data.workers",  # of runs from before
    "task.data.vectors.root",
    "task.data.release.root",
    "task.data.preparation.cache",
    "task.data.preparation.workers",
    *DRAWING,  # of which the fingerprints of the splits tell
)
# Nodes whose keys are the user's: one that is absent is a setting, too.
OPEN = ("geometry.parts", "geometry.options", "geometry.settings")
# Settings that runs from before them lack, and what was done then.
LATER = {
    "task.model.loop_bias": False,
    "task.module.self_share": 0.0,
    "task.module.double_neg": False,
    "task.module.subsampling": False,
    "task.data.drop_last": False,
    "task.model.words": "points",
    "task.model.word_c": 1.0,
    "task.model.word_dropout": 0.0,
    "task.model.dropout": 0.0,
    "task.model.activation": "identity",
    "task.data.vectors.required": True,
    **{f"optim.vectors.{key}": None for key in ("rule", "lr", "weight_decay")},
    "optim.decoupled": True,
    "task.module.starts": 1,
    "task.model.start_at": "random",
    "optim.lbfgs.max_iter": 1000,
    "optim.lbfgs.history_size": 50,
    "optim.lbfgs.tolerance_grad": 1e-9,
    "optim.lbfgs.tolerance_change": 1e-12,
    "task.data.feature_norm": None,
    "task.data.standardize": False,
    "task.module.class_weights": None,
    "encoder.weight_dropout": 0.0,
    "encoder.aggregation.shared": False,
    "encoder.aggregation.temperature": None,
    "encoder.aggregation.lowest": None,
    "task.model.hyfi.midpoint": "encoder",
    "task.model.hyfi.order": ["mention", "context", "characters"],
}
# What must be the same for a checkpoint to be tested; "data" is TaskData.identity.
TESTED = (
    "task.name", "task.model", "task.data.limits", "task.data.vectors.c", "task.data.feature_norm",
    "task.data.standardize", "task.data.normalize", "task.data.tokenizer", "task.data.lower", "task.data.ends", "data",
    "geometry", "encoder",
)  # fmt: skip
WEIGHT_DROPOUT = re.compile(r"encoder\.layer_defaults\.\w+\.Linear\.weight_dropout")
NAME = re.compile(r"\w[^/\\${}\x00-\x1f\x7f]{0,199}")  # of an experiment or a run, as part of a path


def is_under(key: str, names: Iterable[str]) -> bool:
    """Whether a dotted key is one of some names, or below one."""
    return any(key == name or key.startswith(f"{name}.") for name in names)


def current(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted key, of which those that had another name in runs from before have that of today, without what
    other settings take their values from and runs from before lack or have otherwise."""
    sources = ("task.activations.", "task.fidelity.", "task.epochs", "task.transformer.")
    settings = {key: value for key, value in settings.items() if not key.startswith(sources)}
    if "encoder.weight_dropout" not in settings:  # it was a default of layers, for one family each
        rates = {key: settings.pop(key) for key in [*settings] if WEIGHT_DROPOUT.fullmatch(key)}
        own = f"encoder.layer_defaults.{settings.get('geometry.layers')}.Linear.weight_dropout"
        if own in rates:
            settings["encoder.weight_dropout"] = rates[own]
    if (leak := settings.pop("task.data.leak", None)) is not None:
        settings["task.data.known_in_training"] = known_in_training(leak)
    return settings


def known_in_training(leak: bool) -> list[str]:
    """What was `task.data.leak` of link prediction: whether edges of dev and test may be drawn as wrong links."""
    return ["train"] if leak else ["train", "dev", "test"]


def flat(node: Any, prefix: str = "") -> dict[str, Any]:
    """A nested mapping as one of dotted keys to leaves."""
    if not isinstance(node, dict):
        return {prefix: node}
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        leaves |= flat(value, f"{prefix}.{key}" if prefix else str(key))
    return leaves


def settings_of(config: Mapping[str, Any], data: Mapping[str, str]) -> dict[str, Any]:
    """What decides whether a state is of a run, by dotted key: of its configuration, without paths of this machine, and
    of the identity of its data."""
    return flat(portable({key: value for key, value in config.items() if key != "paths"} | {"data": dict(data)}))
