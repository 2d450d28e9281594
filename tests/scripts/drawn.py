"""Runs to draw, and `python scripts/figures.py` on them."""

from pathlib import Path

from scripts import figures
from tests import cli

SHORT = (
    "task=entity_typing_toy", "task.data.sizes={train: 60, dev: 20, test: 20}", "trainer.max_epochs=2",
    "task.data.batch_size=30", *cli.QUIET,
)  # fmt: skip


def train(folder: Path, *words: str) -> Path:
    done = cli.call(*SHORT, *cli.places(folder), *words)
    assert done.code == 0, done.err
    return done.record_path.parent


def draw(out: Path, *words) -> int:
    return figures.main([*map(str, words), "--out", str(out)])


def left_out(err: str) -> list[str]:
    """What one line says that `all` leaves out."""
    (line,) = [line for line in err.splitlines() if line.startswith("left out: ")]
    return line.removeprefix("left out: ").partition(";")[0].split(", ")


def error_of(capsys) -> str:
    """The last line on standard error, which is one paragraph."""
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("error: ")
    return lines[-1]
