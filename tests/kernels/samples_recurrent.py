"""Small arguments of the operators of :mod:`hyperbolic.kernels.recurrent`, for the tests that every operator passes."""

import torch

from tests.kernels.test_recurrent_native import arguments


def _samples(kind):
    """One direction; both directions with padding; a nonlinearity; points that may be clipped."""
    both, ended = {"cells": 2, "ended": True}, {"ended": True}
    for options, phi, margin in (({}, 0, 0.0), (both, 0, 0.0), (ended, 1, 0.0), (ended, 0, 1e-5)):
        torch.manual_seed(0)
        (x, *rest), lengths = arguments(kind, 2, steps=2, d_in=2, hidden=2, **options)
        yield x, lengths, *rest, phi, *([margin] if kind == "rnn" else [])


SAMPLES = {f"mobius_{kind}": lambda kind=kind: list(_samples(kind)) for kind in ("rnn", "gru")}
