"""Commands that work on what runs leave behind; each is run as `python -m scripts.<name>`."""

import os
import signal
import sys


def end(*_: object) -> None:
    """Ctrl-C while a command still imports, which takes seconds: one line. `commands.reports_errors` takes over."""
    os.write(2, b"\nInterrupted.\n")
    os._exit(130)


if sys.argv[0] == "-m" or os.path.dirname(os.path.abspath(sys.argv[0])) == os.path.dirname(os.path.abspath(__file__)):
    signal.signal(signal.SIGINT, end)
