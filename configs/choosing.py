"""The settings that a task leaves open for the size of its data (`auto`), settled before a run is built."""

import copy
from typing import Any

from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.utilities import rank_zero_only

from configs import build, checks
from tasks import sizes
from tasks.base import TaskData
from tasks.resume import flat


def choose(cfg: DictConfig, values: dict[str, Any]) -> tuple[DictConfig, dict[str, Any], TaskData | None]:
    """A configuration with what `tasks.sizes` settles in the place of `auto`, as composed and as values, and the data
    that were read for it. One that says `auto` nowhere stays as it is, and nothing is read: then the data are None.

    values: of `cfg`, from `checks.check`.

    Raises:
        UserError: the data cannot be read, or no rule settles a setting.
    """
    settings = flat(values)
    if all(settings.get(key) != sizes.AUTO for key in sizes.KEYS):
        return cfg, values, None
    data = _data(values)
    settled, lines = sizes.settle(_kind(data), data.fingerprint(), settings)
    cfg = copy.deepcopy(cfg)
    for key, value in settled.items():
        OmegaConf.update(cfg, key, value)
    values = checks.check(cfg)
    data.batch_size = values["task"]["data"]["batch_size"]
    for line in lines:
        rank_zero_only(print)(line, flush=True)
    return cfg, values, data


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
