"""The δ-hyperbolicity of graphs beside the gain of the hyperbolic model: from the records and what was measured."""

import json
from dataclasses import replace

import pytest

from configs.cells import TableError
from configs.tables import PUBLISHED, load_layouts, make_layout
from scripts import cells as cells_of_tables
from scripts.gains import gain_lines
from scripts.hyperbolicity import FILE
from tasks.errors import UserError


@pytest.fixture
def layout():
    return next(layout for layout in load_layouts() if layout.file == "hybonet_table5_lp")


@pytest.fixture
def measured(tmp_path):
    facts = {"delta_max": 1.5, "delta_mean": 0.25, "diameter": 9}
    file = tmp_path / "hyperbolicity.json"
    file.write_text(json.dumps({"graphs": dict.fromkeys(("disease_lp", "disease_nc", "airport", "pubmed", "cora"), facts)}))
    return file


def test_the_line_has_delta_and_the_gains_of_the_paper_and_of_ours(layout, measured):
    runs = {("HyboNet", "Disease"): [0.9, 0.8], ("GCN", "Disease"): [0.6], ("HyboNet", "Cora"): [0.9]}
    cells = {place: [{"metrics": {"test/auc": v}} for v in values] for place, values in runs.items()}
    (line,) = gain_lines(layout, cells, measured)
    assert "beside HyboNet above GCN in points: Disease 1.5 (mean 0.25, diameter seen 9): paper +32.1, ours +25.0 (seeds: 2 and 1); " in line
    assert line.endswith("Cora 1.5 (mean 0.25, diameter seen 9): paper +3.2"), "one of the two has no run"


def test_a_table_without_graphs_has_no_line_and_an_unmeasured_graph_is_told(layout, measured):
    assert gain_lines(replace(layout, gain=None), {}, measured) == []
    measured.write_text('{"graphs": {}}')
    with pytest.raises(TableError, match="lacks the graph disease_lp of the column Disease of .*graph_statistics.py"):
        gain_lines(layout, {}, measured)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "There is no {}; make it: "),
        ("{", "{} is damaged or older (JSONDecodeError: "),
        ("[]", "{} is damaged or older (TypeError: "),
        ('{"a": 1}', "{} is damaged or older (KeyError: 'graphs'); delete it and make it again: "),
        ('{"graphs": {"cora": {"delta_max": 1, "diameter": 9}}}', "{} is damaged or older (ValueError: delta_mean of cora is None); "),
        ('{"graphs": {"cora": {"delta_max": "1"}}}', "{} is damaged or older (ValueError: delta_max of cora is '1'); "),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_command(layout, measured, text, said):
    measured.unlink() if text is None else measured.write_text(text)
    with pytest.raises(UserError) as error:
        gain_lines(layout, {}, measured)
    assert str(error.value).startswith(said.format(measured))
    assert str(error.value).endswith(f" python scripts/graph_statistics.py FOLDER... --output {measured}")


@pytest.mark.parametrize(
    ("change", "said"),
    [({"gain": ["HyboNet", "GCNN"]}, "gain: names rows that the table has not: GCNN"), ({"columns": {"A": {}}}, "A has none")],
)
def test_a_gain_that_does_not_fit_is_told(change, said):
    node = {
        "name": "x", "table": 1, "title": "x", "protocol": "x", "source": "x", "measure": "x", "metric": "test/auc",
        "columns": {"A": {"graph": "cora"}}, "rows": {"GCN": {"published": [0.5]}, "HyboNet": {"published": [0.6]}},
        "gain": ["HyboNet", "GCN"],
    }  # fmt: skip
    assert make_layout(PUBLISHED / "x.yaml", node, None).gain == ("HyboNet", "GCN")
    with pytest.raises(TableError, match=said):
        make_layout(PUBLISHED / "x.yaml", node | change, None)


def test_runs_on_part_of_the_data_are_not_counted(layout, monkeypatch):
    monkeypatch.setattr(cells_of_tables, "settings_line", lambda run: "")
    for lines in ("budget_lines", "edge_lines", "rising_lines"):
        monkeypatch.setattr(cells_of_tables, lines, lambda layout, cells: [])

    def runs(value: float, share: float) -> list[dict]:
        metrics = dict.fromkeys(layout.metrics.values(), value)
        return [{"metrics": metrics, "data": {"share": share, "sources": {}, "sha256": {}}, "seed": 0}]

    for share, has_gain in ((1.0, True), (0.5, False)):
        cells = {("HyboNet", "Disease"): runs(0.9, share), ("GCN", "Disease"): runs(0.6, 1.0)}
        (line,) = (line for line in cells_of_tables.notes(layout, cells) if line.startswith("δ-hyperbolicity"))
        assert ("ours +30.0 (seeds: 1 and 1)" in line) is has_gain


def test_every_graph_of_the_tables_was_measured_and_trees_have_none():
    graphs = json.loads(FILE.read_text())["graphs"]
    named = {spec["graph"] for layout in load_layouts() if layout.gain for spec in layout.columns.values()}
    assert named
    assert named <= graphs.keys()
    assert graphs["disease_lp"]["delta_max"] == graphs["disease_nc"]["delta_max"] == 0
    for facts in graphs.values():
        assert 0 <= facts["delta_mean"] <= facts["delta_max"] <= facts["diameter"] / 2


def test_a_loss_of_the_first_row_has_its_sign_in_the_paper_and_in_ours(measured):
    layout = next(layout for layout in load_layouts() if layout.file == "hybonet_table5_nc")
    cells = {(row, "Cora"): [{"metrics": {"test/f1": v}}] for row, v in (("HyboNet", 0.7), ("GCN", 0.8))}
    (line,) = gain_lines(layout, cells, measured)
    assert "Cora 1.5 (mean 0.25, diameter seen 9): paper -1.1, ours -10.0 (seeds: 1 and 1)" in line
