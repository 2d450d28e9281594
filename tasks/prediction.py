"""Predictions for new examples: lines of a file or of standard input to JSON lines, a batch at a time."""

import contextlib
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from tasks import resume as resuming
from tasks.base import Task, TaskData
from tasks.errors import UserError, one_of, whole
from tasks.folders import whole_file
from tasks.reading import brief
from tasks.training import Outcome, choose_accelerator

STANDARD = "-"  # as input or output: standard input or output


@dataclass(frozen=True)
class Files:
    """What mode=predict reads and writes. checkpoint: a file or a run's folder. input: a file, or "-" for standard
    input. output: a file, written whole or not at all, or None or "-" for standard output."""

    checkpoint: str | None
    input: str | None
    output: str | None

    @property
    def to_standard_output(self) -> bool:
        return self.output is None or self.output == STANDARD

    def check(self) -> tuple[str, str]:
        """Checkpoint and input. Raises UserError unless both are named, the input is there, and the output can be
        written."""
        if self.checkpoint is None:
            raise UserError("mode=predict needs checkpoint=<run folder>, or a file in it.")
        if self.input is None:
            raise UserError("mode=predict needs input=FILE, or input=- for standard input.")
        if self.input != STANDARD and (not Path(self.input).exists() or Path(self.input).is_dir()):
            raise UserError(f"input={self.input}: there is no such file; name one, or - for standard input.")
        output = None if self.output is None or self.to_standard_output else Path(self.output)
        if output and (output.is_dir() or not output.absolute().parent.is_dir()):
            raise UserError(f"output={output} cannot be written; name a file in a folder that exists.")
        return self.checkpoint, self.input


@contextlib.contextmanager
def standard_output(files: Files | None) -> Iterator[TextIO]:
    """Standard output, for predictions alone where they go there: what else is printed then goes to standard error.

    files: of mode=predict, which are checked before anything is read; None in another mode.
    """
    stream = sys.stdout
    if files is None:
        yield stream
        return
    files.check()
    with contextlib.redirect_stdout(sys.stderr) if files.to_standard_output else contextlib.nullcontext():
        yield stream


def predict(
    task: Task,
    data: TaskData,
    files: Files,
    stdout: TextIO,
    *,
    precision: str,
    accelerator: str,
    threads: int | None,
    **options: Any,
) -> Outcome:
    """Write a JSON line for each example of the input, with the state of a checkpoint; in the order of the examples.

    stdout: gets each batch as soon as it is done, where no output file is named. `options` may hold what
    `tasks.training.fit` takes.

    Raises UserError where the checkpoint does not fit the task, the task has no predictions, or a line is faulty.
    """
    checkpoint, source = files.check()
    setting = f"checkpoint={checkpoint}"
    state = resuming.read(Path(checkpoint), setting)
    resuming.check_same(state, task.origin, resuming.TESTED, setting)
    resuming.load_weights(task, state, setting)
    resuming.adopt_name(task, state)
    wide = one_of("trainer.precision", str(precision), ("32-true", "64-true", "32", "64")).startswith("64")
    device = torch.device(choose_accelerator(accelerator))
    if threads is not None:
        torch.set_num_threads(whole("trainer.threads", threads, 1))
    task.to(device, torch.float64 if wide else torch.float32).eval()
    start, count = time.perf_counter(), 0
    output = None if files.to_standard_output else files.output
    with _default_dtype(wide), _input_lines(source) as (lines, name), _output_stream(output, stdout) as stream:
        for line in _lines(task, data, data.read_inputs(lines, name)):
            stream.write(line)
            count += 1
    seconds = time.perf_counter() - start
    return Outcome(
        metrics={},
        selection={"metric": None, "checkpoint": state["file"].name},
        diagnostics={},
        history=[],
        share=1.0,
        wall_s=seconds,
        examples_per_s=count / seconds,
        device=device,
        processes=1,
        is_main=True,
        prediction={"input": source, "output": output, "examples": count},
    )


def _lines(task: Task, data: TaskData, examples: Iterator[Any]) -> Iterator[str]:
    dtype = torch.get_default_dtype()

    def move(tensor: Tensor) -> Tensor:  # as Lightning does it
        return tensor.to(task.device, dtype if tensor.is_floating_point() else None)

    while chunk := list(itertools.islice(examples, data.eval_batch_size)):
        split = data.encode(chunk)
        with torch.inference_mode():
            predictions = task.predict(apply_to_collection(split[torch.arange(len(split))], Tensor, move))
        for example, prediction in zip(chunk, predictions, strict=True):
            line = data.describe(example) | prediction
            try:
                yield json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n"
            except ValueError:
                raise UserError(
                    f"The prediction for {brief(line)} is not finite: the weights of the checkpoint are too large. Use "
                    "another checkpoint, or trainer.precision=64-true."
                ) from None


@contextlib.contextmanager
def _default_dtype(wide: bool) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if wide else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _input_lines(source: str) -> Iterator[tuple[Iterable[bytes], str]]:
    """The lines of the input, and its name in messages."""
    if source == STANDARD:
        yield sys.stdin.buffer, "standard input"
        return
    with Path(source).open("rb") as stream:
        yield stream, source


@contextlib.contextmanager
def _output_stream(target: str | None, stdout: TextIO) -> Iterator[TextIO]:
    """A stream that ends in `target` when all went well."""
    if target is None:
        yield stdout
        stdout.flush()
        return
    with whole_file(Path(target)) as part, part.open("w", encoding="utf-8") as stream:
        yield stream
