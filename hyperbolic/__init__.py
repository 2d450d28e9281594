"""Hyperbolic manifolds, layers, encoders and optimisers for PyTorch.

Import order, which is also the order to read in: ``switch``, ``fusion``, ``operator``, ``native``, ``rows`` ->
``numerics`` -> ``smooth`` -> ``manifolds`` -> ``kernels`` -> ``layers`` -> ``geometry`` -> ``encoders``; ``optim``
needs the kernels, ``diagnostics`` the manifolds.
"""

__version__ = "0.1.0"
