"""The settings that a task leaves open for the size of its data (`auto`), settled before a run is built."""

import copy
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from configs import build, checks
from configs.targets import check_plain
from tasks import sizes, vocabularies
from tasks.base import TaskData
from tasks.errors import UserError
from tasks.local_paths import OUTSIDE
from tasks.prediction import Files
from tasks.settings import LATER, flat


def choose(
    cfg: DictConfig, values: dict[str, Any], files: Files | None = None
) -> tuple[DictConfig, dict[str, Any], TaskData | None]:
    """A configuration with values in the place of `auto`, as composed and as values, and the data that were read for
    it. With a checkpoint of the same task, in mode=test and mode=predict, the values are those that it was trained
    with; otherwise `tasks.sizes` settles them. One that says `auto` nowhere stays as it is, and nothing is read: then
    the data are None.

    values: of `cfg`, from `checks.check`. files: of the run; None of one that uses no checkpoint.

    Raises:
        UserError: checkpoint or data cannot be read, or no rule settles a setting. ConfigError: the checkpoint holds
            what no configuration may hold.
    """
    cfg, values = _change(cfg, values, _kept(values, files) if files else {})
    if not open_settings(values):
        return cfg, values, None
    data = _data(values)
    settled, lines = sizes.settle(_kind(data), data.fingerprint(), flat(values), len(data.splits()["train"]))
    cfg, values = _change(cfg, values, settled)
    data.batch_size = values["task"]["data"]["batch_size"]
    for line in lines:
        rank_zero_only(print)(line, flush=True)
    return cfg, values, data


def open_settings(values: dict[str, Any]) -> list[str]:
    """The settings that the size of the data is to decide, by dotted key."""
    settings = flat(values)
    return [key for key in sizes.KEYS if settings.get(key) == sizes.AUTO]


def _change(
    cfg: DictConfig, values: dict[str, Any], settings: Mapping[str, Any]
) -> tuple[DictConfig, dict[str, Any]]:
    """Configuration and values with other `settings`, by dotted key."""
    if not settings:
        return cfg, values
    cfg = copy.deepcopy(cfg)
    for key, value in settings.items():
        OmegaConf.update(cfg, key, value)
    return cfg, checks.check(cfg)


def _kept(values: dict[str, Any], files: Files) -> dict[str, Any]:
    """What the checkpoint that is used has for the settings that are open; with a vocabulary, which is enough for
    predictions, also the name of the data's folder where none is given."""
    unnamed = values["mode"] == "predict" and values["data"]["dir"] is None
    if values["mode"] == "fit" or files.checkpoint is None or not (open_settings(values) or unnamed):
        return {}
    config = files.state["config"]
    name, theirs = build.name_of_task(values), build.name_of_task(config)
    if name != theirs:
        if open_settings(values):  # otherwise it is refused later
            raise UserError(f"checkpoint={files.checkpoint} is of task={theirs}, not of task={name}; leave it out.")
        return {}
    check_plain(config, f"checkpoint={files.checkpoint}: {files.state['file']}")
    settings = LATER | flat(config)
    kept = {key: settings[key] for key in open_settings(values) if key in settings}
    folder = settings.get("data.dir")
    if unnamed and isinstance(folder, str) and files.state.get(vocabularies.KEY) is not None:
        kept["data.dir"] = folder.removeprefix(f"{OUTSIDE}/")
    return kept


def _data(values: dict[str, Any]) -> TaskData:
    """The data of a task whose batch size may still be open; until it is known they are not cut into batches."""
    values = copy.deepcopy(values)
    node = values["task"]["data"]
    if node["batch_size"] == sizes.AUTO:
        node["batch_size"] = 1
    return build.make_data(values)


def _kind(data: TaskData) -> str:
    """The folder in tasks/ of a class of data, or of one that it is made from."""
    modules = (parent.__module__.split(".") for parent in type(data).__mro__)
    return next(names[1] for names in modules if names[0] == "tasks")
