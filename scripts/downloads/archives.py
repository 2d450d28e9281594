"""Archives that are not trusted: only plain files come out, only inside of the folder, only up to a size, in little
memory whatever the archive says of itself."""

from __future__ import annotations

import gzip
import os
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
from tasks.errors import readable
from tasks.folders import LONGEST_NAME

MEMBERS = 10_000
CHUNK = 1 << 20
LONGEST_PATH = 1000
HEADERS = 1 << 16  # bytes of what a tar says of one member, and
DIRECTORY = 1 << 22  # of what a zip says of all; both are read in one go
DAMAGE = (
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RuntimeError,
    FileExistsError, NotADirectoryError,
)  # fmt: skip
Place = Callable[[PurePosixPath], PurePosixPath | None]


def unpack(
    archive: Path, folder: Path, place: Place, max_bytes: int, check: Callable[[Path], None] = lambda aside: None
) -> list[Path]:
    """Take the files out of a .zip or .tar.gz and return where they are.

    place: where in `folder` a member belongs, None for those that are not needed. max_bytes: of all members together.
    Everything is taken out beside `folder` first and moved into it when all is well. check: called with the folder
    beside it before anything is moved.

    Raises DownloadError, and leaves `folder` as it was, for a damaged archive, one that is too large, and one with a
    member that is a link or a device, whose name leaves the folder, or that needs much memory. Raises what `check`
    raises.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-", suffix=".part"))
    try:
        left, files = max_bytes, []
        for count, (name, size, open_member) in enumerate(_members(archive)):
            if count >= MEMBERS:
                raise DownloadError(f"{archive}: more than {MEMBERS:,} members; that is not the data set.")
            left -= size  # neither kind of archive gives more bytes of a member than it says
            if left < 0:
                raise DownloadError(f"{archive}: its files have more than {max_bytes:,} bytes; not the data set.")
            target_name = place(_check(name, archive))
            if target_name is None or open_member is None:
                continue
            target = aside / _check(str(target_name), archive)
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_member() as source, target.open("xb") as file:
                shutil.copyfileobj(source, file)
            files.append(target.relative_to(aside))
        check(aside)
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (aside / name).replace(folder / name)
    except DAMAGE as error:
        raise DownloadError(f"{archive} is damaged or no archive ({readable(str(error)[:200])}).") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return [folder / name for name in files]


def _check(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    is_short = len(name) <= LONGEST_PATH and all(len(os.fsencode(part)) <= LONGEST_NAME for part in path.parts)
    if not name.isprintable() or not is_short:
        raise DownloadError(f"{archive}: its member {name[:80]!r} has a name that no data set has; nothing was taken.")
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name.partition("/")[0]:
        raise DownloadError(f"{archive}: its member {name[:80]!r} would land outside of the folder; nothing was taken.")
    return path


def _no_file(name: str, archive: Path) -> DownloadError:
    return DownloadError(f"{archive}: its member {name[:80]!r} is a link or a device; nothing was taken.")


class _Rationed:
    """A file of which no more than `left` bytes can be read; who reads a lot of a member raises it before."""

    def __init__(self, file: IO[bytes], archive: Path, left: int) -> None:
        self.file, self.archive, self.left = file, archive, left
        self.tell, self.seekable = file.tell, file.seekable

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and offset < 0:
            raise ValueError("it says that a member begins before it")
        return self.file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        if size > self.left:
            raise DownloadError(f"{self.archive}: what it says of its members is too large; that is not the data set.")
        data = self.file.read(self.left if size < 0 else size)
        self.left -= len(data)
        return data


def _members(archive: Path) -> Iterator[tuple[str, int, Callable[[], IO[bytes]] | None]]:
    """(name, bytes, how to open it) of each member; None for folders."""
    return _members_of_zip(archive) if zipfile.is_zipfile(archive) else _members_of_tar(archive)


def _members_of_zip(archive: Path) -> Iterator[tuple[str, int, Callable[[], IO[bytes]] | None]]:
    with archive.open("rb") as plain:
        rationed = _Rationed(plain, archive, DIRECTORY)
        with zipfile.ZipFile(rationed) as file:
            for info in file.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise _no_file(info.filename, archive)
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others take any memory
                    raise zipfile.BadZipFile(f"{info.filename[:80]!r} is neither stored nor deflated")
                rationed.left = info.compress_size + DIRECTORY
                yield info.filename, info.file_size, None if info.is_dir() else (lambda info=info: file.open(info))


def _members_of_tar(archive: Path) -> Iterator[tuple[str, int, Callable[[], IO[bytes]] | None]]:
    with gzip.open(archive) as plain:
        rationed = _Rationed(plain, archive, HEADERS)
        with tarfile.open(fileobj=rationed, mode="r:") as file:
            for info in file:
                if info.issparse() or not (info.isreg() or info.isdir()):
                    raise _no_file(info.name, archive)
                rationed.left = info.size + HEADERS
                yield info.name, info.size, None if info.isdir() else (lambda info=info: file.extractfile(info))
                rationed.left = HEADERS
                file.members.clear()  # it would keep them all
            rationed.file.read(CHUNK)  # to the end of the archive, where gzip compares its checksum
