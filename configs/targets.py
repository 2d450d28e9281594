"""The gate through which every configuration passes before anything that it names is imported.

A `_target_` names a class or function that is called. Those of this project are the ones that its own files under
configs/ name: `targets` reads them, and that is the one table, with the place of each. What a checkpoint holds is data
from somebody, so a `_target_` in it that is not in the table, or at another place, is refused, and so is one from the
command line.
"""

import contextlib
import functools
import logging
import re
import sys
import traceback
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from hydra.utils import get_object

from configs import files
from configs.errors import ConfigError

_PACKAGE = re.compile(r"^# @package (\S+)", re.MULTILINE)
_DEPTH = 24  # of nested nodes; ours have at most 6


@functools.cache
def targets() -> Mapping[str, frozenset[str]]:
    """Every `_target_` that a file of configs/ names, with the nodes that have it there, as "task.data.vectors"."""
    places: dict[str, set[str]] = defaultdict(set)
    for place, target in _named_in(files.FOLDER):
        places[target].add(place)
    return {target: frozenset(nodes) for target, nodes in places.items()}


@functools.cache
def _of_the_user(folders: tuple[Path, ...]) -> frozenset[str]:
    """Every `_target_` that a YAML file in these folders names."""
    return frozenset(target for folder in folders for _, target in _named_in(folder))


def _named_in(folder: Path) -> Iterator[tuple[str, str]]:
    """Every `_target_` that a YAML file of a folder names, with the node that has it in a configuration which chooses
    the file: (node, target). A file that cannot be read or is no YAML is passed over; Hydra says so of one that is
    chosen."""
    for file in folder.rglob("*.yaml"):
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        package = _PACKAGE.search(text)
        place = package[1] if package else ".".join(file.parent.relative_to(folder).parts)
        with contextlib.suppress(yaml.YAMLError, RecursionError):
            node = yaml.safe_load(text)
            for key, target in _find_targets(node, "" if place == "_global_" else place):
                if isinstance(target, str):
                    yield key.removesuffix("._target_"), target


def check_targets(node: Any, place: str = "", stored: bool = False) -> None:
    """Refuse a node, or a node within it, that would call something that is not in the table, or not there.

    Args:
        node: plain values. The files in configs/ name classes, each for its own node; those that files in folders of
            the user's on Hydra's search path name may stand anywhere.
        place: the key of the node; "" for a whole configuration.
        stored: of a checkpoint, in which a class of ours stands only where the files have it, or within a model. Else
            it may also stand in a node of the same name, where a default of a user's file may put it.

    Raises:
        ConfigError: a `_target_` that no file names, that files name at other nodes, or that is no word.
    """
    allowed, own = targets(), _of_the_user(tuple(files.search_path()))
    for key, target in _find_targets(node, place):
        if not isinstance(target, str) or (target not in own and target not in allowed):
            raise ConfigError(
                f"{key}={str(target)[:80]!r} is refused: it is none of the classes that the files in configs/ name. To "
                "use a class of your own, name it in a file of a folder of yours, with --config-dir FOLDER, or in "
                "Python restore(..., config_dir=FOLDER)."
            )
        if target not in own and not _may_stand(key.removesuffix("._target_"), allowed[target], stored):
            raise ConfigError(
                f"{key}={target} is refused: the files in configs/ have it as {', '.join(sorted(allowed[target]))}. To "
                "have it elsewhere, name it in a file of a folder of yours."
            )


def _may_stand(node: str, places: Collection[str], stored: bool) -> bool:
    """Whether a class that the files have at these nodes may stand at a node. An encoder may be made of others, and a
    model of the user's have encoders and geometries within."""
    of_models = [place for place in places if place in ("encoder", "geometry")]
    within = any(node.startswith("task.model.") and node.endswith(f".{place}") for place in of_models)
    if node in places or within or ("encoder" in places and node.startswith("encoder.")):
        return True
    names = {place.rpartition(".")[2] for place in places}
    is_logger = node.startswith("logger.") and any(place.startswith("logger.") for place in places)
    return not stored and (is_logger or node.rpartition(".")[2] in names)


def load_target(name: str, path: str) -> Any:
    """The class or function of a path that `check_targets` has let pass. Raises ConfigError, which begins with `name`,
    where it cannot be imported, or is not there."""
    logger = logging.getLogger("hydra.utils")  # it would report the error as well
    logger.disabled, before = True, logger.disabled
    try:
        return get_object(path)
    except Exception as error:
        raise ConfigError(f"{name}={path} cannot be used: {_reason(error.__cause__ or error, path)}.") from error
    finally:
        logger.disabled = before


def _reason(error: BaseException, path: str) -> str:
    """Why a class or function was not found; of an error within its module the place of it."""
    module, _, attribute = path.rpartition(".")
    if isinstance(error, ModuleNotFoundError) and error.name and f"{path}.".startswith(f"{error.name}."):
        return f"{module} has no {attribute}" if module in sys.modules else f"there is no module {error.name}"
    if isinstance(error, SyntaxError):
        return str(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}, line {last.lineno}: {type(error).__name__}: {error}"


def check_plain(node: Any, where: str, depth: int = 0) -> None:
    """Refuse what a configuration from a file may not hold: it is data, which nothing evaluates.

    Raises:
        ConfigError: a value that is no plain one, an interpolation, a key that Hydra would act on, too deep a nesting.
    """
    if depth > _DEPTH:
        raise ConfigError(f"{where}: its nodes are nested more than {_DEPTH} deep; it is no configuration of a run.")
    if type(node) is dict:  # whose methods are its own
        for key, value in node.items():
            acts = key == "defaults" or (re.fullmatch("_.*_", str(key)) and key not in ("_target_", "_partial_"))
            if not isinstance(key, str) or acts or "${" in key or (key == "_partial_" and value is not True):
                raise ConfigError(f"{where}: the key {str(key)[:80]!r} cannot stand in the configuration of a run.")
            check_plain(value, f"{where}.{key[:80]}", depth + 1)
    elif type(node) is list:
        for k, value in enumerate(node):
            check_plain(value, f"{where}[{k}]", depth + 1)
    elif type(node) is str:
        if not node.isprintable() or (node[:1] in ("<", "/", "~") and ".." in Path(node).parts):
            raise ConfigError(f"{where}: {node[:80]!r} cannot stand in the configuration of a run.")
        if "${" in node:
            raise ConfigError(f"{where}: {node[:80]!r} would be evaluated, and a stored configuration has values only.")
    elif not (node is None or isinstance(node, (bool, int, float))):
        raise ConfigError(f"{where}: a {type(node).__name__} cannot stand in the configuration of a run.")


def _find_targets(node: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Every `_target_` within a node, with its full key."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            full = f"{key}.{name}" if key else str(name)
            if name == "_target_" and value is not None:
                yield full, value
            else:
                yield from _find_targets(value, full)
    elif isinstance(node, (list, tuple)):
        for k, value in enumerate(node):
            yield from _find_targets(value, f"{key}[{k}]")
