"""The record of a run: what it must hold, read and checked in one place."""

import re
from pathlib import Path

from hyperbolic.optim.roles import ROLES
from tasks.errors import UserError
from tasks.reading import Fault, brief, decode
from tasks.rows import is_finite, parse_object
from tasks.settings import flat
from tasks.sizes import KEYS

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "results" / "runs"
MAX_BYTES = 1 << 26  # of the record of a run, which counts the examples of each class
MAX_KEPT_BYTES = 200_000  # of one in results/

Record = dict

_COMMIT = re.compile(r"[0-9a-f]{7,64}")  # a part of it is in the names of kept records
_OPTIONAL_TEXT = (str, type(None))
_NUMBER = (int, float)
REQUIRED: dict[str, type | tuple[type, ...]] = {
    "experiment": _OPTIONAL_TEXT,
    "config": dict,
    "metrics": dict,
    "selection": (dict, type(None)),
    "data": dict,
    "seed": int,
    "commit": _OPTIONAL_TEXT,
    "dirty": (bool, type(None)),
    "versions": dict,
    "device": (str, dict),
    "wall_s": _NUMBER,
    "peak_memory_bytes": (int, float, type(None)),
    "parameters": (int, dict),
    "fidelity": str,
}
REQUIRED_SETTINGS = ("task.data.batch_size", "geometry.name", "optim.lr", "trainer.max_epochs")  # at least
REQUIRED_DATA = ("files", "counts", "sha256", "share")


class RecordError(UserError):
    """A record that must not be used; the message names the file, the culprit and the remedy."""


def read(path: Path, max_bytes: int = MAX_BYTES) -> Record:
    """The record in the file `path`.

    Raises RecordError where the file is no JSON object, holds NaN or infinity, or is larger than a record should be.
    """
    if path.is_dir():
        raise RecordError(f"{path} is a folder, and no record; move it, or name the records to read.")
    if path.stat().st_size > max_bytes:
        raise RecordError(
            f"{path}: {path.stat().st_size} bytes, and a record has at most {max_bytes} here. "
            "Long series belong into the run's log; counts of thousands of classes make a record as long."
        )

    try:
        return parse_object(decode(path.read_bytes()))
    except Fault as fault:
        raise RecordError(
            f"{path}: {fault}. A record is a JSON object whose numbers are finite; run the experiment again."
        ) from None


def validate(record: Record, path: Path) -> Record:
    """The record. Raises RecordError, with every fault, unless it has the keys and kinds of values it must have."""
    faults = [f"'{key}' is missing" for key in REQUIRED if key not in record]
    faults += [
        f"'{key}' is {brief(record[key])}, a {type(record[key]).__name__}"
        for key, kind in REQUIRED.items()
        if key in record and not _is(record[key], kind)
    ]
    if not faults:
        faults += _metric_faults(record["metrics"]) + _data_faults(record["data"])
        nodes = {name: record["config"].get(name) for name in ("task", "geometry", "optim", "trainer")}
        nodes["task.data"] = nodes["task"].get("data") if isinstance(nodes["task"], dict) else None
        faults += [f"'config.{name}' is no node" for name, node in nodes.items() if not isinstance(node, dict)]
        if not isinstance(record.get("overrides", []), list):
            faults.append(f"'overrides' is {brief(record['overrides'])}, no list")
        auto = record.get("auto", [])
        if not isinstance(auto, list) or not all(isinstance(key, str) and key in KEYS for key in auto):
            faults.append(f"'auto' is {brief(auto)}, no list of settings that the size of data decides")
        faults += _node_faults(record)
        settings = flat(record["config"])
        faults += [f"'config.{key}' is missing" for key in REQUIRED_SETTINGS if key not in settings]
        if record["commit"] is not None and not _COMMIT.fullmatch(record["commit"]):
            faults.append(f"'commit' is {brief(record['commit'])}, no commit of git")
        if not is_finite(record["wall_s"]) or record["wall_s"] < 0:
            faults.append(f"'wall_s' is {brief(record['wall_s'])}")
    if faults:
        raise RecordError(
            f"{path}: not the record of a finished run: {'; '.join(faults)}. Run the experiment again to its end."
        )
    return record


def _node_faults(record: Record) -> list[str]:
    """Of what tables read besides: the budget's steps and epochs, the share of the paper's data, rules of the roles."""
    selection, optim = record["selection"] or {}, record["config"].get("optim")
    sources, paper = record["data"].get("sources"), record["data"].get("paper")
    numbers = {key: selection.get(key) for key in ("step", "epoch")}
    wrong = [key for key, value in numbers.items() if not _is_number(value)]
    faults = [f"'selection.{key}' is {brief(numbers[key])}, no number" for key in wrong]
    if not (sources is None or (isinstance(sources, list | dict) and all(isinstance(name, str) for name in sources))):
        faults.append(f"'data.sources' is {brief(sources)}, which names none")
    if not isinstance(paper, dict | None) or not _is_number((paper or {}).get("share")):
        faults.append(f"'data.paper' is {brief(paper)}, no node with a number as its share")
    roles = {role: optim.get(role) for role in ROLES} if isinstance(optim, dict) else {}
    wrong = [role for role, node in roles.items() if not isinstance(node, dict | None)]
    return faults + [f"'config.optim.{role}' is {brief(roles[role])}, no node" for role in wrong]


def _is_number(value: object) -> bool:
    return value is None or is_finite(value)


def _is(value: object, kind: type | tuple[type, ...]) -> bool:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if isinstance(value, bool) and bool not in kinds:  # in Python a bool is an int
        return False
    return isinstance(value, kinds)


def _metric_faults(metrics: dict) -> list[str]:
    faults = [
        f"metric {brief(name)} is {brief(value)}, not a finite number"
        for name, value in metrics.items()
        if not _is(value, _NUMBER) or not is_finite(value)
    ]
    if not any(name.startswith("test/") for name in metrics):
        faults.append("'metrics' has no test/... value")
    return faults


def _data_faults(data: dict) -> list[str]:
    faults = [f"'data.{key}' is missing" for key in REQUIRED_DATA if key not in data]
    share = data.get("share", 1.0)
    if not _is(share, _NUMBER) or not 0 < share <= 1:
        faults.append(f"'data.share' is {brief(share)}, and the share of the data a run used lies in (0, 1]")
    return faults
