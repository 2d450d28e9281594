"""run.py called inside the test's process, as a user calls it on the command line."""

import contextlib
import io
import json
import logging
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton
from hydra.types import RunMode

import run
from tasks import report

ROOT = Path(run.__file__).resolve().parent
SHORT = ("trainer.limit_train_batches=4", "task.data.sizes={train: 400, dev: 60, test: 60}", "task.data.batch_size=32")
GET_MODE, DRAW, DRAWN = Hydra.get_mode, report.learning_curve, {}
QUIET = ("trainer.enable_progress_bar=false", "logger=none")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def record_path(self) -> Path:
        """The path in the last line of what was printed."""
        last = self.out.strip().splitlines()[-1]
        assert last.startswith("record: "), f"the last line is {last!r}\n{self.err}"
        return Path(last.removeprefix("record: "))

    @property
    def record(self) -> dict:
        return json.loads(self.record_path.read_text(encoding="utf-8"))


def mode(hydra: Hydra, config_name: str | None, overrides: list[str]) -> RunMode | None:
    """Hydra composes a configuration twice, the first time only to see `hydra.mode`, which none of our files sets."""
    return GET_MODE(hydra, config_name, overrides) if any("hydra.mode" in word for word in overrides) else None


def learning_curve(rows: list[dict[str, float]], select: str, path: Path) -> Path:
    """Draws the first curve of its kind in a process, as many epochs with the same metrics; it stands for the others."""
    kind = select, *((*row, all(map(math.isfinite, row.values()))) for row in rows)
    if kind not in DRAWN:
        DRAWN[kind] = DRAW(rows, select, path).read_bytes()
    path.write_bytes(DRAWN[kind])
    return path


def call(*words: str) -> Result:
    """python run.py `words`."""
    out, err = io.StringIO(), io.StringIO()
    GlobalHydra.instance().clear()
    handlers = logging.root.handlers[:]
    with (
        mock.patch.object(sys, "argv", [str(ROOT / "run.py"), *words]),
        mock.patch.object(Hydra, "get_mode", mode),
        mock.patch.object(report, "learning_curve", learning_curve),
        mock.patch.dict("os.environ"),
        mock.patch.object(Singleton, "_instances", Singleton._instances),  # joblib's launcher replaces Hydra's state
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code = run.main()
        except SystemExit as end:
            code = end.code
    GlobalHydra.instance().clear()  # of a state that was replaced
    for handler in set(logging.root.handlers) - set(handlers):
        handler.close()  # the run's log file
    logging.root.handlers[:] = handlers
    return Result(code, out.getvalue(), err.getvalue())


def places(folder: Path) -> tuple[str, str]:
    """Where a run finds its data and leaves its results."""
    return f"paths.data_dir={folder / 'data'}", f"paths.output_dir={folder / 'out'}"


def toy(folder: Path, *words: str) -> Result:
    """A run on the toy split, with its data and results under `folder`."""
    return call("task=prefix_toy", *QUIET, *places(folder), *words)


def short(folder: Path, *words: str) -> Result:
    """Three epochs of four steps."""
    return toy(folder, *SHORT, "trainer.max_epochs=3", *words)


def command(*words: str, **environment: str) -> subprocess.CompletedProcess:
    """python run.py `words` in a process of its own, with more environment variables."""
    return subprocess.run(
        [sys.executable, "run.py", *words], cwd=ROOT, capture_output=True, text=True, timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip
