"""The LSTM encoder is torch's, whatever stands behind the end."""

import pytest
import torch

from hyperbolic.encoders.lstm import LSTMEncoder
from hyperbolic.geometry import make_geometry
from tests.tolerances import tolerance

FLAT = make_geometry("euclidean", "Euclidean", "euclidean")
LENGTHS = torch.tensor([3, 5, 1])


def encoder(bidirectional: bool = False, pool: str = "last", streams: int = 1) -> LSTMEncoder:
    torch.manual_seed(0)
    return LSTMEncoder(FLAT, 4, 3, bidirectional, pool, streams).double()


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("pool", ["last", "mean"])
def test_it_is_torchs_on_each_sequence(bidirectional, pool):
    lstm, x = encoder(bidirectional, pool), torch.randn(3, 5, 4, dtype=torch.float64)
    states, last = lstm(x, LENGTHS)
    assert states.shape == (3, 5, lstm.d_out)
    for k, n in enumerate(LENGTHS.tolist()):
        expected, (end, _) = lstm.layers[0](x[k : k + 1, :n])
        torch.testing.assert_close(states[k, :n], expected[0], **tolerance(torch.float64, "model"))
        assert not states[k, n:].any()
        pooled = expected[0].mean(0) if pool == "mean" else end[:, 0].flatten()
        torch.testing.assert_close(last[k], pooled, **tolerance(torch.float64, "model"))


def test_streams_are_independent_and_lengths_may_be_left_out():
    lstm, x = encoder(streams=2), torch.randn(2, 3, 5, 4, dtype=torch.float64)
    states, last = lstm(x)
    same, end = lstm(x, torch.full((2, 3), 5))
    assert torch.equal(states, same)
    assert torch.equal(last, end)
    torch.testing.assert_close(states[1], lstm.layers[1](x[1])[0], **tolerance(torch.float64, "model"))


def test_what_cannot_be_is_named():
    with pytest.raises(ValueError, match="LSTM is defined on Euclidean, not with geometry=ball; choose geometry=euclidean or hatt"):
        LSTMEncoder(make_geometry("ball", "PoincareBall", "mobius", c=1.0), 4, 3, False, "last", 1)
    with pytest.raises(ValueError, match=r"encoder\.pool: unknown value 'max'; available: last, mean"):
        encoder(pool="max")
    with pytest.raises(ValueError, match="this encoder has 1 streams"):
        encoder()(torch.randn(2, 3, 5, 4, dtype=torch.float64), torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"lengths must lie in 1\.\.5"):
        encoder()(torch.randn(3, 5, 4, dtype=torch.float64), torch.tensor([0, 1, 2]))
