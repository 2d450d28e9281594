"""Where the files of a data set of sentence pairs are: named, or found in a folder by their names."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tasks.batches import SPLITS
from tasks.errors import UserError
from tasks.split_files import stems_by_split

FORMS = (".jsonl", ".json", ".txt", ".tsv")  # of the same file in several forms the first is taken
ENDINGS = (*FORMS, *(f"{ending}.gz" for ending in FORMS))
COMMAS = (".csv", ".csv.gz")  # where a split has no file in another form: programs leave such files beside others
ALL = "all"  # the part of a split that has no other


class Source(NamedTuple):
    """A file of a split, and the name of the part that it is, as matched."""

    split: str
    part: str
    path: Path


def named_files(folder: Path, files: Mapping[str, Mapping[str, str | None]], download: str | None) -> list[Source]:
    """The files of each split by part, named without their ending; a part that is None has none. Raises UserError where
    one is not there."""
    sources = []
    for split in SPLITS:
        for part, name in (files.get(split) or {}).items():
            if name is None:
                continue
            path = next((p for ending in ("", *ENDINGS, *COMMAS) if (p := folder / f"{name}{ending}").is_file()), None)
            if path is None:
                fetch = f"Fetch it with `python scripts/download.py {download}`, or name" if download else "Name"
                raise UserError(
                    f"There is no file {folder / name}.jsonl or .txt ({split}). {fetch} the folder of data sets with "
                    "paths.data_dir=... or the environment variable HYPERBOLIC_DATA."
                )
            sources.append(Source(split, part, path))
    return sources


def find_files(folder: Path) -> list[Source]:
    """The files of a folder whose names say of which split they are: a word that begins with train; dev, val or trial;
    test. Of matched and mismatched dev files without a test file, the latter is the test (MultiNLI as it is published).
    A file instead of a folder is train, and so is the only one of a folder whose name says no split.

    Raises UserError where there is no folder or file, or none for train.
    """
    if folder.is_file():
        return [Source("train", ALL, folder)]
    if not folder.is_dir():
        raise UserError(
            f"There is no folder or file {folder}; name one with data.dir=..., with files such as train.jsonl, "
            "dev.jsonl and test.jsonl."
        )
    stems, commas = stems_by_split(folder, ENDINGS), stems_by_split(folder, COMMAS)
    stems = {split: own or commas[split] for split, own in stems.items()}
    dev = stems["dev"]
    parts = {_part_name(stem): stem for stem in dev}
    if not stems["test"] and set(parts) == {"matched", "mismatched"}:
        stems["test"] = {parts["mismatched"]: dev.pop(parts["mismatched"])}
    if not any(stems.values()):
        paths = (path for path in sorted(folder.iterdir()) if path.name.endswith((*ENDINGS, *COMMAS)))
        files = [path for path in paths if path.is_file() and not path.name.startswith(".")]
        if len(files) == 1:
            return [Source("train", ALL, files[0])]
    if not stems["train"]:
        raise UserError(
            f"{folder} has no file for train: no name of its .jsonl, .txt, .tsv and .csv files has a word that begins "
            "with train. Name it so, as in train.jsonl, or set task.data.files; a single file is split."
        )
    return [
        Source(split, _part_name(stem) or (stem if len(stems[split]) > 1 else ALL), path)
        for split in SPLITS
        for stem, path in sorted(stems[split].items())
    ]


def _part_name(stem: str) -> str:
    words = re.findall(r"[a-z]+", stem.lower())
    return next((part for part in ("mismatched", "matched") if part in words), "")
