"""Pairs of sentences in two languages: aligned files, a line each, or tables with a pair in each line."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from tasks.batches import SPLITS
from tasks.errors import UserError, known_splits
from tasks.reading import Fault, existing, read_lines
from tasks.rows import has_column
from tasks.split_column import require_train, warn_without
from tasks.translation.tables import ENDINGS, Fields, count_splits, fields_of, header_of, read_rows

LANGUAGE = "{language}"  # stands for the language in a name
TABLE_FORM = "The command line has it as 'task.data.table={file: pairs.tsv, columns: [en, de]}'."


class Pair(NamedTuple):
    """A sentence and its translation; either may be empty."""

    source: str
    target: str


@dataclass(frozen=True)
class Table:
    """A file whose lines have the same sentence in several languages, separated by tabs, in a .csv by commas.

    file: its name. columns: the language of each column, where the first line does not name it; there may be more.
    Raises UserError where these are no texts, or a language has two columns.
    """

    file: str
    columns: list[str]

    def __post_init__(self) -> None:
        if not isinstance(self.file, str) or not self.file:
            raise UserError(f"task.data.table.file={self.file!r} must be the name of a file. {TABLE_FORM}")
        is_list = isinstance(self.columns, list) and all(isinstance(name, str) for name in self.columns)
        if not is_list or len({*self.columns}) < max(2, len(self.columns)):
            raise UserError(
                f"task.data.table.columns={self.columns!r} must be a list of two languages or more, each once, the "
                f"first that of the first column. {TABLE_FORM}"
            )

    @classmethod
    def of_node(cls, node: Any) -> "Table":
        """The table that a node of settings describes. Raises UserError, which names a key that is missing or unknown,
        and as the constructor."""
        keys = tuple(field.name for field in fields(cls))
        if not isinstance(node, Mapping):
            raise UserError(f"task.data.table={node!r} must be a node with the keys {' and '.join(keys)}. {TABLE_FORM}")
        if wrong := [key for key in node if key not in keys] or [key for key in keys if key not in node]:
            fault = "is none of its keys" if wrong[0] in node else "is missing"
            raise UserError(f"task.data.table.{wrong[0]} {fault}, which are {' and '.join(keys)}. {TABLE_FORM}")
        return cls(**node)


@dataclass(frozen=True)
class Source:
    """Where the pairs of a split are: two aligned files, or one table (twice). fields, header: of a table, see
    `tables.read_rows`. by_column: they are the rows whose column split says this one."""

    split: str
    paths: tuple[Path, Path]
    fields: Fields | None = None
    header: Sequence[str] | None = None
    by_column: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        """Each once."""
        return tuple(dict.fromkeys(self.paths))

    def pairs(self) -> Iterator[Pair]:
        """In their order; blank lines at the end of aligned files are passed over. Raises UserError, which names file
        and line, where one cannot be used, and where the files have different numbers of lines."""
        if self.fields is None:
            return self._align()
        split = self.split if self.by_column else None
        return itertools.starmap(Pair, read_rows(self.paths[0], self.fields, self.header, split))

    def _align(self) -> Iterator[Pair]:
        read, ends, blank = [0, 0], [0, 0], 0  # lines of each; those up to the last with a text; blank pairs since then
        for both in itertools.zip_longest(*map(read_lines, self.paths)):
            texts = []
            for side, (line, path) in enumerate(zip(both, self.paths, strict=True)):
                if line is not None:
                    read[side], text = _check(path, line)
                    texts.append(text.strip())
            if not any(texts):
                blank += len(texts) == 2
                continue
            ends = [*read]
            yield from itertools.repeat(Pair("", ""), blank)
            blank = 0
            if len(texts) == 2:
                yield Pair(*texts)
        if ends[0] != ends[1]:
            raise UserError(
                f"{self.paths[0]} has {ends[0]:,} lines and {self.paths[1]} {ends[1]:,}: line k of the one has to be "
                "the translation of line k of the other. Take both from the same release, or find the line that is "
                "missing."
            )


def check_train(source: Source, pairs: Iterable[tuple[str, Pair]]) -> None:
    """Raises UserError, which says why, where none of the pairs of all splits is of train and has both sides. source:
    of train."""
    if any(split == "train" and all(pair) for split, pair in pairs):
        return
    whole = [all(pair) for pair in source.pairs()]
    if any(whole):
        cause = f"the {sum(whole):,} pairs in it are held out (task.data.held_out.shares)"
    else:
        cause = f"all of its {len(whole):,} pairs have an empty side" if whole else "it has no text"
    raise UserError(
        f"{' and '.join(map(str, source.files))}: no pair of sentences is left to train on, as {cause}. A sentence and "
        "its translation are needed for each pair."
    )


def _check(path: Path, line: tuple[int, str | Fault]) -> tuple[int, str]:
    number, text = line
    if isinstance(text, Fault):
        raise UserError(f"{path}, line {number}: {text}. Correct the line in both files.")
    return number, text


@dataclass(frozen=True)
class HeldOut:
    """Which pairs of train are dev and test, where there is no file for these.

    shares: of each split. language: whose sentence decides, by the beginning of its SHA-256 as a number in [0, 1): dev
    takes the smallest, then test. So the split of a pair depends on nothing else, and equal sentences of this language
    are in one split.
    """

    shares: dict[str, float]
    language: str

    def __post_init__(self) -> None:
        known_splits("task.data.held_out.shares", self.shares, SPLITS[1:])
        if any(not 0 < share < 1 for share in self.shares.values()) or sum(self.shares.values()) >= 1:
            raise UserError(
                f"task.data.held_out.shares={self.shares}: each must lie between 0 and 1, and together they must leave "
                "something for train."
            )

    def split(self, sentence: str, splits: Sequence[str]) -> str:
        """The split of a pair with this sentence, where `splits` have no file."""
        number = int.from_bytes(hashlib.sha256(sentence.encode()).digest()[:8], "big") / 2**64
        for split in splits:
            if number < (share := self.shares[split]):
                return split
            number -= share
        return "train"


def find_sources(
    folder: Path,
    source: str,
    target: str,
    files: Mapping[str, Sequence[str]],
    table: Table | None,
    download: str | None,
) -> dict[str, Source]:
    """The files of each split that is there.

    folder: may be a table, which is train, or whose column split says which rows are of which split. files: by split,
    names of which the first is taken that exists in both languages or as a table, plain or with .gz; the language
    stands for {language} in the name, or else behind it, as train.en, and a table ends in one of `tables.ENDINGS`.
    Raises UserError where train is not there, one language of a split is missing, or CR alone ends the lines of a file.
    """
    known_splits("task.data.files", files, SPLITS)
    fetch = f" `python scripts/download.py {download}` fetches it." if download else ""
    hint = f"{fetch} tasks/translation/README.md says which files are read and where data come from."
    if folder.is_file():
        if table is not None:
            raise UserError(
                f"data.dir={folder} is a file, and task.data.table.file={table.file} would be one in it. Leave the "
                "table out, or name the folder."
            )
        return _splits_of(_table("train", folder, source, target))
    if not folder.is_dir():
        raise UserError(f"There is no folder or file {folder}; name one with texts in both languages.{hint}")
    if table is not None:
        for language in (source, target):
            if language not in table.columns:
                raise UserError(
                    f"task.data.table.columns={table.columns} has no language {language!r}, which task.data.source or "
                    "task.data.target names."
                )
        path = existing(folder / table.file)
        if path is None:
            raise UserError(f"There is no file {folder / table.file}.{hint}")
        return {"train": _table("train", path, source, target, table.columns)}
    sources = {}
    for split in SPLITS:
        for name in files.get(split, ()):
            paths = [existing(folder / _file_name(name, language)) for language in (source, target)]
            if paths[0] is not None and paths[1] is not None:
                sources[split] = Source(split, (paths[0], paths[1]))
                break
            if paths[0] or paths[1]:
                missing = folder / _file_name(name, target if paths[0] else source)
                raise UserError(f"{paths[0] or paths[1]} is there, and {missing} with the other language is not.{hint}")
            if path := next(filter(None, (existing(folder / f"{name}{ending}") for ending in ENDINGS)), None):
                sources[split] = _table(split, path, source, target)
                break
    if "train" not in sources:
        names = files.get("train", ())
        expected = ", ".join(" and ".join(_file_name(name, k) for k in (source, target)) for name in names)
        tables = ", ".join(f"{name}{ending}" for name in names if LANGUAGE not in name for ending in ENDINGS)
        raise UserError(
            f"{folder} has no training data: expected are {expected}, or a table {tables}, plain or with .gz.{hint} "
            "Other names are task.data.files.train=[...], other languages task.data.source=... and "
            "task.data.target=..."
        )
    return sources


def _table(split: str, path: Path, source: str, target: str, columns: Sequence[str] = ()) -> Source:
    """A table as a source. columns: the languages of its columns, where its first line does not name them; none: source
    and target."""
    fields = fields_of(source, target)
    return Source(split, (path, path), fields, header_of(path, fields, columns or (source, target)))


def _splits_of(table: Source) -> dict[str, Source]:
    """The splits that a table's column split names; train alone where it has none."""
    path = table.paths[0]
    if table.fields is None or table.header is not None or not has_column(path, "split"):
        return {"train": table}
    counts = count_splits(path, table.fields)
    require_train(path, counts)
    warn_without(path, counts[""], "pairs")
    return {split: replace(table, split=split, by_column=True) for split in SPLITS if counts[split]}


def _file_name(name: str, language: str) -> str:
    return name.replace(LANGUAGE, language) if LANGUAGE in name else f"{name}.{language}"


def read_pairs(sources: Mapping[str, Source], held_out: HeldOut, source: str) -> Iterator[tuple[str, Pair]]:
    """The split and the sentences of each pair.

    sources: of `find_sources`; splits without one are held out of train. source: the language of `Pair.source`.
    """
    missing = [split for split in SPLITS if split not in sources and split in held_out.shares]
    for split, place in sources.items():
        for pair in place.pairs():
            if split == "train" and missing:
                yield held_out.split(pair.source if held_out.language == source else pair.target, missing), pair
            else:
                yield split, pair
