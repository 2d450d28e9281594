"""The model card of an exported folder, in Markdown."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from scripts.records import read
from scripts.trained import Run
from tasks.base import NamedPoints


def card(run: Run, points: Mapping[str, NamedPoints]) -> str:
    """What the run's record says of a model: how it was trained, on which data, and its metrics. Of a run without a
    record, which is not at its end, what there is."""
    file = run.folder / "record.json"
    record: dict[str, Any] = read(file) if file.is_file() else {}
    kinds = [f"- {len(own.names):,} {kind}: {type(own.manifold).__name__}" for kind, own in points.items()]
    sections = [
        f"# {run.title}",
        f"Task {run.settings.get('task.name')}, {run.space}.",
        *(["Points by name:", "\n".join(kinds)] if kinds else []),
        "## Training",
        *_training(record),
        "## Metrics",
        _table(["metric", "value"], record.get("metrics", {})) or "None: the run was not at its end.",
        "## Data",
        *_data(record.get("data") or {}, run),
        "## Use",
        _use(run, points),
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
    rows = {f"{split}: {files.get(split, '')}": digest for split, digest in digests.items()}
    kind = str(run.settings.get("task.data._target_", "")).split(".")[1:2]
    place = f"tasks/{kind[0]}/README.md" if kind else "the README of the task"
    licence = f"Names come from the data. Their licence is not in the record; {place} says more of public data."
    return [table for table in [_table(["split: file", "sha256"], rows)] if table] + [licence]


def _use(run: Run, points: Mapping[str, NamedPoints]) -> str:
    kind = next(iter(points), None)
    lines = ["from tasks.exported import load", 'exported = load("FOLDER")']
    if kind:
        lines.append(f'names, manifold, points = exported.points["{kind}"]')
    code = "\n".join(lines)
    predict = "python run.py mode=predict checkpoint=FOLDER input=FILE"
    use = f"```\n{predict}\n```\n\nIn Python:\n\n```python\n{code}\n```"
    return f"{use}\n\n`load` refuses altered files; `sha256sum -c SHA256SUMS` finds them, too."


def _table(header: list[str], rows: Mapping[str, Any]) -> str:
    if not rows:
        return ""
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for name, value in rows.items():
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        cells = (str(cell).replace("\n", " ").replace("|", "\\|") for cell in (name, shown))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
