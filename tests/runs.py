"""Runs of run.py, one after the other in this process, which may be one of several: python -m tests.runs FILE.

FILE is JSON, a list of the words of each run. Starting a process takes longer than a small run.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.cli import ROOT, call


def run_all(file: Path, processes: int) -> None:
    """The runs of a file in so many processes. Raises AssertionError where one of them fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(processes):
        place = {"LOCAL_RANK": rank, "NODE_RANK": 0, "WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        environment |= {k: str(v) for k, v in place.items()} if processes > 1 else {}
        command = [sys.executable, "-W", "ignore", "-m", "tests.runs", str(file)]
        started.append(subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True))
    errors = [process.communicate(timeout=1800)[1] for process in started]
    assert not any(process.returncode for process in started), "\n".join(errors)


if __name__ == "__main__":
    for words in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        result = call(*words)
        if result.code:
            sys.exit(f"{' '.join(words)}\n{result.err}")
