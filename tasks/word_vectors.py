"""Vectors of words that were trained elsewhere, from text files, kept in a cache that is mapped into memory."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from hyperbolic.manifolds import Manifold, PoincareBall
from hyperbolic.manifolds.charts import convert
from tasks.errors import UserError, one_of, positive, whole
from tasks.fingerprints import cache_place
from tasks.folders import cached, read_arrays, write_arrays
from tasks.local_paths import user_path
from tasks.reading import ON_ERROR, brief
from tasks.text import UNK
from tasks.vector_files import dimension, parse

UNKNOWN = ("<unk>", "unk", "UNK")  # how files call the vector of words they do not have
SPACES = ("auto", "euclidean", "poincare")
MAX_NORM = 1 - 1e-5  # where points outside of the ball are put (the norm that Tifrea et al.'s code clips to)
FORMAT = 3  # of the cache
COVERAGE = 0.5  # of a vocabulary: English texts have 0.6 to 0.9 in the first 50,000 of GloVe, German ones 0.1 to 0.2
Prepared = tuple[list[str], np.ndarray, dict[str, Any]]  # words, tangent vectors, what describes them


@dataclass(frozen=True)
class WordVectors:
    """V frozen vectors of words; row 0 (padding) is zero, row 1 stands for every unknown word.

    index: row of each word, written as in the file. tangent (V, d) float32: the vectors as tangent vectors at the
    origin of the ball of curvature -1 (see `read_vectors`). source: name of the file; sha256: of its contents. space:
    "poincare" where the file holds points of the ball, else "euclidean".
    """

    index: dict[str, int]
    tangent: Tensor
    source: str
    sha256: str
    space: str

    @property
    def d(self) -> int:
        return self.tangent.shape[1]

    def row(self, word: str) -> int:
        """Row of the lower-cased word, UNK where the file does not have it."""
        return self.index.get(word.lower(), UNK)

    def points(self, manifold: Manifold) -> Tensor:
        """(V, D) points: exp_0(tangent / sqrt(c)) on the ball, the same points on other models, in the flat space the
        tangent vectors themselves. Distances times sqrt(c) do not depend on c."""
        if not manifold.is_curved:
            return self.tangent
        with torch.no_grad():
            ball = manifold.twin(PoincareBall)
            tangent = self.tangent.to(manifold.c.device)
            return convert(ball.expmap0((tangent / manifold.c.sqrt()).to(tangent.dtype)), ball, manifold)


class VectorRows(NamedTuple):
    """Vectors of N words. matrix (N, d) float32: as in the file, 0 for words that it does not have. has_row (N,) bool:
    whether it has the word. source: name of the file; sha256: of its contents."""

    matrix: Tensor
    has_row: Tensor
    source: str
    sha256: str

    @classmethod
    def of_weights(cls, n: int, d: Any) -> "VectorRows":
        """Stand for vectors of n words that a model has as weights: zeros. Raises ValueError where d is no size."""
        return cls(torch.zeros(n, whole("its d_vectors", d, 1)), torch.ones(n, dtype=torch.bool), "", "")

    def facts(self) -> dict[str, Any]:
        """What a fingerprint says of them; "dimension" is that of the vectors."""
        n, d = int(self.has_row.sum()), self.matrix.shape[1]
        return {"vectors": self.source, "dimension": d, "with_vector": n, "sha256": self.sha256}

    def tangents(self, manifold: Manifold, c: float) -> Tensor:
        """(N, d) tangent vectors at the origin of a manifold: in the flat space the vectors themselves, else those of
        the points exp_0(v) at curvature -c, which are the same points on every manifold."""
        if not manifold.is_curved:
            return self.matrix
        scaled = WordVectors({}, c**0.5 * self.matrix, self.source, self.sha256, "euclidean")
        return manifold.logmap0(scaled.points(manifold)).detach()


def rows_of_words(
    words: Sequence[str], candidates: Sequence[str | Path], root: Path, cache: Path | None, on_error: str
) -> VectorRows:
    """The vectors of some words, written as they are in the file, from the file that `find_vectors` takes.

    candidates, root, cache, on_error: as for `read_vectors`, whose cache it shares: the first call parses the file,
    later ones, of other processes and other words too, cost the time of a look-up of N words. Raises its errors.
    """
    vectors = read_vectors(candidates, root, "euclidean", 1.0, cache, on_error)  # at c = 1 the numbers of the file
    rows = torch.tensor([vectors.index.get(word, UNK) for word in words], dtype=torch.long)
    has_row = rows > UNK
    return VectorRows(vectors.tangent[rows * has_row], has_row, vectors.source, vectors.sha256)  # row 0 is zero


def read_vectors(
    candidates: Sequence[str | Path], root: Path, space: str, c: float, cache: Path | None, on_error: str
) -> WordVectors:
    """Vectors from a text file, `word v1 .. vd` a line, with or without a first line `V d`.

    candidates: names or patterns (`glove/*.txt`) under `root`, or absolute; the first that exists is taken, of several
    files of a pattern the one with the largest dimension. space: what the numbers are,
        poincare   points x of the unit ball (Poincaré GloVe): tangent = log_0(x) = artanh(|x|) x / |x|; points outside
                   are put inside, with a warning that counts them;
        euclidean  plain vectors v that go through exp_0 at curvature -c: tangent = sqrt(c) v, so that the point of the
                   unit ball is tanh(sqrt(c) |v|) v / |v| (Lopez & Strube 2020, Table 4; c is its "own c");
        auto       poincare where the name of the file says so, or that of its folder while at least 99 % of the vectors
                   are shorter than 1.
    The unknown word is the file's own <unk>, unk or UNK, else the mean of all vectors; its numbers, as they are in the
    file, are divided by 10 (Lopez & Strube's code, for points of the ball too). cache: a folder where the vectors are
    kept, to be mapped into memory the next time; of several processes that start together one parses the file and the
    others wait. on_error: fail | skip, see `vector_files.parse`; a warning says what was skipped.

    Raises UserError for settings that cannot be, where no file is found, and for a faulty file.
    """
    one_of("task.data.vectors.space", space, SPACES)
    one_of("task.data.on_error", on_error, ON_ERROR)
    positive("task.data.vectors.c", c)
    path = find_vectors(candidates, root)
    if cache is None:
        return _assemble(*_prepare(path, on_error, space, c))
    stat = path.stat()
    stamp = {
        "format": FORMAT, "name": path.name, "folder": path.parent.name, "size": stat.st_size,
        "modified": stat.st_mtime_ns, "space": space, "c": float(c), "on_error": on_error,
    }  # fmt: skip
    place = cache_place(Path(cache) / "vectors", path.stem, stamp)

    def read() -> Prepared:
        arrays, facts = read_arrays(place, stamp)
        return arrays["words"].tobytes().decode("utf-8").split("\n"), arrays["tangent"], facts

    def write(folder: Path, prepared: Prepared) -> None:
        words, tangent, facts = prepared
        names = np.frombuffer("\n".join(words).encode("utf-8"), np.uint8)  # read ten times as fast as from JSON
        write_arrays(folder, {"words": names, "tangent": tangent}, stamp, facts)

    return _assemble(*cached(place, read, lambda: _prepare(path, on_error, space, c), write, "vectors"))


@dataclass(frozen=True)
class VectorSource:
    """Which vectors a task reads, as a node of its settings; see `read_vectors`, whose candidates are the `files`."""

    root: str
    files: list[str]
    space: str
    c: float

    def read(self, cache: Path | None, on_error: str) -> WordVectors:
        return read_vectors(self.files, Path(self.root), self.space, self.c, cache, on_error)


@dataclass(frozen=True)
class VectorFiles:
    """Where the vectors of a vocabulary are read, as a node of a task's settings; see `rows_of_words`.

    required: false: where no file fits the patterns, or no word has a vector, there are no vectors, and a line
    says so; otherwise it is an error, as is a file that was named, without a wildcard, and is not there.
    """

    root: str
    files: list[str]
    on_error: str
    required: bool = True  # runs from before this setting: see tasks/settings.py

    def rows_of(self, words: Sequence[str], cache: Path | None) -> VectorRows | None:
        if not self.required and all(any(c in pattern for c in "*?[") for pattern in self.files):
            try:
                find_vectors(self.files, Path(self.root))
            except UserError as error:
                rank_zero_only(print)(f"Words start at random, unless a checkpoint has them. {error}", flush=True)
                return None
        vectors = rows_of_words(words, self.files, Path(self.root), cache, self.on_error)
        if n := int(vectors.has_row.sum()):
            if n < COVERAGE * len(words):
                rank_zero_only(print)(
                    f"{vectors.source} has a vector for {n:,} of the {len(words):,} words; the others start at random, "
                    "unless a checkpoint has them. "
                    "task.data.vectors.files=[...] takes vectors of another language or spelling.",
                    flush=True,
                )
            return vectors
        fault = f"{vectors.source} has a vector for none of the {len(words):,} words, as {brief(words[0])}."
        if self.required:
            raise UserError(
                f"{fault} Name vectors of their language and spelling in task.data.vectors.files=[...], or go without "
                "by task.data.vectors=null."
            )
        rank_zero_only(print)(f"Words start at random, unless a checkpoint has them. {fault}", flush=True)
        return None


def find_vectors(candidates: Sequence[str | Path], root: Path) -> Path:
    """The file that `read_vectors` takes. Raises UserError, which names the patterns, where there is none."""
    for name in candidates:
        pattern = user_path(name)
        base = Path(pattern.anchor) if pattern.is_absolute() else Path(root)
        if (file := base / pattern).is_file():  # whatever its characters
            return file
        files = sorted(f for f in base.glob(str(pattern.relative_to(pattern.anchor))) if f.is_file())
        if files:
            return max(files, key=dimension)
    here = next((path for c in candidates if (path := user_path(c)).is_file()), None)
    remedy = (
        f"There is {here} in the folder you are in: name it by its whole path, as in "
        f"task.data.vectors.files=[{here.resolve()}]."
        if here
        else "Fetch some with `python scripts/download.py glove`, or name a text file of vectors in "
        "task.data.vectors.files=[...]."
    )
    raise UserError(
        f"There are no word vectors: none of {', '.join(str(Path(root) / c) for c in candidates)} exists "
        f"(paths.data_dir or HYPERBOLIC_DATA says where data lie). {remedy}"
    )


def _prepare(path: Path, on_error: str, space: str, c: float) -> Prepared:
    """Words, tangent vectors (2 + N, d) with the rows of padding and unknown words, and what describes them."""
    file = parse(path, on_error)
    if space == "auto":
        title = _plain(path.name)
        named = "poincare" in title
        near = "poincare" in _plain(path.parent.name) and "euclidean" not in title and np.mean(file.norms < 1) >= 0.99
        space = "poincare" if named or near else "euclidean"
    notes = []
    if file.faults:
        reasons = ", ".join(f"{count} {reason}" for reason, count in file.faults.items())
        skipped = sum(file.faults.values())
        notes.append(f"{path}: {skipped} lines were skipped ({reasons}); the first is {file.first_fault}")
    index = {word: k for k, word in enumerate(file.words) if word in UNKNOWN}
    own = next((index[name] for name in UNKNOWN if name in index), None)
    unknown = file.vectors.mean(0, dtype=np.float64) if own is None else file.vectors[own].astype(np.float64)
    rows = np.flatnonzero(np.arange(len(file.words)) != (-1 if own is None else own))
    words = [file.words[k] for k in rows]

    norms = file.norms[rows]
    if space == "poincare":
        outside = norms >= 1
        if count := int(outside.sum()):
            first = words[int(np.argmax(outside))]
            notes.append(
                f"{path}: {count} of {len(words)} points lay outside the unit ball, first {brief(first)}; they were "
                f"put at norm {MAX_NORM}"
            )
        scale = _log0_scale(norms)
        unknown_scale = _log0_scale(np.atleast_1d(np.linalg.norm(unknown / 10)))
    else:
        scale, unknown_scale = np.full(len(rows), np.sqrt(c)), np.full(1, np.sqrt(c))
    tangent = np.zeros((2 + len(rows), file.vectors.shape[1]), dtype=np.float32)
    np.multiply(file.vectors[rows], scale[:, None], out=tangent[2:], casting="same_kind")
    tangent[UNK] = unknown_scale * unknown / 10
    if not np.isfinite(tangent).all():
        raise UserError(f"{path}: its numbers are too large for float32.")
    name = None if own is None else file.words[own]
    return words, tangent, {"source": path.name, "sha256": file.sha256, "space": space, "notes": notes, "unknown": name}


def _assemble(words: list[str], tangent: np.ndarray, meta: dict[str, Any]) -> WordVectors:
    for note in meta["notes"]:
        warnings.warn(f"{note}.", stacklevel=4)
    index = dict(zip(words, range(2, 2 + len(words)), strict=True))
    if meta["unknown"] is not None:
        index[meta["unknown"]] = UNK
    return WordVectors(index, torch.from_numpy(tangent), meta["source"], meta["sha256"], meta["space"])


def _log0_scale(norms: np.ndarray) -> np.ndarray:
    """artanh(r) / r for points of norm r, 1 for the origin; points outside are taken as at norm MAX_NORM."""
    safe = np.where(norms > 0, norms, 1.0)
    return np.where(norms > 0, np.arctanh(np.where(safe < 1, safe, MAX_NORM)) / safe, 1.0)


def _plain(name: str) -> str:
    return name.lower().replace("é", "e").replace("e\u0301", "e")
