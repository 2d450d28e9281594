"""Prepared documents on disk, mapped into memory."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from tasks.batches import SPLITS
from tasks.document_classification.corpus import Arrays, Corpus, Recipe, prepare
from tasks.document_classification.sources import Form, Source, read_rows, text_files
from tasks.fingerprints import cache_place, contents_sha256, joined_sha256, names_sha256, part_sha256
from tasks.folders import cached_record

FORMAT = 10  # of the cache


def from_sources(sources: Sequence[Source], form: Form, recipe: Recipe, cache: Path) -> Corpus:
    """What the recipe makes of some sources; kept in `cache`/documents, and taken from there the next time.

    The folder's name is a fingerprint of the files' contents and the recipe. One that is damaged is made again, with a
    warning; where it cannot be written, the documents are used without it. Raises the errors of `prepare`.
    """
    shas = [_fingerprint(source.path) for source in sources]
    labels = [[s.split, s.path.name, sha] for s, sha in zip(sources, shas, strict=True)]
    settings = {"format": FORMAT, "sources": labels, **asdict(form), **asdict(recipe)}
    place = cache_place(cache / "documents", sources[0].path.parent.resolve().name, settings)

    def make() -> Corpus:
        corpus = prepare(read_rows(sources, form), recipe)
        places = {split: [k for k, s in enumerate(sources) if s.split == split] for split in SPLITS}
        files = {split: own or places["train"] for split, own in places.items()}  # train's, where it is held out
        sha256 = {split: joined_sha256([shas[k] for k in own]) for split, own in files.items()}
        for split in (s for s in SPLITS[1:] if not places[s] and corpus.counts[s]["documents"]):
            rows = np.flatnonzero(corpus.arrays.splits == SPLITS.index(split)).astype("<i8")
            sha256[split] = part_sha256(sha256[split], rows.tobytes())
        return corpus._replace(
            files={split: " + ".join(sources[k].path.name for k in own) for split, own in files.items()},
            sha256=sha256,
        )

    return cached_record(place, make, Corpus, Arrays, settings, "prepared documents")


def _fingerprint(path: Path) -> str:
    """Of a file's contents, or of the names and contents of all texts of a folder, packed or not."""
    if path.is_file():
        return contents_sha256(path)
    texts = ((file.relative_to(path).as_posix().removesuffix(".gz"), file) for _, file in text_files(path))
    return names_sha256(f"{name} {contents_sha256(file)}" for name, file in texts)
