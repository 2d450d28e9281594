"""A file over HTTP: goes on where an earlier try stopped, and appears whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import shutil
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tqdm import tqdm

from scripts.downloads import DownloadError

CHUNK = 1 << 20
TRIES = 4  # connections in a row that may break without a byte
TIMEOUT_S = 60
PAUSE_S = 2.0


def fetch(url: str, path: Path) -> str:
    """Put the file at `url` into `path` and return its sha256.

    While it is not whole it is `<path>.part`, beside a note of its version at the server; the next call goes on there
    if the server still has the same file. Raises DownloadError where the server cannot be reached or refuses.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part, note = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.note.json")
    if path.exists():  # an earlier call ended before it was used
        return sha256(path)
    tries, largest = TRIES, _size(part)
    while True:
        try:
            if _receive(url, part, note):
                break
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and _size(part):  # the part is not a beginning of what the server has now
                part.unlink()
                note.unlink(missing_ok=True)
                continue
            if error.code < 500:
                raise DownloadError(f"{url}: the server answers {error.code} {error.reason}.") from None
            reason = f"the server answers {error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise DownloadError(f"The disk of {part} is full; free some space and run the command again.") from None
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        else:
            reason = "the connection ended early"
        tries, largest = (TRIES, _size(part)) if _size(part) > largest else (tries - 1, largest)
        if tries <= 0:
            rest = f"{_size(part):,} bytes are kept in {part}; r" if _size(part) else "R"
            raise DownloadError(f"{url} could not be fetched ({reason}). {rest}un the same command again to go on.")
        time.sleep(PAUSE_S)
    digest = sha256(part)
    part.replace(path)
    note.unlink(missing_ok=True)
    return digest


def sha256(path: Path) -> str:
    """Fingerprint of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _receive(url: str, part: Path, note: Path) -> bool:
    """One connection; whether the file is whole after it."""
    request = urllib.request.Request(url, headers={"User-Agent": "hyperbolic-language", "Accept-Encoding": "identity"})
    start, earlier = _size(part), _read(note)
    if start and earlier.get("url") == url:
        request.add_header("Range", f"bytes={start}-")
        if earlier.get("version"):
            request.add_header("If-Range", earlier["version"])
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        resumed = response.status == 206 and start
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise http.client.HTTPException("the server sent another part of the file than the request names")
        if not resumed:
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length and length.isdigit() else None
        free = shutil.disk_usage(part.parent).free
        if total is not None and total - start > free:
            raise DownloadError(f"{url} needs {total - start:,} bytes, and {part.parent} has {free:,} left.")
        tag = response.headers.get("ETag", "")
        version = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")
        note.write_text(json.dumps({"url": url, "version": version}), encoding="utf-8")
        bar = tqdm(
            total=total, initial=start, unit="B", unit_scale=True, desc=part.stem, leave=False,
            disable=not sys.stderr.isatty(),
        )  # fmt: skip
        with part.open("ab" if resumed else "wb") as file, bar:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
    return total is None or _size(part) == total


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read(note: Path) -> dict[str, str]:
    try:
        return json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
