"""How closely numbers have to agree: one table, a row for each dtype.

Use as `torch.testing.assert_close(actual, expected, **tolerance(dtype, "formula"))`.
"""

import torch

# kind of comparison -> (relative, absolute)
#   formula   one function against its exact value at the same input bits (mpmath)
#   gradient  the gradient of one function against its exact value
#   identity  two ways of computing one thing: an axiom, a round trip, a kernel against its reference
#   model     a whole network, or several optimiser steps, computed in two ways
#   limit     c near 0 against the Euclidean case
TOLERANCES: dict[torch.dtype, dict[str, tuple[float, float]]] = {
    torch.float32: {
        "formula": (1e-6, 1e-30),
        "gradient": (1e-5, 1e-30),
        "identity": (1e-4, 1e-6),
        "model": (1e-3, 1e-5),
        "limit": (1e-3, 1e-5),
    },
    torch.float64: {
        "formula": (1e-13, 1e-290),
        "gradient": (1e-5, 1e-290),
        "identity": (1e-9, 1e-12),
        "model": (1e-7, 1e-10),
        "limit": (1e-6, 1e-9),
    },
}


def tolerance(dtype: torch.dtype, kind: str) -> dict[str, float]:
    """The `rtol` and `atol` for values of `dtype` compared as `kind`, a key of the table above."""
    relative, absolute = TOLERANCES[dtype][kind]
    return {"rtol": relative, "atol": absolute}
