"""Prepared pairs on disk, mapped into memory."""

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tasks.errors import UserError
from tasks.folders import damaged, made_whole, not_kept
from tasks.nli.columns import Arrays, Prepared, Recipe, prepare
from tasks.nli.pairs import read_pairs
from tasks.nli.places import SPLITS, Source

FORMAT = 2  # of the cache
META = "meta.json"


def from_files(sources: Sequence[Source], recipe: Recipe, cache: Path) -> Prepared:
    """What the recipe makes of some files; kept in `cache`/nli, and taken from there the next time.

    The folder's name is a fingerprint of the files' contents and the recipe. One that is damaged is made again, with a
    warning; where it cannot be written, the pairs are used without it. Raises UserError for a line that cannot be used,
    where the recipe does not say to skip it.
    """
    shas = [_sha256(source.path) for source in sources]
    labels = [[s.split, s.part, s.path.name, sha] for s, sha in zip(sources, shas, strict=True)]
    settings = {"format": FORMAT, "sources": labels, **asdict(recipe)}
    key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
    place = cache / "nli" / f"{sources[0].path.parent.resolve().name}-{key}"
    if place.exists():
        try:
            return _read(place, settings)
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            warnings.warn(damaged(place, error), stacklevel=2)
    rows = ((s.split, s.part, f"{s.path}, line {k}", pair) for s in sources for k, pair in read_pairs(s.path))
    pairs = prepare(rows, recipe)
    places = {split: [k for k, s in enumerate(sources) if s.split == split] for split in SPLITS}
    places["dev"] = places["dev"] or places["train"]  # held out
    joined = {s: hashlib.sha256("".join(shas[k] for k in files).encode()).hexdigest() for s, files in places.items()}
    pairs = pairs._replace(
        files={s: " + ".join(sources[k].path.name for k in files) for s, files in places.items()},
        sha256={s: shas[files[0]] if len(files) == 1 else joined[s] for s, files in places.items()},
    )
    try:
        _write(place, pairs, settings)
    except OSError as error:
        warnings.warn(not_kept("prepared pairs", place, error, "reads the files", "paths.cache_dir=..."), stacklevel=2)
    return pairs


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).") from None


def _write(place: Path, pairs: Prepared, settings: Mapping[str, Any]) -> None:
    arrays = pairs.arrays._asdict()
    with made_whole(place) as part:
        for name, values in arrays.items():
            np.save(part / f"{name}.npy", values)
        meta = {k: v for k, v in pairs._asdict().items() if k != "arrays"}
        shapes = {name: [list(a.shape), str(a.dtype)] for name, a in arrays.items()}
        (part / META).write_text(json.dumps({"settings": settings, "shapes": shapes, **meta}), encoding="ascii")


def _read(place: Path, settings: Mapping[str, Any]) -> Prepared:
    """What a folder keeps, mapped into memory. Raises ValueError where it is not whole or of another recipe."""
    meta = json.loads((place / META).read_text(encoding="ascii"))
    if meta.pop("settings") != json.loads(json.dumps(settings)):
        raise ValueError("it is of another recipe")
    arrays = {}
    for name, (shape, dtype) in meta.pop("shapes").items():
        values = np.load(place / f"{name}.npy", mmap_mode="c", allow_pickle=False)  # changes are not written back
        if list(values.shape) != shape or str(values.dtype) != dtype:
            raise ValueError(f"{name}.npy is not whole")
        arrays[name] = values.view(np.ndarray)
    return Prepared(Arrays(**arrays), **meta)
