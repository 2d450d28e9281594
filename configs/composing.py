"""Composing a configuration from the files and words that Hydra reads, and what a run's folder is called."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from configs import files, own
from configs.errors import ConfigError
from configs.schema import Root
from tasks.settings import NAME

SEARCH = "hydra_plugins.search"  # what Hydra knows our sweeper by (configs.sweeper)
NOT_COMPOSED = (HydraException, OmegaConfBaseException)  # words that do not make a configuration


class OwnFolder(SearchPathPlugin):
    """Puts the user's own folder of configurations before ours."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if (folder := own.folder()) is not None:
            search_path.prepend("own", f"file://{folder}")


def _register_own_folder() -> None:
    """Again where Hydra has made its plugins anew, as joblib's launcher does with a job in its own process."""
    if OwnFolder not in Plugins.instance().discover(SearchPathPlugin):
        Plugins.instance().register(OwnFolder)


_register_own_folder()


def register(stored_name: str | None = None) -> None:
    """Tell Hydra the types (as the config `schema`) and how the folder of a run is named (`run_name`).

    stored_name: of the run whose checkpoint is chosen as `experiment=checkpoint` (`configs.stored`).
    """
    root = OmegaConf.structured(Root)
    # The open nodes: the model checks the names of its components, the geometry those of its layers and their settings.
    nodes = ("parts", "options", "settings")
    root.geometry = OmegaConf.create({k: OmegaConf.create({}, flags={"struct": False}) for k in nodes})
    ConfigStore.instance().store(name="schema", node=root)
    jobs = {"jobs": {"_target_": "configs.multirun.Jobs"}}  # in no file: it is none of what a configuration may name
    ConfigStore.instance().store(group="hydra/callbacks", name="jobs", node=jobs)
    ConfigStore.instance().store(group="hydra/sweeper", name="plugin", node={"_target_": SEARCH})
    stored = None
    if isinstance(stored_name, str):
        stored = stored_name if NAME.fullmatch(stored_name) else None

    def name(experiment: str | None, *choices: Any) -> str:
        return run_name(stored or experiment if experiment == "checkpoint" else experiment, *choices)

    OmegaConf.register_new_resolver("run_name", name, replace=True)


def run_name(
    experiment: str | None,
    task: str,
    geometry: str,
    encoder: str,
    model: str | None,
    folder: str | None = None,
    file: str | None = None,
    mode: str = "fit",
) -> str:
    """The experiment's name, or what was chosen: task-geometry-encoder, or task-geometry where the class `model` takes
    no encoder, with the name of `folder` (data.dir) or `file` (task.data.file) after the task. Runs that train nothing
    are named by their mode."""
    if mode != "fit":
        return mode
    if experiment:
        return experiment
    from configs.checks import parameters  # which imports torch

    try:
        has_encoder = "encoder" in parameters("task.model", {"_target_": model})
    except ConfigError:  # reported when the run starts
        has_encoder = True
    own = [Path(str(place)).resolve().name for place in (folder or file,) if place]
    return "-".join([task, *own, geometry, *([encoder] if has_encoder else [])])


def composed(*overrides: str) -> DictConfig:
    """The configuration that these words on the command line give, without running anything; a run around it stays."""
    _register_own_folder()
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(files.FOLDER), job_name="run", version_base="1.3"):
            return compose("config", overrides=list(overrides))
    finally:
        GlobalHydra.instance().hydra = outer


def split(words: tuple[str, ...]) -> tuple[list[str], dict[str, Any]]:
    """Of words on the command line those that choose files, as `geometry=klein`, and the others' settings by key."""
    choices, settings = [], {}
    for word in OverridesParser.create().parse_overrides(list(words)):
        if word.is_add() or word.is_delete() or (files.FOLDER / word.key_or_group).is_dir():
            choices.append(word.input_line or "")
        else:
            settings[word.key_or_group] = word.value()
    return choices, settings


def changed(cfg: DictConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A composed configuration with other settings, as plain Python values, resolved; `cfg` itself stays as it is."""
    cfg = copy.deepcopy(cfg)
    for key, value in settings.items():
        OmegaConf.update(cfg, key, value)
    return files.plain(cfg)
