"""Made-up records: what a run of the fully hyperbolic GRU on PREFIX-10 could have left; the command that makes tables of
them; and figures that are not written."""

import copy
import json
from pathlib import Path

import pytest

from scripts import tables as command
from scripts.drawing import canvas
from scripts.drawing.options import FigureOptions

RECORD = {
    "experiment": "hnn_prefix10_gru_hyp",
    "config": {
        "mode": "fit",
        "task": {
            "data": {"_target_": "tasks.prefix.data.PrefixData", "batch_size": 512, "seed": 0},
            "model": {"d_word": 5, "d_hidden": 5, "d_ffnn": 5},
        },
        "geometry": {"name": "poincare", "c": 1.0},
        "encoder": {"cell": "gru"},
        "optim": {"rule": "adam", "lr": 0.01, "max_grad_norm": 1.0, "clip": "global", "biases": None},
        "trainer": {"max_epochs": 10, "max_steps": -1, "precision": "32-true"},
        "paths": {"data_dir": "/somewhere/else/data", "output_dir": "outputs/hnn_prefix10_gru_hyp"},
        "fidelity": "paper",
    },
    "metrics": {"test/accuracy": 0.96, "val/accuracy": 0.95},
    "overrides": ["experiment=hnn_prefix10_gru_hyp"],
    "selection": {"metric": "val/accuracy", "mode": "max", "value": 0.95, "epoch": 9},
    "data": {"files": ["train"], "counts": {"train": 500000}, "sha256": {"train": "ab"}, "share": 1.0},
    "seed": 0,
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "dirty": False,
    "versions": {"torch": "2.13.0"},
    "device": {"type": "cpu", "name": "x86_64", "processes": 1, "threads": 2},
    "wall_s": 600.0,
    "peak_memory_bytes": 500_000_000,
    "parameters": 1000,
    "fidelity": "paper",
}


@pytest.fixture
def make_record():
    """A function that makes a record, with the values at dotted paths changed, as in `{"data.share": 0.1}`."""

    def make(changes: dict | None = None, without: str | None = None) -> dict:
        record = copy.deepcopy(RECORD)
        for path, value in (changes or {}).items():
            *parents, last = path.split(".")
            node = record
            for key in parents:
                node = node[key]
            node[last] = value
        if without:
            *parents, last = without.split(".")
            node = record
            for key in parents:
                node = node[key]
            del node[last]
        return record

    return make


@pytest.fixture
def write_record():
    """A function that writes a record, or any text, to a file and returns its path."""

    def write(path: Path, record: dict | str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(record if isinstance(record, str) else json.dumps(record))
        return path

    return write


@pytest.fixture
def tables(tmp_path):
    """A function that makes or checks the tables of the folder tmp_path and returns the exit code."""
    folders = {name: tmp_path / name for name in ("runs", "tables", "published")}
    return lambda *arguments: command.main(list(arguments), **folders)


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn, in the place of files."""
    figures = []
    monkeypatch.setattr(canvas, "save", lambda figure, path: figures.append(figure) or path)
    return figures


@pytest.fixture
def options(tmp_path):
    """A function that makes the options of a figure in tmp_path, perhaps with labels."""
    return lambda labels=None: FigureOptions(tmp_path, "png", labels, None, 10, "best")
