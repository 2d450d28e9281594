"""What runs that are compared are called: the settings in which they differ, by their words or configurations."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.errors import readable
from tasks.settings import DRAWING, IRRELEVANT, LATER, OPEN, WITHOUT_EFFECT, current, flat, is_under

Record = Mapping[str, Any]
Choices = Callable[[Path], Mapping[str, str]]  # of files, by group, of the run with a record

_SEED = re.compile(r"(^|\.)seed$")
_QUOTED = re.compile(r"""\A(["'])(.*)\1\Z""", re.DOTALL)
# What changes no more than the last bits of a result, and what is no setting of a training.
_NO_SETTING = (
    "mode", "checkpoint", "input", "output", "explain", "paper", "hydra", "check_points",
    *(f"trainer.{key}" for key in ("accelerator", "kernels", "devices", "num_nodes", "strategy", "threads")),
)  # fmt: skip
_FOLLOWS = re.compile(r"^geometry\.(parts\.\w+\.)?(manifold|layers)$")  # from the geometry's name
_NAMES_OF_NODES = {"encoder._target_": "encoder", "geometry.name": "geometry"}
_STORED = "checkpoint"  # what a run that went on chose: it says nothing of what that is
ABSENT = "–"
LETTERS = 40  # of a value in a title or a note


def labels_of(records: Mapping[Path, Record], choices: Choices) -> list[dict[str, str]]:
    """What each record has of the settings that differ: by the words of the command line where these say the same, as
    they are fewer, else by the keys of the configuration."""
    settings = different([effective(flat(record["config"])) for record in records.values()])
    if len({record["commit"] for record in records.values()}) == 1:  # else the same words may mean other settings
        words = different(_read_named_settings(records, choices), absent_counts=lambda key: True)
        if _partition(words) == _partition(settings):
            return [{key: _shown(key, value) for key, value in own.items()} for own in words]
    shorter = [{key: value for key, value in own.items() if not _FOLLOWS.search(key)} for own in settings]
    settings = shorter if _partition(shorter) == _partition(settings) else settings
    return [{_NAMES_OF_NODES.get(key, key): _shown(key, value) for key, value in own.items()} for own in settings]


def unlabelled(records: Sequence[Record], labels: Sequence[Mapping[str, str]]) -> list[str]:
    """The settings that differ and have no label, each with its values: they follow from one that has, as the geometry
    from the encoder."""
    settings = different([effective(flat(record["config"])) for record in records])
    keys = [key for key in settings[0] if not _FOLLOWS.search(key)]
    free = [key for key in keys if not is_under(key, labels[0])]
    texts = {key: dict.fromkeys(_shown(key, own[key]) for own in settings) for key in free}
    return [f"{key} ({', '.join(map(cut, several))})" for key, several in texts.items()]


def cut(value: str) -> str:
    """A value as titles and notes have it."""
    return value if len(value) < LETTERS else f"{value[:LETTERS]}..."


def effective(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of the settings of a run, by dotted key, those that have an effect on results, seeds left out."""
    return LATER | {key: value for key, value in current(dict(settings)).items() if _counts(key)}


def _read_named_settings(records: Mapping[Path, Record], choices: Choices) -> list[dict[str, Any]]:
    """What each record has of the settings that the command line of any of them names: by its configuration, or of a
    whole node by the word, or what it was chosen by."""
    words = [_words(record) for record in records.values()]
    keys = list(dict.fromkeys(key for own in words for key in own))
    nodes: dict[str | None, str] = {}  # what one with the same node is called by
    for record, own in zip(records.values(), words, strict=True):
        nodes |= {node: name for key, name in own.items() if (node := _node_of(record, key))}
    labels = []
    for (file, record), own in zip(records.items(), words, strict=True):
        config = own | flat(record["config"])
        absent = [key for key in keys if key not in config]
        known = choices(file) if absent else {}
        config |= {key: nodes.get(_node_of(record, key)) or _unnamed(record, key, known) for key in absent}
        labels.append({key: config[key] for key in keys})
    return labels


def _node_of(record: Record, key: str) -> str | None:
    """A text for the node under a key, None where there is none."""
    node = record["config"].get(key)
    return json.dumps([key, node], sort_keys=True) if isinstance(node, dict) else None


def _words(record: Record) -> dict[str, str]:
    words = (str(word) for word in record.get("overrides") or () if word != f"experiment={_STORED}")
    pairs = (word.lstrip("+~").partition("=") for word in words)
    return {key: _QUOTED.sub(r"\2", value.strip()) for key, _, value in pairs if _counts(key)}


def _counts(key: str) -> bool:
    names = (*WITHOUT_EFFECT, *IRRELEVANT, *_NO_SETTING)
    return key in DRAWING or (not _SEED.search(key) and not is_under(key, names))


def _unnamed(record: Record, key: str, choices: Mapping[str, str]) -> str:
    """What a run is called in a group of files, of which it did not choose one on its command line."""
    if key == "experiment":
        return str(record["experiment"] or ABSENT)
    node = record["config"].get(key)
    node = node if isinstance(node, dict) else {}
    choice = choices.get(key) if choices.get(key) != _STORED else None
    target = str(node.get("_target_") or "").rpartition(".")[2]
    names = (node.get("name"), choice, target, node.get("rule"))
    return next((name for name in names if isinstance(name, str) and name), "default")


def different(
    settings: Sequence[Mapping[str, Any]], absent_counts: Callable[[str], bool] = lambda key: is_under(key, OPEN)
) -> list[dict[str, Any]]:
    """Of each the settings that differ: those of which two have different values. What one lacks (None) belongs to a
    class that it does not use, or is newer than it, and is no difference in itself unless `absent_counts`. A node that
    one has and that is null in another one differs as a whole."""
    different = []
    for key in dict.fromkeys(key for own in settings for key in own):
        values = {json.dumps(own[key], sort_keys=True) for own in settings if key in own}
        is_lacking = any(key not in own for own in settings)
        if len(values) > 1 or (is_lacking and (absent_counts(key) or any(_node(key, own) for own in settings))):
            different.append(key)
    return [{key: own.get(key, _node(key, own)) for key in different} for own in settings]


def _node(key: str, own: Mapping[str, Any]) -> str | None:
    """A word for a node with settings, where the key is that of one."""
    return "given" if any(name.startswith(f"{key}.") for name in own) else None


def _partition(labels: Sequence[Mapping[str, Any]]) -> list[int]:
    """The number of the first that is equal to each."""
    texts = [json.dumps(own, sort_keys=True) for own in labels]
    return [texts.index(text) for text in texts]


def _shown(key: str, value: Any) -> str:
    """A value as on the command line, a class by its name."""
    if value is None:
        return ABSENT
    text = value if isinstance(value, str) else json.dumps(value)
    return readable(text.rpartition(".")[2] if key.endswith("_target_") else text)
