"""Damaged files for tests of what reads them: bytes changed in one of several ways, the same ones for the same seed."""

import gzip
import random
import re
from collections.abc import Callable

NUMBERS = (b"nan", b"-inf", b"1e999", b"-1", b"0", b"9" * 40, b"9" * 5000, b"1.5", b"0x1f", b"\xd9\xa3", b"1_000", b"")
WORDS = (
    b"\0", b"\r", b"\r\n", b"\n\n\n", b"\t", b"\t\t\t", b" ", b"\x1a", b"\x1c", b"\x85", b"\xc2\x85", b"\xff\xfe",
    b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\xc2\xa0", b'"', b"{", b"}", b"[", b"]", b"\\", b"%s", b"${x}",
    b"\\ud800", b'"\\udc00"', b"?", b"|", b"a" * 70_000, "é́𝔘".encode(), b"<paths.data_dir>", b"../../x", b"\x1b[31m",
)  # fmt: skip
VALUES = (
    b"null", b"true", b"NaN", b"-Infinity", b"[]", b"{}", b'""', b'"\\ud800"', b'"\\u0000"', b"1e400", b"9" * 5000, b"[[]]",
    b'{"a": 1}', b'["a", null]', b"-1", b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
)  # fmt: skip
JSON_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.e+-]*|\[[^\[\]]*\]|true|false|null')


def _flip(data: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice((1, 1, 3, 20))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _truncate(data: bytearray, draw: random.Random) -> None:
    del data[draw.randrange(len(data)) :]


def _delete(data: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(data))
    del data[start : start + draw.choice((1, 5, 40))]


def _insert(data: bytearray, draw: random.Random) -> None:
    start = draw.choice((0, len(data), draw.randrange(len(data))))
    data[start:start] = draw.choice(WORDS) * draw.choice((1, 1, 3))


def _noise(data: bytearray, draw: random.Random) -> None:
    start = draw.randrange(len(data))
    data[start : start + draw.choice((0, 8))] = draw.randbytes(draw.choice((4, 64)))


def _lines(data: bytearray, draw: random.Random) -> None:
    lines = bytes(data).split(b"\n")
    at = draw.randrange(len(lines))
    kind = draw.randrange(5)
    if kind == 0:
        lines.insert(at, draw.choice(lines))
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        draw.shuffle(lines)
    elif kind == 3:
        lines[at] = lines[at] * draw.choice((2, 40))
    else:
        lines = [b"".join(lines)] if draw.random() < 0.3 else [line + b"\r" for line in lines]
    data[:] = b"\n".join(lines)


def _replace(pattern: re.Pattern, values: tuple[bytes, ...]) -> Callable[[bytearray, random.Random], None]:
    def replace(data: bytearray, draw: random.Random) -> None:
        if places := list(pattern.finditer(data)):
            start, stop = draw.choice(places).span()
            data[start:stop] = draw.choice(values)

    return replace


def _long(data: bytearray, draw: random.Random) -> None:
    """A line of 3 MB."""
    start = draw.randrange(len(data))
    data[start:start] = draw.choice((b"a", b"1 ", b"\xc3", b"\t", b'"', b"1")) * 3_000_000


KINDS = (
    _flip, _flip, _truncate, _delete, _insert, _insert, _noise, _lines, _lines,
    _replace(re.compile(rb"-?\d[\d.e+-]*"), NUMBERS), _replace(re.compile(rb"\w+"), WORDS),
    _replace(re.compile(rb"[\t ,]"), WORDS), _replace(JSON_VALUE, VALUES), _replace(JSON_VALUE, VALUES),
)  # fmt: skip


def mutated(data: bytes, seed: int) -> bytes:
    """The data with one change or a few; every fiftieth seed makes a line of 3 MB."""
    draw, changed = random.Random(seed), bytearray(data)
    for kind in [_long] if seed % 50 == 49 else draw.choices(KINDS, k=draw.choice((1, 1, 2, 4))):
        if changed:
            kind(changed, draw)
    return bytes(changed)


def mutated_gzip(data: bytes, seed: int) -> bytes:
    """A gzipped file, damaged, or one of damaged data."""
    return mutated(gzip.compress(data, mtime=0), seed) if seed % 2 else gzip.compress(mutated(data, seed), mtime=0)
