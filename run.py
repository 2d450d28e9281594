"""Train, test or use a model: python run.py [task=...] [geometry=...] [experiment=...] [key=value ...]; or --help."""

import contextlib
import functools
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import hydra
import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, InstantiationException
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from configs import matching, schema
from configs.errors import paragraph
from hyperbolic.diagnostics import NonFiniteError
from hyperbolic.layers.guard import OffManifoldError, validate_points
from tasks import loggers, prediction, record, report, training
from tasks.base import SCHEDULES, Task, TaskData
from tasks.errors import UserError, one_of, plain_warnings
from tasks.resume import choosing, flat, words_of_checkpoint

# A user's mistakes are told in one paragraph; HYPERBOLIC_FULL_ERROR=1 shows where they happened. Other errors are ours.
MISTAKES = (
    UserError, schema.ConfigError, HydraException, OmegaConfBaseException, NonFiniteError, OffManifoldError, OSError,
)  # fmt: skip
told = MISTAKES if os.environ.get("HYPERBOLIC_FULL_ERROR", "0") in ("", "0") else ()
codes: list[int] = []  # one for each run of this process


make = functools.partial(instantiate, _convert_="all")


def make_with(name: str, node: dict, known: dict) -> Any:
    """The object of a node, which is given of `known` what its constructor takes."""
    schema.check_target(name, node, tuple(known))
    taken = schema.parameters(name, node)
    return make(node, _partial_=True)(**{k: v for k, v in known.items() if k in taken})


def build(values: dict) -> tuple:
    """The task with its model, and its data, from the resolved configuration."""
    try:
        geometry, data = make(values["geometry"]), make(values["task"]["data"])
        encoder = make(values["encoder"]) if values["encoder"] else None
        known = {"geometry": geometry, "encoder": encoder, **data.model_sizes}
        model = make_with("task.model", values["task"]["model"], known)
        geometry.check_options()
        settings = dict(values["optim"])
        schedule = one_of("optim.schedule", settings.pop("schedule"), ("constant", *SCHEDULES))
        optimizer = functools.partial(training.make_optimizer, **settings)
        known |= {"model": model, "optimizer": optimizer}
        task = make_with("task.module", values["task"]["module"], known)
        optimizer(task)  # its settings are checked before anything is read or written
    except (ValueError, NotImplementedError, InstantiationException) as error:
        cause = error.__cause__ or error  # what Hydra says of it besides is no help
        raise UserError(str(cause)) from cause
    if values["check_points"]:
        validate_points(task.model)
    task.schedule = schedule
    task.settings = flat(record.portable({k: v for k, v in values.items() if k != "paths"} | {"data": data.identity}))
    return task, data


def rebuild(folder: Path) -> tuple:
    """Task and data of an earlier run, from the configuration in its folder; the model has its first weights."""
    file = folder / ".hydra" / "config.yaml"
    if not file.is_file():
        raise UserError(f"{folder} lacks .hydra/config.yaml, which says what its model is; name a whole run folder.")
    try:
        cfg = OmegaConf.load(file)
        cfg.pop("paper", None)  # runs had a copy of the published value until the tables' files alone had it
        return build(schema.check(cfg))
    except MISTAKES as error:
        raise UserError(f"The model of {file} cannot be built again: {paragraph(error)}") from error


def run(cfg: DictConfig) -> float | None:
    """One run: what was asked for, its record as the last line. Returns the selecting metric, for sweepers."""
    record.commit()  # the code as it is now, for the record
    values, stdout = schema.check(cfg), sys.stdout
    if values["mode"] == "predict" and prediction.to_standard_output(values["output"]):
        with contextlib.redirect_stdout(sys.stderr):  # standard output has predictions only
            return carry_out(values, stdout)
    return carry_out(values, stdout)


def carry_out(values: dict, stdout: TextIO) -> float | None:
    """One run from its checked configuration. stdout: for predictions."""
    job = HydraConfig.get()
    options, folder = values["trainer"], Path(job.runtime.output_dir)
    if job.mode == RunMode.MULTIRUN and options["devices"] not in (1, "1"):
        raise UserError("trainer.devices must be 1 in a multirun (-m); start runs on several devices one by one.")
    places = (values["checkpoint"], values["input"], values["output"])
    if values["mode"] == "predict":
        prediction.check_places(*places)  # before anything is read
    pl.seed_everything(values["seed"], workers=True, verbose=False)
    task, data = build(values)
    task.words = choosing(list(job.overrides.task))
    if values["mode"] == "predict":
        return finish(values, folder, task, data, prediction.predict(task, data, *places, stdout, **options))
    logger = instantiate(values["logger"], _partial_=True)(save_dir=str(folder)) if values["logger"] else None
    try:
        if values["mode"] == "fit":
            found = training.fit(task, data, folder, logger, **options)
        else:
            found = training.test(task, data, logger, values["checkpoint"], **options)
    finally:
        loggers.close(logger)
    return finish(values, folder, task, data, found)


def finish(values: dict, folder: Path, task: Task, data: TaskData, found: training.Outcome) -> float | None:
    """Write and show what a run found."""
    if found.is_main:
        job = HydraConfig.get()
        result = record.build(job.runtime.choices.experiment, values, list(job.overrides.task), data, task, found)
        report.show(f"{folder.parent.name}, seed {values['seed']}", result, matching.published(result))
        if found.history:
            print(f"figure: {report.learning_curve(found.history, task.select, folder / 'learning_curve.png')}")
        for name, path in (task.export(folder) if values["mode"] == "fit" else {}).items():
            print(f"{name}: {path}")
        if found.prediction and found.prediction["output"]:
            print(f"predictions: {found.prediction['output']} ({found.prediction['examples']:,} lines)")
        print(f"record: {record.write(folder / 'record.json', result)}", flush=True)
    return (found.selection or {}).get("value")


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def job(cfg: DictConfig) -> float | None:
    codes.append(1)
    try:
        value = run(cfg)
    except told as error:
        record.remove_if_empty(Path(HydraConfig.get().runtime.output_dir))
        print(f"error: {paragraph(error)}", file=sys.stderr)
        return float("nan")
    codes[-1] = 0
    return value


def main() -> int:
    schema.register()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands its errors on, to be said again in one paragraph
    try:
        sys.argv[1:1] = words_of_checkpoint(sys.argv[1:])
        job()
    except told as error:
        print(f"error: {paragraph(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        print(f"\n{error if str(error) else 'Interrupted.'}", file=sys.stderr)
        return 130
    if not codes and {"-m", "--multirun"} & set(sys.argv):
        print("error: the multirun has no job: no name matches the glob(...). See configs/.", file=sys.stderr)
        return 1
    return max(codes, default=0)


if __name__ == "__main__":
    plain_warnings()
    sys.exit(main())
