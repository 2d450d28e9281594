"""Mixed precision trains what is Euclidean throughout, and says why it does not train the rest."""

import pytest
import torch

from configs.build import build
from tasks.errors import UserError
from tests.cli import QUIET, call, places
from tests.configurations import checked

MIXED = "trainer.precision=bf16-mixed"
TOY = ("task=translation_toy", "task.data.toy.sizes={train: 64, dev: 8, test: 8}", "trainer.accelerator=cpu")


@pytest.mark.long
def test_a_euclidean_translation_is_trained_in_bfloat16(tmp_path):
    types = set()

    def watch(module, inputs, output):
        if type(module).__name__ == "Linear":
            types.add((output.dtype, next(module.parameters()).dtype))

    handle = torch.nn.modules.module.register_module_forward_hook(watch)
    try:
        result = call(*TOY, "geometry=euclidean", MIXED, "trainer.max_steps=4", *QUIET, *places(tmp_path))
    finally:
        handle.remove()
    assert result.code == 0, result.err
    assert (torch.bfloat16, torch.float32) in types, "products in bfloat16, of parameters that stay as they are"
    assert result.record["config"]["trainer"]["precision"] == "bf16-mixed"
    checkpoint = f"checkpoint={result.record_path.parent}"
    again = call(checkpoint, "mode=test", "trainer.accelerator=cpu", *QUIET, *places(tmp_path))
    assert again.record["metrics"]["test/loss"] == result.record["metrics"]["test/loss"]


def test_candidates_are_ranked_in_float32(tmp_path):
    """Where scores are rounded to bfloat16, candidates tie."""
    words = ("task=kg_completion_toy", "encoder=distmult", "geometry=euclidean", "trainer.accelerator=cpu")
    types = set()

    def watch(module, inputs, output):
        if isinstance(output, torch.Tensor) and not torch.is_grad_enabled():
            types.add(output.dtype)

    handle = torch.nn.modules.module.register_module_forward_hook(watch)
    try:
        result = call(*words, MIXED, "trainer.max_epochs=1", *QUIET, *places(tmp_path))
    finally:
        handle.remove()
    assert result.code == 0, result.err
    assert torch.float32 in types
    assert torch.bfloat16 not in types


@pytest.mark.parametrize("geometry", ["lorentz", "hatt"])
def test_other_geometries_are_refused(tmp_path, geometry):
    with pytest.raises(UserError, match=rf"trainer\.precision=bf16-mixed is for models.*geometry={geometry}"):
        build(checked(*TOY, f"geometry={geometry}", MIXED, *places(tmp_path)))


def test_a_component_of_another_geometry_is_refused(tmp_path):
    with pytest.raises(UserError, match="this one has geometry=hatt"):
        build(checked(*TOY, "geometry=euclidean", "geometry.parts.decoder=hatt", MIXED, *places(tmp_path)))


def test_a_precision_that_there_is_not(tmp_path):
    with pytest.raises(UserError, match=r"trainer\.precision must be one of 32-true, 64-true, .*bf16-mixed"):
        build(checked(*TOY, "trainer.precision=16-mixed", *places(tmp_path)))
