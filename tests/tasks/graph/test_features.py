"""Features of nodes as a model gets them."""

import numpy as np
import pytest
import torch

from configs.build import make_data
from tasks.checkpoint_parts import Origin
from tasks.errors import UserError
from tasks.graph.features import scaled, standardized
from tasks.graph.folder import read_folder
from tasks.resume import differences
from tasks.settings import TESTED
from tasks.vocabularies import pack_values, unpack
from tests.configurations import checked


def features(tmp_path, *words):
    """Those of a graph of three nodes, of which one has zeros."""
    (tmp_path / "edges.tsv").write_text("0\t1\n1\t2\n0\t2\n")
    np.save(tmp_path / "features.npy", np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]]))
    data = make_data(checked("task=graph", f"data.dir={tmp_path}", f"paths.cache_dir={tmp_path}/cache", "task.data.shares={dev: 0.34, test: 0.34}", *words))
    return data.model_sizes["features"]


@pytest.mark.long
def test_features_of_own_graphs_get_a_mean_norm_of_one(tmp_path):
    as_given = "task.data.standardize=false"
    own = features(tmp_path, as_given)
    torch.testing.assert_close(own, torch.tensor([[1.5, 2.0], [0.0, 0.0], [0.0, 0.5]]))
    assert float(own.norm(dim=1).mean()) == pytest.approx(1)
    torch.testing.assert_close(features(tmp_path, as_given, "task.data.feature_norm=4"), 4 * own)
    torch.testing.assert_close(features(tmp_path, as_given, "task.data.feature_norm=null"), 2 * own)
    with pytest.raises(UserError, match="task.data.feature_norm"):
        features(tmp_path, "task.data.feature_norm=0")


def test_features_of_own_graphs_are_measured_in_their_deviations():
    """A column in another unit says the same, one of a single value nothing, and one of 0 and 1 stays."""
    column, binary = np.array([1.0, 2.0, 6.0]), np.array([0.0, 1.0, 0.0])
    x = scaled(np.stack([column, 1e6 * column + 3, np.full(3, 0.1), binary], 1), False, True, None)
    assert x[:, 0].mean() == pytest.approx(0, abs=1e-12)
    assert x[:, 0].std() == pytest.approx(1)
    assert x[:, 1] == pytest.approx(x[:, 0])
    assert x[:, 2:].tolist() == [[0, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize(("words", "own"), [(["graph", "data.dir=a"], True), (["graph_nc", "data.dir=a"], True), (["airport_lp"], False), (["cora_nc"], False)])
def test_features_of_own_graphs_alone_are_standardized(words, own):
    assert checked(f"task={words[0]}", *words[1:])["task"]["data"]["standardize"] == own


@pytest.mark.parametrize("standardize", [True, None])
def test_a_checkpoint_gives_its_features_without_the_files(tmp_path, standardize):
    """None: one from before the setting, whose features were not standardized."""
    data = {"standardize": standardize} if standardize else {}
    words = ("task.data.shares={dev: 0.34, test: 0.34}", f"paths.cache_dir={tmp_path}/cache")
    own = features(tmp_path, f"task.data.standardize={bool(standardize)}")
    config = checked("task=graph", f"data.dir={tmp_path}", *words)
    kept = unpack(pack_values(make_data(config).vocabulary()), "checkpoint")
    (tmp_path / "features.npy").unlink()
    node = {key: value for key, value in config["task"]["data"].items() if key != "standardize"} | data
    again = make_data({**config, "task": {**config["task"], "data": node}})
    again.adopt(kept)
    assert torch.equal(again.model_sizes["features"], own)


def test_a_checkpoint_from_before_feature_norms_is_not_tested_with_another():
    config = {"task": {"name": "graph", "data": {"feature_norm": 1.0}}}
    checkpoint = {"config": {"task": {"name": "graph", "data": {}}}, "data": {}}
    (difference,) = differences(checkpoint, Origin(config=config), TESTED)
    assert difference == "task.data.feature_norm=None, not 1.0"
    config["task"]["data"] |= {"feature_norm": None, "standardize": True}
    assert differences(checkpoint, Origin(config=config), TESTED) == ["task.data.standardize=False, not True"]
    config["task"]["data"]["standardize"] = False
    assert not differences(checkpoint, Origin(config=config), TESTED)


def test_what_differs_beside_a_large_number_keeps_its_digits(tmp_path):
    """Times in seconds since 1970, of which float32 knows every 128th."""
    (tmp_path / "edges.tsv").write_text("".join(f"{k}\t{k + 1}\n" for k in range(9)))
    (tmp_path / "features.tsv").write_text("".join(f"{k}\t{1_600_000_000 + k}\n" for k in range(10)))
    times = read_folder(tmp_path, "mine", False).features
    np.testing.assert_allclose(standardized(times)[:, 0], (np.arange(10) - 4.5) / np.arange(10).std(), rtol=1e-6)
    (tmp_path / "features.tsv").unlink()
    np.save(tmp_path / "features.npy", times)
    np.testing.assert_array_equal(read_folder(tmp_path, "mine", False).features, times)
