"""Which cells a record fills is found out within a run, beside its own Hydra, and never makes a run fail."""

import json

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from configs import composing, files, matching, tables
from tasks.settings import flat
from tests.cli import ROOT


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    composing.register()


@pytest.fixture
def record() -> dict:
    path = next((ROOT / "results" / "runs").glob("hyfi_crowd_base_hyp-seed0-*.json"))
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_cells_that_a_record_fills_have_published_values(record):
    values = {(one.table, one.column): one for one in matching.published(record)}
    one = values["hyfi_table5_crowd", "fine Ma"]
    assert (one.row, one.metric, one.value, one.label) == ("HY BASE", "test/fine/macro_f1", 0.42, "paper, its own data")
    assert len(values) == 12 + 6 + 6 + 4
    record["config"]["optim"]["lr"] = 0.5
    assert matching.published(record) == []


@pytest.mark.long
def test_a_training_that_fills_no_cell_says_what_differs_and_a_trial_of_a_search_does_not(record, capsys):
    assert matching.published(record)
    assert not capsys.readouterr().err
    record["config"]["optim"]["lr"] = 0.123
    assert matching.published(record) == []
    err = capsys.readouterr().err
    assert err.startswith("note: no published value stands below, as this run fits no cell of a table. The nearest is ")
    assert "optim.lr=0.123, not " in err
    record["metrics"] = {name: value for name, value in record["metrics"].items() if not name.startswith("test/")}
    assert matching.published(record) == []
    assert not capsys.readouterr().err


@pytest.mark.long
def test_settings_of_other_encoders_than_the_runs_do_not_count():
    path = next((ROOT / "results" / "runs").glob("hybonet_graph_hybonet-task=cora_nc-seed0-*.json"))
    record = json.loads(path.read_text(encoding="utf-8"))
    record["config"]["task"]["others"]["dropout"] = 0.9
    assert [(one.row, one.column) for one in matching.published(record)] == [("HyboNet", "Cora")]
    record["config"]["encoder"]["dropout"] = 0.3
    assert matching.published(record) == []


def test_a_setting_of_another_name_in_old_records_counts_as_todays():
    data = {"_target_": "tasks.graph.data.LinkData"}
    old, new = ({"task": {"data": data | more}} for more in ({"leak": True}, {"known_in_training": ["train"]}))
    assert matching.decisive(old) == matching.decisive(new) != matching.decisive({"task": {"data": data | {"leak": False}}})


def test_euclidean_records_without_an_activation_are_of_another_network():
    """Hyperbolic ones have none now, as before."""
    for geometry, same in (("euclidean", False), ("poincare", True)):
        cell = flat(OmegaConf.to_container(composing.composed("task=prefix10", f"geometry={geometry}"), resolve=True))
        cell = {key: value for key, value in cell.items() if key.startswith("task.model.")}
        record = {key: value for key, value in cell.items() if key != "task.model.activation"}
        assert (matching.differences(record, cell) == []) is same


@pytest.mark.long
def test_a_run_keeps_its_own_hydra(record):
    matching._compose.cache_clear()
    matching._settings.cache_clear()
    with initialize_config_dir(str(files.FOLDER), job_name="outer", version_base="1.3"):
        outer = GlobalHydra.instance().hydra
        assert matching.published(record)
        with pytest.raises(Exception, match="nothing"):
            composing.composed("task=nothing")
        assert GlobalHydra.instance().hydra is outer
        assert compose("config", overrides=["seed=3"]).seed == 3
    assert not GlobalHydra.instance().is_initialized()


def test_a_faulty_table_is_a_note_and_no_error(record, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tables, "PUBLISHED", tmp_path)
    assert matching.published(record) == []
    assert "note: no published values are shown: " in capsys.readouterr().err
    monkeypatch.setattr(tables, "PUBLISHED", tmp_path / "nowhere")
    assert matching.published(record) == []
    assert capsys.readouterr().err == ""


def test_words_are_told_apart_by_whether_they_choose_a_file():
    words = ("task=prefix30", "task.dim=5", "+task/data=crowd", "optim.lr=1e-3", "geometry.parts.classifier=euclidean")
    files, settings = composing.split(words)
    assert files == ["task=prefix30", "+task/data=crowd"]
    assert settings == {"task.dim": 5, "optim.lr": 0.001, "geometry.parts.classifier": "euclidean"}


def test_settings_that_are_changed_after_composing_are_those_of_the_command_line():
    cfg = composing.composed("experiment=hnn_subtree")
    settings = {"task.dim": 5, "task.root": "worker.n.01", "geometry.parts.classifier": "euclidean", "optim.lr": 0.5}
    direct = composing.composed("experiment=hnn_subtree", *(f"{key}={value}" for key, value in settings.items()))
    assert composing.changed(cfg, settings) == composing.changed(direct, {}) != composing.changed(cfg, {})
