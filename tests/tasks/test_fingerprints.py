"""The names of the folders of a cache."""

from pathlib import Path

import pytest

from tasks.fingerprints import cache_place


@pytest.mark.parametrize("name", ["/tmp/elsewhere", "../../elsewhere", "..", ".", "", "a/../b", "a\0b", "*[x]", "é" * 300, 7])
def test_a_folder_of_the_cache_lies_in_the_cache(tmp_path, name):
    """Its name may come from a checkpoint, as task.data.release.name does."""
    place = cache_place(tmp_path / "cache", name, {"a": 1})
    place.mkdir(parents=True)
    assert place.resolve().parent == tmp_path / "cache"


def test_other_settings_have_another_folder():
    a, b = (cache_place(Path("cache"), "glove.6B.50d", {"a": k}) for k in range(2))
    assert a != b
    assert a.name.startswith("glove.6B.50d-")
