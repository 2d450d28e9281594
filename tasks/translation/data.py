"""Pairs of sentences as ids of pieces, in batches of about so many pieces."""

import contextlib
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor
from torch.nn import functional as F

from tasks.base import TaskData
from tasks.batches import SPLITS, Split
from tasks.errors import UserError
from tasks.fingerprints import identity_of
from tasks.local_paths import user_path
from tasks.paper import paper_remarks, share_of_paper
from tasks.ragged import Sentences
from tasks.reading import Fault, brief
from tasks.rows import columns_of, read_examples
from tasks.text import PAD, UNK
from tasks.translation.corpus import HeldOut, Table, find_sources
from tasks.translation.detokenise import Writing
from tasks.translation.prepared import BOS, EOS, FIRST, Arrays, Corpus, Recipe, from_sources, prepare
from tasks.translation.subwords import Subwords
from tasks.translation.tables import one_line, read_sources
from tasks.translation.toy import Toy
from tasks.vocabularies import check_names, check_numbers

SHOWN = 200  # characters of a sentence in a message
FEW_PAIRS = 100  # of a split that is held out
say = rank_zero_only(print)


class Vocabulary(NamedTuple):
    """The pieces of a language, of id FIRST and on, and how they become a sentence."""

    pieces: list[str]
    subwords: Subwords

    def __len__(self) -> int:
        return FIRST + len(self.pieces)

    def names(self, ids: Sequence[int]) -> list[str]:
        """The piece of each id; "<unk>" for UNK, nothing for the others before FIRST."""
        return [self.pieces[k - FIRST] if k >= FIRST else "<unk>" for k in ids if k >= FIRST or k == UNK]

    def text(self, ids: Sequence[int]) -> str:
        """The sentence of ids."""
        return self.subwords.join(self.names(ids))


@dataclass(frozen=True)
class PairSplit:
    """N pairs: the sentences of all splits; rows (N,), which of them; numbers (N,), their places in the files' order
    of the split."""

    sources: Sentences
    targets: Sentences
    rows: Tensor
    numbers: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes(self) -> Tensor:
        """(N, 2): the pieces of source and target, with the end of the target."""
        return torch.stack([self.sources.lengths[self.rows], self.targets.lengths[self.rows] + 1], -1)

    def __getitem__(self, index: Tensor) -> dict[str, Tensor]:
        """source (B, S) and source_lengths (B,); target (B, T), BOS and the pieces; labels (B, T), the pieces and EOS;
        target_lengths (B,), of both; numbers (B,). All int64, PAD behind the ends."""
        rows = self.rows[index]
        source, source_lengths = self.sources.pad(rows)
        pieces, lengths = self.targets.pad(rows)
        labels = F.pad(pieces, (0, 1), value=PAD).scatter(1, lengths.unsqueeze(1), EOS)
        return {
            "source": source, "source_lengths": source_lengths, "target": F.pad(pieces, (1, 0), value=BOS),
            "labels": labels, "target_lengths": lengths + 1, "numbers": self.numbers[index],
        }  # fmt: skip


@dataclass(frozen=True)
class NewSentences:
    """Sentences without translations; batches have source (B, S), source_lengths (B,) and their texts alone."""

    sources: Sentences
    texts: Sequence[str]

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: Tensor) -> dict[str, Any]:
        source, lengths = self.sources.pad(index)
        return {"source": source, "source_lengths": lengths, "texts": [self.texts[k] for k in index.tolist()]}


class TranslationData(TaskData):
    """Pairs of the splits train, dev and test from aligned files, from tables, or from a recipe of made-up ones.

    folder: where the files are, or a table, or None with the recipe `toy`. source, target: the languages translated
    from and into. tokenised: see `detokenise.Writing`. files, table: see `corpus.find_sources`; the table may be a
    node, see `corpus.Table.of_node`. held_out: of splits without a file. cache: the folder that prepared sentences are
    kept in. download: what scripts/download.py calls the data set, or null. paper_pairs: how many training pairs the
    paper has, if it says so, for the record. recipe: the fields of `prepared.Recipe`. The others are TaskData's.
    """

    Options = Recipe

    def __init__(
        self,
        folder: str | None,
        toy: Toy | None,
        source: str,
        target: str,
        tokenised: str,
        files: dict[str, list[str]],
        table: Table | dict[str, Any] | None,
        held_out: HeldOut,
        cache: str,
        download: str | None,
        paper_pairs: int | None,
        shuffle: str,
        batch_size: int,
        batch_tokens: int | None,
        eval_batch_size: int,
        seed: int,
        **recipe: Any,
    ):
        super().__init__(shuffle, batch_size, eval_batch_size, seed, batch_tokens)
        if folder is None and toy is None:
            raise UserError(
                "task=translation needs a folder with aligned files, such as train.en, train.de, valid.en and "
                "valid.de, or a table with a pair in each line; name it with data.dir=my_texts or data.dir=pairs.tsv."
            )
        self.folder = None if folder is None else user_path(folder)
        if source == target:
            raise UserError(f"task.data.source and task.data.target are both {source!r}, and must be two languages.")
        if held_out.language not in (source, target):
            raise UserError(
                f"task.data.held_out.language={held_out.language!r} must be {source!r} or {target!r}, the languages of "
                "task.data.source and task.data.target."
            )
        self.toy, self.source, self.target, self.files = toy, source, target, files
        self.table = table if table is None or isinstance(table, Table) else Table.of_node(table)
        self.held_out, self.cache, self.download, self.in_paper = held_out, Path(cache), download, paper_pairs
        self.recipe = Recipe(**recipe)
        self.writing = Writing(tokenised, target)
        self._corpus: Corpus | None = None
        self._held_out: tuple[str, ...] = ()  # splits without a file

    def corpus(self) -> Corpus:
        """All pairs as ids, read or made the first time they are needed."""
        if self._corpus is None:
            self._corpus = self._made_up(self.toy) if self.folder is None and self.toy else self._from_files()
            say(f"From {self.source} to {self.target} (task.data.source, task.data.target).", flush=True)
            for split in SPLITS:
                self._report(split, self._corpus.counts[split])
            learnt, pieces = len(self.subwords), self.recipe.pieces
            if learnt and isinstance(pieces, str):
                say(f"task.data.pieces={pieces}: {learnt:,} pieces are learnt of these texts.", flush=True)
            elif 0 < learnt < int(pieces):
                say(f"task.data.pieces={pieces} is more than these texts give; {learnt} are learnt.", flush=True)
            for remark in paper_remarks(self._corpus.counts, "pairs", self.in_paper):
                say(remark, flush=True)
        return self._corpus

    def _report(self, split: str, counts: dict[str, int]) -> None:
        """Say what was left out or held out, and what train has, too."""
        pairs = f"{counts['pairs']:,} pairs"
        if split in self._held_out:
            few = counts["pairs"] < FEW_PAIRS
            more = f" These are few to measure on; task.data.held_out.shares.{split}=0.1 gives more." if few else ""
            say(
                f"There are no pairs for {split}: {pairs} of train are held out for it (task.data.held_out).{more}",
                flush=True,
            )
        if counts.get("in_train"):
            say(f"{counts['in_train']:,} of {pairs} of {split} are in train, too; they are kept.", flush=True)
        if counts["empty"]:
            say(f"{counts['empty']:,} pairs of {split} were left out: a side is empty.", flush=True)
        if counts["long"]:
            what = "pairs of train were left out" if split == "train" else f"pairs of {split} were cut"
            most = self.recipe.max_length
            say(f"{counts['long']:,} {what}: a side has more than task.data.max_length={most} pieces.", flush=True)

    def _from_files(self) -> Corpus:
        assert self.folder is not None  # or the recipe of made-up pairs
        names = (self.source, self.target, self.files, self.table, self.download)
        sources = find_sources(self.folder, *names)
        for place in sources.values() if self.table is None else ():
            if place.header and (first := next(place.pairs(), None)):
                is_header = max(len(first.source.split()), len(first.target.split())) == 1
                hint = f" If it is a header, call the columns {self.source} and {self.target}." if is_header else ""
                say(
                    f"{place.paths[0].name}: the first column is {self.source} and the second {self.target}, as "
                    f"{brief(first.source)} and {brief(first.target)} in the first line.{hint}", flush=True,
                )  # fmt: skip
        self._held_out = tuple(split for split in SPLITS if split not in sources)
        return from_sources(sources, self.held_out, self.source, self.recipe, self.cache)

    def _made_up(self, toy: Toy) -> Corpus:
        corpus = prepare(toy.pairs, self.recipe)
        sha256 = hashlib.sha256(corpus.arrays.source_ids.tobytes() + corpus.arrays.target_ids.tobytes()).hexdigest()
        return corpus._replace(files=dict.fromkeys(SPLITS, "made up"), sha256=dict.fromkeys(SPLITS, sha256))

    def load(self) -> dict[str, Split]:
        arrays = self.corpus().arrays
        sources, targets = arrays.side("source"), arrays.side("target")
        splits: dict[str, Split] = {}
        for number, split in enumerate(SPLITS):
            rows = torch.from_numpy(np.flatnonzero(arrays.splits == number))
            numbers = torch.arange(len(rows))
            if split != "train":  # batches of an evaluation have sentences of about the same length
                numbers = sources.lengths[rows].argsort(stable=True)
            splits[split] = PairSplit(sources, targets, rows[numbers], numbers)
        return splits

    def vocabulary(self) -> dict[str, Any]:
        """The pieces of both languages, and SentencePiece's model of them."""
        corpus = self.corpus()
        return {"source": corpus.source, "target": corpus.target, "model": corpus.arrays.model}

    def adopt(self, vocabulary: dict[str, Any]) -> None:
        source, target = check_names(vocabulary["source"]), check_names(vocabulary["target"])
        ids, starts = np.zeros(0, np.int32), np.zeros(1, np.int64)
        model = check_numbers(vocabulary["model"].unsqueeze(-1), 1, 256).squeeze(-1).numpy().astype(np.uint8)
        arrays = Arrays(ids, starts, ids, starts, ids.astype(np.uint8), model)
        self._corpus = Corpus(arrays, source, target, {s: {"source": [], "target": []} for s in SPLITS[1:]}, {}, {}, {})

    @functools.cached_property
    def subwords(self) -> Subwords:
        return Subwords(self.recipe.subwords, self.corpus().arrays.model.tobytes())

    @functools.cached_property
    def _source_ids(self) -> dict[str, int]:
        return {piece: k for k, piece in enumerate(self.corpus().source, start=FIRST)}

    @property
    def model_sizes(self) -> dict[str, Any]:
        """Vocabularies of both sides; max_length, most pieces of a sentence; `texts`, see there; and the
        `writing` of the target."""
        corpus, subwords = self.corpus(), self.subwords
        return {
            "source_vocabulary": Vocabulary(corpus.source, subwords),
            "target_vocabulary": Vocabulary(corpus.target, subwords),
            "n_source": FIRST + len(corpus.source), "n_target": FIRST + len(corpus.target),
            "max_length": self.recipe.max_length, "texts": self.texts, "writing": self.writing,
        }  # fmt: skip

    def texts(self, split: str, side: str) -> list[str]:
        """The sentences of dev or test as the files write them, whole; side: "source" or "target". A batch's `numbers`
        are places in this list."""
        return self.corpus().texts[split][side]

    @property
    def identity(self) -> dict[str, str]:
        corpus = self.corpus()
        model = hashlib.sha256(corpus.arrays.model.tobytes()).hexdigest()[:12]
        return {
            "source pieces": identity_of(corpus.source), "target pieces": identity_of(corpus.target),
            "subwords": f"{self.recipe.subwords} with sha256 {model}",
        }  # fmt: skip

    def fingerprint(self) -> dict[str, Any]:
        """The counts of a split: see `prepared.Corpus`. Also the languages, the vocabularies, and how much of the
        paper's training data there is."""
        corpus = self.corpus()
        return {
            "files": dict(corpus.files),
            "counts": {split: dict(count) for split, count in corpus.counts.items()},
            "sha256": dict(corpus.sha256),
            "languages": [self.source, self.target],
            "pieces": {"subwords": self.recipe.subwords, "source": len(corpus.source), "target": len(corpus.target)},
            "paper": share_of_paper(corpus.counts, "pairs", self.in_paper),
        }

    @property
    def input_keys(self) -> tuple[str, ...]:
        return ("source", self.source)

    def read_inputs(self, lines: Iterable[bytes], name: str) -> Iterator[str]:
        """New sentences, one a line, written as those of the training files are."""
        form = "Each line is a sentence to translate"

        def parse(line: str) -> str:
            return _sentence(line, self.input_keys)

        return read_examples(lines, name, parse, "sentences", form)

    def read_table(self, path: Path) -> Iterator[tuple[str, dict[str, str]]] | None:
        """See `tables.read_sources`."""
        return read_sources(path, self.source)

    def encode(self, inputs: Sequence[str]) -> NewSentences:
        """New sentences as a split. Those of more than max_length pieces are cut, which is said, and so is how many
        have pieces that the vocabulary does not have."""
        ids, most, pieces = self._source_ids, self.recipe.max_length, self.subwords.split(inputs)
        if long := sum(len(sentence) > most for sentence in pieces):
            say(f"{long:,} sentences were cut to task.data.max_length={most} pieces.", flush=True)
        rows = [[ids.get(piece, UNK) for piece in sentence[:most]] or [UNK] for sentence in pieces]
        if unknown := [text for text, row in zip(inputs, rows, strict=True) if UNK in row]:
            what = f"{len(unknown):,} sentences have pieces that the vocabulary does not have"
            say(f"{what}; the first is {unknown[0][:SHOWN]!r}", flush=True)
        starts = torch.tensor([0, *map(len, rows)]).cumsum(0)
        ids_of_all = torch.tensor([k for row in rows for k in row], dtype=torch.int32)
        return NewSentences(Sentences(ids_of_all, starts), inputs)

    def test_inputs(self) -> Iterator[tuple[str, dict[str, Any]]]:
        references = self.subwords.whole(self.texts("test", "target"))
        for source, reference in zip(self.texts("test", "source"), references, strict=True):
            yield source, {"gold": self.writing.plain(reference)}

    def describe(self, example: str) -> dict[str, Any]:
        return {"source": example}


def _sentence(line: str, keys: Sequence[str]) -> str:
    """The sentence of a line, of an object of JSON under the first of the keys that it has."""
    for key in keys:
        with contextlib.suppress(Fault):
            line = columns_of(line, [key], " ")
            break
    else:
        raise Fault(f"it has no key {' or '.join(keys)} with a text")
    if not (sentence := one_line(line)):
        raise Fault("it is blank")
    return sentence


__all__ = ["BOS", "EOS", "FIRST", "PAD", "UNK", "NewSentences", "PairSplit", "TranslationData", "Vocabulary"]
