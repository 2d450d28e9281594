"""`make tables` and `make check-tables`: what each cell says, and that a table which drifted is caught."""

import statistics

import mpmath
import pytest

from scripts.cells import T_QUANTILES

LAYOUT = """
name: hnn
table: 1
title: The table
source: The paper
measure: test accuracy in %
metric: test/accuracy
best_of_three: true
protocol: Best of three.
columns: [SNLI, PREFIX-10]
rows:
  fully Euclidean GRU: [0.8152, 0.9596]
  fully hyperbolic GRU: [0.8119, 0.9714]
"""


@pytest.fixture(autouse=True)
def layout(tmp_path, write_record):
    write_record(tmp_path / "published/hnn_table1.yaml", LAYOUT)


@pytest.fixture
def keep(tmp_path, make_record, write_record):
    """A function that puts records of one seed after the other into results/runs, one for each set of changes."""

    def write(*changes: dict) -> None:
        for seed, change in enumerate(changes):
            changes = {"seed": seed, "config.task.data.seed": seed, **change}
            write_record(tmp_path / f"runs/{seed}.json", make_record(changes))

    return write


@pytest.fixture
def table(tmp_path):
    """A function that reads the table as {row: [cell, ...]}, each cell a list of lines."""

    def read() -> dict[str, list[list[str]]]:
        lines = (tmp_path / "tables/hnn.md").read_text().splitlines()
        rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| fully")]
        return {name: [cell.split("<br>") for cell in cells] for name, *cells in rows}

    return read


def accuracies(*pairs: tuple[float, float]) -> list[dict]:
    return [{"metrics.test/accuracy": test, "metrics.val/accuracy": val} for test, val in pairs]


def test_without_runs_every_cell_says_so(tables, table):
    assert tables() == 0
    assert table() == {
        "fully Euclidean GRU": [["published 81.52", "not run"], ["published 95.96", "not run"]],
        "fully hyperbolic GRU": [["published 81.19", "not run"], ["published 97.14", "not run"]],
    }


def test_one_run_has_no_deviation_and_no_choice_among_runs(tables, table, keep):
    keep(*accuracies((0.96, 0.95)))
    assert tables() == 0
    cell = table()["fully hyperbolic GRU"][1]
    assert cell == ["published 97.14", "**ours 96.00** (1 seed)", "difference -1.14"]
    assert table()["fully Euclidean GRU"][1] == ["published 95.96", "not run"]


def test_mean_and_sample_standard_deviation(tables, table, keep):
    keep(*accuracies((0.96, 0.95), (0.98, 0.94)))
    assert tables() == 0
    # mean 97, deviations -1 and 1, variance 2 / (2 - 1)
    assert table()["fully hyperbolic GRU"][1][1:] == ["**ours 97.00 ± 1.41** (2 seeds)", "difference -0.14"]


INTERVALS = """
spread: confidence
intervals:
  fully hyperbolic GRU: [null, 0.0061]
contests:
  - [fully Euclidean GRU, fully hyperbolic GRU]
"""


def test_confidence_intervals_and_how_often_a_row_is_the_highest(tmp_path, tables, table, keep, make_record, write_record):
    write_record(tmp_path / "published/hnn_table1.yaml", LAYOUT + INTERVALS)
    keep(*accuracies((0.96, 0.95), (0.98, 0.94), (0.97, 0.94)))
    assert tables() == 0
    # deviation 1, Student's t for 2 degrees of freedom 4.303: 4.303 / sqrt(3)
    published, ours, *_ = table()["fully hyperbolic GRU"][1]
    assert published == "published 97.14 ± 0.61"
    assert ours == "**ours 97.00 ± 2.48** (3 seeds)"
    assert table()["fully hyperbolic GRU"][0] == ["published 81.19", "not run"]
    text = (tmp_path / "tables/hnn.md").read_text()
    assert "- Ours: mean ± half the width of the 95 % confidence interval of the mean (Student's t) over the seeds" in text
    often = "- How often each of fully Euclidean GRU, fully hyperbolic GRU is the highest: in the paper "
    told = f"{often}fully Euclidean GRU 1, fully hyperbolic GRU 1 of 2"
    assert told + "\n" in text, "ours has not both rows of any column"
    paper = {**make_record()["paper"], "row": "fully Euclidean GRU", "published": 0.9596}
    other = {"paper": paper, "experiment": "hnn_prefix10_gru_eucl", "metrics.test/accuracy": 0.5}
    write_record(tmp_path / "runs/other.json", make_record(other))
    assert tables() == 0
    assert f"{told}; in ours fully hyperbolic GRU 1 of 1\n" in (tmp_path / "tables/hnn.md").read_text()
    write_record(tmp_path / "runs/other.json", make_record({**other, "metrics.test/accuracy": statistics.fmean([0.96, 0.98, 0.97])}))
    assert tables() == 0
    assert f"{told}; in ours none alone 1 of 1\n" in (tmp_path / "tables/hnn.md").read_text()


def test_quantiles_are_those_of_students_distribution():
    for degrees, quantile in enumerate(T_QUANTILES, start=1):
        # P(|T| > t) = I_x(n/2, 1/2) with x = n / (n + t^2)
        x = degrees / (degrees + quantile**2)
        assert float(mpmath.betainc(degrees / 2, 0.5, 0, x, regularized=True)) == pytest.approx(0.05, abs=3e-5)


def test_the_best_of_three_is_chosen_by_validation_and_not_by_test(tables, table, keep):
    keep(*accuracies((0.99, 0.90), (0.975, 0.97), (0.98, 0.96), (0.95, 0.99)))  # the fourth seed is not among 3
    assert tables() == 0
    assert table()["fully hyperbolic GRU"][1][3] == "best validation of 3: 97.50 (+0.36)"


def test_partial_data_is_named(tables, table, keep):
    keep({"data.share": 0.04})
    assert tables() == 0
    assert table()["fully hyperbolic GRU"][1][-1] == "partial: 4 % of the data"


def test_the_notes_are_read_from_the_records(tmp_path, tables, keep, capsys):
    biases = {"rule": "sgd", "lr": 0.1, "max_grad_norm": None}
    keep({"config.optim.biases": biases}, {"config.optim.biases": biases})
    assert tables() == 0
    note = (
        "- Ours, 10 epochs, batches of 512, float32, adam with learning rate 0.01, biases: rule sgd lr 0.1, "
        "gradient norm at most 1.0 (global), tested at the best val/accuracy, fidelity paper: "
        "PREFIX-10 fully hyperbolic GRU (seeds 0, 1)"
    )
    assert note in (tmp_path / "tables/hnn.md").read_text()
    printed = capsys.readouterr().out
    assert "ours 96.00" in printed
    assert "not run" in printed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"config.optim.lr": 0.1}, "differ in optim"),
        ({"config.task.data.batch_size": 64}, "differ in task"),
        ({"config.trainer.max_epochs": 30}, "differ in trainer.max_epochs"),
        ({"data.share": 0.5}, "differ in data.share"),
        ({"experiment": "other"}, "differ in experiment"),
        ({"seed": 0}, "are both hnn_prefix10_gru_hyp with seed 0"),
        ({"seed": 0, "commit": "f" * 40}, "are both hnn_prefix10_gru_hyp with seed 0"),
        ({"paper.row": "hyperbolic GRU"}, "has no cell 'hyperbolic GRU', 'PREFIX-10'"),
        ({"paper.published": 0.9}, "Correct the one that misquotes the paper"),
        ({"paper.table": 7}, "no layout in results/published/ is hnn, table 7"),
        ({"metrics.test/accuracy": None}, "not a finite number"),
    ],
)
def test_records_that_do_not_belong_together_are_an_error(tmp_path, tables, keep, capsys, changes, words):
    keep({}, changes)
    assert tables() == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "tables").exists()


def test_best_of_three_needs_the_validation_value(tables, make_record, write_record, tmp_path, capsys):
    for seed in range(3):
        write_record(tmp_path / f"runs/{seed}.json", make_record({"seed": seed}, without="metrics.val/accuracy"))
    assert tables() == 1
    assert "No metric val/accuracy" in capsys.readouterr().err


def test_check_passes_on_what_was_just_made(tables, keep, capsys):
    keep({})
    assert tables() == 0
    assert tables("--check") == 0
    assert "agree" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "old", "new", "diff"),
    [
        ("tables/hnn.md", "ours 96.00", "ours 97.00", "**ours 97.00**"),
        ("runs/0.json", "0.96", "0.97", "**ours 97.00**"),
        ("published/hnn_table1.yaml", "0.8119", "0.8219", "published 82.19"),
    ],
)
def test_check_fails_with_a_diff_and_writes_nothing(tmp_path, tables, keep, capsys, file, old, new, diff):
    keep({})
    assert tables() == 0
    path = tmp_path / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    before = (tmp_path / "tables/hnn.md").read_text()
    capsys.readouterr()
    assert tables("--check") == 1
    printed = capsys.readouterr().out
    assert printed.startswith("--- tables/hnn.md")
    assert diff in printed
    assert (tmp_path / "tables/hnn.md").read_text() == before


def test_check_fails_on_a_missing_table_and_on_one_too_many(tmp_path, tables):
    assert tables("--check") == 1
    assert tables() == 0
    (tmp_path / "tables/old.md").write_text("| by hand |\n")
    assert tables("--check") == 1


def test_no_layout_is_an_error(tmp_path, tables, capsys):
    (tmp_path / "published/hnn_table1.yaml").unlink()
    assert tables() == 1
    assert "no table to make" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("spread: error", "spread must be deviation or confidence, and it is 'error'"),
        ("intervals: {fully Euclidean GRU: [0.1]}", "not one value for each of the 2 columns in: fully Euclidean GRU"),
        ("intervals: {LSTM: [0.1, 0.2]}", "intervals of rows that the table has not: LSTM"),
        ("intervals: {fully Euclidean GRU: [1.5, 0.2]}", "not so: fully Euclidean GRU, SNLI: 1.5"),
        ("contests: [[fully Euclidean GRU, LSTM]]", "names rows that the table has not: LSTM"),
    ],
)
def test_faulty_intervals_and_contests_are_named(tmp_path, tables, write_record, capsys, more, words):
    write_record(tmp_path / "published/hnn_table1.yaml", LAYOUT + more + "\n")
    assert tables() == 1
    assert words in capsys.readouterr().err


def test_a_row_with_too_few_values_is_named(tmp_path, tables, write_record, capsys):
    write_record(tmp_path / "published/hnn_table1.yaml", LAYOUT.replace("[0.8152, 0.9596]", "[0.8152]"))
    assert tables() == 1
    assert "fully Euclidean GRU" in capsys.readouterr().err


def test_a_cell_of_a_table_of_cells_needs_its_column(tables, keep, capsys):
    keep({"paper.column": None, "paper.metric": None, "paper.published": None})
    assert tables() == 1
    assert "a run is one cell of The table" in capsys.readouterr().err
