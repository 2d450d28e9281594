"""The result of a run."""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Outcome:
    """The result of a run: metrics, how the state was selected, and what it cost."""

    metrics: dict[str, float]
    selection: dict[str, Any] | None
    diagnostics: dict[str, float]
    history: list[dict[str, float]]
    share: float
    wall_s: float
    examples_per_s: float | None
    device: torch.device
    processes: int
    is_main: bool
    test_s: float | None = None  # seconds of the test alone
    prediction: dict[str, Any] | None = None  # what mode=predict read and wrote
