"""Train, test or use a model: python run.py [task=...] [geometry=...] [experiment=...] [key=value ...]; or --help."""

import os
import signal
import sys
from pathlib import Path

if __name__ == "__main__":  # the imports take seconds, in which Ctrl-C and SIGTERM end the program with one line
    line = b"\nInterrupted.\n" if os.environ.get("LOCAL_RANK", "0") == "0" else b""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: (os.write(2, line), os._exit(130)))

import hydra
import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from configs import checks, matching, stored
from configs.build import MISTAKES, build, make
from configs.errors import paragraph
from tasks import prediction, processes, record, report, training
from tasks.errors import plain_warnings
from tasks.loggers import open_logger

# One exit code for each run of this process; HYPERBOLIC_FULL_ERROR=1 shows where a mistake happened.
codes: list[int] = []
words: list[str] = []  # the command line, with which the other processes of a run are started
reported = MISTAKES if os.environ.get("HYPERBOLIC_FULL_ERROR", "0") in ("", "0") else ()


def run(cfg: DictConfig) -> float | None:
    """One run: check, build, do, record. Returns the selecting metric, for sweepers."""
    record.commit()  # the code as it is now
    values, job = checks.check(cfg), HydraConfig.get()
    mode, options, folder = values["mode"], values["trainer"], Path(job.runtime.output_dir)
    experiment, name = job.runtime.choices.get("experiment"), folder.parent.name
    files = prediction.Files(values["checkpoint"], values["input"], values["output"], values["explain"])
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
    """A run whose mistakes are reported in one paragraph, so that the other runs of a multirun go on."""
    codes.append(1)
    sys.argv[1:] = words
    try:
        value = run(cfg)
    except reported as error:
        folder = Path(HydraConfig.get().runtime.output_dir)
        if isinstance(error, OSError) and error.filename is None:  # a disk that is full
            error.filename = str(folder)
        record.remove_if_empty(folder)
        print(f"error: {paragraph(error)}", file=sys.stderr)
        return float("nan")
    codes[-1] = 0
    return value


def main() -> int:
    """The command line; returns its exit code."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands its errors on, to be reported in one paragraph
    try:
        words[:] = sys.argv[1:]
        sys.argv[1:] = stored.choose(words)
        job()
    except reported as error:
        print(f"error: {paragraph(error)}", file=sys.stderr)
        return 1
    except ValueError as error:  # Hydra's, of words that it cannot compose
        if codes:
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        if processes.is_first():
            print(f"\n{error if str(error) else 'Interrupted.'}", file=sys.stderr)
        return 130
    finally:
        stored.withdraw()
    if not codes and {"-m", "--multirun"} & set(sys.argv):
        print("error: the multirun has no job: no name matches the glob(...). See configs/.", file=sys.stderr)
        return 1
    return max(codes, default=0)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    plain_warnings()
    sys.exit(main())
