"""What the commands in this folder share: how they describe themselves, and how they end at an error."""

import argparse
import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import scripts
from configs import own
from tasks.errors import UserError, called, ends_with_its_reader

HELP = {"--help", "-h"}


def parser(name: str, description: str | None, makes_models: bool = False) -> argparse.ArgumentParser:
    """A parser that shows the description in its own lines; of a command of `makes_models`, --config-dir, too."""
    kind = argparse.RawDescriptionHelpFormatter
    command = os.environ.get("HYPERBOLIC_COMMAND")
    if command:
        name = f"{command} {name.removeprefix('python scripts/').removesuffix('.py').replace('_', '-')}"
    made = argparse.ArgumentParser(
        prog=name, description=called(description or ""), formatter_class=kind, allow_abbrev=False
    )
    if makes_models:  # `reports_errors` has taken it from the words
        about = "your own configurations, of which a run was made; else ./configs"
        made.add_argument("--config-dir", metavar="FOLDER", help=about)
    return made


def reports_errors(command: Callable[..., int], looks: bool = False) -> Callable[..., int]:
    """The command with an exit code of 1, and the message on standard error, where the user can mend what is wrong,
    and with one of 130 upon Ctrl-C; see also `ends_with_its_reader`.

    It takes `--config-dir FOLDER`, as run.py does; with `looks`, also ./configs.
    """

    @functools.wraps(command)
    def run(arguments: Sequence[str] | None = None, *rest: Any, **keywords: Any) -> int:
        if signal.getsignal(signal.SIGINT) is scripts.end:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            words = sys.argv[1:] if arguments is None else arguments
            words = own.choose(words, looks and HELP.isdisjoint(words))
            with ends_with_its_reader():
                return command(words, *rest, **keywords)
        except (UserError, OSError) as error:
            print(called(f"error: {error}"), file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nInterrupted.", file=sys.stderr)
            return 130

    return run


makes_models = functools.partial(reports_errors, looks=True)  # perhaps of the user's own configurations
