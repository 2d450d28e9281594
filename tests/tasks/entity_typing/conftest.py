"""A batch for the networks of entity typing."""

import pytest
import torch

from tests.tasks.entity_typing.networks import N_CHARACTERS, N_WORDS


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    lengths = {"mention": [4, 1, 2, 3], "characters": [7, 1, 3, 5], "context": [8, 1, 5, 6]}
    rows = {"mention": N_WORDS, "characters": N_CHARACTERS, "context": N_WORDS}
    inputs = {}
    for name, true in lengths.items():
        length = torch.tensor(true)
        inside = torch.arange(max(true)) < length.unsqueeze(-1)
        inputs[name] = torch.where(inside, torch.randint(1, rows[name], inside.shape), 0)
        inputs[f"{name}_length"] = length
        if name == "context":
            inputs["positions"] = torch.where(inside, torch.randint(1, 52, inside.shape), 0)
    return {**inputs, "targets": torch.tensor([[0, 5], [3, -1], [8, 1], [2, 4]])}
