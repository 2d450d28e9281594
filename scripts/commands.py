"""What the commands in this folder share: how they describe themselves, and how they end at an error."""

import argparse
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from configs import own
from tasks.errors import UserError, called


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """A parser that shows the description in its own lines."""
    kind = argparse.RawDescriptionHelpFormatter
    command = os.environ.get("HYPERBOLIC_COMMAND")
    if command:
        name = f"{command} {name.removeprefix('python scripts/').removesuffix('.py').replace('_', '-')}"
    return argparse.ArgumentParser(prog=name, description=called(description or ""), formatter_class=kind)


def reports_errors(command: Callable[..., int]) -> Callable[..., int]:
    """The command with an exit code of 1, and the message on standard error, where the user can mend what is wrong."""

    @functools.wraps(command)
    def run(*arguments: Any, **keywords: Any) -> int:
        try:
            own.choose(())  # a run may have been trained with the user's own configurations
            return command(*arguments, **keywords)
        except (UserError, OSError) as error:
            print(called(f"error: {error}"), file=sys.stderr)
            return 1

    return run
