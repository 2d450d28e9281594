"""Finding, reading and checking the checkpoint that a run goes on from or tests."""

import contextlib
import pickle
import re
import shlex
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor, nn

from hyperbolic.diagnostics import find_nonfinite
from tasks import exported
from tasks.base import Task
from tasks.checkpoint_parts import Origin, has_parts, selection
from tasks.checkpoint_reader import check_archive, load
from tasks.checkpoints import AVERAGE, BEFORE, BEST, LAST, epoch_files, epoch_of
from tasks.errors import UserError, quoted
from tasks.fingerprints import other_parts
from tasks.folders import whole_file
from tasks.reading import brief
from tasks.schedules import FALLING
from tasks.settings import CONTINUED, IRRELEVANT, LATER, NAME, TAKEN_UP, current, flat, is_under, settings_of

OF_DATA = ("data.", "sha256.")  # the beginnings of `differences` that are of data
STOPPED = "it was stopped early, by its trainer.patience"
# The states that a mode takes of a run's folder, the first that is there.
STATES = {"fit": (LAST,), "test": (AVERAGE, BEST, LAST), "predict": (AVERAGE, BEST, LAST)}

def read(
    path: Path, setting: str, states: tuple[str, ...] = STATES["test"], *, settings_only: bool = False
) -> dict[str, Any]:
    """The checkpoint in a file, or in a run's folder the first of `states` that is there; of a folder that was exported
    what `exported.load_checkpoint` makes of it.

    settings_only: for a look at its plain values; the numbers of tensors are neither read nor checked.

    Raises UserError where there is none, or it is damaged; `setting` is the key that named it.
    """
    file = path
    if path.is_dir() and exported.is_export(path):
        return exported.load_checkpoint(path)
    if path.is_dir():
        places = [place / state for state in states for place in (path / "checkpoints", path)]
        file = next((f for f in places if f.exists()), path / "checkpoints" / (BEST if BEST in states else LAST))
    if not file.is_file():
        runs = sorted(path.glob("*/checkpoints/")) if path.is_dir() else []
        near = f" Of the {len(runs)} runs in this folder the newest is {runs[-1].parent}." if runs else ""
        near += " A command takes one checkpoint." if "," in path.name else ""
        raise UserError(f"{setting}: there is no checkpoint {file}. Runs keep theirs in <folder>/checkpoints.{near}")
    try:
        check_archive(file)
        with zipfile.ZipFile(file) as parts:  # torch does not look whether they are what was written
            if not settings_only and (damaged := parts.testzip()):
                raise ValueError(f"the checksum of {damaged} is wrong")
        checkpoint = load(file, "cpu", mmap=settings_only)
    except Exception as error:  # torch raises many kinds for a damaged file
        if isinstance(error, pickle.UnpicklingError):  # torch's message advises to execute what the file holds
            raise UserError(
                f"{setting}: {file} is damaged, or it holds more than tensors and plain values, which a checkpoint of "
                "this program does not. Reading such objects could run any program, so it was not read. Use a "
                "checkpoint that a run of this program wrote."
            ) from None
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:120]
        raise UserError(f"{setting}: {file} is damaged or no checkpoint ({reason}). Use another one.") from error
    if isinstance(checkpoint, dict) and "settings" in checkpoint and "config" not in checkpoint:
        raise UserError(
            f"{setting}: {file} lacks the configuration of its run, which rebuilds the model: it was written before "
            "checkpoints kept it. Use the version of this program that wrote it, or train again."
        )
    if not isinstance(checkpoint, dict) or not has_parts(checkpoint):
        raise UserError(f"{setting}: {file} is not a checkpoint of this program. Use one that a run of it wrote.")
    return checkpoint | {"file": file}


def differences(checkpoint: Mapping[str, Any], origin: Origin, keys: tuple[str, ...]) -> list[str]:
    """Where a checkpoint's settings differ from this run's, as `key=theirs, not ours`, and where the data that it was
    trained with do, as `sha256.<part>=theirs, not ours`."""

    by_length = {"trainer.check_val_every_n_epoch"} & {*origin.auto} & {*checkpoint.get("auto", [])}

    def compared(key: str) -> bool:
        return key not in (*IRRELEVANT, *by_length) and is_under(key, keys)

    ours = current(settings_of(origin.config, origin.data))
    theirs = current(settings_of(checkpoint["config"], checkpoint["data"]))
    theirs = {k: v for k, v in LATER.items() if k in ours} | theirs
    continued = keys in (CONTINUED, TAKEN_UP)
    if continued and ours.get("optim.schedule") in FALLING:
        keys = (*keys, "trainer.max_epochs", "trainer.max_steps")  # the learning rate falls to 0 at their end
    names = [k for k in dict.fromkeys([*theirs, *ours]) if compared(k)]
    names.sort(key=lambda k: k != "task.name")
    unequal = {k: (theirs.get(k), ours.get(k)) for k in names if _differ(k, theirs.get(k), ours.get(k))}
    if continued:
        shas = _sha256(checkpoint)
        unequal |= {f"sha256.{part}": (shas[part], own) for part, own in other_parts(origin.sha256, shas).items()}
    return [f"{brief(k)[1:-1]}={brief(a)}, not {brief(b)}" for k, (a, b) in unequal.items()]


def _differ(key: str, one: Any, other: Any) -> bool:
    """Whether two values of a setting mean different things: of a limit 1 is a batch, and 1.0 the whole."""
    a_part = key.startswith("trainer.limit_") or key == "trainer.val_check_interval"
    return one != other or (a_part and isinstance(one, float) != isinstance(other, float))


def _sha256(checkpoint: Mapping[str, Any]) -> dict[str, str]:
    """Of the data that it was trained with, by part; empty in a checkpoint from before it was kept."""
    return checkpoint.get("sha256", {})


def check_same(checkpoint: Mapping[str, Any], origin: Origin, keys: tuple[str, ...], setting: str) -> None:
    """Raise UserError where the checkpoint belongs to a run with other settings."""
    if unequal := differences(checkpoint, origin, keys):
        more = f", and {len(unequal) - 3} more" if len(unequal) > 3 else ""
        others = [difference for difference in unequal if not difference.startswith(OF_DATA)]
        and_data = " and the data" if len(others) < len(unequal) else ""
        remedy = f"Give this run the settings{and_data} of the checkpoint"
        if all(difference.startswith("trainer.max_") for difference in unequal):
            schedule = checkpoint["config"]["optim"]["schedule"]
            remedy = (
                f"Its learning rate falls to 0 at that end (optim.schedule={schedule}), so keep it, or train anew, to "
                "this end or with optim.schedule=constant, which can be trained further"
            )
        if not others:
            remedy = (
                "These are other data than it was trained with: put back its files (paths.data_dir, HYPERBOLIC_DATA or "
                "data.dir say where they lie) and its settings of task.data"
            )
        raise UserError(
            f"{setting}: {checkpoint['file']} was trained with {'; '.join(unequal[:3])}{more}. {remedy}, or choose "
            "another checkpoint."
        )


def say_other_data(checkpoint: Mapping[str, Any], origin: Origin) -> None:
    """Print a line where a model is measured with other data than its run had."""
    if parts := ", ".join(other_parts(origin.sha256, _sha256(checkpoint))):
        rank_zero_only(print)(
            f"note: {parts}: these are other data than those of the run that trained the model, and numbers may differ "
            "from its own for that reason.",
            flush=True,
        )


def dtype_of(precision: Any) -> torch.dtype:
    """Of weights that were trained with a trainer.precision."""
    return torch.float64 if str(precision).startswith("64") else torch.float32


def load_weights(model: nn.Module, checkpoint: dict[str, Any], setting: str) -> None:
    """Put the checkpoint's weights into the module. Raises UserError where names, shapes or kinds of numbers differ,
    and for NaN and infinity."""
    weights, own = checkpoint["state_dict"], model.state_dict()
    for name, value in weights.items():
        if name in own and isinstance(value, Tensor) and value.is_floating_point() != own[name].is_floating_point():
            kinds = f"{name} holds {value.dtype}, and {own[name].dtype} is needed"
            raise UserError(f"{setting}: {checkpoint['file']} does not fit this model ({kinds}).")
    try:
        model.load_state_dict(weights)
    except Exception as error:  # torch raises many kinds for what are no weights
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{setting}: {checkpoint['file']} does not fit this model ({reason}).") from error
    if names := find_nonfinite(dict(model.named_parameters())):
        raise UserError(
            f"{setting}: {checkpoint['file']} holds NaN or infinity in {names[0]} (tensors with them: {len(names)}), "
            "so it gives no result. Use another checkpoint."
        )


class Finished(Exception):
    """The run that was to go on has nothing left to do; the message says why, and how to train it further."""

    def __init__(self, message: str, record: Path):
        super().__init__(message)
        self.record = record


def check_unfinished(checkpoint: dict[str, Any], max_epochs: int | None, max_steps: int, setting: str) -> None:
    """Raise Finished where there is nothing left to do, UserError where there is no state to go on from."""
    file = checkpoint["file"]
    if "optimizer_states" not in checkpoint:
        raise UserError(f"{setting}: {file} holds weights only; resume from {LAST} (this one suits mode=test).")
    states = checkpoint["optimizer_states"]
    if not isinstance(states, list) or not states or not all(isinstance(state, dict) for state in states):
        raise UserError(
            f"{setting}: the state of the training in {file} is damaged (it has none of an optimiser). Resume from "
            "another checkpoint, or train again."
        )
    if (reason := finished(checkpoint, max_epochs, max_steps)) and record_of(checkpoint).exists():
        further = f"raise trainer.{'max_steps' if 'trainer.max_steps' in reason else 'max_epochs'}"
        if (schedule := checkpoint["config"]["optim"].get("schedule")) in FALLING:
            further = f"begin anew with more of them, as its learning rate has come to 0 (optim.schedule={schedule})"
        if reason == STOPPED:
            further = "begin anew, with a larger trainer.patience"
        raise Finished(f"finished before ({reason}); to train it further, {further}", record_of(checkpoint))


def record_of(checkpoint: Mapping[str, Any]) -> Path:
    """Where the run that wrote a checkpoint has its record, when it was not only trained but tested as well."""
    folder: Path = checkpoint["file"].absolute().parent.parent
    return folder / "record.json"


def epochs_of(checkpoint: Mapping[str, Any]) -> int:
    """How many epochs were trained until last.ckpt was written."""
    return int(checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"])


def finished(checkpoint: dict[str, Any], max_epochs: int | None, max_steps: int) -> str | None:
    """Why a run has nothing left to train, or None."""
    try:
        epochs = epochs_of(checkpoint)
        step = int(checkpoint["global_step"])
        stopped = checkpoint["callbacks"]["Checkpoints"].get("should_stop")
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        reason = brief(str(error))
        raise UserError(f"{checkpoint['file']} is damaged: its state of the training lacks {reason}.") from error
    if max_epochs is not None and 0 <= max_epochs <= epochs:
        if epochs > max_epochs:
            return f"it has {epochs} epochs, more than trainer.max_epochs={max_epochs}"
        return f"{epochs} epochs of trainer.max_epochs={max_epochs}"
    if 0 <= max_steps <= step:
        return f"{step} steps of trainer.max_steps={max_steps}"
    return STOPPED if stopped is True else None


def checkpoint_to_continue(
    resume: str, runs: Path, origin: Origin, max_epochs: int | None, max_steps: int
) -> dict[str, Any] | None:
    """The checkpoint that trainer.resume means: a file, a run's folder, or "auto".

    "auto" is the newest unfinished run with these settings and data among the folders in `runs`, or None where there is
    none; one line says where the data alone are others.
    Raises Finished where the named run has nothing left to do, UserError where its checkpoint cannot be continued.
    """
    setting = f"trainer.resume={resume}"
    if resume != "auto":
        checkpoint = read(Path(resume), setting, STATES["fit"])
        check_same(checkpoint, origin, CONTINUED, setting)
        check_unfinished(checkpoint, max_epochs, max_steps, setting)
        return checkpoint
    files = sorted(runs.glob(f"*/checkpoints/{LAST}"), key=lambda f: f.stat().st_mtime, reverse=True)
    remark = None
    for file in files:
        try:
            checkpoint = read(file, setting, settings_only=True)
        except UserError:
            continue
        with contextlib.suppress(UserError):  # a damaged one
            if finished(checkpoint, max_epochs, max_steps) and record_of(checkpoint).exists():
                continue
            unequal = differences(checkpoint, origin, TAKEN_UP)
            if not unequal:
                return read(file, setting)
            if all(difference.startswith(OF_DATA) for difference in unequal):
                which = ", ".join(other_parts(origin.sha256, _sha256(checkpoint))) or unequal[0]
                remark = remark or f"{setting}: begins anew, as {file} was trained with other data ({which})"
    if remark:
        rank_zero_only(print)(remark, flush=True)
    return None


def word(file: Path) -> str:
    """The word that goes on from a checkpoint, `trainer.resume=FILE`, as it can be pasted into a shell: what Hydra may
    not read as it stands is in quotes of its own."""
    text = str(file) if re.fullmatch(r"[\w./ +-]*", str(file)) else quoted(str(file))
    return shlex.quote(f"trainer.resume={text}")


def adopt_name(task: Task, checkpoint: Mapping[str, Any]) -> None:
    """A run that was chosen by a checkpoint has the name and the experiment of the run that wrote it."""
    if task.origin.experiment == "checkpoint":
        names = {key: checkpoint.get(key) for key in ("experiment", "name")}
        safe = {k: name if isinstance(name, str) and NAME.fullmatch(name) else None for k, name in names.items()}
        task.origin = replace(task.origin, experiment=safe["experiment"], name=safe["name"] or task.origin.name)


def _code(checkpoint: Mapping[str, Any], own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The versions of the code that trained a checkpoint, and `own` where it is another one; of a checkpoint from
    before they were kept an unknown one."""
    earlier = checkpoint.get("code") or [dict.fromkeys(("commit", "dirty", "versions"))]
    return [*earlier, *(each for each in own if each != earlier[-1])]


def take_over(
    task: Task, checkpoint: dict[str, Any], folder: Path, setting: str, max_epochs: int, max_steps: int
) -> None:
    """Give the task the weights of the checkpoint and the versions of the code that trained it, and copy the best
    weights of the run that is continued, and those of its last epochs, into its new folder.

    Raises UserError where weights do not fit, where there was a best state and its file is missing or one of these
    files is damaged, and where a state lies beyond the end of the new run, before anything is trained.
    """
    source, own = checkpoint["file"].parent, checkpoint.get("callbacks", {}).get("Checkpoints")
    ends = {checkpoint["file"]: (epochs_of(checkpoint), int(checkpoint["global_step"]))}
    if isinstance(own, dict) and own.get("best"):
        best = read(source / (BEFORE if (source / BEFORE).exists() else BEST), setting)
        load_weights(task, best, setting)
        try:
            selected = selection(best.get("best", own["best"]))
        except ValueError as error:
            raise UserError(f"{setting}: {best['file']} is damaged ({error}). Use another one.") from error
        ends[best["file"]] = selected["epoch"], selected["step"]
    for file in (latest := epoch_files(source)):  # whose mean the run ends with
        load_weights(task, read(file, setting), setting)
    for file in latest[-1:]:
        ends[file] = epoch_of(file), 0
    for file, (epoch, step) in ends.items():
        if 0 <= max_epochs < epoch or 0 <= max_steps < step:
            end = f"max_epochs={max_epochs}" if 0 <= max_epochs < epoch else f"max_steps={max_steps}"
            place = f"epoch {epoch}" + (f", step {step}" if step else "")
            raise UserError(
                f"{setting}: {file} is of {place}, which trainer.{end} does not reach. Raise trainer.max_epochs and "
                "trainer.max_steps, or train again without trainer.resume."
            )
    load_weights(task, checkpoint, setting)
    ours, theirs = flat(task.origin.config), flat(checkpoint["config"])
    auto = [key for key in checkpoint.get("auto", []) if key in theirs and ours.get(key) == theirs[key]]
    auto = list(dict.fromkeys([*task.origin.auto, *auto]))
    task.origin = replace(task.origin, code=_code(checkpoint, task.origin.code), auto=auto)
    if source.resolve() == folder.resolve():
        return
    before = source / BEFORE
    for file in [before if before.exists() else source / BEST, *latest]:
        if file.exists():
            with whole_file(folder / (BEST if file == before else file.name)) as part:
                shutil.copyfile(file, part)
