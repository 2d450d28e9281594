"""The states of random generators that a checkpoint keeps."""

import numpy as np
import pytest
import torch

from tasks.random_state import random_state, set_random_state

CPU = torch.device("cpu")


def test_numbers_are_drawn_on_from_a_state():
    state = random_state(CPU)
    drawn = np.random.rand(), torch.rand(()).item()
    set_random_state(state, CPU)
    assert (np.random.rand(), torch.rand(()).item()) == drawn


@pytest.mark.parametrize("position", [-5, 625, 2**31 - 1])
def test_a_position_outside_of_numpys_state_is_refused(position):
    """NumPy takes it, and reads there at the next draw."""
    state = random_state(CPU)
    with pytest.raises(ValueError, match="NumPy"):
        set_random_state(state | {"numpy": [*state["numpy"][:2], position, *state["numpy"][3:]]}, CPU)
