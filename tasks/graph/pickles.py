"""Reads the pickles of published graphs as plain data: nothing that is named in a file is imported or called."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from tasks.errors import UserError

_DTYPES = {"f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"}


class _State:
    """An object of a pickle that only keeps what it was made of."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dtype(_State):
    def dtype(self) -> np.dtype:
        name, order = str(self.arguments[0]), "<"
        if isinstance(self.state, tuple) and len(self.state) > 1:
            order = str(self.state[1])
        if name not in _DTYPES or order not in "<>|=":
            raise ValueError(f"an array of type {name!r}, and only numbers are read")
        return np.dtype(("<" if order in "|=" else order) + name)


class _Array(_State):
    def array(self) -> np.ndarray:
        _, shape, dtype, by_column, raw = self.state
        if not isinstance(dtype, _Dtype) or not isinstance(raw, (bytes, str)):
            raise ValueError("an array of objects, and only numbers are read")
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        values = np.frombuffer(raw, dtype.dtype())
        return values.reshape(tuple(int(n) for n in shape), order="F" if by_column else "C")


class _Csr(_State):
    def matrix(self) -> sparse.csr_array:
        parts: dict[str, Any] = {str(key): value for key, value in (self.state or {}).items()}
        data, indices, indptr = (parts[key].array() for key in ("data", "indices", "indptr"))
        shape = tuple(int(n) for n in parts["_shape" if "_shape" in parts else "shape"])
        matrix = sparse.csr_array((data, indices, indptr), shape=shape)
        matrix.check_format(full_check=True)
        return matrix


class _Graph(_State):
    def adjacency(self) -> tuple[dict[Any, dict[Any, Any]], dict[Any, dict[str, Any]]]:
        parts = dict(self.state or {})
        return parts["_adj"], parts["_node"]


def _mapping(*_: Any) -> dict[Any, Any]:
    return {}


def _bytes(text: str, encoding: str) -> bytes:
    """The bytes of an array, which protocols before 3 write as a text."""
    if encoding != "latin1":
        raise ValueError(f"a text in {encoding!r}")
    return text.encode("latin1")


class _View(_State):
    """A view of a networkx graph, whose contents the graph itself has."""


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _View,
    ("numpy", "dtype"): _Dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"scipy.sparse.{place}csr", name): _Csr for place in ("", "_") for name in ("csr_matrix", "csr_array")},
    ("collections", "defaultdict"): _mapping,
    ("collections", "OrderedDict"): _mapping,
    ("_codecs", "encode"): _bytes,
    **{(home, "dict"): _mapping for home in ("builtins", "__builtin__")},
    **{(home, "list"): _View for home in ("builtins", "__builtin__")},
    ("networkx.classes.graph", "Graph"): _Graph,
    ("networkx.classes.coreviews", "AdjacencyView"): _View,
    **{
        ("networkx.classes.reportviews", name): _View
        for name in ("NodeView", "EdgeView", "DegreeView", "OutEdgeView", "NodeDataView")
    },
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return _ALLOWED[module, name]


def read_pickle(path: Path, source: str) -> Any:
    """What a pickle has, in plain values: numbers, texts, lists, dicts; arrays of numbers; `scipy.sparse.csr_array`; a
    networkx graph as `(neighbours by node, attributes by node)`.

    source: where the file comes from, for messages. Raises UserError, which names the file, where it is missing or
    damaged, or names anything else: then it is not one of these files, and nothing of it was executed.
    """
    try:
        value = _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
        return _plain(value)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}; fetch it: {source}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).") from None
    except Exception as error:  # a pickle may go wrong in any way
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(
            f"{path} is refused: {reason}. It is damaged, or not the published file, which holds only arrays, lists, "
            f"dicts and graphs; fetch it again: {source}."
        ) from None


def _plain(value: Any) -> Any:
    for kind, convert in ((_Array, "array"), (_Csr, "matrix"), (_Graph, "adjacency")):
        if isinstance(value, kind):
            return getattr(value, convert)()
    if isinstance(value, _State):
        raise ValueError("it holds something else")
    return value
