"""Ctrl-C and SIGTERM: a training ends where it can go on exactly, in all its processes; all else ends at once."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytorch_lightning as pl
import torch

SIGNALS = (signal.SIGINT, signal.SIGTERM)
EVERY = 10  # steps after which several processes on GPUs ask one another: each time they wait for their devices
REPEAT_S = 1.0  # a second Ctrl-C within this time is the first one, which a launcher handed on


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended a run; the message says how to go on."""


class Stop(BaseException):
    """All processes of a training end here. Upon a KeyboardInterrupt, Lightning would kill the others."""


class Interruption:
    """Whether a training was interrupted, which it asks at the end of a step.

    The signals may come to one process of several or to all. A second Ctrl-C does not wait; a second SIGTERM, as
    schedulers send it, is no more than the first.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self._steps = 0  # since the processes asked

    def catch(self) -> None:
        """From now on signals are noted."""
        _handle(self._note)

    def release(self) -> None:
        """From now on they end the run at once, as one does that came too late to be asked for."""
        _handle(signal.default_int_handler)
        if self.since is not None:
            raise Stop

    def _note(self, number: int, _: Any) -> None:
        now = time.monotonic()
        if number == signal.SIGINT and self.since is not None and now - self.since > REPEAT_S:
            raise KeyboardInterrupt
        self.since = self.since or now

    def agreed_after_step(self, trainer: pl.Trainer) -> bool:
        """As `agreed`, at most `EVERY` steps late."""
        self._steps += 1
        if trainer.world_size > 1 and trainer.strategy.root_device.type != "cpu" and self._steps < EVERY:
            return False
        return self.agreed(trainer)

    def agreed(self, trainer: pl.Trainer) -> bool:
        """Whether a process of the run was interrupted; the same answer in all of them, which ask together."""
        if trainer.world_size == 1:
            return self.since is not None
        self._steps = 0
        interrupted = torch.tensor(self.since is not None, dtype=torch.int32, device=trainer.strategy.root_device)
        torch.distributed.all_reduce(interrupted, op=torch.distributed.ReduceOp.MAX)
        return bool(interrupted)


@contextlib.contextmanager
def ends_with_a_message(message: Callable[[], str]) -> Iterator[None]:
    """Raise Interrupted with the message on Ctrl-C or SIGTERM, of which Lightning makes exits of the program, or a
    RuntimeError where it ends a loop that has hardly begun."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    _handle(signal.default_int_handler)
    try:
        yield
    except (SystemExit, KeyboardInterrupt, Stop) as end:
        raise Interrupted(message()) from end
    except RuntimeError as error:
        if _followed_an_interrupt(error):
            raise Interrupted(message()) from error
        raise
    finally:
        for number, handler in before.items():
            _handle(handler, number)


def _followed_an_interrupt(error: BaseException) -> bool:
    """Whether it was raised while a KeyboardInterrupt was handled."""
    before = error.__context__
    return before is not None and (isinstance(before, KeyboardInterrupt) or _followed_an_interrupt(before))


@contextlib.contextmanager
def postponed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end of the block, which is short, and raise KeyboardInterrupt there; a second
    Ctrl-C does not wait."""
    before, interruption = {number: signal.getsignal(number) for number in SIGNALS}, Interruption()
    interruption.catch()
    try:
        yield
    finally:
        for number, handler in before.items():
            _handle(handler, number)
    if interruption.since is not None:
        raise KeyboardInterrupt


def _handle(handler: Any, *numbers: signal.Signals) -> None:
    # Python allows it in no other thread, and knows no handler that was not its own
    if threading.current_thread() is threading.main_thread() and handler is not None:
        for number in numbers or SIGNALS:
            signal.signal(number, handler)
