"""SHA-256 of names, files and settings: what records, checkpoints and the folders of a cache are compared by."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.errors import UserError
from tasks.reading import UNREADABLE, open_bytes

_LETTERS = 50  # of the name of a data set, in that of a folder


def names_sha256(names: Iterable[str]) -> str:
    """The fingerprint of names in their order."""
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()


def identity_of(names: Sequence[str]) -> str:
    """How many names there are and the beginning of their fingerprint, for `TaskData.identity`."""
    return f"{len(names)} with sha256 {names_sha256(names)[:12]}"


def file_sha256(path: Path) -> str:
    """The fingerprint of a file's contents. Raises UserError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).") from None


def contents_sha256(path: Path) -> str:
    """:func:`file_sha256` of what a packed file (``.gz``) unpacks to, so that it is the same for both; of one that is
    damaged, of the file as it is."""
    try:
        with open_bytes(path) as file:
            digest = hashlib.sha256()
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
        return digest.hexdigest()
    except UNREADABLE:
        return file_sha256(path)


def joined_sha256(shas: Sequence[str]) -> str:
    """The fingerprint of several files together; of one file its own."""
    return shas[0] if len(shas) == 1 else hashlib.sha256("".join(shas).encode()).hexdigest()


def part_sha256(sha256: str, rows: bytes) -> str:
    """The fingerprint of rows of files that are a split of their own, from that of the files and what says which rows
    these are."""
    return joined_sha256([sha256, hashlib.sha256(rows).hexdigest()])


def other_parts(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Of `ours`, the fingerprints of the parts of the data, as splits and word vectors, of which `theirs` has another
    one; a part that only one of them has is not compared."""
    return {part: sha256 for part, sha256 in ours.items() if theirs.get(part, sha256) != sha256}


def cache_place(folder: Path, name: str, settings: Mapping[str, Any]) -> Path:
    """The folder in `folder` where is kept what was made with some settings: other settings have another one.

    name: what its name begins with, for a reader; it may come from a file, so that what cannot stand in the name of a
    folder is replaced, and it leads nowhere else.
    """
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    begin = re.sub(r"[^\w.,=+-]", "_", str(name))[:_LETTERS]
    return folder / f"{begin}-{key}"
