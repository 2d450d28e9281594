"""A trained model as a folder: what is written comes back, and what was altered is noticed."""

import hashlib
import json
import os
import stat
import sys
from unittest import mock

import pytest
import torch

from hyperbolic.geometry import MANIFOLDS
from hyperbolic.manifolds import Euclidean, Lorentz
from tasks import exported
from tasks.base import NamedPoints
from tasks.errors import UserError

WEIGHTS = {"a.weight": torch.arange(6.0).view(2, 3).T, "steps": torch.tensor(3), "same": torch.arange(6.0)[:2]}
CHECKPOINT = {
    "state_dict": WEIGHTS,
    "config": {"seed": 1},
    "data": {"words": "2"},
    "metrics": {"val/loss": 0.1},
    "file": "x",
}


class Scaled(Euclidean):
    def __init__(self, ratio: float = 1.0):
        super().__init__()
        self.ratio = ratio


@pytest.fixture
def points() -> dict[str, NamedPoints]:
    sheet = Lorentz(c=0.3)
    x = sheet.random(2, 3, generator=torch.Generator().manual_seed(0))
    return {
        "words": NamedPoints(["ä b", "c"], sheet, x),
        "classes": NamedPoints(["yes"], Euclidean(), torch.ones(1, 2)),
    }


@pytest.fixture
def folder(points, tmp_path):
    return exported.write(tmp_path / "model", CHECKPOINT, points, "# A card\n")


def test_a_manifold_of_ones_own_keeps_its_settings(tmp_path):
    """And the checkpoint can be read without it, as by a command that imports its module later."""
    with mock.patch.dict(MANIFOLDS, {"Scaled": Scaled}):
        points = {"words": NamedPoints(["a"], Scaled(ratio=3.0), torch.tensor([[1.0, 2.0]], dtype=torch.float64))}
        config = {"geometry": {"manifold": "Scaled", "settings": {"ratio": 3.0}}}
        folder = exported.write(tmp_path / "model", CHECKPOINT | {"config": config}, points, "")
        assert exported.load(folder).points["words"].manifold.ratio == 3.0
    assert exported.load_checkpoint(folder)["config"] == config
    with pytest.raises(UserError, match="or their manifold, '?Scaled'?, is one of your own: import its module first"):
        exported.load(folder)


def test_what_is_written_comes_back(folder, points):
    model = exported.load(folder)
    assert model.checkpoint["config"] == {"seed": 1}
    assert model.checkpoint["data"] == {"words": "2"}
    assert model.checkpoint["state_dict"].keys() == WEIGHTS.keys()
    assert all(torch.equal(value, WEIGHTS[name]) for name, value in model.checkpoint["state_dict"].items())
    for kind, own in points.items():
        names, manifold, x = model.points[kind]
        assert list(names) == list(own.names)
        assert type(manifold) is type(own.manifold)
        assert float(manifold.c) == float(own.manifold.c)
        torch.testing.assert_close(x, own.x.double(), rtol=1e-6, atol=1e-6)


def test_the_folder_is_readable_as_the_umask_says(folder):
    mask = os.umask(0)
    os.umask(mask)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes == {0o666 & ~mask}
    assert sorted(file.name for file in folder.iterdir()) == sorted([*exported.FILES, exported.SUMS])


@pytest.mark.parametrize("name", exported.FILES)
def test_an_altered_file_is_noticed(folder, name):
    file = folder / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(UserError, match=f"{name} was altered: its contents do not have the checksum"):
        exported.load(folder)


@pytest.mark.parametrize("name", exported.FILES)
def test_a_missing_file_is_noticed(folder, name):
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"is not whole: it lacks {name}"):
        exported.load(folder)


def test_a_file_that_no_checksum_names_is_not_believed(folder):
    sums = folder / exported.SUMS
    sums.write_text("".join(line for line in sums.read_text().splitlines(keepends=True) if "weights" not in line))
    with pytest.raises(UserError, match=r"lacks weights.safetensors, or SHA256SUMS does"):
        exported.load(folder)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("config.json", lambda text: "[]"),
        ("config.json", lambda text: text.replace('"Lorentz"', '"os.system"')),
        ("config.json", lambda text: text.replace("0.3", "0.7")),
        ("config.json", lambda text: text.replace('{\n  "seed": 1\n }', "[1]")),
        ("config.json", lambda text: text.replace('"val/loss": 0.1', '"val/loss": "0.1"')),
        ("config.json", lambda text: text.replace('"name": null', '"name": 5')),
        ("names.json", lambda text: json.dumps({"words": ["one"], "classes": ["yes"]})),
        ("names.json", lambda text: json.dumps({"words": ["one", 2], "classes": ["yes"]})),
        ("names.json", lambda text: json.dumps({"words": "ab", "classes": ["yes"]})),
        ("weights.safetensors", lambda text: "no tensors"),
    ],
)
def test_what_no_export_writes_is_refused_though_its_checksum_is_right(folder, name, change):
    file = folder / name
    text = change(old_text := file.read_text(errors="ignore"))
    assert text != old_text
    sums = folder / exported.SUMS
    old, new = hashlib.sha256(file.read_bytes()).hexdigest(), hashlib.sha256(text.encode()).hexdigest()
    file.write_text(text)
    sums.write_text(sums.read_text().replace(old, new))
    with pytest.raises(UserError, match="is not what an export writes"):
        exported.load(folder)


def test_a_folder_that_is_there_is_not_replaced(folder, points):
    with pytest.raises(UserError, match="is there already; name a new folder"):
        exported.write(folder, CHECKPOINT, points, "")
    assert (folder / exported.CARD).read_text() == "# A card\n"


def test_another_folder_is_no_export(tmp_path):
    with pytest.raises(UserError, match="is no exported model: it has no readable SHA256SUMS"):
        exported.load(tmp_path)


def test_without_safetensors_the_error_names_what_adds_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(UserError, match=r"need safetensors; pip install '.\[train\]' adds it"):
        exported.load(folder)


@pytest.mark.parametrize("missing", exported.VOCABULARY)
@pytest.mark.parametrize("where", ["sums", "folder"])
def test_half_of_a_vocabulary_is_not_whole(points, tmp_path, missing, where):
    vocabulary = {"format": 1, "text": "{}", "tensors": {"0": torch.ones(2)}}
    folder = exported.write(tmp_path / "model", {**CHECKPOINT, "vocabulary": vocabulary}, points, "# A card\n")
    assert exported.load(folder).checkpoint["vocabulary"].keys() == vocabulary.keys()
    if where == "folder":
        (folder / missing).unlink()
    else:
        sums = (folder / exported.SUMS).read_text().splitlines(keepends=True)
        (folder / exported.SUMS).write_text("".join(line for line in sums if missing not in line))
    with pytest.raises(UserError, match=f"is not whole: it lacks {missing}"):
        exported.load(folder)
