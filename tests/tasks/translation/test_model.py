"""The network of a translation: padding, causality, steps, parts of other geometries, and what it refuses."""

import pytest
import torch
from torch import nn

from configs import composing
from configs.build import build
from tasks.errors import UserError
from tasks.text import PAD
from tasks.translation.data import BOS
from tests.configurations import checked
from tests.tolerances import tolerance

composing.register()
CURVED = ["lorentz", "poincare_pp", "lorentz_tangent"]


def model(*words: str) -> nn.Module:
    """That of the toy in float64, in evaluation."""
    torch.set_default_dtype(torch.float64)
    try:
        task, _ = build(checked("task=translation_toy", "task.data.toy.sizes={train: 20, dev: 5, test: 5}", *words))
    finally:
        torch.set_default_dtype(torch.float32)
    return task.model.double().eval()


def inputs(n_source: int = 12, n_target: int = 12) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sources of 5 and 3 pieces, their lengths, and targets of 4."""
    source, target = torch.randint(4, n_source, (2, 5)), torch.randint(4, n_target, (2, 4))
    source[1, 3:], target[:, 0] = PAD, BOS
    return source, torch.tensor([5, 3]), target


@pytest.mark.parametrize("geometry", ["euclidean", "hatt", *CURVED])
def test_padding_changes_nothing_and_nothing_is_seen_before_it_is_there(geometry):
    network = model(f"geometry={geometry}")
    source, lengths, target = inputs()
    with torch.no_grad():
        logits = network(source, lengths, target)
        alone = network(source[1:, :3], lengths[1:], target[1:])
        wider = network(nn.functional.pad(source, (0, 2), value=PAD), lengths, nn.functional.pad(target, (0, 1)))
        other = target.clone()
        other[:, 2] = 4 + (other[:, 2] - 3) % 8
        later = network(source, lengths, other)
    close = tolerance(torch.float64, "identity")
    torch.testing.assert_close(alone[0], logits[1], **close)
    torch.testing.assert_close(wider[:, :4], logits, **close)
    torch.testing.assert_close(later[:, :2], logits[:, :2], **close)
    assert ((later[:, 2:] - logits[:, 2:]).abs().amax(-1) > 1e-6).all(), "what is there is seen"
    assert ((network(source.roll(1, 0), lengths.roll(1), target) - logits).abs().amax((-1, -2)) > 1e-6).all()


@pytest.mark.parametrize("geometry", ["euclidean", "lorentz"])
def test_steps_with_a_state_give_the_logits_of_the_whole(geometry):
    network = model(f"geometry={geometry}")
    source, lengths, target = inputs()
    with torch.no_grad():
        memory, state = network.encode(source, lengths), network.start()
        steps = [network.decode(target[:, t : t + 1], memory, lengths, state) for t in range(4)]
        torch.testing.assert_close(
            torch.cat(steps, 1), network(source, lengths, target), **tolerance(torch.float64, "identity")
        )


@pytest.mark.parametrize("part", ["encoder", "decoder", "classifier"])
def test_each_component_may_have_another_geometry(part):
    network = model("geometry=lorentz", f"geometry.parts.{part}=euclidean")
    assert network(*inputs()).isfinite().all()
    kinds = {
        name: getattr(network, name).manifold.name for name in ("source_embedding", "target_embedding", "classifier")
    }
    flat = {"encoder": "source_embedding", "decoder": "target_embedding", "classifier": "classifier"}[part]
    assert {name for name, kind in kinds.items() if kind == "Euclidean"} == {flat}


@pytest.mark.long
def test_the_released_program_starts_its_output_at_the_embedding():
    words = ("geometry=lorentz", "fidelity=code")
    network = model(*words)
    assert torch.equal(network.classifier.points, network.target_embedding.weight)
    assert network.classifier.points is not network.target_embedding.weight
    assert network.classifier.log_alpha is None
    layer = network.encoder.stacks[0].layers[0]
    assert layer.merge.affine.residual_in_time
    assert layer.attention.query.drop.p == 0.1
    assert layer.attention.log_temperature is not None
    paper = model("geometry=lorentz")
    assert not torch.equal(paper.classifier.points, paper.target_embedding.weight)
    attention = paper.encoder.stacks[0].layers[0].attention
    assert attention.log_temperature is None, "Eq. 5 has the root of the size, fixed"
    assert float(attention.temperature) == pytest.approx((attention.query.d_out) ** 0.5)
    assert model("geometry=euclidean", "fidelity=code")(*inputs()).isfinite().all()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("encoder.n_positions=15",), "encoder.n_positions=15 must be more than task.data.max_length=15"),
        (("geometry.parts.words=euclidean",), "no component 'words'; its components are encoder, decoder, classifier"),
        (("task.model.d=0",), "task.model.d must be a whole number of at least 1"),
        (("geometry=poincare",), "the layer family mobius has no MultiHeadAttention; geometries that have it: "),
    ],
)
def test_what_does_not_fit_is_told(words, said):
    with pytest.raises(UserError) as caught:
        model(*words)
    assert said in str(caught.value)


def test_sizes_are_those_of_the_paper():
    for size, d, heads in ((64, 64, 4), (128, 128, 8), (256, 256, 8), ("base", 512, 8)):
        values = checked("task=multi30k", f"task.size={size}")
        encoder = values["encoder"]
        assert (values["task"]["model"]["d"], encoder["n_heads"], encoder["n_layers"]) == (d, heads, 6)
        assert encoder["d_feed_forward"] == 4 * d
        assert (values["optim"]["d_model"], values["optim"]["schedule"]) == (d, "noam")
