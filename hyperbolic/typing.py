"""The letters that shapes are written with, everywhere in docstrings and comments.

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

from typing import TypeAlias

from torch import Tensor

Points: TypeAlias = Tensor  # (..., D) coordinates on the last axis
Tangents: TypeAlias = Tensor  # (..., D) tangent vectors at given points
Vectors: TypeAlias = Tensor  # (..., d) tangent vectors at the origin, intrinsic coordinates
Curvature: TypeAlias = float | Tensor  # c > 0, broadcastable to (..., 1)
