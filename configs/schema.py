"""Types of the fixed parts of the configuration, and the check that no key is mistyped and no value of a wrong kind.

The groups task, geometry, encoder and logger name classes with `_target_`; their keys are checked against the
parameters of these classes.
"""

import copy
import inspect
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from hydra.utils import get_object
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from configs.errors import ConfigError
from configs.files import FOLDER, load, plain
from configs.geometries import with_pairs
from configs.kinds import described, fits, unknown_key
from configs.targets import check_targets

# What run.py adds when it builds an object, by the key of its node. To task.model and task.module it adds what their
# constructors take of geometry, encoder, model and optimizer, and of what the data supply, which only the data know.
SUPPLIED = {
    "geometry": (),
    "encoder": ("geometry", "d_in", "d_hidden", "streams", "n_entities", "n_relations", "sparse"),
    "logger": ("save_dir",),
    "task.data": (),
    "task.model": None,
    "task.module": None,
}
NOT_COMPOSED = (HydraException, OmegaConfBaseException)  # words that do not make a configuration
MODES = ("fit", "test", "predict")
TASK = ("name", "data", "model", "module")  # every task has these, and what its file declares


@dataclass
class Paths:
    data_dir: str = MISSING
    output_dir: str = MISSING
    cache_dir: str = MISSING


@dataclass
class Data:
    dir: str | None = MISSING


@dataclass
class Role:
    """Settings of the optimiser for one kind of parameters; what is null is as for the others."""

    rule: str | None = None
    lr: float | None = None
    weight_decay: float | None = None


@dataclass
class Plateau:
    """Settings of schedule=plateau."""

    factor: float = MISSING
    patience: int = MISSING


@dataclass
class Optim:
    rule: str = MISSING
    lr: float = MISSING
    betas: list[float] = MISSING
    eps: float = MISSING
    momentum: float = MISSING
    amsgrad: bool = MISSING
    weight_decay: float = MISSING
    max_grad_norm: float | None = MISSING
    clip: str = MISSING
    exact_exp: bool = MISSING
    stabilize: int | None = MISSING
    schedule: str = MISSING
    warmup_steps: int = MISSING
    d_model: int | None = MISSING
    plateau: Plateau = field(default_factory=Plateau)
    embeddings: Role = field(default_factory=Role)
    biases: Role = field(default_factory=Role)
    matrices: Role = field(default_factory=Role)


@dataclass
class Trainer:
    max_epochs: int | None = MISSING
    min_epochs: int | None = MISSING
    max_steps: int = MISSING
    limit_train_batches: int | float = MISSING
    limit_val_batches: int | float = MISSING
    limit_test_batches: int | float = MISSING
    val_check_interval: int | float = MISSING
    check_val_every_n_epoch: int = MISSING
    accumulate_grad_batches: int = MISSING
    precision: str = MISSING
    accelerator: str = MISSING
    devices: int | str = MISSING
    num_nodes: int = MISSING
    strategy: str = MISSING
    deterministic: bool = MISSING
    log_every_n_steps: int = MISSING
    enable_progress_bar: bool = MISSING
    resume: str | None = MISSING
    checkpoint_every_n_steps: int | None = MISSING
    patience: int | None = MISSING
    average_last: int | None = MISSING
    nan_check_every_n_steps: int = MISSING
    compile: Any = MISSING
    threads: int | None = MISSING
    progress_every_n_steps: int = MISSING


@dataclass
class Root:
    task: Any = MISSING
    geometry: Any = MISSING
    encoder: Any = MISSING
    optim: Optim = field(default_factory=Optim)
    trainer: Trainer = field(default_factory=Trainer)
    logger: Any = None
    seed: int = MISSING
    mode: str = MISSING
    checkpoint: str | None = MISSING
    input: str | None = MISSING
    output: str | None = MISSING
    check_points: bool = MISSING
    fidelity: str = MISSING
    paths: Paths = field(default_factory=Paths)
    data: Data = field(default_factory=Data)


def register(stored_name: str | None = None) -> None:
    """Tell Hydra the types (as the config `schema`) and how the folder of a run is named (`run_name`).

    stored_name: of the run whose checkpoint is chosen as `experiment=checkpoint` (`configs.stored`).
    """
    root = OmegaConf.structured(Root)
    # The open nodes: the model checks the names of its components, the geometry those of its layers and their settings.
    nodes = ("parts", "options", "settings")
    root.geometry = OmegaConf.create({k: OmegaConf.create({}, flags={"struct": False}) for k in nodes})
    ConfigStore.instance().store(name="schema", node=root)
    stored = stored_name if re.fullmatch(r"\w[\w.,=+-]{0,199}", str(stored_name)) else None

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
    mode: str = "fit",
) -> str:
    """The experiment's name, or what was chosen: task-geometry-encoder, or task-geometry where the class `model` takes
    no encoder, with the name of `folder` (data.dir) after the task. Runs that train nothing are named by their mode."""
    if mode != "fit":
        return mode
    if experiment:
        return experiment
    try:
        has_encoder = "encoder" in parameters("task.model", {"_target_": model})
    except ConfigError:  # reported when the run starts
        has_encoder = True
    own = [Path(folder).resolve().name] if folder else []
    return "-".join([task, *own, geometry, *([encoder] if has_encoder else [])])


def composed(*overrides: str) -> DictConfig:
    """The configuration that these words on the command line give, without running anything; a run around it stays."""
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(FOLDER), job_name="run", version_base="1.3"):
            return compose("config", overrides=list(overrides))
    finally:
        GlobalHydra.instance().hydra = outer


def split(words: tuple[str, ...]) -> tuple[list[str], dict[str, Any]]:
    """Of words on the command line those that choose files, as `geometry=klein`, and the others' settings by key."""
    files, settings = [], {}
    for word in OverridesParser.create().parse_overrides(list(words)):
        if word.is_add() or word.is_delete() or (FOLDER / word.key_or_group).is_dir():
            files.append(word.input_line or "")
        else:
            settings[word.key_or_group] = word.value()
    return files, settings


def changed(cfg: DictConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A composed configuration with other settings, as plain Python values, resolved; `cfg` itself stays as it is."""
    cfg = copy.deepcopy(cfg)
    for key, value in settings.items():
        OmegaConf.update(cfg, key, value)
    return plain(cfg)


def check(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain Python values, resolved.

    Raises ConfigError, which names the key and the nearest valid ones, where a key is unknown or missing, or a value
    is not of the kind that the class it goes to asks for.
    """
    _check_fields("", cfg, Root)
    _check_task(cfg)
    _one_of("mode", cfg.mode, MODES)
    _one_of("fidelity", cfg.fidelity, ("paper", "code"))
    if not 0 <= cfg.seed < 2**32:
        raise ConfigError(f"seed must be a whole number of at least 0 and less than 2**32, and it is {cfg.seed}.")
    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN and cfg.trainer.devices not in (1, "1"):
        raise ConfigError("trainer.devices must be 1 in a multirun (-m); start runs on several devices one by one.")
    if missing := sorted(OmegaConf.missing_keys(cfg)):
        raise ConfigError(f"{missing[0]} has no value; set it, as in {missing[0]}=...")
    if cfg.data.dir is not None and "${data.dir}" not in OmegaConf.to_yaml(cfg, resolve=False):
        raise ConfigError(
            f"data.dir={cfg.data.dir} is for tasks that read a folder of your own (task=kg, task=nli); task="
            f"{cfg.task.name} has its own data, below paths.data_dir. Leave data.dir out, or choose such a task."
        )
    values = plain(cfg)
    check_targets(values)
    values["geometry"]["parts"] = with_pairs(values["geometry"].get("parts") or {})
    for name, supplied in SUPPLIED.items():
        node = values
        for key in name.split("."):
            node = node[key]
        if node:
            check_target(name, node, supplied)
    if "encoder" not in parameters("task.model", values["task"]["model"]):
        values["encoder"] = None
    elif values["encoder"]:
        _check_encoder(values)
    return values


def encoder_kind(node: Mapping[str, Any]) -> str:
    """What the encoder of a node reads (its `kind`): sequences, where it does not say."""
    return getattr(get_object(node["_target_"]), "kind", "sequences")


def encoder_kinds(model: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of encoders that the model of a node takes (its `encoder_kind`, one or several)."""
    kinds = getattr(get_object(model["_target_"]), "encoder_kind", "sequences")
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _check_encoder(values: dict[str, Any]) -> None:
    """That the encoder reads what the task's model gives it."""
    kinds, kind = encoder_kinds(values["task"]["model"]), encoder_kind(values["encoder"])
    if kind not in kinds:
        fitting = [
            file.stem
            for file in sorted((FOLDER / "encoder").glob("*.yaml"))
            if encoder_kind(load(file)) in kinds
        ]
        raise ConfigError(
            f"task={values['task']['name']} needs an encoder of {' or '.join(kinds)}, and the one chosen is of "
            f"{kind}; take encoder={' or '.join(fitting)}."
        )


def _check_task(cfg: DictConfig) -> None:
    """Find keys of the node `task` that neither every task has (TASK) nor its file in configs/ declares.

    So a task can have settings of its own, to which others refer: `size: base` with `sizes: {base: {d: 20}}`, and
    `d: ${task.sizes.${task.size}.d}`. Of a task whose file lies elsewhere (hydra.searchpath) all keys are taken.
    """
    node = cfg.task
    names = [str(key) for key in node]
    known = _declared(str(node.get("name"))) or set(names)
    if unknown := [key for key in names if key not in known.union(TASK)]:
        raise ConfigError(unknown_key(f"task.{unknown[0]}", unknown[0], sorted(known.union(TASK))))
    if missing := [key for key in TASK if key not in names]:
        raise ConfigError(f"task.{missing[0]} is missing; the task's file in configs/task needs it.")
    for key, sets in (("size", "sizes"), ("labels", "label_sets")):
        if key in node and sets in node and str(node[key]) not in (choices := [str(k) for k in node[sets]]):
            raise ConfigError(f"task.{key}={node[key]}: task.{key} must be {' or '.join(choices)}.")


def _declared(name: str) -> set[str]:
    """The keys in the file of a task and in those that it starts from; none where there is no file."""
    file = FOLDER / "task" / f"{name}.yaml"
    if not file.is_file():
        return set()
    node = load(file)
    starts = [_declared(start) for start in node.pop("defaults", []) if isinstance(start, str)]
    return set(node).union(*starts)


def _check_fields(name: str, node: Any, kind: Any) -> None:
    """Find keys that `+key=...` added to a node whose keys are fixed."""
    if not isinstance(node, DictConfig) or node._is_none():
        return
    known = {f.name: f.type for f in fields(kind)}
    for key in map(str, node):
        full = f"{name}.{key}" if name else key
        if key not in known:
            raise ConfigError(unknown_key(full, key, list(known)))
        for part in (known[key], *typing.get_args(known[key])):
            if is_dataclass(part) and not OmegaConf.is_missing(node, key):
                _check_fields(full, node[key], part)


def _one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{key}={value}: {key} must be {' or '.join(choices)}.")


def check_target(name: str, node: Mapping[str, Any], supplied: tuple[str, ...] | None) -> None:
    """Compare a node's keys and values with the parameters of the class or function that it names.

    supplied: the parameters that do not come from the configuration; None: not known yet, so none is missing.
    Raises ConfigError where they do not agree.
    """
    taken = parameters(name, node)
    target = get_object(node["_target_"])
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    settings = {k: v for k, v in node.items() if not (k.startswith("_") and k.endswith("_"))}
    known = [k for k in taken if k not in (supplied or ())]
    unknown = [k for k in settings if k not in known]
    if unknown and not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken.values()):
        raise ConfigError(unknown_key(f"{name}.{unknown[0]}", unknown[0], known))
    for key, parameter in taken.items():
        several = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        needed = parameter.default is parameter.empty and not several
        if needed and supplied is not None and key in known and key not in settings:
            raise ConfigError(f"{name}.{key} is missing: {target.__name__} needs it; set it as +{name}.{key}=...")
    for key, value in settings.items():
        if key in hints and not fits(value, hints[key]):
            raise ConfigError(f"{name}.{key}={value!r}: {described(hints[key])} is needed here.")
        if isinstance(value, Mapping) and "_target_" in value:  # an encoder made of another one
            check_target(f"{name}.{key}", value, supplied)


def parameters(name: str, node: Mapping[str, Any]) -> dict[str, inspect.Parameter]:
    """The parameters of the class or function that a node names. Raises ConfigError where there is none."""
    check_targets(node)
    if not isinstance(node, Mapping) or not node.get("_target_"):
        raise ConfigError(f"{name} names no class; its file in configs/ needs a line `_target_: ...`.")
    try:
        target = get_object(node["_target_"])
    except Exception as error:
        raise ConfigError(f"{name}._target_={node['_target_']} is not found ({error}).") from error
    return dict(inspect.signature(target).parameters)
