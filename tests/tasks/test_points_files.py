"""Points by name come back from their file, which is whole or not there."""

import numpy as np
import pytest

from tasks.errors import UserError
from tasks.points_files import read_points, write_points

POINTS = np.array([[0.1, -0.2], [0.3, 0.4]], dtype=np.float32)


def test_back_and_forth(tmp_path):
    path = write_points(tmp_path / "new" / "p.npz", ("dog.n.01", "café au lait"), POINTS, "PoincareBall", 0.5)
    file = read_points(path, "task.embeddings")
    assert file.names == ("dog.n.01", "café au lait")
    assert file.manifold == "PoincareBall"
    assert file.c == 0.5
    np.testing.assert_array_equal(file.points, POINTS)
    again = read_points(write_points(tmp_path / "q.npz", file.names, POINTS, "PoincareBall", 0.5), "x")
    assert again.sha256 == file.sha256, "the same points give the same file"
    assert [f.name for f in (tmp_path / "new").iterdir()] == ["p.npz"], "nothing else is left"


def test_what_was_there_stays_when_writing_fails(tmp_path):
    path = write_points(tmp_path / "p.npz", ("a", "b"), POINTS, "PoincareBall", 1.0)
    with pytest.raises(AttributeError):
        write_points(path, ("a",), None, "PoincareBall", 1.0)
    assert read_points(path, "x").names == ("a", "b")
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("kind", ["missing", "text", "cut", "nan", "short"])
def test_faulty_files_are_named_with_the_setting(tmp_path, kind):
    path = tmp_path / "p.npz"
    if kind == "text":
        path.write_text("dog 0.1 0.2\n", encoding="utf-8")
    elif kind != "missing":
        points = POINTS * np.nan if kind == "nan" else POINTS[:1] if kind == "short" else POINTS
        write_points(path, ("a", "b"), points, "PoincareBall", 1.0)
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError) as error:
        read_points(path, "task.embeddings")
    assert str(path) in str(error.value)
    assert "task.embeddings" in str(error.value)
