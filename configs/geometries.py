"""Geometries by the name of their file, for components of a model that have another one (`geometry.parts`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_object
from omegaconf import OmegaConf

FOLDER = Path(__file__).resolve().parent
PAIR = ("name", "manifold", "layers")


def with_pairs(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The parts, in which `{name, manifold, layers}` stands for a geometry that has a file but is not registered.

    A file is `geometry/<name>.yaml` in configs/ or in a folder on hydra.searchpath. So a stored configuration says all
    that is needed to build its model again. What has neither stays: `make_geometry` says which names there are.
    """
    registered = get_object("hyperbolic.geometry.GEOMETRIES")
    result = dict(parts)
    for component, name in parts.items():
        if isinstance(name, str) and name not in registered:
            files = (folder / "geometry" / f"{name}.yaml" for folder in _folders())
            if file := next((file for file in files if file.is_file()), None):
                node = OmegaConf.load(file)
                result[component] = {key: node[key] for key in PAIR}
    return result


def _folders() -> list[Path]:
    """The folders that Hydra looks for configurations in."""
    sources = HydraConfig.get().runtime.config_sources if HydraConfig.initialized() else []
    return [FOLDER, *(Path(source.path) for source in sources if source.schema == "file")]
