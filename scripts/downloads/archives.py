"""Archives that are not trusted: only plain files come out, only inside of the folder, only up to a size."""

from __future__ import annotations

import gzip
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from scripts.downloads import DownloadError

MEMBERS = 10_000
DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RuntimeError,
    FileExistsError,
)  # fmt: skip
Place = Callable[[PurePosixPath], PurePosixPath | None]


def unpack(archive: Path, folder: Path, place: Place, max_bytes: int) -> list[Path]:
    """Take the files out of a .zip or .tar.gz and return where they are.

    place: where in `folder` a member belongs, None for those that are not needed. max_bytes: of all files together.
    Everything is taken out beside `folder` first and moved into it when all is well.

    Raises DownloadError, and leaves `folder` as it was, for a damaged archive, one that is too large, and one with a
    member that is a link or a device or whose name leaves the folder.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-", suffix=".part"))
    try:
        left, files = max_bytes, []
        for count, (name, size, open_member) in enumerate(_members(archive)):
            if count >= MEMBERS:
                raise DownloadError(f"{archive}: more than {MEMBERS:,} members; that is not the data set.")
            target_name = place(_checked(name, archive))
            if target_name is None or open_member is None:
                continue
            target = aside / _checked(str(target_name), archive)
            target.parent.mkdir(parents=True, exist_ok=True)
            left -= size  # neither kind of archive gives more bytes of a member than it says
            if left < 0:
                raise DownloadError(f"{archive}: its files have more than {max_bytes:,} bytes; not the data set.")
            with open_member() as source, target.open("xb") as file:
                shutil.copyfileobj(source, file)
            files.append(target.relative_to(aside))
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (aside / name).replace(folder / name)
    except DAMAGE as error:
        raise DownloadError(f"{archive} is damaged or no archive ({error}).") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return [folder / name for name in files]


def _checked(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in name.partition("/")[0]:
        raise DownloadError(f"{archive}: its member {name!r} would land outside of the folder; nothing was taken.")
    return path


def _no_file(name: str, archive: Path) -> DownloadError:
    return DownloadError(f"{archive}: its member {name!r} is a link or a device; nothing was taken.")


def _members(archive: Path) -> Iterator[tuple[str, int, Callable[[], IO[bytes]] | None]]:
    """(name, bytes, how to open it) of each member; None for folders."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            for info in file.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise _no_file(info.filename, archive)
                yield info.filename, info.file_size, None if info.is_dir() else (lambda info=info: file.open(info))
    else:
        with tarfile.open(archive, "r:*") as file:
            for info in file:
                if not (info.isreg() or info.isdir()):
                    raise _no_file(info.name, archive)
                yield info.name, info.size, None if info.isdir() else (lambda info=info: file.extractfile(info))
