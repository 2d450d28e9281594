"""Predictions for new examples: lines of a file or of standard input to JSON lines, a batch at a time."""

import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import torch
from torch import Tensor

from tasks import resume as resuming
from tasks.base import Task, TaskData
from tasks.errors import UserError, one_of, whole
from tasks.training import Outcome, choose_accelerator

STANDARD = "-"  # as input or output: standard input or output


def to_standard_output(target: str | None) -> bool:
    """Whether `output` means standard output."""
    return target is None or target == STANDARD


def check_places(checkpoint: str | None, source: str | None, target: str | None) -> None:
    """Raise UserError unless a checkpoint is named, the input is there, and the output can be written."""
    if checkpoint is None:
        raise UserError("mode=predict needs checkpoint=<run folder>/checkpoints/best.ckpt.")
    if source is None:
        raise UserError("mode=predict needs input=FILE, or input=- for standard input.")
    if source != STANDARD and not Path(source).is_file():
        raise UserError(f"input={source}: there is no such file; name one, or - for standard input.")
    if not to_standard_output(target) and (Path(target).is_dir() or not Path(target).absolute().parent.is_dir()):
        raise UserError(f"output={target} cannot be written; name a file in a folder that exists.")


def predict(
    task: Task,
    data: TaskData,
    checkpoint: str | None,
    source: str | None,
    target: str | None,
    stdout: TextIO,
    *,
    precision: str,
    accelerator: str,
    threads: int | None,
    **options: Any,
) -> Outcome:
    """Write a JSON line for each example of `source`, with the state of a checkpoint; in the order of the examples.

    source: a file, or "-" for standard input. target: a file, written whole or not at all, or None or "-" for `stdout`,
    where each batch is written as soon as it is done. `options` may hold what `tasks.training.fit` takes.

    Raises UserError where the checkpoint does not fit the task, the task has no predictions, or a line is faulty.
    """
    check_places(checkpoint, source, target)
    setting = f"checkpoint={checkpoint}"
    state = resuming.read(Path(checkpoint), setting)
    resuming.check_same(state, task.settings, resuming.TESTED, setting)
    resuming.load_weights(task, state, setting)
    wide = one_of("trainer.precision", str(precision), ("32-true", "64-true", "32", "64")).startswith("64")
    device = torch.device(choose_accelerator(accelerator))
    if threads is not None:
        torch.set_num_threads(whole("trainer.threads", threads, 1))
    task.to(device, torch.float64 if wide else torch.float32).eval()
    start, count = time.perf_counter(), 0
    with _default_dtype(wide), _opened(source) as (lines, name), _written(target, stdout) as stream:
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
        prediction={"input": source, "output": None if to_standard_output(target) else target, "examples": count},
    )


def _lines(task: Task, data: TaskData, examples: Iterator[Any]) -> Iterator[str]:
    while chunk := list(itertools.islice(examples, data.eval_batch_size)):
        split = data.encode(chunk)
        with torch.inference_mode():
            found = task.predict(_moved(split[torch.arange(len(split))], task.device, task.dtype))
        for example, said in zip(chunk, found, strict=True):
            yield json.dumps(data.describe(example) | said, ensure_ascii=False, allow_nan=False) + "\n"


def _moved(batch: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The batch on the device of the model, and its floats in the model's dtype, as Lightning does it."""
    if isinstance(batch, Tensor):
        return batch.to(device, dtype if batch.is_floating_point() else None)
    if isinstance(batch, dict):
        return {key: _moved(value, device, dtype) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(_moved(value, device, dtype) for value in batch)
    return batch


@contextlib.contextmanager
def _default_dtype(wide: bool) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if wide else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _opened(source: str) -> Iterator[tuple[Iterable[bytes], str]]:
    """The lines of the input, and its name in messages."""
    if source == STANDARD:
        binary: BinaryIO = getattr(sys.stdin, "buffer", sys.stdin)
        yield binary, "standard input"
        return
    with Path(source).open("rb") as stream:
        yield stream, source


@contextlib.contextmanager
def _written(target: str | None, stdout: TextIO) -> Iterator[TextIO]:
    """A stream that ends in `target` when all went well."""
    if to_standard_output(target):
        yield stdout
        stdout.flush()
        return
    part = Path(f"{target}.part")
    try:
        with part.open("w", encoding="utf-8") as stream:
            yield stream
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
