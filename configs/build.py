"""A task with its model and its data from a configuration: the one way in which run.py and scripts build them."""

import functools
import inspect
import site
import sysconfig
import traceback
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from hydra.errors import HydraException, InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf.errors import OmegaConfBaseException
from torch import nn
from torch.optim import Optimizer

from configs import checks, composing, own, stored
from configs.errors import ConfigError, paragraph
from configs.words import quoted
from hyperbolic.diagnostics import NonFiniteError
from hyperbolic.geometry import Geometry
from hyperbolic.layers.guard import OffManifoldError, validate_points
from tasks import optimizers, resume, vocabularies
from tasks.base import Task, TaskData
from tasks.errors import UserError
from tasks.schedules import Schedule
from tasks.trainer import check_precision

# What a user can get wrong: reported in one paragraph. Other errors are ours.
MISTAKES = (UserError, ConfigError, HydraException, OmegaConfBaseException, NonFiniteError, OffManifoldError, OSError)
ROOT = Path(__file__).resolve().parent.parent
OURS = [ROOT / name for name in ("hyperbolic", "tasks", "configs", "scripts", "run.py")]
REFUSALS = (ValueError, NotImplementedError, InstantiationException)  # of settings, by what is built of them
make = functools.partial(instantiate, _convert_="all")


def build(
    values: Mapping[str, Any], checkpoint: Mapping[str, Any] | None = None, data: TaskData | None = None
) -> tuple[Task, TaskData]:
    """The task with its model, new, and its data.

    values: the resolved configuration, from `checks.check`, which has let every `_target_` through the gate.
    checkpoint: whose vocabulary takes the place of the data's files, where it keeps one; None: files are read.
    data: those of these values, where they were made before (`choosing.choose`).

    Raises:
        UserError: a class refuses its settings, or the vocabulary is damaged.
    """
    vocabulary = None
    if checkpoint is not None and name_of_task(checkpoint["config"]) == name_of_task(values):
        vocabulary = vocabularies.kept(checkpoint)  # of another task, which is refused later, it is not looked at
    try:
        geometry = _make("geometry", values["geometry"], Geometry)
        check_precision(str(values["trainer"]["precision"]), geometry)
        run = values["probe"]["checkpoint"]
        data = data or make_data(values, _load_probed(run, vocabulary, checkpoint) if probes(values) else None)
        if vocabulary is not None and checkpoint is not None:
            vocabularies.adopt(data, vocabulary, checkpoint)
        encoder = make(values["encoder"]) if values["encoder"] else None
        supplied = {"geometry": geometry, "encoder": encoder, **data.model_sizes}
        model = _make_with("task.model", values["task"]["model"], supplied)
        geometry.check_options()
        settings = dict(values["optim"])
        if checkpoint is None:  # older runs may have such settings
            optimizers.check_rules(settings)
        schedule = Schedule(
            settings.pop("schedule"), settings.pop("warmup_steps"), settings.pop("d_model"), **settings.pop("plateau")
        )
        optimizer: Callable[[nn.Module], Optimizer] = functools.partial(optimizers.make_optimizer, **settings)
        task = _make_task(values["task"]["module"], supplied | {"model": model, "optimizer": optimizer}, data)
        optimizer(task)  # its settings are checked before anything is read or written
    except REFUSALS as error:
        raise _refused(error) from error
    if values["check_points"]:
        validate_points(task.model)
    task.schedule = schedule
    return task, data


def name_of_task(values: Mapping[str, Any]) -> Any:
    """What the task of a configuration is called; None where it has none."""
    task = values.get("task")
    return task.get("name") if isinstance(task, Mapping) else None


def probes(values: Mapping[str, Any]) -> bool:
    """Whether the data of a configuration are made with a trained model (task=probing)."""
    task = values.get("task")
    node = task.get("data") if isinstance(task, Mapping) else None
    return isinstance(node, Mapping) and "probed" in checks.parameters("task.data", node)


def make_data(values: Mapping[str, Any], probed: Task | None = None) -> TaskData:
    """The data of a task, which read files when they are asked for something. Raises UserError as `build`.

    probed: the trained task whose encoder is probed, where the task is probing.
    """
    try:
        data = _make_with("task.data", values["task"]["data"], {"probed": probed})
    except REFUSALS as error:
        raise _refused(error) from error
    if not isinstance(data, TaskData):
        raise UserError(f"task.data._target_={values['task']['data']['_target_']} makes no TaskData.")
    return data


def _refused(error: Exception) -> UserError:
    """What a class says of its settings; what Hydra says of it besides is no help. Of a class of the user's own also
    where it says so, as it may be a mistake of its own."""
    cause = error.__cause__ or error
    return cause if isinstance(cause, UserError) else UserError(f"{cause}{_own_place(cause)}")


def _own_place(error: BaseException) -> str:
    """The innermost line of an error that is in a file of the user's, as the end of a message; empty where none is."""
    installed = sysconfig.get_path("stdlib"), *site.getsitepackages(), site.getusersitepackages()
    known = [*(Path(folder).resolve() for folder in installed), *OURS]
    frames = ((Path(frame.filename).resolve(), frame.lineno) for frame in traceback.extract_tb(error.__traceback__))
    own = [at for at in frames if at[0].is_file() and not any(at[0].is_relative_to(folder) for folder in known)]
    return f" ({own[-1][0].name}, line {own[-1][1]}; HYPERBOLIC_FULL_ERROR=1 shows how it came there)" if own else ""


def _make(name: str, node: Mapping[str, Any], kind: Any) -> Any:
    """The object of a node. Raises UserError where it is none of that kind."""
    value = make(node)
    if not isinstance(value, kind):
        raise UserError(f"{name}._target_={node['_target_']} makes no {kind.__name__}, which is needed here.")
    return value


def _make_task(node: Mapping[str, Any], supplied: Mapping[str, Any], data: TaskData) -> Task:
    """The task of a node. Raises UserError where it is for a model or data of another class."""
    checks.parameters("task.module", node)
    target = get_object(node["_target_"])
    hints = typing.get_type_hints(target) if inspect.isclass(target) else {}
    for name, value, kind in (
        ("task.model", supplied["model"], hints.get("model")),
        ("task.data", data, getattr(target, "learns_from", None)),
    ):
        kinds = [each for each in typing.get_args(kind) or (kind,) if _is_class(each)]
        if kinds and not isinstance(value, tuple(kinds)):
            raise UserError(
                f"task.module._target_={node['_target_']} is for {' or '.join(each.__name__ for each in kinds)}, and "
                f"{name} is of the class {type(value).__name__}. Take those of one file of configs/task, or a subclass."
            )
    task: Task = _make_with("task.module", node, supplied)
    return task


def _is_class(kind: Any) -> bool:
    """Whether a type hint is a class of models or data, as Any and a Protocol are not."""
    return inspect.isclass(kind) and issubclass(kind, (nn.Module, TaskData))


def _load_probed(
    run: str | None, kept: Mapping[str, Any] | None, checkpoint: Mapping[str, Any] | None
) -> Task | None:
    """The trained task of a run that is to be probed, or the one that a checkpoint has `kept`; None for none. Raises
    UserError where that is a probe itself, which may be the one that is built."""
    if kept is not None and checkpoint is not None and (own := kept["data"].get("probed")):
        file = checkpoint["file"]
        if not isinstance(own, dict) or not resume.has_parts(own):
            raise UserError(f"{file}: the model that was probed is damaged in it. Use another checkpoint.")
        own = {**own, "file": file}
        _check_no_probe(own, str(file))
        return _trained(own, str(file))[0].requires_grad_(False)
    if run is None:
        return None
    setting = f"probe.checkpoint={run}"
    trained = resume.read(Path(run), setting)
    _check_no_probe(trained, setting)
    task, data = _trained(trained, setting)
    task.vocabulary = task.vocabulary or vocabularies.pack(data)  # for the checkpoints of the probe
    return task.requires_grad_(False)


def _check_no_probe(checkpoint: Mapping[str, Any], setting: str) -> None:
    if probes(checkpoint["config"]):
        raise UserError(
            f"{setting}: {checkpoint['file']} is of a probe, and what it probes has to be another model; name a run "
            "that trained one."
        )


def restore(path: Path, setting: str, config_dir: str | Path | None = None) -> tuple[Task, TaskData]:
    """Task and data of a run or of an exported folder, with the weights of its checkpoint, in evaluation mode; see
    `tasks.resume.read`. The data are those that the checkpoint keeps; of an old one that keeps none, they are read.

    config_dir: your folder of configurations, as --config-dir of run.py, whose classes a run may have; it stays the
    folder of this process, and modules beside it can be imported.

    Raises:
        UserError: there is no checkpoint, it cannot be built again, or the data are not those that it was trained with;
            `setting` is the key that named it.
    """
    if config_dir is not None:
        own.use(config_dir)
    checkpoint = resume.read(path, setting)
    precision = checkpoint["config"]["trainer"].get("precision")
    return _trained(checkpoint, setting, resume.dtype_of(precision))


def _trained(checkpoint: dict[str, Any], setting: str, dtype: torch.dtype = torch.float32) -> tuple[Task, TaskData]:
    task, data = rebuild(checkpoint, portable=True)
    resume.check_same(checkpoint, task.origin, ("data",), setting)
    task.to(dtype)
    resume.load_weights(task, checkpoint, setting)
    return task.eval(), data


def rebuild(
    checkpoint: Mapping[str, Any], portable: bool = False, data_dir: Path | None = None
) -> tuple[Task, TaskData]:
    """Task and data of the run that wrote a checkpoint (`tasks.resume.read`); the model has its first weights.

    portable: take the vocabulary that the checkpoint keeps in the place of the data's files, which is enough for
    predictions and the names of points. data_dir: the folder of the user's own data, where it is not that of the run.

    Raises:
        UserError: the model cannot be built from the configuration that the checkpoint keeps.
    """
    file = checkpoint["file"]
    try:
        with stored.offered(checkpoint, str(file), portable):
            place = [] if data_dir is None else [f"data.dir={quoted(data_dir.absolute())}"]
            cfg = composing.composed(f"experiment={stored.CHOICE}", *place)
            values = checks.check(cfg)
            task, data = build(values, checkpoint if portable else None)
            task.origin = stored.origin(cfg, values, data.identity)
            task.vocabulary = checkpoint.get(vocabularies.KEY)
            own.note_changes(checkpoint)
            return task, data
    except MISTAKES as error:
        raise UserError(f"The model and the data of {file} cannot be built again: {paragraph(error)}") from error


def _make_with(name: str, node: Mapping[str, Any], supplied: Mapping[str, Any]) -> Any:
    """The object of a node, which is given of `supplied` what its constructor takes."""
    checks.check_target(name, node, tuple(supplied))
    parameters = checks.parameters(name, node)
    return make(node, _partial_=True)(**{key: value for key, value in supplied.items() if key in parameters})
