"""Every program in scripts/ starts from its file, as users and the Makefile call it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.commands import reports_errors
from scripts.package import console
from tests.cli import ROOT

PROGRAMS = sorted(
    file.stem for file in (ROOT / "scripts").glob("*.py") if '__name__ == "__main__"' in file.read_text(encoding="utf-8")
)
QUICK = ("download", "readme")  # the others import torch or more, seconds each


def test_every_command_is_a_program():
    assert set(console.SCRIPTS) <= set(PROGRAMS)
    assert set(QUICK) <= set(PROGRAMS)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PROGRAMS])
def test_a_program_says_what_it_is_for(name, tmp_path):
    command = [sys.executable, str(ROOT / "scripts" / f"{name}.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")
    assert name in done.stdout


def test_ctrl_c_ends_a_command_with_a_word(capsys):
    @reports_errors
    def command(words):
        raise KeyboardInterrupt

    assert command([]) == 130
    assert capsys.readouterr().err == "\nInterrupted.\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("words", [["scripts/errors.py"], ["-m", "scripts.figures"]])
def test_ctrl_c_during_imports_is_one_line(words):
    command = [sys.executable, *words, "all", "nowhere"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text():  # which is imported
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "\nInterrupted.\n")
