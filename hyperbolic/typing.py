"""The letters that shapes are written with, everywhere in docstrings and comments, and a type.

=====  =====================================================================
letter meaning
=====  =====================================================================
B      batch
T      positions of a sequence
S      streams: independent recurrent cells run side by side (two sentences,
       or the two directions of a bidirectional layer)
N      points that are combined into one (centroid, attention)
K      classes
D      coordinates of a point: ``manifold.ambient_dim(d)``
d      intrinsic dimension, the size that configurations name
H      hidden intrinsic dimension of a recurrent cell
...    any leading batch axes; they broadcast
=====  =====================================================================

``c`` is always positive for curved spaces and the sectional curvature is ``-c``; the Euclidean space is ``c = 0``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

Context = Any  # of both passes of a Function, which may put on it what they like
Results = TypeVar("Results")

if TYPE_CHECKING:

    class Function(torch.autograd.Function, Generic[Results]):
        """``torch.autograd.Function`` with the type of its results, which PyTorch leaves open: ``Function[Tensor]``."""

        @classmethod
        def apply(cls, *arguments: Any) -> Results: ...

else:

    class Function:
        def __class_getitem__(cls, results: object) -> type:
            return torch.autograd.Function
