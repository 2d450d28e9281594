"""What a checkpoint keeps of its data, so that the model can be used where the data are not."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.base import TaskData
from tasks.errors import UserError
from tasks.reading import brief

KEY = "vocabulary"  # of a checkpoint
FORMAT = 1
_TENSOR = "$tensor"


def pack(data: TaskData) -> dict[str, Any] | None:
    """`TaskData.vocabulary` and the fingerprint of the data, as checkpoints keep them: {"format", "text", "tensors"}, a
    text of JSON in which {"$tensor": name} stands for one of the tensors; None where the data have none.

    A list of names is one text, which is read a hundred times as fast as a list that torch.load makes of its parts.
    """
    vocabulary = data.vocabulary()
    return None if vocabulary is None else pack_values({"fingerprint": data.fingerprint(), "data": vocabulary})


def pack_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """As `pack`, of a mapping. Tensors and arrays are values of mappings in it, not elements of lists. Raises UserError
    for a number outside of them that is not finite, which JSON does not have."""
    tensors: dict[str, Tensor] = {}

    def place(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: place(each) for key, each in value.items()}
        if isinstance(value, np.ndarray):
            value = torch.from_numpy(np.array(value))  # mapped ones may not be written to
        if isinstance(value, Tensor):
            tensors[name := str(len(tensors))] = value.detach().cpu().contiguous()
            return {_TENSOR: name}
        return value

    try:
        return {"format": FORMAT, "text": json.dumps(place(values), allow_nan=False), "tensors": tensors}
    except ValueError as error:
        raise UserError(
            f"A checkpoint cannot keep the vocabulary of these data: {error}. Correct what is NaN or infinite."
        ) from None


def unpack(packed: Any, where: str) -> dict[str, Any]:
    """What `pack_values` packed. Raises UserError, which begins with `where`, for anything else."""
    try:
        if not isinstance(packed, Mapping):  # a tensor would warn of its index
            raise ValueError("it is no mapping")
        tensors = dict(packed["tensors"])
        if packed["format"] != FORMAT or not all(_is_plain(value) for value in tensors.values()):
            raise ValueError("it is of another format")

        def place(node: dict[str, Any]) -> Any:
            return tensors[node[_TENSOR]] if node.keys() == {_TENSOR} else node

        def refuse(constant: str) -> Any:
            raise ValueError(f"it holds {constant}")

        values = json.loads(packed["text"], object_hook=place, parse_constant=refuse)
        if not isinstance(values, dict):
            raise ValueError("it is no mapping")
        return values
    except Exception as error:  # many kinds, for what may be anything
        raise damaged(where, error) from error


def _is_plain(value: Any) -> bool:
    """Whether a value is a tensor whose numbers lie one after the other, so that its file is as large as it."""
    return isinstance(value, Tensor) and value.layout == torch.strided and value.is_contiguous()


def kept(checkpoint: Mapping[str, Any]) -> dict[str, Any] | None:
    """What `pack` packed into a checkpoint, {"fingerprint", "data"}; None where it keeps no vocabulary, as checkpoints
    from before they held one. Raises UserError where it is damaged."""
    if checkpoint.get(KEY) is None:
        return None
    where = str(checkpoint["file"])
    values = unpack(checkpoint[KEY], where)
    if not all(isinstance(values.get(part), dict) for part in ("fingerprint", "data")):
        raise damaged(where, ValueError("it lacks a part"))
    return values


def adopt(data: TaskData, values: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> None:
    """Let the data be those of a checkpoint, without their files. values: what it has `kept`.

    Raises UserError where these are damaged, or are not what its weights were trained with.
    """
    where = str(checkpoint["file"])
    try:
        data.adopt(values["data"])
        data.adopted = values["fingerprint"]
        identity, _ = data.identity, data.model_sizes
    except Exception as error:  # many kinds, for what may be anything
        raise damaged(where, error) from None
    if identity != checkpoint["data"]:
        every = {**identity, **checkpoint["data"]}
        name = next(key for key in every if identity.get(key) != checkpoint["data"].get(key))
        raise UserError(
            f"{where}: the vocabulary that it keeps is not the one that its weights were trained with ({name} is "
            f"{brief(identity.get(name))}, not {brief(checkpoint['data'].get(name))}). Use another checkpoint."
        )


def damaged(where: str, error: Exception) -> UserError:
    """What is said of a vocabulary that cannot be used."""
    reason = f"{type(error).__name__}: {brief(str(error))}"
    return UserError(f"{where}: the vocabulary that it keeps is damaged ({reason}). Use another checkpoint.")


def check_numbers(table: Tensor, columns: int, below: int) -> Tensor:
    """A table (N, columns) of whole numbers from 0 to below, as int64. Raises ValueError for anything else."""
    if table.is_floating_point() or table.dim() != 2 or table.shape[1] != columns:
        raise ValueError(f"a table of {tuple(table.shape)} in the place of one with {columns} columns")
    if len(table) and not 0 <= int(table.min()) <= int(table.max()) < below:
        raise ValueError(f"numbers that are not from 0 to {below - 1}")
    return table.long()


def check_floats(table: Tensor, rows: int) -> Tensor:
    """A table (rows, D) of finite numbers, D at least 1. Raises ValueError for anything else."""
    if not table.is_floating_point() or table.dim() != 2 or len(table) != rows or not table.shape[1]:
        raise ValueError(f"a table of {tuple(table.shape)} in the place of one with {rows} rows of numbers")
    if not torch.isfinite(table).all():
        raise ValueError("numbers that are not finite")
    return table


def check_names(values: Any, different: bool = True) -> list[str]:
    """A list of texts, none twice where they must be different. Raises ValueError for anything else."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("no list of names")
    if different and len(set(values)) < len(values):
        raise ValueError("a name that stands there twice")
    return values
