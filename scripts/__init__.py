"""Commands that work on what runs leave behind; each is run as `python -m scripts.<name>`."""

import os
import signal
import sys


def end(*_: object) -> None:
    """Ctrl-C while a command still imports, which takes seconds: one line. `commands.reports_errors` takes over."""
    os.write(2, b"\nInterrupted.\n")
    os._exit(130)


_is_program = os.path.dirname(os.path.abspath(sys.argv[0])) == os.path.dirname(os.path.abspath(__file__))
if (sys.argv[0] == "-m" or _is_program) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end)
