"""Geometries by the name of their file, for components of a model that have another one (`geometry.parts`)."""

import re
from collections.abc import Mapping
from typing import Any

from configs import files
from hyperbolic.geometry import GEOMETRIES

PAIR = ("name", "manifold", "layers")


def with_pairs(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts, in which `{name, manifold, layers}` stands for a geometry that has a file but is not registered.

    A file is `geometry/<name>.yaml` in configs/ or in a folder on hydra.searchpath. So a stored configuration says all
    that is needed to build its model again. What has neither stays: `make_geometry` says which names there are.
    """
    result = dict(parts)
    for component, name in parts.items():
        if isinstance(name, str) and re.fullmatch(r"\w+", name) and name not in GEOMETRIES:
            candidates = (folder / "geometry" / f"{name}.yaml" for folder in (files.FOLDER, *files.search_path()))
            if file := next((file for file in candidates if file.is_file()), None):
                node = files.load(file)
                result[component] = {key: node[key] for key in PAIR}
    return result
