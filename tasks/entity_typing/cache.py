"""Files of mentions, prepared once: columns on disk that are mapped into memory, written with several processes."""

import contextlib
import hashlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tasks.entity_typing.chunks import COUNTED, Chunk, ChunkEncoder, encode_chunks
from tasks.entity_typing.examples import Columns, Limits
from tasks.entity_typing.overlaps import Overlaps
from tasks.entity_typing.release import Source
from tasks.errors import UserError
from tasks.fingerprints import cache_place, contents_sha256, names_sha256
from tasks.folders import cached_folder, read_arrays, write_meta
from tasks.reading import Faults, progress_bar

FORMAT = 5  # of the cache; another one is another folder
DTYPES = {"words": "i4", "word_starts": "i8", "spans": "u1", "characters": "u1", "types": "i4", "type_starts": "i8"}
COUNTS = ("skipped", *COUNTED, "words", "unknown_distinct")  # of a source; of those of one split they can be added up
FLAT = ("words", "types")


@dataclass(frozen=True)
class Recipe:
    """What is prepared and how. sources: in the order in which they give new types ids. index: rows of the words.
    types: that have the first ids; grow: whether other types get the next ones. keep_untyped: mentions without a type
    can be used. on_error: fail | skip (mentions that cannot be used, and types outside of the ontology).
    """

    sources: tuple[Source, ...]
    index: dict[str, int]
    limits: Limits
    types: tuple[str, ...]
    grow: bool
    keep_untyped: bool
    on_error: str

    def settings(self) -> dict[str, Any]:
        """What the prepared arrays depend on, as JSON. A file stands for its content by place, size and time."""
        words = hashlib.sha256("\n".join(self.index).encode("utf-8", "surrogatepass"))
        words.update(np.fromiter(self.index.values(), np.int32, len(self.index)).tobytes())
        return {
            "format": FORMAT,
            "sources": [[s.name, s.label, s.split, *stamp(s.path)] for s in self.sources],
            "words": words.hexdigest(),
            "types": names_sha256(self.types),
            "limits": list(astuple(self.limits)),
            "grow": self.grow,
            "keep_untyped": self.keep_untyped,
            "on_error": self.on_error,
        }


class PreparedMentions(NamedTuple):
    """Columns of all sources, the names of the types, and what each source gave: its mentions are start..stop - 1.

    parts, by source: file, sha256, start, stop, lines, first_fault (or None), and COUNTS: lines skipped, mentions cut
    at the limit, mentions without a type, types left out, words without a vector, words in all, and distinct words
    without a vector that no earlier source of the same split has. Those of dev and test also have what
    `Overlaps.by_source` says.
    """

    columns: Columns
    types: tuple[str, ...]
    parts: dict[str, dict[str, Any]]


def stamp(path: Path) -> list[Any]:
    """Place, size and time of a file: another content has another stamp."""
    stat = path.stat()
    place = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]  # no path of this machine is written down
    return [place, stat.st_size, stat.st_mtime_ns]


def prepare_mentions(folder: Path, name: str, recipe: Recipe, workers: int) -> PreparedMentions:
    """What the recipe gives, kept in a folder of its own in `folder`, see `folders.cached_folder`.

    Raises UserError for a mention that cannot be used, where the recipe does not say to skip it.
    """
    settings = recipe.settings()
    place = cache_place(folder, name, settings)

    def read() -> PreparedMentions:
        arrays, facts = read_arrays(place, settings)
        return PreparedMentions(Columns(**arrays), tuple(facts["types"]), facts["parts"])

    try:
        return cached_folder(place, read, lambda part: _make(part, name, recipe, settings, workers))
    except OSError as error:
        where = error.filename or folder
        raise UserError(
            f"The data of {name} could not be prepared in {folder} ({where}: {error.strerror or error}); make room "
            "there, or name another folder with paths.cache_dir=..."
        ) from error


def _make(folder: Path, name: str, recipe: Recipe, settings: dict[str, Any], workers: int) -> None:
    begin = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:  # sha256 lets other threads run
        shas = [pool.submit(contents_sha256, source.path) for source in recipe.sources]
        try:
            sizes, types, parts = _write(folder, name, recipe, workers)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        for source, sha in zip(recipe.sources, shas, strict=True):
            parts[source.name]["sha256"] = sha.result()
    if recipe.settings()["sources"] != settings["sources"]:
        raise UserError(f"A file of {name} changed while it was read; start again when it is complete.")
    forms = {column: (dtype, sizes[column]) for column, dtype in DTYPES.items()}
    write_meta(folder, forms, settings, {"types": types, "parts": parts})
    n, seconds = sizes["spans"][0], time.perf_counter() - begin
    print(f"{name}: {n:,} mentions prepared in {seconds:.1f} s ({n / seconds:,.0f} per second)", flush=True)


def _write(
    folder: Path, name: str, recipe: Recipe, workers: int
) -> tuple[dict[str, list[int]], list[str], dict[str, dict[str, Any]]]:
    """Write the arrays; return their shapes, the types and the parts."""
    types = {t: k for k, t in enumerate(recipe.types)}
    encoder = ChunkEncoder(
        recipe.index, recipe.limits, dict(types), recipe.grow, recipe.keep_untyped, recipe.on_error == "skip"
    )
    lengths = dict.fromkeys(FLAT, 0)
    zeros = dict.fromkeys(("start", "stop", "lines", *COUNTS), 0)
    parts: dict[str, dict[str, Any]] = {s.name: {"file": s.label, **zeros} for s in recipe.sources}
    faults = {s.name: Faults(recipe.on_error) for s in recipe.sources}
    unknown: dict[str, set[str]] = {s.split: set() for s in recipe.sources}
    overlaps = Overlaps()
    with contextlib.ExitStack() as stack:
        files = {column: stack.enter_context((folder / f"{column}.bin").open("wb")) for column in DTYPES}
        for column in ("word_starts", "type_starts"):
            files[column].write(np.zeros(1, DTYPES[column]).tobytes())
        total = sum(source.path.stat().st_size for source in recipe.sources)
        bar = stack.enter_context(progress_bar(total, f"preparing {name}"))
        chunks = encode_chunks(encoder, [s.path for s in recipe.sources], workers)
        stack.enter_context(contextlib.closing(chunks))
        mentions = 0
        for number, size, chunk in chunks:
            source = recipe.sources[number]
            for line, fault in chunk.faults:
                faults[source.name].add(f"{source.path}, line {parts[source.name]['lines'] + line}", fault)
            _count(parts[source.name], chunk, mentions, unknown[source.split])
            ids = np.array([types.setdefault(t, len(types)) for t in chunk.types], np.int32)
            columns = chunk.columns._replace(types=ids[chunk.columns.types] if len(ids) else chunk.columns.types)
            mentions += columns.mentions
            overlaps.add(source.name, columns)
            for column, array in columns._asdict().items():
                if column.endswith("_starts"):
                    array = array[1:] + lengths[column.replace("_starts", "s")]
                files[column].write(np.ascontiguousarray(array, DTYPES[column]).tobytes())
            for column in FLAT:
                lengths[column] += len(getattr(columns, column))
            bar.set_postfix_str(f"{mentions:,} mentions", refresh=False)
            bar.update(size)
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    for source in recipe.sources:
        parts[source.name] |= {"skipped": faults[source.name].count, "first_fault": faults[source.name].first}
        remark = faults[source.name].remark
        if parts[source.name]["stop"] == parts[source.name]["start"]:
            raise UserError(f"{source.path} has no mention that can be used{remark}; correct it or fetch it again.")
    for name, facts in overlaps.by_source(recipe.sources, list(types)).items():
        parts[name] |= facts
    sizes = {column: [length] for column, length in lengths.items()}
    sizes |= {"word_starts": [mentions + 1], "type_starts": [mentions + 1], "spans": [mentions, 3]}
    return sizes | {"characters": [mentions, recipe.limits.characters]}, list(types), parts


def _count(part: dict[str, Any], chunk: Chunk, mentions: int, unknown: set[str]) -> None:
    """Add a chunk to the counts of its source, and its words without a vector to those of the split (`unknown`).

    mentions: how many stand before the chunk."""
    part["start"] = part["start"] if part["lines"] else mentions
    part["stop"] = mentions + chunk.columns.mentions
    part["lines"] += chunk.lines
    for count in COUNTED:
        part[count] += chunk.counts[count]
    part["words"] += len(chunk.columns.words)
    before = len(unknown)
    unknown.update(chunk.unknown)
    part["unknown_distinct"] += len(unknown) - before
