"""Train, test or use a model: python run.py [task=...] [geometry=...] [experiment=...] [key=value ...]; or --help."""

import os
import sys
import traceback
from datetime import datetime
from pathlib import Path

import hydra
import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from configs import checks, matching, stored
from configs.build import MISTAKES, build, make
from configs.errors import paragraph
from configs.multirun import Failure, Jobs
from tasks import prediction, processes, record, report, training
from tasks.errors import plain_warnings
from tasks.loggers import open_logger

# HYPERBOLIC_FULL_ERROR=1 shows where a mistake happened.
reported = MISTAKES if os.environ.get("HYPERBOLIC_FULL_ERROR", "0") in ("", "0") else ()


def run(cfg: DictConfig) -> float | None:
    """One run: check, build, do, record. Returns the selecting metric, for sweepers."""
    record.commit()  # the code as it is now
    values, job = checks.check(cfg), HydraConfig.get()
    mode, options, folder = values["mode"], values["trainer"], Path(job.runtime.output_dir)
    if values["skip_finished"] and (earlier := record.finished(folder.parent, values)):
        record.remove_if_empty(folder)
        print(f"finished before, with the same settings\nrecord: {earlier[0]}", flush=True)
        return (earlier[1]["selection"] or {}).get("value")
    experiment, name = job.runtime.choices.get("experiment"), folder.parent.name
    files = prediction.Files(values["checkpoint"], values["input"], values["output"])
    with prediction.standard_output(files if mode == "predict" else None) as stdout:
        pl.seed_everything(values["seed"], workers=True, verbose=False)
        task, data = build(values)
        task.origin = stored.origin(cfg, values, data.identity, experiment, name)
        if mode == "predict":
            outcome = prediction.predict(task, data, files, stdout, **options)
        else:
            with open_logger(values["logger"] and make(values["logger"], _partial_=True), folder) as logger:
                if mode == "test":
                    outcome = training.test(task, data, logger, files.checkpoint, **options)
                else:
                    outcome = training.fit(task, data, folder, logger, **options)
        if outcome.is_main:
            result = record.build(values, list(job.overrides.task), data, task, outcome)
            report.conclude(task, outcome, result, folder, matching.published(result))
    return (outcome.selection or {}).get("value")


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def job(cfg: DictConfig) -> float | None:
    """A run whose mistakes are reported in one paragraph. No error of a multirun's job ends the others."""
    one_of_many = HydraConfig.get().mode == RunMode.MULTIRUN
    try:
        return run(cfg)
    except reported as error:
        record.remove_if_empty(Path(HydraConfig.get().runtime.output_dir))
        message = report_mistake(error)
        if not one_of_many:
            raise SystemExit(1) from None
        return Failure(message)
    except Exception as error:
        if not one_of_many:
            raise
        traceback.print_exc()
        return Failure(f"{type(error).__name__}: {paragraph(error)}")


def report_mistake(error: Exception) -> str:
    """Print an error in one paragraph, and return it."""
    message = paragraph(error)
    print(f"error: {message}", file=sys.stderr)
    return message


def share_folder() -> None:
    """Let the processes that torchrun or Slurm started for one run have one folder: it is called by its time."""
    if shared := processes.same_for_all(lambda: f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}"):
        os.environ["HYPERBOLIC_START"], is_first = shared
        sys.argv += [] if is_first else ["hydra.output_subdir=null"]  # the first writes the settings


def main() -> int:
    """The command line; returns its exit code."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands its errors on, to be reported in one paragraph
    code, many, Jobs.latest = 0, bool({"-m", "--multirun"} & set(sys.argv)), None
    try:
        sys.argv[1:] = stored.choose(sys.argv[1:])
        if not many:
            share_folder()
        job()
    except reported as error:
        report_mistake(error)
        code = 1
    except KeyboardInterrupt as error:
        print(f"\n{error if str(error) else 'Interrupted.'}", file=sys.stderr)
        code = 130
    except Exception as error:  # Hydra's, of words that it cannot compose, or a launcher's
        if not (many or isinstance(error, ValueError)) or (Jobs.latest and Jobs.latest.notes):
            raise
        report_mistake(error)
        code = 1
    finally:
        stored.withdraw()
    failed = Jobs.latest.conclude() if Jobs.latest else 0
    if many and not code and Jobs.latest and not Jobs.latest.notes:
        print("error: the multirun has no job: no name matches the glob(...). See configs/.", file=sys.stderr)
        return 1
    return code or failed


if __name__ == "__main__":
    plain_warnings()
    sys.exit(main())
