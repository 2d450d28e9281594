"""Finding, reading and checking the checkpoint that a run goes on from or tests."""

import re
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tasks.checkpoints import BEST, LAST
from tasks.errors import UserError

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
    "trainer.val_check_interval",
)
# What may differ all the same: results do not depend on it.
IRRELEVANT = (
    "task.data.root",
    "task.data.folder",
    "task.data.cache",
    "task.data.eval_batch_size",
    "task.module.top_k",
    "task.module.hide_known",
    "task.data.workers",
    "task.data.vectors.root",
    "task.data.release.root",
    "task.data.preparation.cache",
    "task.data.preparation.workers",
)
# Settings that runs from before them lack, and what was done then.
LATER = {"task.model.loop_bias": False, "task.module.self_share": 0.0}
# What must be the same for a checkpoint to be tested; "data" is TaskData.identity.
TESTED = ("task.name", "task.model", "task.data.limits", "task.data.vectors.c", "data", "geometry", "encoder")
# Of the words on the command line, by the first part of their key, those that choose what a checkpoint is of.
CHOICES = ("task", "geometry", "encoder", "experiment")
KEPT = (*CHOICES, "data", "fidelity", "seed")


def flat(node: Any, prefix: str = "") -> dict[str, Any]:
    """A nested mapping as one of dotted keys to leaves."""
    if not isinstance(node, dict):
        return {prefix: node}
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        leaves |= flat(value, f"{prefix}.{key}" if prefix else str(key))
    return leaves


def read(path: Path, setting: str, states: tuple[str, ...] = (BEST, LAST)) -> dict[str, Any]:
    """The checkpoint in a file, or in a run's folder the first of `states` that is there.

    Raises UserError where there is none, or it is damaged; `setting` is the key that named it.
    """
    file = path
    if path.is_dir():
        places = [place / state for state in states for place in (path / "checkpoints", path)]
        file = next((f for f in places if f.exists()), places[0])
    if not file.is_file():
        raise UserError(f"{setting}: there is no checkpoint {file}. Runs keep theirs in <folder>/checkpoints.")
    try:
        checkpoint = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged file
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise UserError(f"{setting}: {file} is damaged or no checkpoint ({reason}). Use another one.") from error
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint or "settings" not in checkpoint:
        raise UserError(f"{setting}: {file} is not a checkpoint of this program. Use one that a run of it wrote.")
    return checkpoint | {"file": file}


def choosing(words: list[str]) -> list[str]:
    """Those words of the command line that say what is trained, which a checkpoint keeps."""
    return [word for word in words if re.split(r"[=./@]", word.lstrip("+~"))[0] in KEPT]


def words_of_checkpoint(arguments: list[str]) -> list[str]:
    """The words that chose task, geometry and encoder of a checkpoint, where the command line leaves that to it.

    arguments: the command line, as [mode=test, checkpoint=FOLDER]; where it chooses any of CHOICES itself, or trains,
    there are none. Raises UserError where the checkpoint cannot be read.
    """
    given = dict(word.split("=", 1) for word in arguments if "=" in word and not word.startswith("-"))
    place = given.get("checkpoint", "").strip("'\"")
    if given.get("mode") not in ("test", "predict") or not place or set(CHOICES) & set(given):
        return []
    state = read(Path(place), f"checkpoint={place}")
    words = list(state.get("words", ()))
    if precision := state["settings"].get("trainer.precision"):
        words.append(f"trainer.precision={precision}")
    return words


def differences(checkpoint: dict[str, Any], settings: dict[str, Any], keys: tuple[str, ...]) -> list[str]:
    """Where a checkpoint's settings differ from this run's, as `key=theirs, not ours`."""

    def chosen(key: str) -> bool:
        return key not in IRRELEVANT and any(key == k or key.startswith(f"{k}.") for k in keys)

    theirs = {k: v for k, v in LATER.items() if k in settings} | checkpoint["settings"]
    if keys is CONTINUED and settings.get("optim.schedule", "constant") != "constant":
        keys = (*keys, "trainer.max_epochs", "trainer.max_steps")  # the learning rate falls to 0 at their end
    names = [k for k in dict.fromkeys([*theirs, *settings]) if chosen(k)]
    names.sort(key=lambda k: k != "task.name")
    return [f"{k}={theirs.get(k)!r}, not {settings.get(k)!r}" for k in names if theirs.get(k) != settings.get(k)]


def check_same(checkpoint: dict[str, Any], settings: dict[str, Any], keys: tuple[str, ...], setting: str) -> None:
    """Raise UserError where the checkpoint belongs to a run with other settings."""
    if found := differences(checkpoint, settings, keys):
        more = f", and {len(found) - 3} more" if len(found) > 3 else ""
        remedy = "Give this run the settings of the checkpoint"
        if all(difference.startswith("data.") for difference in found):
            remedy = (
                "These are other data than it was trained with: put back its files (paths.data_dir, HYPERBOLIC_DATA or "
                "data.dir say where they lie) and its settings of task.data"
            )
        raise UserError(
            f"{setting}: {checkpoint['file']} was trained with {'; '.join(found[:3])}{more}. {remedy}, or choose "
            "another checkpoint."
        )


def load_weights(model: nn.Module, checkpoint: dict[str, Any], setting: str) -> None:
    """Put the checkpoint's weights into the module. Raises UserError where names or shapes differ."""
    try:
        model.load_state_dict(checkpoint["state_dict"])
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{setting}: {checkpoint['file']} does not fit this model ({reason}).") from error


def check_unfinished(checkpoint: dict[str, Any], max_epochs: int | None, max_steps: int, setting: str) -> None:
    """Raise UserError where there is nothing left to train, or no state to go on from."""
    file = checkpoint["file"]
    if not checkpoint.get("optimizer_states"):
        raise UserError(f"{setting}: {file} holds weights only; resume from {LAST} (this one suits mode=test).")
    if reason := finished(checkpoint, max_epochs, max_steps):
        raise UserError(
            f"{setting}: the run of {file} is finished ({reason}). To train it further raise trainer.max_epochs or "
            "trainer.max_steps (or trainer.patience), which needs optim.schedule=constant; to test it use mode=test "
            "checkpoint=..."
        )


def finished(checkpoint: dict[str, Any], max_epochs: int | None, max_steps: int) -> str | None:
    """Why a run has nothing left to train, or None."""
    epochs = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
    if max_epochs is not None and 0 <= max_epochs <= epochs:
        return f"{epochs} epochs of trainer.max_epochs={max_epochs}"
    if 0 <= max_steps <= checkpoint["global_step"]:
        return f"{checkpoint['global_step']} steps of trainer.max_steps={max_steps}"
    for name, state in checkpoint.get("callbacks", {}).items():
        if name.startswith("EarlyStopping") and state["wait_count"] >= state["patience"]:
            return f"stopped early after {state['wait_count']} validations without a better one"
    return None


def find(
    wish: str, runs: Path, settings: dict[str, Any], max_epochs: int | None, max_steps: int
) -> dict[str, Any] | None:
    """The checkpoint that trainer.resume=`wish` means: a file, a run's folder, or "auto".

    "auto" is the newest unfinished run with these settings among the folders in `runs`, or None where there is none.
    Raises UserError where a named checkpoint cannot be gone on from.
    """
    setting = f"trainer.resume={wish}"
    if wish != "auto":
        checkpoint = read(Path(wish), setting, (LAST,))
        check_same(checkpoint, settings, CONTINUED, setting)
        check_unfinished(checkpoint, max_epochs, max_steps, setting)
        return checkpoint
    files = sorted(runs.glob(f"*/checkpoints/{LAST}"), key=lambda f: f.stat().st_mtime, reverse=True)
    for file in files:
        try:
            checkpoint = read(file, setting)
        except UserError:
            continue
        if not differences(checkpoint, settings, CONTINUED) and not finished(checkpoint, max_epochs, max_steps):
            return checkpoint
    return None


def take_over(checkpoint: dict[str, Any], folder: Path) -> None:
    """Copy the best weights of the run that goes on into its new folder of checkpoints."""
    best = checkpoint["file"].parent / BEST
    if best.exists() and best.parent.resolve() != folder.resolve():
        part = folder / f"{BEST}.part"
        shutil.copyfile(best, part)
        part.replace(folder / BEST)
