"""The files of a data set of mentions: where they lie, and which of them are there."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tasks.batches import SPLITS
from tasks.entity_typing.types import RULES
from tasks.errors import UserError, one_of
from tasks.local_paths import user_path
from tasks.reading import existing


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

    name: of the data set, for messages and the cache. root: its folder, None where none is named. train, by source
    (null: no source), dev, test, ontology: candidates under `root`, of which the first that exists is taken, plain or
    with .gz; the first source is the main one, which is needed. granularity: of the types, see types.RULES. download:
    what scripts/download.py calls the data set, None for a user's own. paper_mentions: how many training mentions the
    paper has, if it says so.

    Raises UserError for an unknown granularity.
    """

    name: str
    root: str | None
    train: dict[str, list[str] | None]
    dev: list[str]
    test: list[str]
    ontology: list[str]
    granularity: str
    download: str | None
    paper_mentions: int | None

    def __post_init__(self) -> None:
        one_of("task.data.release.granularity", self.granularity, RULES)

    @property
    def sources(self) -> dict[str, list[str]]:
        """Candidates for the training data by source, the main one first."""
        return {source: names for source, names in self.train.items() if names}

    def find(self, part: str, names: list[str]) -> Source | None:
        """The first of some files under the root that exists. part: a source, dev, test or ontology."""
        for label in names:
            if (path := existing(self._folder / label)) is not None:
                return Source(part, label, path, part if part in SPLITS else "train")
        return None

    def need(self, part: str, names: list[str]) -> Source:
        """The same. Raises UserError where there is none."""
        if (source := self.find(part, names)) is None:
            paths = " or ".join(str(self._folder / label) for label in names)
            remedy = (
                f"Fetch it with `python scripts/download.py {self.download}`, or name the folder of data sets with "
                "paths.data_dir=... or the environment variable HYPERBOLIC_DATA."
            )
            if self.download is None:
                remedy = "Add it; tasks/entity_typing/README.md says what its lines are."
            raise UserError(f"There is no file {paths} ({part}). {remedy}")
        return source

    @property
    def _folder(self) -> Path:
        if self.root is None:
            raise UserError(
                "task=typing needs a folder with mentions for train, dev and test, such as train.jsonl, dev.jsonl and "
                "test.jsonl; name it with data.dir=my_mentions."
            )
        folder = user_path(self.root)
        if folder.is_file():
            raise UserError(f"{folder} is a file; name the folder that has the files of train, dev and test.")
        return folder

    def check_selection(self, selection: str | list[str]) -> None:
        """Raises UserError where the selection is neither "available" nor a list of sources."""
        sources = self.sources
        if selection != "available" and not (isinstance(selection, list) and set(selection) <= set(sources)):
            raise UserError(f"task.data.sources is available or some of {', '.join(sources)}, not {selection!r}.")
        if isinstance(selection, list) and (not selection or len(set(selection)) < len(selection)):
            raise UserError(f"task.data.sources needs at least one source and each only once, not {selection!r}.")

    def training_files(self, selection: str | list[str]) -> list[Source]:
        """The files of the selected sources, or of those that exist ("available"), the main one first. Raises UserError
        where the main one or one of a list is missing."""
        main, *others = self.sources.items()
        if selection == "available":
            return [self.need(*main), *(source for item in others if (source := self.find(*item)) is not None)]
        return [self.need(name, self.sources[name]) for name in sorted(selection, key=lambda name: name != main[0])]
