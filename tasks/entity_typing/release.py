"""The files of a data set of mentions: where they lie, and which of them are there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tasks.entity_typing.types import RULES
from tasks.errors import UserError, one_of

SPLITS = ("train", "dev", "test")
FILES = ("train", "dev", "test", "ontology")


class Source(NamedTuple):
    """A file of mentions. name: of the part, as crowd. label: the file's name under the data folder, for records.
    split: that it belongs to."""

    name: str
    label: str
    path: Path
    split: str = "train"


@dataclass(frozen=True)
class Release:
    """A data set in the format of Choi et al. 2018.

    name: of the data set, for messages and the cache. root: its folder. files: candidates under `root`, of which the
    first that exists is taken, for dev, test, ontology and train, the latter by source (null: no source); the first one
    is the main source, which is needed. granularity: of the types, see types.RULES. download: what scripts/download.py
    calls the data set. paper_mentions: how many training mentions the paper has, if it says so.

    Raises UserError for other keys of `files`, and an unknown granularity.
    """

    name: str
    root: str
    files: dict[str, Any]
    granularity: str
    download: str
    paper_mentions: int | None

    def __post_init__(self) -> None:
        if set(self.files) != set(FILES):
            raise UserError(f"task.data.release.files needs {', '.join(FILES)}, and it has {', '.join(self.files)}.")
        one_of("task.data.release.granularity", self.granularity, RULES)

    @property
    def train(self) -> dict[str, list[str]]:
        """Candidates for the training data, by source."""
        return {source: names for source, names in self.files["train"].items() if names}

    @property
    def main(self) -> str:
        """The source that is needed."""
        return next(iter(self.train))

    def find(self, part: str, names: Sequence[str]) -> Source | None:
        """The first of some files under the root that exists; part: a source, dev, test or ontology."""
        for label in names:
            if (path := Path(self.root) / label).is_file():
                return Source(part, label, path, part if part in SPLITS else "train")
        return None

    def need(self, part: str, names: Sequence[str]) -> Source:
        """The same. Raises UserError where there is none."""
        if (source := self.find(part, names)) is None:
            paths = " or ".join(str(Path(self.root) / label) for label in names)
            raise UserError(
                f"There is no file {paths} ({part}). Fetch it with `python scripts/download.py {self.download}`, or "
                "name the folder of data sets with paths.data_dir=... or the environment variable HYPERBOLIC_DATA."
            )
        return source

    def train_sources(self, selection: str | list[str]) -> list[Source]:
        """The files of the training data, the main one first. selection: names of sources, or "available": those that
        exist. Raises UserError where the main one or one of a list is missing."""
        if isinstance(selection, list):
            sources = [self.need(name, self.train[name]) for name in selection]
            return sorted(sources, key=lambda source: source.name != self.main)
        others = (self.find(name, names) for name, names in self.train.items() if name != self.main)
        return [self.need(self.main, self.train[self.main]), *(source for source in others if source is not None)]

    def check_selection(self, selection: str | list[str]) -> None:
        """Raises UserError where `train_sources` cannot take it."""
        if selection != "available" and not (isinstance(selection, list) and set(selection) <= set(self.train)):
            raise UserError(
                f"task.data.sources is available or some of {', '.join(self.train)}, not {selection!r}."
            )
        if isinstance(selection, list) and (not selection or len(set(selection)) < len(selection)):
            raise UserError(f"task.data.sources needs at least one source and each only once, not {selection!r}.")
