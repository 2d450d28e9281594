"""The table at the end of a run: a row for each score, a column for each group of examples."""

from types import SimpleNamespace

import pytest

from tasks import report

RECORD = {
    "metrics": {
        "train/loss": 0.5, "val/loss": 0.4, "test/loss": 0.3, "test/macro_f1": 0.25, "test/coarse/macro_f1": 0.75,
        "test/fine/macro_f1": 0.125,
    },
    "selection": {"metric": "val/loss", "epoch": 3},
    "parameters": 1234,
    "diagnostics": {},
    "examples_per_s": 99.6,
    "wall_s": 7.2,
}  # fmt: skip


def rows(capsys, record, published=()) -> list[list[str]]:
    report.show("a run", record, published)
    lines = capsys.readouterr().out.splitlines()
    return [[cell.strip() for cell in line.strip("│┃ ").split("│")] for line in lines if line.startswith("│")]


def test_groups_stand_beside_all_examples(capsys):
    found = rows(capsys, RECORD)
    assert ["test/macro_f1", "0.2500", "0.7500", "0.1250"] in found
    assert [row[0] for row in found[:4]] == ["val/loss", "train/loss", "test/loss", "test/macro_f1"]
    assert ["best val/loss in epoch", "3", "", ""] in [row + [""] * (4 - len(row)) for row in found]


def test_learned_curvatures_stand_at_the_end(capsys):
    learned = {"diagnostics/entities/dist0_mean": 2.5, "diagnostics/model.manifold/c": 0.73254}
    assert ["model.manifold/c (learned, at the end)", "0.7325"] in [row[:2] for row in rows(capsys, RECORD | {"diagnostics": learned})]


def quoted(row: str, column: str, metric: str, value: float, label: str = "published") -> SimpleNamespace:
    return SimpleNamespace(row=row, column=column, metric=metric, value=value, label=label)


def test_published_values_stand_in_the_columns_of_their_groups_below_ours(capsys):
    values = [
        quoted("HY", "fine", "test/fine/macro_f1", 0.5), quoted("HY", "coarse", "test/coarse/macro_f1", 0.625),
        quoted("HY", "fine", "test/fine/macro_f1", 0.5), quoted("EU", "fine", "test/fine/macro_f1", 0.75, "paper, its own data"),
        quoted("HY", "dev", "val/macro_f1", 0.9),
    ]  # fmt: skip
    found = rows(capsys, RECORD, values)
    place = [row[0] for row in found].index("test/macro_f1")
    assert found[place + 1] == ["published (HY, fine, coarse)", "", "0.6250", "0.5000"]
    assert found[place + 2] == ["paper, its own data (EU, fine)", "", "", "0.7500"]
    assert "0.9000" not in str(found), "ours has no such metric"


def test_a_prediction_shows_how_many(capsys):
    record = RECORD | {"metrics": {}, "selection": {"metric": None}, "prediction": {"examples": 3}}
    found = rows(capsys, record)
    assert found[0] == ["examples", "3"]
    assert ["examples per second", "100"] in found


def test_the_record_is_there_before_anything_is_printed(tmp_path, monkeypatch):
    """As where `| head` has closed the output; the files of the task stand beside it."""

    def closed(*_):
        raise BrokenPipeError

    def export(folder):
        (folder / "relations.csv").write_text("relation\n")
        return {"relations": folder / "relations.csv"}

    monkeypatch.setattr(report, "show", closed)
    task = SimpleNamespace(export=export, write_test=lambda folder: {}, select="val/loss")
    record = RECORD | {"config": {"mode": "fit"}, "seed": 0}
    with pytest.raises(BrokenPipeError):
        report.conclude(task, SimpleNamespace(history=[], prediction=None), record, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["record.json", "relations.csv"]
