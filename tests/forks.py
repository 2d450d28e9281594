"""Runs in forks of the test's process, which have nothing to import: to be killed, or as the processes of one run."""

import os
import socket
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from tests.cli import Result, call


def fork(run: Callable[[], Result], **environment: str) -> int:
    """The process id of a fork that runs and exits with the code of the result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, from Python 3.12 on
        child = os.fork()
    if child:
        return child
    try:
        os.environ.update(environment)
        os._exit(run().code)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(99)


def exit_code(child: int) -> int:
    """Of a fork that ends; minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def two_processes(folder: Path, *words: str) -> Result:
    """A run of two processes in `folder`, which are started together, as torchrun does it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "NODE_RANK": "0"}
    words = (*words, f"hydra.run.dir={folder}")
    children = [fork(lambda: call(*words), LOCAL_RANK=rank, **place) for rank in "01"]
    codes = [exit_code(child) for child in children]
    assert codes == [0, 0]
    return Result(0, f"record: {folder / 'record.json'}", "")
