"""The YAML files that configurations are made of: where they lie, and one as plain values."""

from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from configs import own

FOLDER = own.OURS
CHOICE = "checkpoint"  # of each group, while a checkpoint's configuration can be chosen (`configs.stored`)
MOST_BYTES = 1_000_000  # of a file from somebody


class _WithoutAliases(yaml.SafeLoader):
    """Plain values; a few lines of aliases can stand for more of them than memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has aliases")
        return super().compose_node(parent, index)


def has_checkpoint() -> bool:
    """Whether a checkpoint's configuration can be chosen now, so that what is composed may be of it."""
    return f"{CHOICE}.yaml" in ConfigStore.instance().repo.get("experiment", {})


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


def choices(record: Path) -> dict[str, str]:
    """The names of the files that a run chose, by group, as Hydra noted them beside its record; empty where it did not,
    or these notes cannot be read."""
    try:
        named = load_foreign(record.parent / ".hydra" / "hydra.yaml")["hydra"]["runtime"]["choices"]
        return {group: name for group, name in named.items() if isinstance(group, str) and isinstance(name, str)}
    except Exception:  # many kinds, for a file that may hold anything
        return {}


def load(file: Path) -> dict[str, Any]:
    """A file as it stands, interpolations unresolved."""
    return plain(OmegaConf.load(file), resolve=False)


def load_foreign(file: Path) -> dict[Any, Any]:
    """The plain values of a file that somebody else may have made. Raises ValueError where it is too large or
    no node, yaml.YAMLError where it is not YAML or has aliases, and RecursionError for what is nested too deeply."""
    with file.open("rb") as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    values = yaml.load(data, _WithoutAliases)
    if not isinstance(values, dict):
        raise ValueError("it has no keys")
    return values
