"""What the tests of the HNN++ family share."""

import mpmath
import torch

F64 = torch.float64
CURVATURES = (0.3, 1.0, 2.5)
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def exact_scale(n: int, n_i: int) -> float:
    """``beta_n / beta_n_i`` with ``beta_n = B(n/2, 1/2)``, of a part with n_i coordinates in a whole with n."""
    return float(mpmath.beta(n / 2, 0.5) / mpmath.beta(n_i / 2, 0.5))
