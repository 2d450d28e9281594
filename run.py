"""Train, test or use a model: python run.py [task=...] [geometry=...] [experiment=...] [key=value ...]; or --help."""

import contextlib
import os
import signal
import sys
from datetime import datetime
from pathlib import Path

if __name__ == "__main__":  # the imports take seconds, in which Ctrl-C and SIGTERM end the program with one line
    line = b"\nInterrupted.\n" if os.environ.get("LOCAL_RANK", "0") == "0" else b""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: (os.write(2, line), os._exit(130)))

    from configs import overview

    if overview.answer(sys.argv[1:]):  # --help and --cfg, before the imports
        sys.exit()

import hydra
import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from configs import checks, choosing, matching, multirun, overview, own, samplers, stored, sweeper
from configs.build import build, make
from configs.words import with_quotes
from tasks import interruption, prediction, processes, record, rendezvous, report, resume, training
from tasks.errors import plain_warnings
from tasks.loggers import open_loggers

words: list[str] = []  # the command line, with which the other processes of a run are started


def run(cfg: DictConfig) -> float | None:
    """One run: check, build, do, record. Returns the selecting metric, for sweepers."""
    record.commit()  # the code as it is now
    record.forget_peak_memory()
    values, job = checks.check(cfg), HydraConfig.get()
    mode, folder = values["mode"], Path(job.runtime.output_dir)
    experiment, name = job.runtime.choices.get("experiment"), folder.parent.name
    named = {key: values[key] for key in ("checkpoint", "input", "output", "explain")}
    files = prediction.Files(**named, data=values["data"]["dir"])
    if mode == "test":
        files.check_test()  # before data are read
    alone = contextlib.nullcontext() if mode == "predict" else record.alone_in(folder)
    with alone, prediction.standard_output(files if mode == "predict" else None) as stdout:
        with multirun.output_of(job, folder):
            auto = choosing.open_settings(values)
            cfg, values, data = choosing.choose(cfg, values, files)
        options = values["trainer"]
        pl.seed_everything(values["seed"], workers=True, verbose=False)
        with multirun.output_of(job, folder):
            task, data = build(values, files.state if mode == "predict" else None, data)
        contents = {} if mode == "predict" else record.fingerprint(data)["sha256"]
        passes_over = mode == "fit" and (values["skip_finished"] or options["resume"] == "auto")
        if passes_over and (earlier := record.finished(folder.parent, values, contents)):
            selection = report.pass_over("finished before, with the same settings and data", earlier, folder)
            return multirun.result(selection, earlier)
        code = [record.code(own.modules())]
        task.origin = stored.origin(cfg, values, data.identity, experiment, name, contents, code, auto)
        if mode != "fit":
            record.check_place(folder)
        if mode == "predict":
            own.note_changes(files.state)
            outcome = prediction.predict(task, data, files, stdout, **options)
        else:
            if mode == "fit" and options["resume"] not in (None, "auto"):  # may end here, without a logger
                ends = options["max_epochs"], options["max_steps"]
                try:
                    resume.checkpoint_to_continue(options["resume"], folder.parent, task.origin, *ends)
                except resume.Finished as end:
                    return multirun.result(report.pass_over(str(end), end.record, folder), end.record)
            with open_loggers([make(node, _partial_=True) for node in values["logger"].values()], folder) as loggers:
                if mode == "test":
                    if files.output is not None:
                        data.test_inputs()  # a task without them says so here; examples are read when asked for
                    own.note_changes(files.state)
                    outcome = training.test(task, data, loggers, files.state, **options)
                    prediction.write_test(task, data, files, outcome, options["precision"])
                else:
                    trial = {"tests": not samplers.is_trial(job), "prune": samplers.judge(job)}
                    outcome = training.fit(task, data, folder, loggers, **options | trial)
        if outcome.is_main:
            result = record.build(values, list(job.overrides.task), data, task, outcome)
            with multirun.output_of(job, folder), interruption.postponed():
                report.conclude(task, outcome, result, folder, matching.published(result))
    return multirun.result(outcome.selection, folder / "record.json")


@hydra.main(version_base="1.3", config_path="configs", config_name="config")
def job(cfg: DictConfig) -> float | None:
    """A run whose mistakes are reported in one paragraph, and which does not end the others of a multirun."""
    sys.argv[1:] = words
    return multirun.attempt(run, cfg)


def main() -> int:
    """The command line; returns its exit code."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands its errors on, to be reported in one paragraph
    code = 1
    try:
        overview.check_words(sys.argv[1:])
        words[:] = with_quotes(own.choose(overview.many_first(sys.argv[1:]), looks=True))
        multirun.check_output(words)
        sweeper.register()
        sys.argv[1:] = stored.choose(words)
        if not multirun.are_many(words):
            share_folder()
        job()
        code = 0
    except KeyboardInterrupt as error:
        if processes.is_first():
            print(f"\n{error if str(error) else 'Interrupted.'}", file=sys.stderr)
        code = 130
    except Exception as error:
        code = multirun.report(error, words)
    finally:
        stored.withdraw()
        code = multirun.conclude(code, words)
    return code


def share_folder() -> None:
    """Let the processes that torchrun or Slurm started for one run have one folder: it is called by its time."""
    if shared := rendezvous.same_for_all(lambda: f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}"):
        os.environ["HYPERBOLIC_START"], is_first = shared
        sys.argv += [] if is_first else ["hydra.output_subdir=null"]  # the first writes the settings


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    plain_warnings()
    sys.exit(main())
