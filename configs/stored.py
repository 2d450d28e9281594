"""The configuration that a checkpoint keeps, and how it becomes that of a run again.

A checkpoint holds plain values: the resolved configuration of the run that wrote it. Where a value lay under one of the
run's own places (`paths.data_dir`, `data.dir`, ...), the place stands there by its name, as `<paths.data_dir>/snli`, so
that it is found where this run has it. Other absolute paths are kept relative to the folder that the run was started
in, or where they lie elsewhere, by their last part, as `<outside>/my_pairs`: these are found by what Hydra noted in the
run's folder, while it lies on the same machine, and have to be named otherwise (data.dir=...). What is written lies
where this run has its places (`_own_places`): caches in `paths.cache_dir`, points that runs share in EMBEDDINGS.

`choose` offers these values to Hydra as one more choice of each group, `experiment=checkpoint`; so `mode=test`,
`mode=predict`, `trainer.resume`, figures and tables of errors all rebuild a model in the same way, and words on the
command line still change single settings. No text of a checkpoint gets onto the command line.
"""

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from configs import composing, files, overview
from configs.errors import ConfigError
from configs.files import CHOICE
from configs.targets import check_plain
from configs.words import value_of
from tasks import resume
from tasks.checkpoint_parts import Origin
from tasks.local_paths import OUTSIDE, is_local, map_texts
from tasks.reading import brief
from tasks.settings import known_in_training
from tasks.vocabularies import KEY

GROUPS = ("task", "geometry", "encoder")  # a word that chooses one of them, or an experiment, chooses all of them
KEPT = (*GROUPS, "optim", "trainer", "data", "probe", "seed", "fidelity")
CACHE = "paths.cache_dir"
PLACES = ("data.dir", CACHE, "paths.data_dir", "paths.output_dir")
CACHED_AT_ROOT = "tasks.prefix."  # of these data, root is the cache
EMBEDDINGS = re.compile(r"<paths\.output_dir>/embeddings/[^/]+\.npz")  # what a run writes besides its folder
# Settings of tasks, or of one class of a task, that runs from before them lack, and what they get.
LATER: dict[str, dict[str, Any]] = {
    "poincare_embeddings": {"top_k": 10, "burn_in_dampening": None},
    "poincare_glove": {"top_k": 10},
    "graph.task.LinkTask": {"top_k": 10},
}
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_PLACE = re.compile(r"<((?:data|paths)\.\w+)>(?=/|\Z)")


def origin(
    cfg: DictConfig,
    values: Mapping[str, Any],
    data: Mapping[str, str],
    experiment: str | None = None,
    name: str = "",
    sha256: Mapping[str, str] | None = None,
    code: Sequence[dict[str, Any]] = (),
    auto: Sequence[str] = (),
) -> Origin:
    """What the checkpoints of a run say of it.

    Args:
        cfg: as composed. values: the same, resolved and checked. data: their identity (`TaskData.identity`).
        experiment: its name, if it is one. name: of the folder of its runs. sha256: of what it trains with, by split.
        code: the version that runs (`record.code`). auto: the settings that the size of the data decides.
    """
    places = {place: str(path) for place in PLACES if (path := OmegaConf.select(cfg, place))}
    longest_first = dict(sorted(places.items(), key=lambda item: -len(item[1])))
    config = {key: values[key] for key in KEPT}
    config["trainer"] = {key: value for key, value in values["trainer"].items() if key != "resume"}
    placed = _place(config, OmegaConf.to_container(cfg, resolve=False), longest_first)
    return Origin(experiment, name, placed, dict(data), dict(sha256 or {}), [*code], [*auto])


def _place(node: Any, raw: Any, places: Mapping[str, str]) -> Any:
    """The node, in which values that interpolation put under a place name the place."""
    if isinstance(node, Mapping):
        return {k: _place(v, raw.get(k) if isinstance(raw, Mapping) else None, places) for k, v in node.items()}
    if isinstance(node, list):
        inner = raw if isinstance(raw, list) else [None] * len(node)
        return [_place(v, r, places) for v, r in zip(node, inner, strict=True)]
    if isinstance(node, str) and isinstance(raw, str) and "${" in raw:
        for name, place in places.items():
            if node.startswith(f"{place}/") or (node == place and raw == f"${{{name}}}"):
                return f"<{name}>{node.removeprefix(place)}"
    return _without_folders(node) if isinstance(node, str) else node


def _without_folders(text: str) -> str:
    """A text that is an absolute path relative to the present folder, or its last part."""
    path = Path(text)
    if not path.is_absolute() or not is_local(text):
        return text
    inside = path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd())) if inside else f"{OUTSIDE}/{path.name}"


def choose(words: Sequence[str]) -> list[str]:
    """The words of a command line, with the choice of a checkpoint's configuration in front where they leave the choice
    to it: `mode=test checkpoint=RUN`, `mode=predict checkpoint=RUN input=FILE`, `trainer.resume=RUN`.

    Raises:
        UserError: the checkpoint cannot be read. ConfigError: it holds what no configuration may hold.
    """
    settings = dict(word.lstrip("+").split("=", 1) for word in words if "=" in word and not word.startswith("-"))
    mode = value_of(f"mode={settings.get('mode', 'fit')}")
    key = "trainer.resume" if mode == "fit" else "checkpoint"
    place = value_of(f"{key}={settings.get(key, 'null')}")
    chosen = {*GROUPS, "experiment"} & set(settings)
    uses_checkpoint = place not in ("null", "auto", "") and mode in resume.STATES
    if chosen or not uses_checkpoint:
        if uses_checkpoint and not chosen & {"task", "experiment"}:
            names = " and ".join(sorted(chosen))
            print(
                f"{names}: with this and no task all settings, the task's too, come from the command line; leave "
                f"{names} out to have those of the checkpoint.",
                file=sys.stderr,
            )
        composing.register()
        return list(words)
    checkpoint = resume.read(Path(place), f"{key}={place}", resume.STATES[mode])
    for name in settings:
        if mode == "fit" and name in ("optim", "trainer"):
            raise ConfigError(
                f"{name}={settings[name]}: a run that goes on has the {name} of its checkpoint. Set single values, as "
                "trainer.max_epochs=20; or choose the task as well, as in task=... geometry=... encoder=..."
            )
        if mode == "test" and (name in ("seed", "optim") or name.startswith("optim.")):
            raise ConfigError(
                f"{name}={settings[name]}: the model is trained already, and the record of its test has the settings "
                f"that it was trained with. Leave {name} out."
            )
        if name == "fidelity" or re.fullmatch(r"task\.(?!(data|model|module)$)\w+", name):
            raise ConfigError(
                f"{name}={settings[name]}: other settings of the checkpoint follow from its {name}, so it cannot be "
                "changed alone; choose the task as well, as in task=... geometry=... encoder=..."
            )
    offer(checkpoint, f"{key}={place}", everything=mode == "fit", portable=mode == "predict")
    if mode == "fit" and "task.module.file" not in settings and (file := _other_file(checkpoint["config"]["task"])):
        print(
            f"task.module.file={brief(file)} of the checkpoint is not written: points go into this run's folder alone. "
            "Name the file again where it is to have them."
        )
    composing.register(stored_name=checkpoint.get("name"))
    return overview.many_first([f"experiment={CHOICE}", *words])


def offer(checkpoint: Mapping[str, Any], setting: str, everything: bool, portable: bool = False) -> None:
    """Make `experiment=checkpoint` the configuration of a checkpoint. everything: with its optimiser and trainer, to
    train on; otherwise what decides about its model, its data and their numbers. portable: of a checkpoint that keeps
    the vocabulary of its data, places outside of those of the run need not be known, as nothing is read there."""
    config = checkpoint["config"]
    check_plain(config, f"{setting}: {checkpoint['file']}")
    without = ("encoder",) if config.get("encoder") is None else ()  # a model that takes none
    for key in (*GROUPS, "optim", "trainer"):
        if key not in without and not isinstance(config.get(key), Mapping):
            raise ConfigError(f"{setting}: {checkpoint['file']}: its configuration has no node {key}.")
    nodes = {key: config[key] for key in GROUPS if key not in without}
    nodes["task"] = _own_places(_with_later(nodes["task"]))
    config = {**config, "data": _from_here(config.get("data"), checkpoint["file"])}
    trainer = dict(config["trainer"])
    if "compile" in trainer:  # as trainer.kernels was called
        trainer["kernels"] = "fast" if trainer.pop("compile") else "plain"
    whole = {key: config[key] for key in KEPT if key in config and key not in GROUPS}
    whole["trainer"] = trainer if everything else {k: trainer[k] for k in ("precision",) if k in trainer}
    store, notes = ConfigStore.instance(), _notes(checkpoint["file"])
    nodes = {group: _interpolate(node, notes.get(group)) for group, node in nodes.items()}
    whole = _interpolate(whole, notes)
    if portable and checkpoint.get(KEY) is not None:
        nodes, whole = map_texts([nodes, whole], lambda text: text.removeprefix(f"{OUTSIDE}/"))
    for group, node in nodes.items():
        store.store(group=group, name=CHOICE, node=node)
    choices = [{f"override /{group}": CHOICE} for group in nodes]
    whole = {"defaults": choices, **whole}
    store.store(group="experiment", name=CHOICE, package="_global_", node=whole)


def _from_here(data: Any, file: Path) -> Any:
    """The node `data` of a checkpoint, whose folder, where its name is relative, is looked for from the folder in which
    Hydra noted that the run was started, then from this one, and is else one outside."""
    place = data.get("dir") if isinstance(data, Mapping) else None
    if not isinstance(place, str) or Path(place).is_absolute() or place.startswith("<"):  # a place, or OUTSIDE
        return data
    start = _noted(file, "hydra.yaml", "hydra", "runtime", "cwd")
    there = Path(start, place) if isinstance(start, str) and start.isprintable() and "${" not in start else None
    if there and there.is_absolute() and there.exists():
        is_here = Path(place).exists() and there.samefile(place)
        return data if is_here else {**data, "dir": str(there)}
    return data if Path(place).exists() else {**data, "dir": f"{OUTSIDE}/{place}"}


def _with_later(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node of a task with the settings of its module that are newer than it, and with the names of today."""
    data = task.get("data")
    if isinstance(data, Mapping) and isinstance(leak := data.get("leak"), bool):
        data = {key: value for key, value in data.items() if key != "leak"}
        task = {**task, "data": data | {"known_in_training": known_in_training(leak)}}
    module = task.get("module")
    target = module.get("_target_") if isinstance(module, Mapping) else None
    later = next((own for name, own in LATER.items() if f"{target}.".startswith(f"tasks.{name}.")), None)
    return {**task, "module": {**later, **module}} if later and isinstance(module, Mapping) else task


def _own_places(task: Mapping[str, Any]) -> Mapping[str, Any]:
    """The node of a task, whose checkpoint does not say where files are written: its caches are this run's own, and
    points go into EMBEDDINGS, or where it names another file, into the run's folder alone."""
    own: dict[str, Any] = _in_the_cache(task)
    if _other_file(own) is not None:
        own["module"] = {**own["module"], "file": None}
    return own


def _other_file(task: Mapping[str, Any]) -> Any:
    """A file that a checkpoint would have written, and that `_own_places` leaves out; None for none."""
    module = task.get("module")
    file = module.get("file") if isinstance(module, Mapping) else None
    return None if file is None or EMBEDDINGS.fullmatch(str(file)) else file


def _in_the_cache(node: Any) -> Any:
    """The node, in which every cache is this run's own: what a checkpoint names is neither written nor believed."""
    if isinstance(node, list):
        return [_in_the_cache(value) for value in node]
    if not isinstance(node, Mapping):
        return node
    caches = ("cache", "root") if str(node.get("_target_")).startswith(CACHED_AT_ROOT) else ("cache",)
    return {key: _cache(value) if key in caches else _in_the_cache(value) for key, value in node.items()}


def _cache(value: Any) -> Any:
    place = _PLACE.match(str(value))
    return value if value is None or (place and place[1] == CACHE) else f"<{CACHE}>"


@contextlib.contextmanager
def offered(checkpoint: Mapping[str, Any], setting: str, portable: bool = False) -> Iterator[None]:
    """`offer` everything while `with` lasts; another checkpoint that was offered before is so again afterwards."""
    repo, file = ConfigStore.instance().repo, f"{CHOICE}.yaml"
    before = {group: repo[group][file] for group in (*GROUPS, "experiment") if file in repo.get(group, {})}
    if not OmegaConf.has_resolver("run_name"):
        composing.register()
    try:
        offer(checkpoint, setting, True, portable)
        yield
    finally:
        withdraw()
        for group, node in before.items():
            repo[group][file] = node


def withdraw() -> None:
    """Take the choice back, so that later compositions of this process do not have it."""
    repo = ConfigStore.instance().repo
    for group in (*GROUPS, "experiment"):
        repo.get(group, {}).pop(f"{CHOICE}.yaml", None)


def _notes(file: Path) -> dict[str, Any]:
    """The configuration that Hydra noted in the folder of the run that wrote a checkpoint; empty without one."""
    notes = _noted(file, "config.yaml")
    return _follow(notes, notes) if isinstance(notes, Mapping) else {}


def _noted(file: Path, name: str, *keys: str) -> Any:
    """What Hydra noted in a file of that name in the folder of the run that wrote a checkpoint, below these keys; None
    without."""
    try:
        node = files.load_foreign(file.parent.parent / ".hydra" / name)
        for key in keys:
            node = node[key]
        return node
    except Exception:  # many kinds, for a file that may hold anything
        return None


def _follow(node: Any, notes: Mapping[str, Any]) -> Any:
    """The node, in which a value that is nothing but the name of another one, as `${task.embeddings}`, is that one."""

    def follow(text: str) -> str:
        if (name := _REFERENCE.fullmatch(text)) is None:
            return text
        value: Any = notes
        for key in name[1].split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value if isinstance(value, str) else text

    return map_texts(node, follow)


def _interpolate(node: Any, notes: Any) -> Any:
    """The node, in which the places that values name are those of this run, and paths outside of them those of the
    notes, where these are still there."""
    if isinstance(node, Mapping):
        inner = notes if isinstance(notes, Mapping) else {}
        return {key: _interpolate(value, inner.get(key)) for key, value in node.items()}
    if isinstance(node, list):
        each = notes if isinstance(notes, list) and len(notes) == len(node) else [None] * len(node)
        return [_interpolate(value, note) for value, note in zip(node, each, strict=True)]
    if isinstance(node, str) and (place := _PLACE.match(node)) and place[1] in PLACES:
        return f"${{{place[1]}}}{node[place.end() :]}"
    return notes if isinstance(node, str) and _is_that_path(notes, node) else node


def _is_that_path(note: Any, kept: str) -> bool:
    """Whether a note is an absolute path that is there, of which the run kept the end, and this does not name another
    one here."""
    if not isinstance(note, str) or not note.isprintable() or "${" in note:
        return False
    path, here, end = Path(note), Path(kept), Path(kept.removeprefix(f"{OUTSIDE}/")).parts
    return (
        path.is_absolute()
        and end != ()
        and path.parts[-len(end) :] == end
        and path.exists()
        and not (here.exists() and not here.samefile(path))
    )
