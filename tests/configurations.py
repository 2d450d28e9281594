"""The configurations of the project, as they are composed."""

import functools

from configs import checks, composing
from tests.cli import ROOT

CONFIGS = ROOT / "configs"
GROUPS = ("task", "geometry", "encoder", "optim", "trainer", "logger", "experiment")
OPTIONS = [(group, file.stem) for group in GROUPS for file in sorted((CONFIGS / group).glob("*.yaml"))]
TOYS = [name for group, name in OPTIONS if group == "task" and name.endswith("_toy")]
EXPERIMENTS = [name for group, name in OPTIONS if group == "experiment"]


def checked(*words: str) -> dict:
    composing.register()
    return checks.check(composing.composed(*words))


@functools.cache
def experiment(name: str) -> dict:
    """The configuration of an experiment, composed once for all tests; they only read it."""
    return checked(f"experiment={name}")
