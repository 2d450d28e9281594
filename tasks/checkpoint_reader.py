"""Reading a checkpoint from a stranger: what comes out is tensors and plain values, and nothing is executed."""

import pickletools
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

MOST_DEPTH = 100  # of nodes; ours have ten
MOST_OPERATIONS = 5_000_000  # of a pickle, which take some ten seconds; ours have some ten thousand
TOO_DEEP = f"its nodes are nested more than {MOST_DEPTH} deep"
ZIP = b"PK\x03\x04"  # how a zip archive begins; torch reads other files as pickles
_ENDS = 56, 20, 22  # bytes of the three records at the end of an archive, of which the first two are for 64 bits
LEAVES = (bool, int, float, str, bytes, type(None))
_TUPLES = {"TUPLE": None, "EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}  # how many values each takes


class CheckpointReader(TorchCheckpointIO):
    """What Lightning reads of a checkpoint to go on from is what `load` makes of it."""

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        values: dict[str, Any] = load(path, "cpu" if map_location is None else map_location)
        return values


def load(file: str | Path, device: torch.device | str, mmap: bool = False) -> Any:
    """What `torch.save` put into a zip archive, of tensors and plain values; nothing is executed.

    mmap: the numbers of tensors stay in the file until they are looked at, so that plain values cost little time.

    All nodes are made anew, mappings as `dict` with keys of text or whole numbers, sequences as `list` and `tuple`, and
    tensors of the class Tensor: attributes that the file gives them, which may be in the place of their methods, and
    gradients and hooks are left out. Raises ValueError for another file, other values, and nodes that are nested more
    than MOST_DEPTH deep; RuntimeError, among others, for a sparse tensor whose indices lie outside of it, which would
    be read and written there.
    """
    with Path(file).open("rb") as stream:
        if stream.read(len(ZIP)) != ZIP:
            raise ValueError("it is no zip archive, as torch.save writes them")
        stream.seek(0)
        check_archive(Path(file))
        _check_tuples(torch._C.PyTorchFileReader(stream).get_record("data.pkl"))
        stream.seek(0)
        with torch.sparse.check_sparse_tensor_invariants():
            values = torch.load(file if mmap else stream, map_location=device, weights_only=True, mmap=mmap)
    return _plain(values, {}, 0)[0]


def check_archive(file: Path) -> None:
    """Raises ValueError unless a zip archive has one directory, at its end, and all members are stored, as `torch.save`
    writes them, and fit into the file: a compressed one may be a thousand times as long, and of a file that has two
    directories torch reads another one than Python does."""
    length = file.stat().st_size
    with file.open("rb") as stream:
        stream.seek(max(length - sum(_ENDS), 0))
        ends = stream.read()
    end, size, start = length - _ENDS[2], *struct.unpack("<2L", ends[-10:-2])
    if ends[-sum(_ENDS[1:]) :].startswith(b"PK\6\7"):  # with 64 bits
        end, size, start = length - sum(_ENDS), *struct.unpack("<2Q", ends[40:56])
        start = start if struct.unpack("<Q", ends[64:72]) == (end,) else -1
    if not ends[-_ENDS[2] :].startswith(b"PK\5\6") or start + size != end:
        raise ValueError("it is no archive with its directory at the end, as torch.save writes them")
    with zipfile.ZipFile(file) as parts:
        members = parts.infolist()
    if any(m.compress_type != zipfile.ZIP_STORED for m in members) or sum(m.file_size for m in members) > length:
        raise ValueError("its members are compressed or overlap, which those of torch.save do not")


def _plain(node: Any, known: dict[int, tuple[Any, int]], depth: int) -> tuple[Any, int]:
    """A node, made anew, and how deep the nodes below it are nested; known: those that stand in several places."""
    if isinstance(node, Tensor):
        return Tensor.detach(node), 0
    if not isinstance(node, (dict, list, tuple)):
        if type(node) not in LEAVES:
            raise ValueError(f"it holds a {type(node).__name__}")
        return node, 0
    if depth > MOST_DEPTH or (id(node) in known and depth + known[id(node)][1] > MOST_DEPTH):
        raise ValueError(TOO_DEEP)
    if id(node) not in known:
        if isinstance(node, dict):
            pairs = {key: _plain(value, known, depth + 1) for key, value in dict.items(node)}
            if not all(type(key) in (str, int) for key in pairs):
                raise ValueError("a mapping has keys that are neither texts nor whole numbers")
            copy: Any = {key: value for key, (value, _) in pairs.items()}
            heights: Iterable[int] = (height for _, height in pairs.values())
        else:
            values = list.__iter__(node) if isinstance(node, list) else tuple.__iter__(node)
            parts = [_plain(value, known, depth + 1) for value in values]
            copy = (list if isinstance(node, list) else tuple)(value for value, _ in parts)
            heights = (height for _, height in parts)
        known[id(node)] = copy, 1 + max(heights, default=-1)
    return known[id(node)]


def _check_tuples(pickled: bytes) -> None:
    """Raises ValueError where tuples are nested more than MOST_DEPTH deep: one that is the key of a mapping is hashed,
    which takes the interpreter's own stack and ends the process where that is too small. Also for a pickle of more than
    MOST_OPERATIONS, or one that takes more from its stack than there is."""
    stack: list[int] = []  # of each value how deep its tuples are
    marks: list[int] = []  # how many values there were at each mark
    memo: dict[int, int] = {}

    def pop(count: int) -> list[int]:
        """The uppermost values, so many."""
        if count > len(stack):
            raise ValueError("its pickle is damaged")
        values = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        return values

    def pop_to_mark() -> list[int]:
        if not marks:
            raise ValueError("its pickle is damaged")
        return pop(len(stack) - marks.pop())

    for k, (operation, argument, _) in enumerate(pickletools.genops(pickled)):
        name, before = operation.name, operation.stack_before
        if k > MOST_OPERATIONS:
            raise ValueError(f"its pickle has more than {MOST_OPERATIONS:,} operations")
        if name == "MARK":
            marks.append(len(stack))
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack.append(1 + max(pop_to_mark() if count is None else pop(count), default=0))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else argument] = stack[-1] if stack else 0
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo.get(argument or 0, 0))
        else:
            marked = pickletools.markobject in before
            values = pop_to_mark() if marked else []
            values += pop(before.index(pickletools.markobject) if marked else len(before))
            stack.extend([max(values, default=0) if name == "DUP" else 0] * len(operation.stack_after))
        if stack and stack[-1] > MOST_DEPTH:
            raise ValueError(TOO_DEEP)
