"""The YAML files that configurations are made of: where they lie, and one as plain values."""

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from configs import own

FOLDER = Path(__file__).resolve().parent


def search_path() -> list[Path]:
    """The folders besides FOLDER that the user put on Hydra's search path, and the user's own one (`configs.own`)."""
    sources = HydraConfig.get().runtime.config_sources if HydraConfig.initialized() else []
    paths = [Path(source.path) for source in sources if source.schema == "file" and source.provider != "main"]
    return list(dict.fromkeys([*filter(None, [own.folder()]), *paths]))


def plain(cfg: Any, resolve: bool = True) -> dict[str, Any]:
    """A node of keys as plain Python values."""
    node = OmegaConf.to_container(cfg, resolve=resolve, enum_to_str=True)
    assert isinstance(node, dict)
    return {str(key): value for key, value in node.items()}


def load(file: Path) -> dict[str, Any]:
    """A file as it stands, interpolations unresolved."""
    return plain(OmegaConf.load(file), resolve=False)
