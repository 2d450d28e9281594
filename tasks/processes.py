"""The processes that share a run on one machine: where one of them is gone, the others end within seconds."""

import atexit
import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytorch_lightning as pl
from pytorch_lightning.strategies.launchers import _SubprocessScriptLauncher
from torch.distributed import DistError

from tasks.errors import UserError

FIRST = "HYPERBOLIC_FIRST_PROCESS"  # in the environment of the others: the process id of the one that started them
PERIOD_S = 0.2
FIRST_WAITS_S, OTHERS_WAIT_S = 5.0, 8.0  # with an error of their own, for the end of another process


def is_first() -> bool:
    """Whether this process speaks for a run of several, whatever started them."""
    return all(os.environ.get(name, "0") == "0" for name in ("LOCAL_RANK", "NODE_RANK", "RANK", "SLURM_PROCID"))


def is_first_here() -> bool:
    """Whether this process is the first of a run on its machine."""
    return all(os.environ.get(name, "0") == "0" for name in ("LOCAL_RANK", "SLURM_LOCALID"))


@contextlib.contextmanager
def together(trainer: pl.Trainer, hint: Callable[[], str]) -> Iterator[None]:
    """Start the other processes of a trainer that has several, and end together with them.

    Lightning would start them as well, but end them without a word. When a process dies, one of those left says so,
    followed by `hint`. When several have an error, the first process reports its own and ends the others; when only
    another one has, that one reports it. Processes that something else started, as torchrun or Slurm, are ended by it.

    Raises UserError, with `hint`, in such a process that can no longer reach the others.
    """
    launcher, children, started = trainer.strategy.launcher, [], False
    if isinstance(launcher, _SubprocessScriptLauncher):
        started = launcher.cluster_environment.creates_processes_externally
        if not started:
            os.environ[FIRST] = str(os.getpid())
            launcher._call_children_scripts()  # sets LOCAL_RANK, so that Lightning starts none
            del os.environ[FIRST]
        children = launcher.procs
    watch = Watch(children, int(os.environ.get(FIRST, 0)), hint)
    if children or watch.first:
        watch.start()
    try:
        yield
    except BaseException as error:
        if watch.first:
            time.sleep(OTHERS_WAIT_S)  # the first process ends this one, unless it has no error
            # its connections are closed when it has ended, and not seconds before
            atexit.register(os._exit, 130 if isinstance(error, KeyboardInterrupt) else 1)
        elif children and isinstance(error, RuntimeError):
            time.sleep(FIRST_WAITS_S)  # the watch ends this process, where its error is that another one is gone
        watch.over.set()
        watch.end_children()
        if started and not watch.first and _is_lost(error):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what torchrun sends to those left; this one is at its end
            atexit.register(os._exit, 1)
            message = f"Another process of the run is gone, or cannot be reached; {hint()}."
            raise UserError(message) from error
        raise
    watch.over.set()


@functools.cache
def end_with_parent() -> None:
    """Let this process, a worker that runs jobs of a multirun, end soon after the command that started it, so that one
    that was killed leaves no training behind, beside which the same command begins again."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PERIOD_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="watch-of-parent").start()


def _is_lost(error: BaseException) -> bool:
    """Whether an error is of the connection to other processes: NCCL's and the store's have a class, Gloo's a word."""
    return isinstance(error, DistError) or (isinstance(error, RuntimeError) and "/gloo/" in str(error))


class Watch(threading.Thread):
    """Ends this process where another one of the run is gone: in the first process one of those that it started, in
    those the first. A process that ended with an error, which is exit code 1, has reported it."""

    def __init__(self, children: list[subprocess.Popen], first: int, hint: Callable[[], str]):
        super().__init__(daemon=True, name="watch-of-processes")
        self.children, self.first, self.hint = children, first, hint
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(PERIOD_S):
            # an orderly end of this process may be under way
            if (lost := self.lost()) is not None and not self.over.wait(2 * PERIOD_S):
                message, code = lost
                try:
                    if message:
                        print(f"\n{message}; {self.hint()}.", file=sys.stderr, flush=True)
                finally:  # also where nobody reads the message any more
                    self.end_children()
                    os._exit(code)

    def lost(self) -> tuple[str, int] | None:
        """A message, which may be empty, and the exit code of this process, where another one is gone."""
        if self.first:
            speaks = os.environ.get("LOCAL_RANK") == "1"
            return ("The first process of the run is gone" * speaks, 1) if os.getppid() != self.first else None
        for rank, child in enumerate(self.children, 1):
            if code := child.poll():
                if code == 130:
                    return "Interrupted", code
                end = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                return f"Process {rank + 1} of {len(self.children) + 1} {end}" * (code != 1), 1
        return None

    def end_children(self) -> None:
        for child in self.children:
            child.kill()
