"""Files and folders that appear whole or not at all, and the warnings about those that do not."""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """The path of a new file beside `path`, to write into; it becomes `path` where all went well, and is removed where
    not. So a reader sees the file that stood there before or the new one, never a part."""
    part = path.with_name(f".{path.stem}-{secrets.token_hex(4)}.part{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


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
def made_whole(place: Path) -> Iterator[Path]:
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
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def damaged(place: Path, error: Exception) -> str:
    """The warning that a kept folder or file is not whole, or of another recipe."""
    return f"{place} is damaged ({error}); it is made again."


def not_kept(what: str, place: Path, error: OSError, again: str, setting: str) -> str:
    """The warning that `what` could not be written to `place`. again: what every run now does; setting: the remedy."""
    return (
        f"The {what} could not be kept in {place.parent} ({error.strerror}), so every run {again} again; {setting} "
        "names another folder."
    )
