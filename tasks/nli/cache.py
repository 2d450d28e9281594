"""Prepared pairs on disk, mapped into memory."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tasks.fingerprints import cache_place, contents_sha256, joined_sha256, part_sha256
from tasks.folders import cached_record
from tasks.nli.columns import Arrays, Prepared, Recipe, prepare
from tasks.nli.pairs import read_pairs
from tasks.nli.places import SPLITS, Source

FORMAT = 7  # of the cache


def from_files(sources: Sequence[Source], recipe: Recipe, cache: Path) -> Prepared:
    """What the recipe makes of some files; kept in `cache`/nli, and taken from there the next time.

    The folder's name is a fingerprint of the files' contents and the recipe. One that is damaged is made again, with a
    warning; where it cannot be written, the pairs are used without it. Raises UserError for a line that cannot be used,
    where the recipe does not say to skip it.
    """
    shas = [contents_sha256(source.path) for source in sources]
    labels = [[s.split, s.part, s.path.name, sha] for s, sha in zip(sources, shas, strict=True)]
    settings = {"format": FORMAT, "sources": labels, **asdict(recipe)}
    place = cache_place(cache / "nli", sources[0].path.parent.resolve().name, settings)

    def make() -> Prepared:
        rows = ((s.split, s.part, f"{s.path}, line {k}", pair) for s in sources for k, pair in read_pairs(s.path))
        pairs = prepare(rows, recipe)
        files = {split: [k for k, s in enumerate(sources) if s.split == split] for split in SPLITS}
        files["dev"] = files["dev"] or files["train"]  # held out
        sha256 = {split: joined_sha256([shas[k] for k in places]) for split, places in files.items()}
        if recipe.held_out:
            sha256["dev"] = part_sha256(sha256["dev"], json.dumps([recipe.held_out, recipe.held_out_seed]).encode())
        return pairs._replace(
            files={split: " + ".join(sources[k].path.name for k in places) for split, places in files.items()},
            sha256=sha256,
        )

    return cached_record(place, make, Prepared, Arrays, settings, "prepared pairs")
