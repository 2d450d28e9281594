"""A file over HTTP: goes on where an earlier try stopped, and appears whole or not at all.

pooch compares the checksum and puts the file into its place; what it lacks is here: going on after a break, and an end
for a server that is too slow.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import re
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pooch

from scripts.downloads import DownloadError
from tasks.reading import progress_bar

CHUNK = 1 << 20
TRIES = 4  # connections in a row that may break with less than LEAST_BYTES_PER_S
TIMEOUT_S = 60.0  # for an answer, for more of it, and in which LEAST_BYTES_PER_S are a mean
LEAST_BYTES_PER_S = 1000
PAUSE_S = 2.0


class ChecksumError(DownloadError):
    """The file is another one than was expected."""


def fetch(url: str, path: Path, sha256: str | None, max_bytes: int, shows_cuts: bool) -> str:
    """Put the file at `url` into `path` and return its sha256.

    While it is not whole it is `<path>.part`, beside a note of its version at the server; the next call goes on there
    if the server still has the same file.

    Args:
        sha256: of the file, where it is known. max_bytes: more is not taken. shows_cuts: whether who reads the file
            notices that its end is missing, as in an archive.

    Raises:
        DownloadError: the server cannot be reached, refuses, or goes on sending fewer than LEAST_BYTES_PER_S; the file
            is too large, or could be cut without anybody noticing. ChecksumError: it is another file.
    """
    pooch.get_logger().setLevel("WARNING")
    part, note = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.note.json")

    def resume(url: str, target: str, _: object) -> None:
        _receive_all(url, part, note, max_bytes, shows_cuts or sha256 is not None)
        part.replace(target)
        note.unlink(missing_ok=True)

    try:
        pooch.retrieve(url, sha256, fname=path.name, path=path.parent, downloader=resume)
    except ValueError:
        raise ChecksumError(
            f"{url} does not have the sha256 {sha256}: it was damaged on the way or changed. Nothing was kept; run the "
            "same command again."
        ) from None
    return pooch.file_hash(str(path))


def _receive_all(url: str, part: Path, note: Path, max_bytes: int, shows_cuts: bool) -> None:
    """Connections until the part is the whole file."""
    tries = TRIES
    while True:
        start, size = time.monotonic(), _size(part)
        try:
            if _receive(url, part, note, max_bytes, shows_cuts):
                return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and size:  # the part is not a beginning of what the server has now
                part.unlink()
                note.unlink(missing_ok=True)
                continue
            reason = f"the server answers {error.code} {_readable(error.reason)}"
            if error.code < 500:
                raise DownloadError(f"{url}: {reason}.") from None
        except (OSError, http.client.HTTPException, ValueError) as error:  # URLError is an OSError
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise DownloadError(f"The disk of {part} is full; free some space and run the command again.") from None
            reason = _readable(getattr(error, "reason", error)) or type(error).__name__
        else:
            reason = "the connection ended early"
        seconds = time.monotonic() - start + PAUSE_S
        tries = TRIES if _size(part) - size > LEAST_BYTES_PER_S * seconds else tries - 1
        if tries <= 0:
            rest = f"{_size(part):,} bytes are kept in {part}; r" if _size(part) else "R"
            raise DownloadError(f"{url} could not be fetched ({reason}). {rest}un the same command again to go on.")
        time.sleep(PAUSE_S)


def _receive(url: str, part: Path, note: Path, max_bytes: int, shows_cuts: bool) -> bool:
    """One connection; whether the file is whole after it."""
    request = urllib.request.Request(url, headers={"User-Agent": "hyperbolic-language", "Accept-Encoding": "identity"})
    start, earlier = _size(part), _read(note)
    if start and earlier.get("url") == url:
        request.add_header("Range", f"bytes={start}-")
        if earlier.get("version"):
            request.add_header("If-Range", earlier["version"])
    with _deadline():
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    with response:
        if url.startswith("https:") and not response.url.startswith("https:"):
            raise DownloadError(f"{url} leads to {_readable(response.url)}, which is not protected by https.")
        resumed = response.status == 206 and start
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise http.client.HTTPException("the server sent another part of the file than the request names")
        if not resumed:
            start = 0
        total = _total(url, response, start)
        if total is None and not (response.chunked or shows_cuts):
            raise DownloadError(
                f"{url}: the server does not say how long the file is, and no checksum is known, so nobody could tell "
                "whether it is whole. Nothing was fetched."
            )
        free = shutil.disk_usage(part.parent).free
        if total is not None and total - start > free:
            raise DownloadError(f"{url} needs {total - start:,} bytes, and {part.parent} has {free:,} left.")
        tag = response.headers.get("ETag", "")
        version = tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")
        note.write_text(json.dumps({"url": url, "version": version}), encoding="utf-8")
        with part.open("ab" if resumed else "wb") as file, progress_bar(total, part.stem, start) as bar:
            for chunk in _chunks(response):
                file.write(chunk)
                bar.update(len(chunk))
                if file.tell() > max_bytes:
                    raise DownloadError(f"{url} has more than {max_bytes:,} bytes; it is not the data set.")
    return total is None or _size(part) == total


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body, as it arrives. Raises TimeoutError where it arrives too slowly."""
    start, received = time.monotonic(), 0
    while True:
        with _deadline():
            chunk = response.read1(CHUNK)  # what is there now: nothing of it is lost when the next part does not come
        if not chunk:
            return
        yield chunk
        received += len(chunk)
        if time.monotonic() - start > TIMEOUT_S:
            if received < LEAST_BYTES_PER_S * TIMEOUT_S:
                raise TimeoutError(f"it sends fewer than {LEAST_BYTES_PER_S:,} bytes a second")
            start, received = time.monotonic(), 0


@contextlib.contextmanager
def _deadline() -> Iterator[None]:
    """TimeoutError after TIMEOUT_S. A socket's own timeout begins anew with every byte, also of headers."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer within {TIMEOUT_S:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _total(url: str, response: http.client.HTTPResponse, start: int) -> int | None:
    """The size of the file as the answer has it; None where it does not say."""
    length = response.headers.get("Content-Length")
    if length is None or response.chunked:
        return None
    if not re.fullmatch("[0-9]{1,18}", length):
        raise DownloadError(f"{url}: the server's answer is damaged (Content-Length: {_readable(length)}).")
    return start + int(length)


def _readable(text: object) -> str:
    """What a server or a library says, in a line of moderate length."""
    return "".join(c if c.isprintable() else " " for c in str(text))[:200]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read(note: Path) -> dict[str, str]:
    try:
        values = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) and all(isinstance(v, str) for v in values.values()) else {}
