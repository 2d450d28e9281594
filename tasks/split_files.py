"""Files of a folder whose names say of which split they are."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tasks.batches import SPLITS
from tasks.errors import readable

# Of a word of a name. Devices, values and testimonials are what such a file has, and no split.
BEGINNINGS = {"train": "train", "dev": "dev(?!ice)|val(?!ue)|trial", "test": "test(?!imon)"}


def split_name(name: str) -> str | None:
    """The split of a name, one of whose words begins with train; dev, val or trial; test (see `BEGINNINGS`). None where
    none does."""
    words = re.findall(r"[a-z]+", name.lower())
    for split, beginnings in BEGINNINGS.items():
        if any(re.match(beginnings, word) for word in words):
            return split
    return None


def several_files(files: Iterable[tuple[str, Path]]) -> Iterator[str]:
    """Of each split that has several files a sentence that names them, so that no copy is taken in unseen."""
    by_split: dict[str, list[str]] = {}
    for split, path in files:
        by_split.setdefault(split, []).append(path.name)
    for split, names in by_split.items():
        if len(names) > 1:
            yield readable(f"Files of {split}: {', '.join(names)[:300]}; task.data.files chooses among them.")


def stems_by_split(folder: Path, endings: Iterable[str]) -> dict[str, dict[str, Path]]:
    """The files of a folder by split and by their names without ending, of those whose names say a split; of one name
    with several endings the first of `endings` is taken. Hidden files are left out."""
    stems: dict[str, dict[str, Path]] = {split: {} for split in SPLITS}
    for ending in endings:
        for path in sorted(folder.glob(f"*{ending}")):
            stem = path.name.removesuffix(ending)
            split = split_name(stem)
            if split and not path.name.startswith(".") and path.is_file():
                stems[split].setdefault(stem, path)
    return stems
