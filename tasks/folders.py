"""Files and folders that appear whole or not at all, and what is kept in folders to be read the next time."""

import contextlib
import csv
import fcntl
import json
import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

META = "meta.json"
DAMAGED = (OSError, ValueError, KeyError, TypeError, EOFError)  # what reading a folder that is not whole may raise
Value = TypeVar("Value")


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """The path of a new file beside `path`, to write into; it becomes `path` where all went well, and is removed where
    not. So a reader sees the file that stood there before or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}-{secrets.token_hex(4)}.part{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """A table with commas and a line for each row, which appears whole or not at all."""
    with whole_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@contextlib.contextmanager
def locked(place: Path) -> Iterator[None]:
    """While it lasts, no other process is inside for the same folder. The lock, a file beside the folder, ends with its
    process in any case. Raises OSError where the file cannot be written."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that prepares {place.name}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def whole_folder(place: Path) -> Iterator[Path]:
    """A new folder to write into; it becomes `place` where all went well, and is removed where not.

    What stood there before is replaced: where several processes may make the folder, they hold its lock (`locked`), so
    that none removes what another one reads. Others may read the folder.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=place.parent, prefix=f"{place.name}.", suffix=".part"))
    try:
        part.chmod(0o755)
        yield part
        if place.exists():
            shutil.rmtree(place, ignore_errors=True)
        os.replace(part, place)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def cached_folder(place: Path, read: Callable[[], Value], write: Callable[[Path], object]) -> Value:
    """What `read` makes of the folder `place`, into which `write` puts it where there is none.

    Of several processes that start together one writes, and the others wait for it. A folder of which `read` raises one
    of DAMAGED is made again, with a warning; what an interrupted process left is removed. Raises OSError where the
    folder cannot be written.
    """
    if place.exists():
        with contextlib.suppress(*DAMAGED):
            return read()  # whole, and so never replaced: no lock is needed
    with locked(place):
        if place.exists():
            try:
                return read()
            except DAMAGED as error:
                warnings.warn(f"{place} is damaged ({error}); it is made again.", stacklevel=2)
        for rest in place.parent.glob(f"{place.name}.*.part"):
            shutil.rmtree(rest, ignore_errors=True)
        with whole_folder(place) as part:
            write(part)
        return read()


def cached(
    place: Path,
    read: Callable[[], Value],
    make: Callable[[], Value],
    write: Callable[[Path, Value], object],
    what: str,
    setting: str = "paths.cache_dir=...",
) -> Value:
    """What `make` makes, kept with `cached_folder` by `write` and taken from there by `read` the next time; where it
    cannot be kept, it is used without, with a warning that calls it `what` and names the `setting` of another place."""
    values: list[Value] = []

    def fill(folder: Path) -> None:
        values.append(make())
        write(folder, values[0])

    try:
        return cached_folder(place, read, fill)
    except OSError as error:  # of the cache: what is read to make the value raises UserError
        warnings.warn(
            f"The {what} could not be kept in {place.parent} ({error.strerror}), so every run makes them again; "
            f"{setting} names another folder.",
            stacklevel=2,
        )
        return values[0] if values else make()


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    """Write a file for each array, and what else there is to know, in values that JSON has."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    shapes = {name: [list(array.shape), str(array.dtype)] for name, array in arrays.items()}
    (folder / META).write_text(json.dumps({"shapes": shapes, **meta}), encoding="ascii")


def read_arrays(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What `write_arrays` wrote, the arrays mapped into memory; changes of them are not written back. Raises one of
    DAMAGED where something is not whole."""
    meta = json.loads((folder / META).read_text(encoding="ascii"))
    arrays = {}
    for name, (shape, dtype) in meta.pop("shapes").items():
        array = np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False)
        if list(array.shape) != shape or str(array.dtype) != dtype:
            raise ValueError(f"{name}.npy is not whole")
        arrays[name] = array.view(np.ndarray)  # as a plain array: indexing a memmap object is slower
    return arrays, meta
