"""A trained model as a folder for other machines: weights, configuration, points by name, a model card, checksums.

```python
from hyperbolic_language import load  # or from tasks.exported, where that can be imported
exported = load("my_model")                         # every file is compared with its checksum
names, manifold, points = exported.points["words"]  # without the data that it was trained with
```

`configs.build.restore` makes the network of a folder, without its data too.
"""

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any

import torch
from torch import Tensor

from hyperbolic.geometry import MANIFOLDS
from hyperbolic.manifolds import Manifold
from tasks.base import NamedPoints
from tasks.checkpoint_parts import has_parts
from tasks.errors import UserError
from tasks.fingerprints import file_sha256
from tasks.folders import whole_folder
from tasks.reading import brief

WEIGHTS, POINTS, CONFIG, NAMES, CARD, SUMS = (
    "weights.safetensors", "points.safetensors", "config.json", "names.json", "README.md", "SHA256SUMS",
)  # fmt: skip
FILES = (WEIGHTS, POINTS, CONFIG, NAMES, CARD)
VOCABULARY = ("vocabulary.safetensors", "vocabulary.json")  # of models that predict without their data
KEPT = ("config", "data", "metrics", "experiment", "name")  # of a checkpoint, besides its weights


@dataclass(frozen=True, eq=False)
class Exported:
    """What a folder holds. checkpoint: as `tasks.resume.read` gives it, of the state that was tested: "state_dict", the
    tensors by name, "config", "data", the identity of the data, and "metrics" of the validation. points: by kind, as
    "words", in float64."""

    checkpoint: dict[str, Any]
    points: dict[str, NamedPoints]


def write(folder: Path, checkpoint: Mapping[str, Any], points: Mapping[str, NamedPoints], card: str) -> Path:
    """Write a folder that is whole or not there. checkpoint, points: as in `Exported`. card: the text of README.md.

    Raises UserError where the folder is there already, and without safetensors.
    """
    if folder.exists():
        raise UserError(f"{folder} is there already; name a new folder.")
    packed = _safetensors().save  # into bytes: its own files are for their owner alone
    geometry = checkpoint["config"].get("geometry") or {}
    spaces = {kind: _space(own.manifold, geometry) for kind, own in points.items()}
    facts = {key: checkpoint.get(key) for key in KEPT} | {"code": checkpoint.get("code", []), "spaces": spaces}
    names = {kind: list(own.names) for kind, own in points.items()}
    with whole_folder(folder) as part:
        weights = {name: value.clone().contiguous() for name, value in checkpoint["state_dict"].items()}
        tables = {kind: own.manifold.projx(own.x.detach().cpu().double()).contiguous() for kind, own in points.items()}
        for file, tensors in ((WEIGHTS, weights), (POINTS, tables)):
            (part / file).write_bytes(packed(tensors))
        for file, values in ((CONFIG, facts), (NAMES, names)):
            (part / file).write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (part / CARD).write_text(card, encoding="utf-8")
        if vocabulary := checkpoint.get("vocabulary"):
            rest = {key: value for key, value in vocabulary.items() if key != "tensors"}
            (part / VOCABULARY[0]).write_bytes(packed(vocabulary["tensors"]))
            (part / VOCABULARY[1]).write_text(json.dumps(rest) + "\n", encoding="utf-8")
        files = (*FILES, *(VOCABULARY if vocabulary else ()))
        sums = [f"{file_sha256(part / file)}  {file}\n" for file in files]
        (part / SUMS).write_text("".join(sums), encoding="utf-8")
    return folder


def load(folder: str | Path) -> Exported:
    """What `write` wrote; nothing in it is executed.

    Raises UserError, which names the file, where one is missing, altered or damaged, where points lie on a manifold
    that is not registered, and without safetensors.
    """
    return _load(Path(folder), with_points=True)


def load_checkpoint(folder: Path) -> dict[str, Any]:
    """The checkpoint alone, for which the manifolds of the points need not be registered. Raises as `load`."""
    return _load(folder, with_points=False).checkpoint


def _load(folder: Path, with_points: bool) -> Exported:
    files = check_sums(folder)
    load_file = _safetensors().load_file
    file = folder / CONFIG
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        file = folder / NAMES
        names = json.loads(file.read_text(encoding="utf-8"))
        if not all(isinstance(own, list) and all(isinstance(name, str) for name in own) for own in names.values()):
            raise ValueError("its names are no texts")
        file = folder / WEIGHTS
        weights: dict[str, Tensor] = load_file(file)
        file = folder / POINTS
        tables: dict[str, Tensor] = load_file(file)
        file = folder / CONFIG
        code = facts.get("code", [])  # which exports from before lack
        checkpoint = {key: facts[key] for key in KEPT} | {"code": code, "state_dict": weights, "file": folder / WEIGHTS}
        titles = (facts["experiment"], facts["name"])
        if not has_parts(checkpoint) or not all(isinstance(title, (str, NoneType)) for title in titles):
            raise ValueError("a part is of another kind")
        if VOCABULARY[0] in files:
            file = folder / VOCABULARY[1]
            rest = json.loads(file.read_text(encoding="utf-8"))
            file = folder / VOCABULARY[0]
            checkpoint["vocabulary"] = {**rest, "tensors": load_file(file)}
        file = folder / POINTS
        kinds = tables if with_points else {}
        points = {kind: _points(names[kind], x, *facts["spaces"][kind]) for kind, x in kinds.items()}
    except _Unregistered as error:
        raise UserError(f"{file} is not what an export writes, or {error}") from None
    except Exception as error:  # many kinds, for files that may hold anything
        reason = f"{type(error).__name__}: {brief(str(error))}"
        raise UserError(f"{file} is not what an export writes ({reason}). Export the model again.") from error
    return Exported(checkpoint, points)


def is_export(folder: Path) -> bool:
    """Whether a folder looks like one that `write` wrote, whole or not."""
    return (folder / SUMS).is_file() or (folder / WEIGHTS).is_file()


def check_sums(folder: Path) -> tuple[str, ...]:
    """The names of the files of an export, each of which has the contents that it was written with. Raises UserError
    where one has not, or is missing."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is no exported model: it has no readable {SUMS}. Name the folder of one.") from error
    sums = {name: sha256 for sha256, _, name in (line.partition("  ") for line in lines)}
    has_vocabulary = any(name in sums or (folder / name).exists() for name in VOCABULARY)
    files = (*FILES, *(VOCABULARY if has_vocabulary else ()))
    for name in files:
        if name not in sums or not (folder / name).is_file():
            raise UserError(f"{folder} is not whole: it lacks {name}, or {SUMS} does. Fetch it again.")
        if file_sha256(folder / name) != sums[name]:
            raise UserError(
                f"{folder / name} was altered: its contents do not have the checksum in {SUMS}. Fetch the folder again."
            )
    return files


class _Unregistered(Exception):
    """A manifold of the user's own, whose module was not imported."""


def _space(manifold: Manifold, geometry: Mapping[str, Any]) -> list[Any]:
    """What `_points` makes a manifold of again: its name, c, and the settings that it has of the geometry's node."""
    name, c = type(manifold).__name__, float(manifold.c.detach())
    return [name, c, geometry.get("settings") or {} if name == geometry.get("manifold") else {}]


def _points(
    names: list[str], x: Tensor, manifold: str, c: float, settings: Mapping[str, Any] = MappingProxyType({})
) -> NamedPoints:
    """settings: folders of before have none."""
    if manifold not in MANIFOLDS:
        raise _Unregistered(f"their manifold, {brief(manifold)}, is one of your own: import its module first.")
    space = MANIFOLDS[manifold](c=c, **settings) if c else MANIFOLDS[manifold](**settings)
    if len(names) != len(x) or not torch.isfinite(x).all() or not space.check_point_on_manifold(x):
        raise ValueError(f"its points are not {len(names)} points of {manifold}")
    return NamedPoints(names, space, x)


def _safetensors() -> Any:
    try:
        return importlib.import_module("safetensors.torch")
    except ImportError:
        raise UserError("Exported folders need safetensors; pip install '.[train]' adds it.") from None
