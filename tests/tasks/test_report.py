"""The table at the end of a run: a row for each score, a column for each group of examples."""

from tasks import report

RECORD = {
    "metrics": {
        "train/loss": 0.5, "val/loss": 0.4, "test/loss": 0.3, "test/macro_f1": 0.25, "test/coarse/macro_f1": 0.75,
        "test/fine/macro_f1": 0.125,
    },
    "selection": {"metric": "val/loss", "epoch": 3},
    "parameters": 1234,
    "examples_per_s": 99.6,
    "wall_s": 7.2,
}  # fmt: skip


def rows(capsys, record) -> list[list[str]]:
    report.show("a run", record)
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.strip("│┃ ").split("│")] for line in lines if line.startswith("│")]


def test_groups_stand_beside_all_examples(capsys):
    found = rows(capsys, RECORD)
    assert ["test/macro_f1", "0.2500", "0.7500", "0.1250"] in found
    assert [row[0] for row in found[:4]] == ["val/loss", "train/loss", "test/loss", "test/macro_f1"]
    assert ["best val/loss in epoch", "3", "", ""] in [row + [""] * (4 - len(row)) for row in found]


def test_a_published_number_stands_in_the_column_of_its_group(capsys):
    paper = {"metric": "test/fine/macro_f1", "published": 0.5, "row": "ours", "column": "fine"}
    found = rows(capsys, RECORD | {"paper": paper})
    place = [row[0] for row in found].index("test/macro_f1") + 1
    assert found[place] == ["published (ours, fine)", "", "", "0.5000"]


def test_a_run_that_fills_a_row_has_no_published_number_here(capsys):
    paper = {"metric": None, "published": None, "row": "ours", "column": None}
    assert not [row for row in rows(capsys, RECORD | {"paper": paper}) if "published" in row[0]]


def test_a_prediction_shows_how_many(capsys):
    record = RECORD | {"metrics": {}, "selection": {"metric": None}, "prediction": {"examples": 3}}
    found = rows(capsys, record)
    assert found[0] == ["examples", "3"]
    assert ["examples per second", "100"] in found
