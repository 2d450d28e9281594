"""Features of nodes as a model gets them."""

import numpy as np
import pytest
import torch

from configs.build import make_data
from tasks.checkpoint_parts import Origin
from tasks.errors import UserError
from tasks.resume import differences
from tasks.settings import TESTED
from tests.configurations import checked


def features(tmp_path, *words):
    """Those of a graph of three nodes, of which one has zeros."""
    (tmp_path / "edges.tsv").write_text("0\t1\n1\t2\n0\t2\n")
    np.save(tmp_path / "features.npy", np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0]]))
    data = make_data(checked("task=graph", f"data.dir={tmp_path}", f"paths.cache_dir={tmp_path}/cache", "task.data.shares={dev: 0.34, test: 0.34}", *words))
    return data.model_sizes["features"]


def test_features_of_own_graphs_get_a_mean_norm_of_one(tmp_path):
    own = features(tmp_path)
    torch.testing.assert_close(own, torch.tensor([[1.5, 2.0], [0.0, 0.0], [0.0, 0.5]]))
    assert float(own.norm(dim=1).mean()) == pytest.approx(1)
    torch.testing.assert_close(features(tmp_path, "task.data.feature_norm=4"), 4 * own)
    torch.testing.assert_close(features(tmp_path, "task.data.feature_norm=null"), 2 * own)
    with pytest.raises(UserError, match="task.data.feature_norm"):
        features(tmp_path, "task.data.feature_norm=0")


def test_a_checkpoint_from_before_feature_norms_is_not_tested_with_another():
    config = {"task": {"name": "graph", "data": {"feature_norm": 1.0}}}
    checkpoint = {"config": {"task": {"name": "graph", "data": {}}}, "data": {}}
    (difference,) = differences(checkpoint, Origin(config=config), TESTED)
    assert difference == "task.data.feature_norm=None, not 1.0"
    config["task"]["data"]["feature_norm"] = None
    assert not differences(checkpoint, Origin(config=config), TESTED)
