"""Prepared pairs on disk, mapped into memory."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tasks.batches import SPLITS
from tasks.errors import UserError
from tasks.fingerprints import cache_place, contents_sha256, joined_sha256, part_sha256
from tasks.folders import cached_record
from tasks.nli.columns import Arrays, Prepared, Recipe, Row, prepare
from tasks.nli.pairs import read_pairs, read_with_splits
from tasks.nli.places import ALL, Source
from tasks.rows import has_column
from tasks.split_column import require_train, train_first

FORMAT = 10  # of the cache


def from_files(sources: Sequence[Source], recipe: Recipe, cache: Path) -> Prepared:
    """What the recipe makes of some files; kept in `cache`/nli, and taken from there the next time.

    The folder's name is a fingerprint of the files' contents and the recipe. One that is damaged is made again, with a
    warning; where it cannot be written, the pairs are used without it. A part of train is kept for splits that are not
    there. Raises UserError where the recipe keeps none, and for a line that cannot be used, where it does not say to
    skip it.
    """
    shas = [contents_sha256(source.path) for source in sources]
    labels = [[s.split, s.part, s.path.name, sha] for s, sha in zip(sources, shas, strict=True)]
    settings = {"format": FORMAT, "sources": labels, **asdict(recipe)}
    place = cache_place(cache / "nli", sources[0].path.parent.resolve().name, settings)

    def make() -> Prepared:
        splits, rows = read_rows(sources)
        held_out = [split for split in SPLITS[1:] if split not in splits]
        if held_out and not 0 < len(held_out) * recipe.held_out < 1:
            raise UserError(
                f"{sources[0].path if len(sources) == 1 else sources[0].path.parent} has no pairs for "
                f"{' and '.join(held_out)}; add some, or keep a part of train for each with task.data.held_out=0.1 (it "
                f"is {recipe.held_out:g})."
            )
        pairs = prepare(rows, recipe, held_out)
        own = {split: [k for k, s in enumerate(sources) if s.split == split] for split in SPLITS}
        files = {split: places or own["train"] for split, places in own.items()}
        sha256 = {split: joined_sha256([shas[k] for k in places]) for split, places in files.items()}
        for split in (split for split in SPLITS if not own[split]):
            part: list[Any] = [split]  # by the column of this name
            if split in held_out:
                part = [recipe.held_out, recipe.held_out_seed, *held_out[: held_out.index(split)]]
            sha256[split] = part_sha256(sha256[split], json.dumps(part).encode())
        return pairs._replace(
            files={split: " + ".join(sources[k].path.name for k in places) for split, places in files.items()},
            sha256=sha256,
        )

    return cached_record(place, make, Prepared, Arrays, settings, "prepared pairs")


def read_rows(sources: Sequence[Source]) -> tuple[set[str], Iterator[Row]]:
    """The splits that there are, and the pairs, those of train first. Of a single file with a column split, this says
    which pairs are of which."""
    path = sources[0].path
    if len(sources) == 1 and has_column(path, "split"):
        rows = train_first(path, lambda: read_with_splits(path), "pairs")
        splits = {split for split, *_ in read_with_splits(path) if split}
        require_train(path, splits)
        return splits, ((split, ALL, place, pair) for split, place, pair in rows)
    rows_of_files = ((s.split, s.part, f"{s.path}, line {k}", pair) for s in sources for k, pair in read_pairs(s.path))
    return {source.split for source in sources}, rows_of_files
