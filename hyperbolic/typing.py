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
