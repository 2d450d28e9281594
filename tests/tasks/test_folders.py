"""Files appear whole or not at all."""

import os

import pytest

from tasks.folders import whole_file


def test_a_failed_write_leaves_the_old_file_and_no_part(tmp_path, monkeypatch):
    target = tmp_path / "record.json"
    target.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"), whole_file(target) as part:
        part.write_text("new")
    assert os.listdir(tmp_path) == ["record.json"]
    assert target.read_text() == "old"
