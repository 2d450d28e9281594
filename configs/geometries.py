"""Geometries by the name of their file, for components of a model that have another one (`geometry.parts`)."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs import files
from configs.errors import ConfigError
from configs.targets import check_targets, load_target
from hyperbolic.geometry import FAMILIES, GEOMETRIES, MANIFOLDS

PAIR = ("name", "manifold", "layers")
OF_A_WHOLE = ("options", "settings", "parts")  # what a file says that a component cannot have


def with_pairs(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts, in which `{name, manifold, layers}` stands for a geometry that has a file but is not registered.

    A file is `geometry/<name>.yaml` in configs/ or in a folder on hydra.searchpath; where it names a function of its
    own, whose module registers a manifold or layers, that is imported. So a stored configuration says, with the file,
    all that is needed to build its model again. What has no file stays: `make_geometry` says which names there are.

    Raises:
        ConfigError: the file lacks a key, or has options, settings or parts, or its function cannot be imported.
    """
    result = dict(parts)
    for component, part in parts.items():
        name = part.get("name") if isinstance(part, Mapping) else part
        if _is_known(part) or (file := _file(name)) is None:
            continue
        node, where = files.load(file), f"geometry.parts.{component}"
        if lacking := [key for key in ("_target_", *PAIR) if key not in node]:
            raise ConfigError(f"{where}={name}: {file.name} lacks {', '.join(lacking)}.")
        check_targets(node, "geometry")
        load_target(f"{where}={name}: {file.name}: _target_", node["_target_"])
        if name == part:
            if wrong := [key for key in OF_A_WHOLE if node.get(key)]:
                raise ConfigError(
                    f"{where}={name}: {file.name} has {' and '.join(wrong)}, which the geometry of one component does "
                    "not take. Leave them out there, or give the whole model this geometry."
                )
            result[component] = {key: node[key] for key in PAIR}
    return result


def _is_known(part: Any) -> bool:
    if isinstance(part, Mapping):
        return part.get("manifold") in MANIFOLDS and part.get("layers") in FAMILIES
    return part in GEOMETRIES


def _file(name: Any) -> Path | None:
    """The file of a geometry, if there is one."""
    if not isinstance(name, str) or not re.fullmatch(r"\w+", name):
        return None
    candidates = (folder / "geometry" / f"{name}.yaml" for folder in (files.FOLDER, *files.search_path()))
    return next((file for file in candidates if file.is_file()), None)
