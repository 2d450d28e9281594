"""Which process of a run does what only one of them does."""

import pytest

from tasks.processes import is_first, is_first_here

NAMES = ("LOCAL_RANK", "NODE_RANK", "RANK", "SLURM_PROCID", "SLURM_LOCALID")


@pytest.mark.parametrize(
    ("variables", "first", "here"),
    [
        ({}, True, True),
        ({"LOCAL_RANK": "1"}, False, False),
        ({"LOCAL_RANK": "0", "RANK": "2"}, False, True),  # torchrun, the second machine
        ({"SLURM_PROCID": "2", "SLURM_LOCALID": "0"}, False, True),
        ({"SLURM_PROCID": "3", "SLURM_LOCALID": "1"}, False, False),
    ],
)
def test_one_process_speaks_for_a_run_and_one_for_each_machine(monkeypatch, variables, first, here):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (is_first(), is_first_here()) == (first, here)
