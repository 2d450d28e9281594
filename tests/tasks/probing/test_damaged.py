"""Damaged checkpoints of a probe, and of the model that is probed: used, or refused in one short paragraph."""

import shutil

import pytest
import torch

from tests.cli import QUIET, call, places
from tests.mutations import mutated
from tests.test_fuzz_checkpoints import CHECKPOINTS, told_in_one_paragraph, with_another_value


@pytest.mark.slow
@pytest.mark.parametrize("level", ["bytes", "fields"])
def test_a_damaged_probe_or_probed_model_is_used_or_refused_in_one_paragraph(tmp_path, treebank, level):
    where = (*QUIET, *places(tmp_path))
    small = ("task.data.toy.sizes={train: 20, dev: 5, test: 5}", "trainer.max_steps=1", "geometry=lorentz")
    translation = call("task=translation_toy", *small, *where)
    assert translation.code == 0, translation.err
    words = ("task=probing", f"task.data.folder={treebank}", "task.states=lorentz", "trainer.max_steps=2", *where)
    probe = call(*words, f"probe.checkpoint={translation.record_path.parent}")
    assert probe.code == 0, probe.err
    for seed in range(CHECKPOINTS):
        run = tmp_path / "damaged" / str(seed)
        of_probe, resumes = seed % 2 == 1, seed % 4 == 3
        shutil.copytree((probe if of_probe else translation).record_path.parent / "checkpoints", run / "checkpoints")
        file = run / "checkpoints" / ("last.ckpt" if resumes else "best.ckpt")
        if level == "bytes":
            file.write_bytes(mutated(file.read_bytes(), seed))
        else:
            torch.save(with_another_value(torch.load(file), seed), file)
        if resumes:
            result = call(f"trainer.resume={run}", "trainer.max_steps=3", *where)
        elif of_probe:
            result = call("mode=test", f"checkpoint={run}", *where)
        else:
            result = call(*words, f"probe.checkpoint={run}")
        told_in_one_paragraph(result, run)
