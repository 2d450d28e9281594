"""A checkpoint alone: each task predicts without its data what it predicts with them, and reads none."""

import gzip
import json
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch

from configs.build import restore
from tasks import exported, prediction, resume, vocabularies
from tests.cli import QUIET, Result, call, places
from tests.configurations import TOYS

STEP = ("trainer.max_steps=1", "trainer.max_epochs=1", "trainer.limit_val_batches=1", "trainer.limit_test_batches=1")
# Lines that each toy task can read; more words of its run.
INPUTS = {
    "document_classification_toy": 'The wind rises near the door. A lamp waits.\n{"text": "An unseen word", "id": 7}\n',
    "entity_typing_toy": 'word1 [person_a1] word2 unseen\n{"left": "", "mention": "Thing_b0", "id": [1]}\n',
    "graph_nc_toy": "0.1\n0.2.1\n",
    "graph_toy": "0\t0.1\n0.1\t0.2\n",
    "kg_completion_toy": "",
    "nli_toy": 'A man sleeps.\tA man is awake.\n{"premise": "a dog runs", "hypothesis": "a cat", "id": 3}\n',
    "poincare_embeddings_toy": "0.1\n0.1.2\t0.1\n",
    "poincare_glove_toy": "a0\na0\tcommon1\n",
    "prefix_toy": "1 2 3\t1 2\n4\t5\n",
    "probing_toy": "r.0 r r.0.1 r.end\n",
    "translation_toy": "",
    "wordnet_subtree_toy": "0.1.1\n0.2\n",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, tuple[Path, Result]]:
    """The folder and the result of a run of one step of each toy task, made when it is first asked for."""
    return {}


def trained(runs: dict, task: str, tmp_path_factory) -> tuple[Path, Result]:
    if task not in runs:
        folder = tmp_path_factory.mktemp(task)
        runs[task] = folder, call(f"task={task}", *STEP, *QUIET, *places(folder))
        assert runs[task][1].code == 0, runs[task][1].err
    return runs[task]


def test_every_toy_has_inputs():
    assert sorted(INPUTS) == TOYS


@pytest.mark.parametrize("task", TOYS)
def test_a_checkpoint_alone_predicts_what_it_predicts_with_its_data(task, runs, tmp_path, tmp_path_factory):
    folder, result = trained(runs, task, tmp_path_factory)
    source = tmp_path / "input.txt"
    first = call("mode=test", f"checkpoint={result.record_path.parent}", *places(folder), f"output={folder}/test.jsonl")
    assert first.code == 0, first.err
    print((folder / "test.jsonl").read_text()[:1500], INPUTS[task])
