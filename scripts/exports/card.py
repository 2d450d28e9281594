"""The model card of an exported folder, in Markdown."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import yaml

from configs import files
from scripts.records import read
from scripts.trained import Run
from tasks.base import NamedPoints
from tasks.settings import flat

# As the READMEs of the tasks say, by task, of the files that configs/task/TASK.yaml names.
WORDNET = "WordNet's own (Princeton University), free with its notice."
GRAPHS = "not stated: github.com/HazyResearch/hgcn, which has the files, names none; ask the publisher of the data."
MULTI30K = "of their authors and of Flickr's users, for research."
IWSLT = "TED's (CC BY-NC-ND)."
LICENCES = {
    "wn18rr": WORDNET, "wordnet_subtree": WORDNET, "poincare_embeddings": WORDNET,
    "fb15k237": "CC BY (Freebase).",
    "umls": "the terms of the US National Library of Medicine, which publishes UMLS.",
    "snli": "CC BY-SA 4.0; its premises are captions of Flickr30k.",
    "multinli": "of most of its texts that of the Open American National Corpus; its paper lists the others.",
    "ultrafine": "not stated by its README: ask its publisher; the texts belong to their owners.",
    "dbpedia": "CC BY-SA (Wikipedia).", "tatoeba": "CC BY 2.0.", "multi30k": MULTI30K, "iwslt14": IWSLT,
    **{f"{name}_{kind}": GRAPHS for name in ("disease", "airport", "cora", "pubmed") for kind in ("lp", "nc")},
}  # fmt: skip
UNKNOWN = "not stated: ask the publisher of the data, whose names and texts may be in the files."
_SOURCE = re.compile(r"task\.data\.(release\.root|folder|wordnet|file|files(\..+)?)")
NO_POINTS = "It has no points by name: the folder has the weights and the settings of the model."


def card(run: Run, points: Mapping[str, NamedPoints], predicts: bool) -> str:
    """What the run's record says of a model: how it was trained, on which data, and its metrics. Of a run without a
    record, which is not at its end, what there is. predicts: the folder has the vocabulary, so it needs no data."""
    file = run.folder / "record.json"
    record: dict[str, Any] = read(file) if file.is_file() else {}
    kinds = [f"- {len(own.names):,} {kind}: {type(own.manifold).__name__}" for kind, own in points.items()]
    sections = [
        f"# {run.title}",
        f"Task {run.settings.get('task.name')}, {run.space}.",
        *(["Points by name:", "\n".join(kinds)] if kinds else [NO_POINTS]),
        "## Training",
        *_training(record),
        "## Metrics",
        _table(["metric", "value"], record.get("metrics", {})) or "None: the run was not at its end.",
        "## Data",
        *_data(record.get("data") or {}, run),
        "## Use",
        _use(points, predicts),
    ]
    return "\n\n".join(sections) + "\n"


def _training(record: Mapping[str, Any]) -> list[str]:
    if not record:
        return ["The run has no record: it was not at its end."]
    words = shlex.join(map(str, record.get("overrides") or []))
    facts = {
        "commit": str(record.get("commit")) + (" with changes" if record.get("dirty") else ""),
        **record.get("versions", {}),
        "selection": json.dumps(record.get("selection")),
        "parameters": record.get("parameters"),
    }
    return [f"```\npython run.py {words}\n```", _table(["fact", "value"], facts)]


def _data(data: Mapping[str, Any], run: Run) -> list[str]:
    digests = data.get("sha256") if isinstance(data.get("sha256"), dict) else {}
    files = data.get("files") if isinstance(data.get("files"), dict) else {}
    rows = {": ".join(filter(None, [part, files.get(part)])): digest for part, digest in digests.items()}
    return [*filter(None, [_table(["part: file", "sha256"], rows)]), f"Licence of the data: {licence(run.settings)}"]


def licence(settings: Mapping[str, Any]) -> str:
    """Under which licence the data of a run are: generated, those that its task is named after, or unknown ones."""
    task = str(settings.get("task.name"))
    is_generated = task.endswith("_toy") or settings.get("task.data._target_") == "tasks.prefix.data.PrefixData"
    if is_generated:
        return "they are generated, by a program under Apache-2.0."
    return LICENCES[task] if task in LICENCES and _names_its_files(task, settings) else UNKNOWN


def _names_its_files(task: str, settings: Mapping[str, Any]) -> bool:
    """Whether the data of a run are called as in the file of its task, wherever they lie."""
    text = (files.FOLDER / "task" / f"{task}.yaml").read_text(encoding="utf-8")
    usual = flat({"task": {"data": yaml.safe_load(text)["data"]}})
    names = {key: _last(value) for key, value in usual.items() if _SOURCE.fullmatch(key)}
    return all(_last(settings.get(key)) == name for key, name in names.items() if "${" not in str(name))


def _last(value: Any) -> Any:
    """The names of files without their folders."""
    return [_last(each) for each in value] if isinstance(value, list) else value and PurePath(str(value)).name


def _use(points: Mapping[str, NamedPoints], predicts: bool) -> str:
    kind = next(iter(points), None)
    lines = ["from hyperbolic_language import load  # installed from its checkout: pip install '.[train]'"]
    lines.append('exported = load("FOLDER")  # exported.checkpoint["state_dict"]: the weights by name')
    if kind:
        lines.append(f'names, manifold, points = exported.points["{kind}"]')
    code = "\n".join(lines)
    command = "```\npython run.py mode=predict checkpoint=FOLDER input=FILE\n```\n\n" if predicts else ""
    return (
        f"{command}In Python:\n\n```python\n{code}\n```\n\n"
        "`load` refuses altered files; `sha256sum -c SHA256SUMS` finds them, too."
    )


def _table(header: list[str], rows: Mapping[str, Any]) -> str:
    if not rows:
        return ""
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for name, value in rows.items():
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        cells = (str(cell).replace("\n", " ").replace("|", "\\|") for cell in (name, shown))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
