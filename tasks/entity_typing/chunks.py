"""Large files of mentions in pieces, which several processes turn into columns at the same time."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tasks.entity_typing.examples import Columns, Encoder, Limits
from tasks.entity_typing.mentions import parse
from tasks.errors import UserError
from tasks.reading import UNREADABLE, Fault, is_packed, open_bytes, reason

CHUNK = 4 << 20  # bytes that are turned into columns at a time, about 10,000 mentions
COUNTED = ("cut", "untyped", "outside", "unknown")  # of a chunk, see `examples.Encoder`
PARALLEL = 48 << 20  # bytes from which on it is worth to start processes
Waiting: TypeAlias = "deque[tuple[int, int, Future[Chunk]]]"  # number of the file, bytes, result


class Chunk(NamedTuple):
    """A piece of a file as columns. types: names of the ids in the columns where they are the chunk's own, else empty.
    faults: line in the chunk, from 1, and what is wrong with it. counts: cut, untyped, outside, unknown. unknown:
    distinct words without a vector.
    """

    columns: Columns
    types: list[str]
    lines: int
    faults: list[tuple[int, Fault]]
    counts: dict[str, int]
    unknown: list[str]


@dataclass(frozen=True)
class ChunkEncoder:
    """Turns lines start..stop of a file into columns; blank lines are passed over.

    types: ids of known types; grow: others get ids of the chunk's own. keep_untyped: mentions without a type can be
    used. skip: pass over mentions that cannot be used, and over unknown types, instead of stopping.
    """

    index: dict[str, int]
    limits: Limits
    types: dict[str, int]
    grow: bool
    keep_untyped: bool
    skip: bool

    def __call__(self, path: Path, start: int, stop: int) -> Chunk:
        try:
            with open_bytes(path) as file:
                file.seek(start)
                text = file.read() if is_packed(path) else file.read(stop - start)
        except UNREADABLE as error:
            raise UserError(f"{path} cannot be read ({reason(error)}).") from None
        lines = text.removesuffix(b"\n").split(b"\n")
        types = dict(self.types) if self.grow else self.types
        encoder = Encoder(self.index, self.limits, types, self.grow, self.skip, self.keep_untyped)
        faults: list[tuple[int, Fault]] = []
        add = encoder.add
        for number, line in enumerate(lines, start=1):
            if not line or line.isspace():
                continue
            try:
                add(*parse(line))
            except Fault as fault:
                faults.append((number, fault))
                if not self.skip:
                    break
        names, columns = list(types) if self.grow else [], encoder.columns()
        counts = {name: getattr(encoder, name) for name in COUNTED}
        return Chunk(columns, names, len(lines), faults, counts, list(encoder.unknown_words))


def pieces(path: Path, size: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of pieces of about `size` bytes that end where lines end; of a file .gz one piece."""
    end = path.stat().st_size
    if is_packed(path):
        yield 0, end
        return
    with path.open("rb") as file:
        start = 0
        while start < end:
            file.seek(min(start + size, end) - 1)
            file.readline()
            yield start, file.tell()
            start = file.tell()


def encode_chunks(
    encoder: ChunkEncoder, paths: Sequence[Path], workers: int
) -> Generator[tuple[int, int, Chunk], None, None]:
    """(number of the file, bytes, columns) of all pieces of some files, in order, whichever is ready first.

    workers: processes that share the work, as long as there is enough of it.
    """
    jobs = ((number, path, *piece) for number, path in enumerate(paths) for piece in pieces(path, CHUNK))
    if workers == 1 or sum(path.stat().st_size for path in paths) < PARALLEL:
        for number, path, start, stop in jobs:
            yield number, stop - start, encoder(path, start, stop)
        return
    # New processes rather than copies of this one: it may have threads, which copies do not survive.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _start, (encoder,))
    waiting: Waiting = deque()
    try:
        for number, path, start, stop in jobs:
            waiting.append((number, stop - start, pool.submit(_encode, path, start, stop)))
            if len(waiting) > 2 * workers:
                yield _result(waiting)
        while waiting:
            yield _result(waiting)
    except BrokenProcessPool as error:
        raise UserError(
            "A process that prepared data was ended from outside, perhaps for want of memory; use fewer with "
            "task.data.preparation.workers=1."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _result(waiting: Waiting) -> tuple[int, int, Chunk]:
    number, size, future = waiting.popleft()
    return number, size, future.result()


_encoder: list[ChunkEncoder] = []  # of this process


def _start(encoder: ChunkEncoder) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for us gets it too, and ends us
    _encoder[:] = [encoder]


def _encode(path: Path, start: int, stop: int) -> Chunk:
    return _encoder[0](path, start, stop)
