"""Points by name on disk: what one task embeds and another reads."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.errors import UserError
from tasks.folders import whole_file

FORMAT = "named points 1"


@dataclass(frozen=True, eq=False)
class PointsFile:
    """names: of the N points. points: float64 (N, D), coordinates of the model `manifold` ("PoincareBall", "Lorentz",
    "Klein" or "Euclidean") of curvature -c (0 where it is flat). sha256: of the file."""

    names: tuple[str, ...]
    points: np.ndarray
    manifold: str
    c: float
    sha256: str


def write_points(path: Path, names: Sequence[str], points: np.ndarray, manifold: str, c: float) -> Path:
    """Write the points to an .npz file, whole or not at all; the same points give the same file."""
    with whole_file(path) as part, part.open("wb") as file:
        np.savez(
            file, format=np.array(FORMAT), names=np.array("\n".join(names)), points=points.astype(np.float64),
            manifold=np.array(manifold), c=np.array(float(c)),
        )  # fmt: skip
    return path


def read_points(path: Path, setting: str) -> PointsFile:
    """Points that `write_points` wrote. Raises UserError, which names `setting`, where the file is no such file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); see {setting}.") from None
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            if str(stored["format"]) != FORMAT:
                raise ValueError("it is of another format")
            names, points = tuple(str(stored["names"]).split("\n")), stored["points"]
            manifold, c = str(stored["manifold"]), float(stored["c"])
        if points.ndim != 2 or len(names) != len(points) or not np.isfinite(points).all():
            raise ValueError("its points are damaged")
    except Exception as error:  # NumPy and zipfile raise many kinds for a damaged file
        why = "it is no .npz file" if "pickle" in str(error) else str(error)[:200]  # NumPy's word for any other file
        raise UserError(f"{path} is no file of points ({why}); see {setting}.") from None
    return PointsFile(names, points, manifold, c, hashlib.sha256(data).hexdigest())
