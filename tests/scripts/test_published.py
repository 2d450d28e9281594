"""The published values: the layouts agree with the experiments, and the committed tables with the records."""

from pathlib import Path

import pytest
import yaml

from scripts.layouts import load_layouts
from scripts.records import ROOT
from scripts.tables import main

EXPERIMENTS = sorted((ROOT / "configs" / "experiment").glob("*.yaml"))
LAYOUTS = {(layout.name, layout.table): layout for layout in load_layouts()}


def paper_node(path: Path) -> dict | None:
    return yaml.safe_load(path.read_text(encoding="utf-8")).get("paper")


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_experiment_quotes_the_table_it_belongs_to(path):
    paper = paper_node(path)
    if paper is None:
        assert not path.stem.startswith("hnn_"), f"{path.name} names a paper's experiment and has no paper node"
        return
    LAYOUTS[paper["name"], paper["table"]].check(paper, path.name)


def test_no_two_experiments_stand_for_one_cell():
    papers = [paper for path in EXPERIMENTS if (paper := paper_node(path))]
    cells = [(paper["name"], paper["table"], paper["row"], paper["column"]) for paper in papers]
    assert cells
    assert len(cells) == len(set(cells))


def test_every_prefix_cell_of_table_1_has_an_experiment():
    layout = LAYOUTS["hnn", 1]
    papers = [paper for path in EXPERIMENTS if (paper := paper_node(path))]
    covered = {(paper["row"], paper["column"]) for paper in papers if (paper["name"], paper["table"]) == ("hnn", 1)}
    prefix = {(row, column) for row in layout.rows for column in layout.columns if column.startswith("PREFIX")}
    assert len(prefix) == 18
    assert prefix <= covered


def test_the_committed_tables_are_what_the_records_give(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().out
