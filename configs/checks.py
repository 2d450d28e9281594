"""The one check of a configuration: no key is mistyped, no value of a wrong kind, and no class outside of the table."""

import inspect
import re
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from configs import files, own
from configs.errors import ConfigError
from configs.geometries import with_pairs
from configs.kinds import described, fits, unknown_key
from configs.schema import Root
from configs.targets import check_targets, load_target
from hyperbolic.encoders.kinds import kind_of
from tasks import sizes
from tasks.local_paths import OUTSIDE
from tasks.reading import brief
from tasks.settings import flat

# What run.py adds when it builds an object, by the key of its node. To task.model and task.module it adds what their
# constructors take of geometry, encoder, model and optimizer, and of what the data supply, which only the data know.
SUPPLIED = {
    "geometry": (),
    "encoder": ("geometry", "d_in", "d_hidden", "streams", "n_entities", "n_relations", "sparse"),
    "task.data": ("probed",),
    "task.model": None,
    "task.module": None,
}
OF_A_FOLDER = (  # data.dir
    "task=kg", "task=typing", "task=nli", "task=documents", "task=graph", "task=graph_nc", "task=translation",
)  # fmt: skip
MODES = ("fit", "test", "predict")
LIMIT = 2**63  # whole numbers of a checkpoint are below
TASK = ("name", "data", "model", "module")  # every task has these, and what its file declares


def _check_whole_numbers(values: Mapping[str, Any]) -> None:
    """Raises ConfigError for a whole number that a checkpoint could not keep."""
    for key, value in flat(values).items():
        if isinstance(value, int) and not -LIMIT <= value < LIMIT:
            raise ConfigError(f"{key}={brief(value)}: take a whole number from -2**63 to 2**63 - 1, which files keep.")


def check(cfg: DictConfig) -> dict[str, Any]:
    """The configuration as plain Python values, resolved.

    Raises ConfigError, which names the key and the nearest valid ones, where a key is unknown or missing, or a value
    is not of the kind that the class it goes to asks for.
    """
    _check_fields("", cfg, Root)
    _check_task(cfg)
    _one_of("mode", cfg.mode, MODES)
    _one_of("fidelity", cfg.fidelity, ("paper", "code"))
    _check_mode(cfg)
    if cfg.explain and cfg.mode != "predict":
        raise ConfigError(f"explain=true is for mode=predict, and the mode is {cfg.mode}.")
    if cfg.skip_finished and cfg.mode != "fit":
        raise ConfigError(f"skip_finished=true is for training; leave it out of mode={cfg.mode}.")
    if not 0 <= cfg.seed < 2**32:
        raise ConfigError(f"seed must be a whole number of at least 0 and less than 2**32, and it is {cfg.seed}.")
    job = HydraConfig.get() if HydraConfig.initialized() else None
    if job and job.mode == RunMode.MULTIRUN:
        for key in ("devices", "num_nodes"):
            if cfg.trainer[key] not in (1, "1"):
                raise ConfigError(f"trainer.{key} must be 1 in a multirun (-m); start such runs one by one.")
    if job and job.mode == RunMode.RUN and (space := job.runtime.choices.get("sweep")):
        raise ConfigError(f"sweep={space} is a search, which -m starts: python run.py -m sweep={space} ...")
    for key in ("max_epochs", "check_val_every_n_epoch"):
        if isinstance(cfg.trainer[key], str) and cfg.trainer[key] != sizes.AUTO:
            raise ConfigError(f"trainer.{key}={cfg.trainer[key]}: a whole number is needed here, or {sizes.AUTO}.")
    if missing := sorted(OmegaConf.missing_keys(cfg)):
        raise ConfigError(f"{missing[0]} has no value; set it, as in {missing[0]}=...")
    if cfg.data.dir is not None and "${data.dir}" not in OmegaConf.to_yaml(cfg, resolve=False):
        data = files.plain(cfg.task.data)  # that of probing has a probed model, and a folder of trees
        place = "file" if "file" in data else "folder" if "probed" in parameters("task.data", data) else ""
        own = f"reads a {place} of your own by task.data.{place}" if place else "has its own data, below paths.data_dir"
        raise ConfigError(
            f"data.dir={cfg.data.dir} is for tasks that read a folder of your own ({', '.join(OF_A_FOLDER)}); task="
            f"{cfg.task.name} {own}. Leave data.dir out, or choose such a task."
        )
    values = files.plain(cfg)
    _check_whole_numbers(values)
    for key in ("check_val_every_n_epoch", "accumulate_grad_batches"):
        if isinstance(count := values["trainer"][key], int) and count < 1:
            raise ConfigError(f"trainer.{key} must be at least 1, and it is {count}.")
    if nameless := [key for key, value in values["paths"].items() if value == ""]:
        variable = {"data_dir": "HYPERBOLIC_DATA", "cache_dir": "HYPERBOLIC_CACHE"}.get(nameless[0])
        set_by = f" (the variable {variable} sets it, too)" if variable else ""
        raise ConfigError(f"paths.{nameless[0]} is empty{set_by}; name a folder, or leave it out.")
    check_targets(values, stored=files.has_checkpoint())
    if cfg.probe.checkpoint is not None and "probed" not in parameters("task.data", values["task"]["data"]):
        raise ConfigError(
            f"probe.checkpoint={cfg.probe.checkpoint} is for task=probing, and the task is {cfg.task.name}; leave it "
            "out, or add task=probing."
        )
    if unknown := [key for key, value in flat(values).items() if f"{OUTSIDE}/" in str(value)]:
        key = "data.dir" if "data.dir" in unknown else unknown[0]
        raise ConfigError(
            f"{key}={brief(flat(values)[key])}: a checkpoint keeps no absolute paths, and others relative to the "
            f"folder in which its run was started, where this one was not found. Say where it is with {key}=..."
            f"{' (--data FOLDER of a script)' if key == 'data.dir' else ''}"
        )
    for name in ("geometry", "geometry.parts", "encoder"):
        node = values
        for key in name.split("."):
            node = node.get(key) or {}
            if not isinstance(node, Mapping):
                raise ConfigError(f"{name}={brief(node)}: it is a node with keys of its own, as configs/{key} has it.")
    values["geometry"]["parts"] = with_pairs(values["geometry"].get("parts") or {})
    for name, supplied in SUPPLIED.items():
        node = values
        for key in name.split("."):
            node = node[key]
        if node:
            check_target(name, node, supplied)
    values["logger"] = _loggers(values["logger"])
    takes = parameters("task.model", values["task"]["model"])
    for key, none in (("encoder", "null"), ("geometry", "euclidean")):
        words = HydraConfig.get().overrides.task if HydraConfig.initialized() and key not in takes else []
        if chosen := [word for word in words if re.match(rf"\+{{0,2}}{key}[.=](?!{none}$)", word)]:
            raise ConfigError(f"{chosen[0]}: {values['task']['model']['_target_']} takes no {key}; leave it out.")
    if "encoder" not in takes:
        values["encoder"] = None
    elif values["encoder"]:
        _check_encoder(values)
    return values


def _check_mode(cfg: DictConfig) -> None:
    """Refuse files that the mode does not use: without mode=predict a run would train, and say nothing of them."""
    files_of = {"checkpoint": ("test", "predict"), "input": ("predict",), "output": ("test", "predict")}
    unused = [key for key, modes in files_of.items() if cfg[key] is not None and cfg.mode not in modes]
    if not unused:
        return
    words = " ".join(f"{key}={cfg[key]}" for key in unused)
    remedy = "Did you mean mode=predict?"
    if unused == ["checkpoint"]:
        remedy = "Did you mean mode=test or mode=predict? To go on with a training, take trainer.resume=... instead."
    raise ConfigError(f"{words}: mode={cfg.mode} does not use {' and '.join(unused)}. {remedy}")


def _loggers(node: Any) -> dict[str, Any]:
    """The loggers by name, each with its class; none for null. Raises ConfigError where one cannot be built."""
    if node is None:
        return {}
    if not isinstance(node, Mapping):
        raise ConfigError(f"logger={brief(node)}: name files of configs/logger, as logger=csv or logger=[csv,wandb].")
    loggers = {"own": node} if "_target_" in node else dict(node)
    for name, each in loggers.items():
        place = "logger" if each is node else f"logger.{name}"
        if not isinstance(each, Mapping):
            raise ConfigError(
                f"{place}={brief(each)}: the settings of a logger stand below its name, as logger.wandb.{name}=..."
            )
        check_target(place, each, ("save_dir",))
    return loggers


def encoder_kind(node: Mapping[str, Any]) -> str:
    """What the encoder of a node reads, see `kind_of`."""
    return kind_of(get_object(node["_target_"]))


def readings(node: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds that the encoder of a node may stand for: its own, and "sequences with a decoder" where it has one."""
    decodes = hasattr(get_object(node["_target_"]), "decoder")
    return encoder_kind(node), *(["sequences with a decoder"] if decodes else [])


def encoder_kinds(model: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of encoders that the model of a node takes (its `encoder_kind`, one or several)."""
    kinds = getattr(get_object(model["_target_"]), "encoder_kind", "sequences")
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _check_encoder(values: dict[str, Any]) -> None:
    """That the encoder reads what the task's model gives it."""
    kinds, own = encoder_kinds(values["task"]["model"]), readings(values["encoder"])
    if values["encoder"].get("_partial_") is not True:
        raise ConfigError(
            f"encoder={values['encoder'].get('_target_')}: its file needs the line `_partial_: true`, as the model "
            "adds the geometry and the sizes."
        )
    if not set(own).intersection(kinds):
        nodes = {file.stem: files.load(file) for file in sorted((files.FOLDER / "encoder").glob("*.yaml"))}
        fitting = {name: node["_target_"] for name, node in nodes.items() if set(readings(node)).intersection(kinds)}
        model = values["encoder"]["_target_"].rpartition(".")[2]
        same = [name for name, target in fitting.items() if target.rpartition(".")[2] == model]
        names = [*same, *(name for name in fitting if name not in same)]  # hybonet: first hybonet_graph
        raise ConfigError(
            f"task={values['task']['name']} needs an encoder of {' or '.join(kinds)}, and the one chosen is of "
            f"{own[0]}; take encoder={' or '.join(names)}."
        )


def _check_task(cfg: DictConfig) -> None:
    """Find keys of the node `task` that neither every task has (TASK) nor its file in configs/ declares.

    So a task can have settings of its own, to which others refer: `size: base` with `sizes: {base: {d: 20}}`, and
    `d: ${task.sizes.${task.size}.d}`. Of a task whose file lies elsewhere (hydra.searchpath) all keys are accepted.
    """
    node = cfg.task
    names = [str(key) for key in node]
    declared = (_read_keys(str(node.get("name"))) or set(names)).union(TASK)
    if unknown := [key for key in names if key not in declared]:
        raise ConfigError(unknown_key(f"task.{unknown[0]}", unknown[0], sorted(declared)))
    if missing := [key for key in TASK if key not in names]:
        raise ConfigError(f"task.{missing[0]} is missing; the task's file in configs/task needs it.")
    words = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    sets_labels = any(re.match(r"\+?task\.labels=", word) for word in words)
    if sets_labels and "${task.labels}" not in OmegaConf.to_yaml(node.data, resolve=False):
        raise ConfigError(
            f"task.labels={node.labels} means nothing for task={node.name}, whose classes are the labels of its files; "
            "leave it out. task.data.classes={yes: [a, b], no: [c]} joins labels."
        )
    for key, sets in (("size", "sizes"), ("labels", "label_sets")):
        if key in node and sets in node and str(node[key]) not in (choices := [str(k) for k in node[sets]]):
            raise ConfigError(f"task.{key}={node[key]}: task.{key} must be {' or '.join(choices)}.")


def _read_keys(name: str) -> set[str]:
    """The keys in the file of a task and in those that it starts from; none where there is no file."""
    if not re.fullmatch(r"\w+", name):
        return set()
    folders = (folder for folder in (own.folder(), files.FOLDER) if folder is not None)
    file = next((f for folder in folders if (f := folder / "task" / f"{name}.yaml").is_file()), None)
    if file is None:
        return set()
    node = files.load(file)
    starts = [_read_keys(start) for start in node.pop("defaults", []) if isinstance(start, str)]
    return set(node).union(*starts)


def _check_fields(name: str, node: Any, kind: Any) -> None:
    """Find keys that `+key=...` added to a node whose keys are fixed."""
    if not isinstance(node, DictConfig) or node._is_none():
        return
    types = {f.name: f.type for f in fields(kind)}
    for key in map(str, node):
        full = f"{name}.{key}" if name else key
        if key not in types:
            raise ConfigError(unknown_key(full, key, list(types)))
        for part in (types[key], *typing.get_args(types[key])):
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
    signature = parameters(name, node)
    target = get_object(node["_target_"])
    if inspect.isabstract(target):
        lacking = ", ".join(sorted(target.__abstractmethods__))
        raise ConfigError(f"{name}._target_={node['_target_']}: {target.__name__} does not define {lacking}.")
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    hints |= typing.get_type_hints(getattr(target, "Options", object))
    settings = {k: v for k, v in node.items() if not (k.startswith("_") and k.endswith("_"))}
    names = [k for k in signature if k not in (supplied or ())]
    unknown = [k for k in settings if k not in names]
    if unknown and not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.values()):
        message = unknown_key(f"{name}.{unknown[0]}", unknown[0], names)
        raise ConfigError(f"{message} {target.__name__} takes no other.")
    for key, parameter in signature.items():
        several = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        needed = parameter.default is parameter.empty and not several
        if needed and supplied is not None and key in names and key not in settings:
            raise ConfigError(f"{name}.{key} is missing: {target.__name__} needs it; set it as +{name}.{key}=...")
    for key, value in settings.items():
        if value == sizes.AUTO and f"{name}.{key}" in sizes.KEYS:
            continue  # `choosing.choose` puts a value there
        if key in hints and not fits(value, hints[key]):
            raise ConfigError(f"{name}.{key}={brief(value)}: {described(hints[key])} is needed here.")
        if isinstance(value, Mapping) and "_target_" in value:  # an encoder made of another one
            check_target(f"{name}.{key}", value, supplied)


def parameters(name: str, node: Mapping[str, Any]) -> dict[str, inspect.Parameter]:
    """The parameters of the class or function that a node names. Raises ConfigError where there is none.

    A class whose constructor takes `**options` has, as its attribute `Options`, the dataclass whose fields they are.
    """
    check_targets(node, name)
    if not isinstance(node, Mapping) or not node.get("_target_"):
        raise ConfigError(f"{name} names no class; its file in configs/ needs a line `_target_: ...`.")
    target = load_target(f"{name}._target_", node["_target_"])
    signature = dict(inspect.signature(target).parameters)
    if options := getattr(target, "Options", None):
        signature = {key: p for key, p in signature.items() if p.kind is not p.VAR_KEYWORD} | dict(
            inspect.signature(options).parameters
        )
    return signature
