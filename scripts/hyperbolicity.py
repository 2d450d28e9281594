"""The file in which `scripts/graph_statistics.py --output` keeps what it measured of graphs."""

import json
from pathlib import Path
from typing import Any

from tasks.errors import UserError
from tasks.folders import DAMAGED

FILE = Path(__file__).resolve().parent.parent / "results" / "hyperbolicity.json"  # which tables show
FACTS = ("delta_max", "delta_mean", "diameter")  # of each graph
COMMAND = "python scripts/graph_statistics.py FOLDER... --output"


def read(file: Path) -> dict[str, Any]:
    """What the file holds: `samples`, `seed`, and `graphs`, facts by name.

    Raises UserError, which names the file and the command that makes it, where it is missing, damaged or older.
    """
    try:
        measured: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        for name, facts in measured["graphs"].items():
            for key in FACTS:
                if not isinstance(value := facts.get(key), int | float):
                    raise ValueError(f"{key} of {name} is {value!r}")
    except FileNotFoundError:
        raise UserError(f"There is no {file}; make it: {COMMAND} {file}") from None
    except DAMAGED as error:
        fault = f"{file} is damaged or older ({type(error).__name__}: {error})"
        raise UserError(f"{fault}; delete it and make it again: {COMMAND} {file}") from None
    return measured


def read_like(file: Path, samples: int, seed: int) -> dict[str, Any]:
    """The graphs of the file, none where there is no such file.

    Raises UserError where it is damaged, or has graphs of other `samples` or another `seed`.
    """
    if not file.exists():
        return {}
    measured = read(file)
    earlier = measured.get("samples"), measured.get("seed")
    if earlier != (samples, seed):
        raise UserError(
            f"--output {file} has graphs of --samples {earlier[0]} --seed {earlier[1]}, and these are of --samples "
            f"{samples} --seed {seed}: one file has numbers of one kind. Give the same, or name another file."
        )
    graphs: dict[str, Any] = measured["graphs"]
    return graphs
