"""An encoder of one's own that is not what its kind is: one message that names its class and what is missing."""

import pickle
import re

import pytest
import torch
from torch import nn

from configs import composing
from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.encoders.transformer import TransformerEncoder
from hyperbolic.geometry import make_geometry
from tasks.encoders import make_encoder
from tasks.errors import UserError

X, LENGTHS = torch.zeros(2, 3, 5, 3), torch.tensor([[5, 2, 1], [3, 3, 4]])  # points of size 2
X[..., 0] = 1
SIZES = {"d_in": 2, "d_hidden": 4, "streams": 2}


class Encoder(nn.Module):
    def __init__(self, geometry, d_in, d_hidden, streams):
        super().__init__()
        self.linear, self.d_out = geometry.linear(d_in, d_hidden), d_hidden

    def forward(self, x, lengths):
        states = self.linear(x)
        return self.results(states, states[..., 0, :])

    def results(self, states, last):
        return states, last


class Alone(Encoder):
    def results(self, states, last):
        return last


class Swapped(Encoder):
    def results(self, states, last):
        return last, states


class Nothing(Encoder):
    def results(self, states, last):
        return None


class OtherSize(Encoder):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.d_out += 1


class Sizeless(Encoder):
    def __init__(self, **sizes):
        super().__init__(**sizes)
        self.d_out = None


class OneStream(Encoder):
    def __init__(self, geometry, d_in, d_hidden):
        super().__init__(geometry, d_in, d_hidden, 1)


class Pairs(Encoder):
    kind = "pairs"

    def results(self, states, last):
        return states[0], last[0]


class Nodes(Encoder):
    kind = "graphs"

    def results(self, states, last):
        return states[0, 0], last[0, 0]


class Documents(Encoder):
    kind = "documents"

    def forward(self, x, lengths, sentences):
        return super().forward(x, lengths)[1][0], None


def build(kind, **settings):
    geometry = make_geometry("own", "Lorentz", "lorentz", c=1.0)
    return make_encoder(kind, geometry.manifold, geometry=geometry, **SIZES, **settings)


def test_one_that_is_right_is_looked_at_once():
    encoder, d_out = build(Encoder)
    assert d_out == 4
    assert len(encoder._forward_hooks) == 1
    torch.testing.assert_close(encoder(X, LENGTHS)[1], encoder.linear(X)[..., 0, :])
    assert not encoder._forward_hooks


def test_a_sequence_of_more_positions_than_the_encoder_has_is_named():
    settings = {"n_layers": 1, "n_heads": 1, "d_feed_forward": 4, "dropout": 0.0, "attention_dropout": 0.0, "norm": "pre"}
    encoder, _ = build(TransformerEncoder, n_positions=2, **settings)
    encoder = pickle.loads(pickle.dumps(encoder))
    with pytest.raises(UserError, match=r"encoder.n_positions=2: a sequence has 5 positions. Train with more"):
        encoder(X, LENGTHS)


@pytest.mark.parametrize("fidelity", ["paper", "code"])
@pytest.mark.parametrize("task", ["documents", "agnews", "arxiv", "yelp", "snli", "multinli", "nli"])
def test_a_transformer_has_as_many_positions_as_the_task_allows(task, fidelity):
    composing.register()
    cfg = composing.composed(f"task={task}", "encoder=transformer", f"fidelity={fidelity}")
    longest = (cfg.task.data.max_length + 2) * cfg.task.data.get("max_sentences", 1)  # with marks of both ends
    assert cfg.encoder.n_positions >= longest


def test_ours_are_not_looked_at():
    encoder, _ = build(RecurrentEncoder, cell="rnn", nonlinearity=None, bidirectional=False)
    assert not encoder._forward_hooks


@pytest.mark.parametrize(
    ("kind", "returned"),
    [
        (Alone, "a tensor (2, 3, 5)"), (Swapped, "(tensor (2, 3, 5), tensor (2, 3, 5, 5))"), (Nothing, "nothing"),
        (OtherSize, "(tensor (2, 3, 5, 5), tensor (2, 3, 5))"), (Pairs, "(tensor (3, 5, 5), tensor (3, 5))"),
        (Nodes, "(tensor (5, 5), tensor (5,))"),
    ],
)  # fmt: skip
def test_other_results_are_named_with_those_that_are_due(kind, returned):
    encoder, d_out = build(kind)
    with pytest.raises(UserError, match=rf"\.{kind.__name__} returned {re.escape(returned)} .*d_out={d_out} returns "):
        encoder(X, LENGTHS)


def test_documents_are_counted():
    encoder, _ = build(Documents)
    assert encoder(X, LENGTHS, torch.tensor([2, 1, 4]))[0].shape == (3, 5)
    encoder, _ = build(Documents)
    with pytest.raises(UserError, match=r"returns points \(B, 5\), and a Trace or None"):
        encoder(X, LENGTHS, torch.tensor([2, 1]))


def test_one_that_does_not_take_what_it_is_given_is_named():
    with pytest.raises(UserError, match=r"\.OneStream takes no streams: .* geometry, d_in, d_hidden, streams"):
        build(OneStream)


def test_one_that_does_not_say_the_size_of_its_states_is_named():
    with pytest.raises(UserError, match=r"\.Sizeless has no d_out: .*CONTRIBUTING"):
        build(Sizeless)
