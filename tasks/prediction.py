"""Predictions for new examples: lines of a file or of standard input to JSON lines, a batch at a time."""

import contextlib
import functools
import gzip
import io
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor

from hyperbolic.native import build as native
from tasks import explanation
from tasks import resume as resuming
from tasks.base import Task, TaskData
from tasks.errors import UserError, one_of, replace_closed_output
from tasks.folders import whole_file
from tasks.machine import choose_kernels, choose_threads
from tasks.outcome import Outcome
from tasks.reading import UNREADABLE, bounded_lines, brief, is_packed, open_bytes, reason
from tasks.rows import other_keys
from tasks.separators import ending
from tasks.settings import TESTED
from tasks.trainer import PRECISIONS, choose_accelerator

TABLES = (".csv", ".tsv", ".xlsx")  # which outputs are not
STANDARD = "-"  # as input or output: standard input or output


@dataclass(frozen=True)
class Files:
    """What mode=predict reads and writes.

    checkpoint: a file, or the folder of a run or of an export. input: a file, plain or .gz, "-" for standard input, or
    a folder each of whose files is an example, perhaps in folders of its own; None of mode=test. output: a file,
    written whole or not at all, packed where its name ends in .gz, or None or "-" for standard output. explain: with
    what the predictions rest on; a file .html or .htm is then a page, and a file .txt and standard output are text.
    data: the folder of the user's own data, of which no file is overwritten.
    """

    checkpoint: str | None
    input: str | None
    output: str | None
    explain: bool = False
    data: str | None = None

    @property
    def to_standard_output(self) -> bool:
        return self.output is None or self.output == STANDARD

    @property
    def form(self) -> Callable[[Iterable[dict[str, Any]]], Iterable[str]]:
        """How predictions are written."""
        if not self.explain:
            return json_lines
        suffix = ".txt" if self.output is None or self.to_standard_output else ending(Path(self.output))
        return explanation.FORMS.get(suffix, json_lines)

    @functools.cached_property
    def state(self) -> dict[str, Any]:
        """The checkpoint. Raises UserError where it cannot be read."""
        return resuming.read(Path(str(self.checkpoint)), f"checkpoint={self.checkpoint}")

    def check(self) -> tuple[str, str]:
        """Checkpoint and input. Raises UserError unless both are named, the input is there, and the output can be
        written and is no page without `explain`."""
        if not self.checkpoint:
            raise UserError("mode=predict needs checkpoint=<run folder>, or a file in it.")
        if self.input is None:
            raise UserError("mode=predict needs input=FILE, or input=- for standard input.")
        if self.input != STANDARD and not Path(self.input).exists():
            raise UserError(f"input={self.input}: there is no such file; name one, or - for standard input.")
        self.check_output()
        return self.checkpoint, self.input

    def check_test(self) -> None:
        """Raise UserError where a test has no checkpoint, or could not write its predictions."""
        if not self.checkpoint:
            raise UserError("mode=test needs checkpoint=<run folder>, or a file in it.")
        if self.output == STANDARD:
            raise UserError("output=-: the result of a test goes to standard output; name a file for its predictions.")
        self.check_output()

    def check_output(self) -> None:
        """Raise UserError for an output that cannot be written, and for a page without `explain`."""
        if self.output is None or self.to_standard_output:
            return
        output = Path(self.output)
        leads_nowhere = output.is_symlink() and not output.exists()
        if output.is_dir() or leads_nowhere or not output.absolute().parent.is_dir():
            raise UserError(f"output={output} cannot be written; name a file in a folder that exists.")
        for key in ("input", "checkpoint"):
            place = Path(getattr(self, key) or "")
            files = [place] if place.is_file() else [*place.glob("*"), *place.glob("*/*")]
            if getattr(self, key) is not None and output.exists() and any(map(output.samefile, files)):
                raise UserError(f"output={output} is the {key}, which would be overwritten; name another file.")
        if self.data is not None and output.exists() and output.resolve().is_relative_to(Path(self.data).resolve()):
            raise UserError(
                f"output={output} is there already, in the folder of the data (data.dir={self.data}), and would be "
                "overwritten; name a new file, or one in another folder."
            )
        if (suffix := ending(output)) in TABLES:
            raise UserError(
                f"output={output}: predictions are lines of JSON, and no table {suffix}; name a file .jsonl, which "
                "pandas.read_json(..., lines=True) reads."
            )
        if suffix in explanation.PAGES and not self.explain:
            raise UserError(
                f"output={output}: without explain=true there are lines of JSON, whose texts a browser would take for "
                "HTML; name a file .jsonl, or add explain=true."
            )


@contextlib.contextmanager
def standard_output(files: Files | None) -> Iterator[TextIO]:
    """Standard output, for predictions alone where they go there: it is then in UTF-8, as JSON is, and what else is
    printed goes to standard error.

    files: of mode=predict, which are checked before anything is read; None in another mode.
    """
    is_closed, stream = replace_closed_output(), sys.stdout
    if files is None:
        yield stream
        return
    files.check()
    if is_closed and files.to_standard_output:
        raise UserError("Standard output is closed; name a file for the predictions, as output=predictions.jsonl.")
    if files.to_standard_output and isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8")
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
    kernels: str,
    **options: Any,
) -> Outcome:
    """Write a JSON line for each example of the input, or what `files.form` makes of it, with the state of a
    checkpoint; in the order of the examples.

    stdout: gets each batch as soon as it is done, where no output file is named. `options` may hold what
    `tasks.training.fit` takes.

    Raises UserError where the checkpoint does not fit the task, the task has no predictions, or a line is faulty.
    """
    checkpoint, source = files.check()
    setting, state = f"checkpoint={checkpoint}", files.state
    resuming.check_same(state, task.origin, TESTED, setting)
    device = torch.device(choose_accelerator(accelerator))
    dtype = _make_ready(task, device, precision)
    resuming.load_weights(task, state, setting)
    resuming.adopt_name(task, state)
    choose_threads(threads)
    choose_kernels(kernels)
    if device.type == "cpu":
        native.build(lambda line: print(line, file=sys.stderr, flush=True))
    start, count = time.perf_counter(), 0
    output = None if files.to_standard_output else files.output
    with (
        _examples(data, source) as examples,
        _output_stream(output, stdout) as stream,
    ):
        form = files.form

        def counted() -> Iterator[dict[str, Any]]:
            nonlocal count
            for answer in _answers(task, data, examples, dtype, files.explain):
                if form is not json_lines:
                    json_line(answer)  # refuses what is not finite
                count += 1
                yield answer

        stream.writelines(form(counted()))
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


def json_lines(answers: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Each as a line. Raises UserError for one with numbers that are not finite."""
    return map(json_line, answers)


def json_line(answer: dict[str, Any]) -> str:
    """Raises UserError where a number is not finite."""
    try:
        return json.dumps(answer, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError:
        raise UserError(
            f"The prediction for {brief(answer)} is not finite: the weights of the checkpoint are too large. Use "
            "another checkpoint, or trainer.precision=64-true."
        ) from None


def answers(task: Task, data: TaskData, lines: Iterable[str | Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """What mode=predict writes for the lines of an input, a dictionary each.

    Args: task, data: of `configs.build.restore`. lines: as in a file, or what a line of JSON says.

    Raises:
        TypeError: one text or one dictionary, whose letters and keys would be lines.
    """
    if isinstance(lines, (str, bytes, Mapping)):
        raise TypeError("answers takes a list of lines, as answers(task, data, [line]), not one alone")
    dtype = _make_ready(task, task.device, task.origin.config["trainer"].get("precision", "32-true"))
    texts = (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    encoded = (f"{text}\n".encode() for text in texts)
    return _answers(task, data, _with_others(data, encoded, "the input"), dtype)


def write_test(task: Task, data: TaskData, files: Files, outcome: Outcome, precision: str) -> None:
    """Write a line of JSON for each example of the test split to `files.output`, if there is one: the example, what is
    right, under "gold", and what is predicted, with the weights that were tested. `outcome` says so afterwards."""
    if files.output is None or not outcome.is_main:
        return
    count, dtype = 0, _make_ready(task, outcome.device, precision)
    with _output_stream(files.output, sys.stdout) as stream:
        for answer in _answers(task, data, data.test_inputs(), dtype):
            stream.write(json_line(answer))
            count += 1
    outcome.prediction = {"input": None, "output": files.output, "examples": count}


def _answers(
    task: Task,
    data: TaskData,
    examples: Iterator[tuple[Any, dict[str, Any]]],
    dtype: torch.dtype,
    explain: bool = False,
) -> Iterator[dict[str, Any]]:
    """examples: each with what else its line says. dtype: of new tensors while a batch is made and used; between
    batches it is what the caller has."""

    def move(tensor: Tensor) -> Tensor:  # as Lightning does it
        return tensor.to(task.device, dtype if tensor.is_floating_point() else None)

    while True:
        with _default_dtype(dtype):
            if not (chunk := list(itertools.islice(examples, data.eval_batch_size))):
                return
            split = data.encode([example for example, _ in chunk])
            with torch.inference_mode():
                batch = apply_to_collection(split[torch.arange(len(split))], Tensor, move)
                if explain:
                    predictions = task.explain(batch, [data.words_of(example) for example, _ in chunk])
                else:
                    predictions = task.predict(batch)
        for (example, others), prediction in zip(chunk, predictions, strict=True):
            question = data.describe(example)
            known = {**question, **prediction}
            own = {f"input_{key}" if key in known else key: value for key, value in others.items()}
            yield question | own | prediction


def _make_ready(task: Task, device: torch.device, precision: str) -> torch.dtype:
    """Put the task on a device, to predict in a precision; returns its dtype."""
    dtype = resuming.dtype_of(one_of("trainer.precision", str(precision), PRECISIONS))
    task.to(device, dtype).eval()
    return dtype


def _with_others(data: TaskData, lines: Iterable[bytes], name: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The new examples of lines, each with the keys of its line, where that is an object of JSON, that are none of
    `data.input_keys`. `read_inputs` takes a line for an example, so the newest line is that of the newest example. Says
    at the end how many blank lines there were, which are no examples."""
    newest, blank = b"", 0

    def noted() -> Iterator[bytes]:
        nonlocal newest, blank
        try:
            for line in bounded_lines(lines):
                newest = line
                blank += not line.strip()
                yield line
        except UNREADABLE as error:
            raise UserError(f"{name} cannot be read ({reason(error)}).") from None

    for example in data.read_inputs(noted(), name):
        yield example, other_keys(newest, data.input_keys)
    if blank:
        print(f"note: blank lines of {name}, which have no line in the output: {blank:,}", file=sys.stderr)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _examples(data: TaskData, source: str) -> Iterator[Iterator[tuple[Any, dict[str, Any]]]]:
    """The new examples of the input, each with what else its line says; the input is open for so long."""
    if source == STANDARD:
        if sys.stdin is None:
            raise UserError("input=-: standard input is closed; name a file.")
        yield _with_others(data, sys.stdin.buffer, "standard input")
    elif Path(source).is_dir():
        yield ((example, {}) for example in data.read_folder(Path(source)))
    elif (rows := data.read_table(Path(source))) is not None:
        yield rows
    else:
        with open_bytes(Path(source)) as stream:
            yield _with_others(data, stream, source)


@contextlib.contextmanager
def _output_stream(target: str | None, stdout: TextIO) -> Iterator[TextIO]:
    """A stream that ends in `target` when all went well."""
    if target is None:
        yield stdout
        stdout.flush()
        return
    opened = gzip.open if is_packed(Path(target)) else open
    place = Path(target)
    # A device, a pipe, or what a shell has opened, takes lines as they come; a link stays, and its file is written.
    is_open = place.exists() and (not place.is_file() or place.absolute().parts[1] in ("dev", "proc"))
    with (
        contextlib.nullcontext(place) if is_open else whole_file(place.resolve()) as part,
        opened(part, "wt", encoding="utf-8") as stream,
    ):
        yield stream
