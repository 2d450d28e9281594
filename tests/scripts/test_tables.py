"""`make tables` and `make check-tables`: what each cell says, and that a table which drifted is caught."""

import statistics

import mpmath
import pytest

from scripts.cells import best_of_three
from scripts.orderings import quantile

LAYOUT = """
name: hnn
table: 1
title: The table
source: The paper
measure: test accuracy in %
metric: test/accuracy
best_of_three: true
protocol: Best of three.
columns: {SNLI: {data: snli}, PREFIX-10: {data: prefix10}}
rows:
  fully Euclidean GRU: {experiment: "hnn_{data}_gru_eucl", published: [0.8152, 0.9596]}
  fully hyperbolic GRU: {experiment: "hnn_{data}_gru_hyp", published: [0.8119, 0.9714]}
"""
EUCLIDEAN = {"experiment": "hnn_prefix10_gru_eucl", "config.geometry": {"name": "euclidean"}, "config.optim.lr": 0.02}
EUCLIDEAN |= {"config.task.model.activation": "relu"}


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


def test_confidence_intervals_and_how_often_a_row_is_the_highest(
    tmp_path, tables, table, keep, make_record, write_record
):
    write_record(tmp_path / "published/hnn_table1.yaml", LAYOUT + INTERVALS)
    keep(*accuracies((0.96, 0.95), (0.98, 0.94), (0.97, 0.94)))
    assert tables() == 0
    # deviation 1, Student's t for 2 degrees of freedom 4.303: 4.303 / sqrt(3)
    published, ours, *_ = table()["fully hyperbolic GRU"][1]
    assert published == "published 97.14 ± 0.61"
    assert ours == "**ours 97.00 ± 2.48** (3 seeds)"
    assert table()["fully hyperbolic GRU"][0] == ["published 81.19", "not run"]
    text = (tmp_path / "tables/hnn.md").read_text()
    assert (
        "- Ours: mean ± half the width of the 95 % confidence interval of the mean (Student's t) over the seeds" in text
    )
    often = "- How often each of fully Euclidean GRU, fully hyperbolic GRU is the highest: in the paper "
    line = f"{often}fully Euclidean GRU 1, fully hyperbolic GRU 1 of 2"
    assert line + "\n" in text, "ours has not both rows of any column"
    other = {**EUCLIDEAN, "metrics.test/accuracy": 0.5}
    write_record(tmp_path / "runs/other.json", make_record(other))
    assert tables() == 0
    assert f"{line}; in ours fully hyperbolic GRU 1 of 1\n" in (tmp_path / "tables/hnn.md").read_text()
    write_record(
        tmp_path / "runs/other.json",
        make_record({**other, "metrics.test/accuracy": statistics.fmean([0.96, 0.98, 0.97])}),
    )
    assert tables() == 0
    assert f"{line}; in ours none alone 1 of 1\n" in (tmp_path / "tables/hnn.md").read_text()


def test_quantiles_are_those_of_students_distribution():
    for degrees in (1, 2, 9, 10, 19, 200):
        # P(|T| > t) = I_x(n/2, 1/2) with x = n / (n + t^2)
        x = degrees / (degrees + quantile(degrees + 1) ** 2)
        assert float(mpmath.betainc(degrees / 2, 0.5, 0, x, regularized=True)) == pytest.approx(0.05, abs=1e-9)


def test_the_best_of_three_is_chosen_by_validation_and_not_by_test(tables, table, keep):
    keep(*accuracies((0.99, 0.90), (0.975, 0.97), (0.98, 0.96), (0.95, 0.99)))  # the fourth seed is not among 3
    assert tables() == 0
    assert table()["fully hyperbolic GRU"][1][3] == "best validation of 3: 97.50 (+0.36)"


def test_the_three_have_the_lowest_seeds_in_whatever_order_the_runs_come():
    values = {3: 0.9, 0: 0.5, 1: 0.7, 2: 0.6}
    runs = [{"experiment": "e", "seed": seed, "metrics": {"val/accuracy": value}} for seed, value in values.items()]
    assert best_of_three(runs, "test/accuracy")["seed"] == 1


def test_partial_data_is_named(tables, table, keep):
    keep({"data.share": 0.04})
    assert tables() == 0
    assert table()["fully hyperbolic GRU"][1][-1] == "partial: 4 % of the data"


@pytest.mark.parametrize(
    ("share", "line"), [(0.3204, "partial: 32 % of the paper's training data"), (0.95, "difference -1.14")]
)
def test_a_part_of_the_papers_data_is_partial(tables, table, keep, share, line):
    """5 % of them may be kept to select the state."""
    keep({"data.paper": {"documents": 120_000, "share": share}})
    assert tables() == 0
    assert table()["fully hyperbolic GRU"][1][-1] == line


def test_a_test_set_that_selects_is_named(tmp_path, tables, keep):
    keep({"data.selection": "test"})
    assert tables() == 0
    assert (
        "tested at the best val/accuracy, the test set selects, fidelity paper"
        in (tmp_path / "tables/hnn.md").read_text()
    )


def test_the_notes_are_read_from_the_records(tmp_path, tables, write_record, keep, capsys):
    own = "overrides: [optim.biases.rule=sgd, optim.biases.lr=0.1, optim.weight_decay=0.5]\n"
    write_record(tmp_path / "published/hnn_table1.yaml", LAYOUT + own)
    biases = {"rule": "sgd", "lr": 0.1, "max_grad_norm": None}
    keep(*(2 * [{"config.optim.biases": biases, "config.optim.weight_decay": 0.5}]))
    assert tables() == 0
    note = (
        "- Ours, 10 epochs, batches of 512, float32, adam with learning rate 0.01, biases: rule sgd lr 0.1, "
        "weight decay 0.5, gradient norm at most 1.0 (global), tested at the best val/accuracy, fidelity paper: "
        "PREFIX-10 fully hyperbolic GRU (seeds 0, 1)"
    )
    assert note in (tmp_path / "tables/hnn.md").read_text()
    printed = capsys.readouterr().out
    assert "ours 96.00" in printed
    assert "not run" in printed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"config.optim.lr": 0.1},
            "'fully hyperbolic GRU, PREFIX-10' of hnn_table1; the run has optim.lr=0.1, not 0.01",
        ),
        ({"config.task.data.batch_size": 64}, "; the run has task.data.batch_size=64, not 512"),
        ({"config.trainer.max_epochs": 30}, "; the run has trainer.max_epochs=30, not 10"),
        ({"config.geometry.parts": {"ffnn": "euclidean"}}, "; the run has geometry.parts={'ffnn': 'euclidean'}, not {}"),
        ({"data.share": 0.5}, "differ in data.share"),
        ({"data.files": {"train": "another"}}, "differ in data.files"),
        ({"seed": 0}, "both fill 'fully hyperbolic GRU, PREFIX-10' of The table with seed 0"),
        ({"seed": 0, "experiment": "renamed"}, "both fill 'fully hyperbolic GRU, PREFIX-10' of The table with seed 0"),
        ({"metrics": {"test/f1": 0.9}}, "needs test/accuracy, and the record has no such metric"),
        ({"metrics.test/accuracy": None}, "not a finite number"),
    ],
)
def test_records_that_do_not_fit_or_do_not_belong_together_are_an_error(tmp_path, tables, keep, capsys, changes, words):
    keep({}, changes)
    assert tables() == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "tables").exists()


def test_a_record_of_an_experiment_that_is_gone_counts_by_its_settings_or_is_named(tables, table, keep, capsys):
    keep(*accuracies((0.96, 0.95)), {"experiment": "renamed", "metrics.test/accuracy": 0.98})
    assert tables() == 0
    assert table()["fully hyperbolic GRU"][1][1] == "**ours 97.00 ± 1.41** (2 seeds)"
    capsys.readouterr()
    same_task = {"config.task.name": "prefix10", "config.optim.lr": 0.5}
    keep({}, {"experiment": "renamed", **same_task}, {"experiment": "hnn_subtree"}, {"experiment": None})
    assert tables() == 0
    assert table()["fully hyperbolic GRU"][1][1] == "**ours 96.00** (1 seed)"
    assert "runs/1.json fits no cell of a table. The nearest is 'fully hyperbolic GRU, PREFIX-10'" in (
        err := capsys.readouterr().err
    )
    assert "the run has optim.lr=0.5, not 0.01" in err
    assert "2.json" not in err, "no table here has its experiment"


def test_what_does_not_decide_results_may_differ(tables, table, keep):
    moved = {"config.task.data._target_": "elsewhere.PrefixData", "config.task.data.root": "/my/data/prefix"}
    later = {
        "config.encoder": None,
        "config.trainer.threads": 8,
        "config.task.data.gone": 1,
        "paper": {"row": "no row"},
    }
    keep({}, moved, {**later, "config.task.data.generator_seed": 0})
    assert tables() == 0
    assert table()["fully hyperbolic GRU"][1][1].endswith("(3 seeds)")


def test_a_record_that_two_rows_match_is_an_error_that_names_both(tmp_path, tables, write_record, keep, capsys):
    twin = '  the twin: {experiment: "hnn_{data}_gru_hyp", overrides: [seed=3], published: [0.1, 0.2]}\n'
    write_record(tmp_path / "published/hnn_table1.yaml", LAYOUT + twin)
    keep({})
    assert tables() == 1
    message = "fits 'fully hyperbolic GRU, PREFIX-10' and 'the twin, PREFIX-10', so they are the same run"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("{data: prefix10}", "{data: prefix10, overrides: [optim.lrr=1]}", "There is no key optim.lrr"),
        ("{data: prefix10}", "{data: prefix10, overrides: [geometry=ball]}", "There is no geometry named ball"),
        ("{data: prefix10}", "{data: prefix10, overrides: ['optim.lr=[']}", "cannot be read"),
    ],
)
def test_overrides_that_do_not_compose_are_named_with_table_row_and_column(
    tmp_path, tables, write_record, keep, capsys, old, new, words
):
    write_record(tmp_path / "published/hnn_table1.yaml", LAYOUT.replace(old, new))
    keep({})
    assert tables() == 1
    error = capsys.readouterr().err
    assert "hnn_table1.yaml: the overrides of 'fully hyperbolic GRU, PREFIX-10' do not compose: " in error
    assert words in error


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "{data: snli}",
            "{data: snli, overrides: ['+hydra.callbacks.x._target_=os.system']}",
            "must set a value, as task.dim=2 does",
        ),
        ("{data: snli}", "{data: snli, overrides: [1]}", "the override 1 must set a value"),
        ("metric: test/accuracy", "metrik: test/accuracy", "has keys that are none of a table"),
        ("name: hnn", "name: ../hnn", "cannot name a file of results/tables/"),
        (
            "hnn_{data}_gru_hyp",
            "hnn_{data}_gru_hip",
            "there is no experiment hnn_snli_gru_hip in configs/experiment/. Did you mean hnn_snli_gru_hyp",
        ),
        (
            "hnn_{data}_gru_hyp",
            "hnn_{dat}_gru_hyp",
            "the experiment of 'fully hyperbolic GRU' needs 'dat', which 'SNLI' lacks",
        ),
        (
            "published: [0.8119",
            "publish: [0.8119",
            "row 'fully hyperbolic GRU' has keys that are none of a row: publish",
        ),
        ("{data: snli}", "{data: snli, overrides: seed=3}", "overrides of 'SNLI' must be a list"),
        ("title: The table\n", "", "is not a table file (needs 'title')"),
        ('{experiment: "hnn_{data}_gru_eucl", published: [0.8152, 0.9596]}', "[0.8152, 0.9596]", "is not a table file"),
        ("{data: snli}", "{data: snli", "is not a table file (while parsing a flow mapping"),
        ("title:", "values_of: hnn_table7\ntitle:", "values_of names hnn_table7, and there is no such table"),
    ],
)
def test_a_faulty_table_file_is_named(tmp_path, tables, write_record, capsys, old, new, words):
    write_record(tmp_path / "published/hnn_table1.yaml", LAYOUT.replace(old, new))
    assert tables() == 1
    assert words in (error := capsys.readouterr().err)
    assert "hnn_table1.yaml: " in error


def test_the_commands_of_missing_cells_are_printed_once_and_nothing_is_written(
    tmp_path, tables, write_record, keep, capsys
):
    again = "name: hnn\ntable: 1\nvalues_of: hnn_table1\ntitle: Again\nprotocol: P\ncolumns: [SNLI]\n"
    rows = 'rows: {fully Euclidean GRU: {experiment: "hnn_{data}_gru_eucl"}, Small: {experiment: hnn_snli_gru_eucl, overrides: [optim.lr=1]}}\n'
    write_record(tmp_path / "published/hnn_table1_again.yaml", again + rows)
    keep({})
    assert tables("--missing") == 0
    assert capsys.readouterr().out.splitlines() == [
        "python run.py experiment=hnn_snli_gru_eucl",
        "    hnn_table1: fully Euclidean GRU, SNLI",
        "    hnn_table1_again: fully Euclidean GRU, SNLI",
        "python run.py experiment=hnn_prefix10_gru_eucl",
        "    hnn_table1: fully Euclidean GRU, PREFIX-10",
        "python run.py experiment=hnn_snli_gru_hyp",
        "    hnn_table1: fully hyperbolic GRU, SNLI",
        "python run.py experiment=hnn_snli_gru_eucl optim.lr=1",
        "    hnn_table1_again: Small, SNLI",
    ]
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


def test_check_fails_on_a_missing_table_and_on_one_too_many(tmp_path, tables, capsys):
    assert tables("--check") == 1
    assert tables() == 0
    (tmp_path / "tables/old.md").write_text("| by hand |\n")
    capsys.readouterr()
    assert tables("--check") == 1
    assert "tables/old.md is made from no table: remove it." in capsys.readouterr().out


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
