"""Tables of which a run fills a cell: what is said of two rows or two columns, and how far apart the highest is."""

import json
import random

import pytest

from configs.tables import load_layouts
from scripts.budgets import steps, was_rising
from scripts.orderings import difference, verdict

TABLE = """
name: hnn
table: 1
title: The table
source: The paper
measure: test accuracy in %
metric: test/accuracy
digits: 1
protocol: Mean.
columns: {Euclidean: {overrides: [task.model.d_ffnn=1]}, Hyperbolic: {overrides: [task.model.d_ffnn=2]}}
rows:
  DAN: {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=1], published: [0.5, 0.6]}
  GRU: {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=2], published: [0.6, 0.7]}
  LSTM: {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=3], published: [0.7, 0.8]}
"""
AGAIN = """
name: hnn
table: 1
values_of: hnn_table1
title: The table, small
label: Small.
protocol: Other data.
overrides: [task.model.d_word=9]
rows:
  DAN: {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=1]}
  GRU: {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=2]}
orderings:
  - {higher_column: Hyperbolic, lower_column: Euclidean, rows: [DAN]}
  - {higher: DAN, lower: GRU}
"""
ALONE = "difference in points: not tested, 1 seed each:"
SEEDS = "difference in points:"


@pytest.fixture
def lay(tmp_path, write_record):
    """A function that writes the table file, with more lines at its end."""
    return lambda more="": write_record(tmp_path / "published/hnn_table1.yaml", TABLE + more)


@pytest.fixture
def keep(tmp_path, make_record, write_record):
    """A function that keeps the runs of a cell, one for each accuracy."""

    def write(row: str, column: str, *scores: float, d_word: int = 5, **data) -> None:
        model = {"d_word": d_word, "d_hidden": ["", "DAN", "GRU", "LSTM"].index(row), "d_ffnn": 1 + (column == "Hyperbolic")}
        for seed, score in enumerate(scores):
            changes = {"seed": seed, "config.task.model": model, "metrics.test/accuracy": score}
            changes |= {f"data.{key}": value for key, value in data.items()}
            write_record(tmp_path / f"runs/{row}{column}{d_word}{seed}.json", make_record(changes))

    return write


@pytest.fixture
def said(tmp_path, tables):
    """A function that makes the tables and reads the notes that compare rows or columns."""

    def read() -> list[str]:
        assert tables() == 0
        lines = (tmp_path / "tables/hnn.md").read_text().splitlines()
        return [line.removeprefix("- ") for line in lines if " above " in line or "How often" in line]

    return read


def ordering(line: str) -> str:
    return f"orderings:\n  - {line}\n"


def test_rows_are_compared_in_every_column_where_both_have_a_run(lay, keep, said):
    lay(ordering("{higher: GRU, lower: DAN}"))
    keep("GRU", "Euclidean", 0.62)
    assert said() == []
    keep("DAN", "Euclidean", 0.50)
    keep("DAN", "Hyperbolic", 0.70)
    assert said() == [f"The paper's numbers have GRU above DAN. Ours, {ALONE} Euclidean +12.00"]
    keep("GRU", "Hyperbolic", 0.699)
    assert said() == [f"The paper's numbers have GRU above DAN. Ours, {ALONE} Euclidean +12.00, Hyperbolic -0.10"]


def test_rows_are_compared_in_the_columns_that_are_named(lay, keep, said):
    lay(ordering("{higher: GRU, lower: DAN, columns: [Hyperbolic]}"))
    for row, column, score in (("GRU", "Euclidean", 0.9), ("DAN", "Euclidean", 0.1), ("GRU", "Hyperbolic", 0.5)):
        keep(row, column, score)
    assert said() == []
    keep("DAN", "Hyperbolic", 0.5)
    assert said() == [f"The paper's numbers have GRU above DAN. Ours, {ALONE} Hyperbolic +0.00"]


def test_columns_are_compared_in_every_row_where_both_have_runs(lay, keep, said):
    lay(ordering("{higher_column: Hyperbolic, lower_column: Euclidean}"))
    keep("DAN", "Hyperbolic", 0.44)
    keep("DAN", "Euclidean", 0.47)
    keep("GRU", "Hyperbolic", 0.65)
    keep("GRU", "Euclidean", 0.60)
    keep("LSTM", "Hyperbolic", 0.99)
    assert said() == [f"The paper's numbers have Hyperbolic above Euclidean. Ours, {ALONE} DAN -3.00, GRU +5.00"]


def test_columns_are_compared_in_the_rows_that_are_named(lay, keep, said):
    lay(ordering("{higher_column: Hyperbolic, lower_column: Euclidean, rows: [LSTM]}"))
    for row, high in (("DAN", 0.4), ("LSTM", 0.6)):
        keep(row, "Hyperbolic", high)
        keep(row, "Euclidean", 0.5)
    assert said() == [f"The paper's numbers have Hyperbolic above Euclidean. Ours, {ALONE} LSTM +10.00"]


def test_several_seeds_are_tested_and_single_ones_are_not(lay, keep, said):
    lay(ordering("{higher_column: Hyperbolic, lower_column: Euclidean}"))
    # paired, of 3 seeds: differences 10, 11 and 12, so 11 +- 4.303 * 1 / sqrt(3) = 2.48
    keep("DAN", "Hyperbolic", 0.70, 0.73, 0.72)
    keep("DAN", "Euclidean", 0.60, 0.61, 0.61)
    # 60 - 61 with variances 1 of three and 2 of two seeds: 12.706 sqrt(1/3 + 2/2) = 14.67
    keep("GRU", "Hyperbolic", 0.59, 0.60, 0.61)
    keep("GRU", "Euclidean", 0.60, 0.62)
    assert said() == [
        f"The paper's numbers have Hyperbolic above Euclidean. Ours, {SEEDS} holds for DAN +11.00 ± 2.48; "
        "undecided for GRU -1.00 ± 14.67"
    ]
    keep("LSTM", "Hyperbolic", 0.9)
    keep("LSTM", "Euclidean", 0.80, 0.82)
    assert said()[0].endswith("; undecided for GRU -1.00 ± 14.67; not tested, 1 seed against 2 seeds: LSTM +9.00")


def test_an_ordering_fails_where_the_other_way_round_it_would_hold(lay, keep, said):
    lay(ordering("{higher_column: Hyperbolic, lower_column: Euclidean, rows: [DAN]}"))
    keep("DAN", "Euclidean", 0.70, 0.73, 0.72)
    keep("DAN", "Hyperbolic", 0.60, 0.61, 0.61)
    assert said() == [f"The paper's numbers have Hyperbolic above Euclidean. Ours, {SEEDS} fails for DAN -11.00 ± 2.48"]


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_is_that_of_students_test(n, paired):
    stats = pytest.importorskip("scipy.stats")
    rng = random.Random(n)
    high, low = ({k + shift: rng.gauss(0, 1) for k in range(n)} for shift in (0, not paired))
    gain, half = difference(high, low)
    x, y = list(high.values()), list(low.values())
    if paired:
        test = stats.ttest_rel(x, y)
        expected = test.confidence_interval(0.95)
        assert (gain - half, gain + half) == pytest.approx((expected.low, expected.high), rel=1e-3)
        assert (verdict(gain, half) == "undecided") == (test.pvalue > 0.05)
    else:
        error = (stats.tvar(x) / n + stats.tvar(y) / n) ** 0.5
        assert half == pytest.approx(stats.t.ppf(0.975, n - 1) * error, rel=1e-3)


def test_no_difference_decides_nothing():
    assert verdict(*difference({0: 0.5, 1: 0.5}, {0: 0.5, 1: 0.5})) == "undecided"


def test_the_notes_say_budget_seeds_and_tuning_of_each_cell(tmp_path, tables, lay, keep):
    lay("tuned: not tuned\nbudget: 200\n")
    text = (tmp_path / "published/hnn_table1.yaml").read_text()
    text = text.replace("published: [0.6, 0.7]", 'published: [0.6, 0.7], tuned: "tuned by us, 3 rates", budget: 50')
    (tmp_path / "published/hnn_table1.yaml").write_text(text)
    for row in ("DAN", "GRU"):
        keep(row, "Euclidean", 0.5, 0.6)
    keep("LSTM", "Hyperbolic", 0.5)
    for path in (tmp_path / "runs").glob("*.json"):
        record = json.loads(path.read_text())
        record["selection"] |= {"step": 90, "epoch": 9}
        path.write_text(json.dumps(record))
    assert tables() == 0
    notes = [line for line in (tmp_path / "tables/hnn.md").read_text().splitlines() if line.startswith("- Budget")]
    assert notes == [
        "- Budget: 100 steps, 50 % of its authors' 200; 2 seeds; not tuned: Euclidean DAN",
        "- Budget: 100 steps, 200 % of its authors' 50; 2 seeds; tuned by us, 3 rates: Euclidean GRU",
        "- Budget: 100 steps, 50 % of its authors' 200; 1 seed; not tuned: Hyperbolic LSTM",
    ]


@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_the_notes_name_the_cells_whose_last_epoch_was_the_best(tmp_path, tables, lay, keep, schedule):
    lay(f"overrides: [optim.schedule={schedule}]\n")
    for row in ("DAN", "GRU", "LSTM"):
        keep(row, "Hyperbolic", 0.5, 0.6, 0.7)
    for path in (tmp_path / "runs").glob("*.json"):
        record = json.loads(path.read_text())
        rises = record["seed"] < {"DAN": 2, "GRU": 3, "LSTM": 1}[path.name.partition("Hyper")[0]]
        epoch = record["config"]["trainer"]["max_epochs"] - (not rises)
        record["selection"] |= {"epoch": epoch, "step": 10 * epoch}
        record["config"]["optim"]["schedule"] = schedule
        path.write_text(json.dumps(record))
    assert tables() == 0
    notes = [line for line in (tmp_path / "tables/hnn.md").read_text().splitlines() if "last validation" in line]
    (words, where) = notes[0].split(": ")
    assert len(notes) == 1
    assert where == "Hyperbolic DAN (2 of 3 seeds); Hyperbolic GRU"
    assert ("may give more" if schedule == "constant" else "fall to 0") in words


def test_a_state_of_the_middle_of_an_epoch_does_not_shorten_the_budget(make_record):
    counts = {"train": {"pairs": 500_000}}
    changes = {"config.trainer.val_check_interval": 2000, "config.trainer.max_epochs": 30, "config.task.data.batch_size": 64}
    run = make_record(changes | {"data.counts": counts, "selection.step": 209_138, "selection.epoch": 27})
    assert steps(run) == 30 * 7813
    run["config"]["trainer"]["accumulate_grad_batches"] = 4
    assert steps(run) == 30 * 1954
    run["data"]["counts"] = {}
    assert steps(run) is None


def test_a_budget_that_is_no_number_of_steps_is_named(lay, tables, capsys):
    lay("budget: 40 epochs\n")
    assert tables() == 1
    assert "budget is a number of steps of the model's authors, and it is '40 epochs'" in capsys.readouterr().err


def test_a_cell_of_less_data_decides_no_ordering(lay, keep, said):
    lay(ordering("{higher: GRU, lower: DAN}"))
    for column in ("Euclidean", "Hyperbolic"):
        keep("GRU", column, 0.7)
        keep("DAN", column, 0.6, share=0.5 if column == "Euclidean" else 1.0)
    assert said() == [f"The paper's numbers have GRU above DAN. Ours, {ALONE} Hyperbolic +10.00"]


def test_a_table_that_is_made_again_has_orderings_of_its_own(tmp_path, write_record, lay, keep, said):
    lay()
    write_record(tmp_path / "published/hnn_table1_small.yaml", AGAIN)
    for row, low, high in (("DAN", 0.47, 0.44), ("GRU", 0.2, 0.3)):
        keep(row, "Euclidean", low, d_word=9)
        keep(row, "Hyperbolic", high, d_word=9)
    assert said() == [
        f"The paper's numbers have Hyperbolic above Euclidean. Ours, {ALONE} DAN -3.00",
        f"The paper's numbers have DAN above GRU. Ours, {ALONE} Euclidean +27.00, Hyperbolic +14.00",
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{higher: GRU, lower: CNN}", "lower names rows that the table has not: CNN"),
        ("{higher: CNN, lower: GRU}", "higher names rows that the table has not: CNN"),
        ("{higher: GRU, lower: DAN, columns: [Flat]}", "columns names columns that the table has not: Flat"),
        ("{higher_column: Flat, lower_column: Euclidean}", "higher_column names columns that the table has not: Flat"),
        ("{higher_column: Hyperbolic, lower_column: DAN}", "lower_column names columns that the table has not: DAN"),
        ("{higher_column: Hyperbolic, lower_column: Euclidean, rows: [CNN]}", "rows names rows that the table has not: CNN"),
        ("{higher_column: Hyperbolic, lower: DAN}", "one has higher_column, lower"),
        ("{higher: GRU}", "takes higher and lower, perhaps with columns"),
        ("{higher: GRU, lower: DAN, rows: [DAN]}", "one has higher, lower, rows"),
    ],
)
def test_a_faulty_ordering_is_named_with_its_file(lay, tables, capsys, line, words):
    lay(ordering(line))
    assert tables() == 1
    error = capsys.readouterr().err
    assert "published/hnn_table1.yaml: orderings: " in error
    assert words in error


CONTEST = """
spread: confidence
contests:
  - [DAN, GRU, LSTM]
"""
# Around 0.5, 0.6 and 0.7, and around 0.6, 0.7 and 0.8: LSTM's interval touches GRU's in the first column, is clear of
# both others in the second.
INTERVALS = "intervals: {DAN: [0.01, 0.01], GRU: [0.06, 0.04], LSTM: [0.04, 0.05]}\n"


def test_the_highest_is_apart_where_its_interval_overlaps_none(lay, keep, said):
    lay(CONTEST + INTERVALS)
    often = "How often each of DAN, GRU, LSTM is the highest: in the paper LSTM 2 (1 apart) of 2"
    legend = ". Apart: its 95 % interval overlaps none of the others'"
    assert said() == [often + legend]
    # Deviation 1 of three seeds: half the interval is 4.303 / sqrt(3) = 2.48. 75 - 2.48 < 70.1 + 2.48, though 75 itself
    # is outside of both others' intervals.
    keep("DAN", "Euclidean", 0.691, 0.701, 0.711)
    keep("GRU", "Euclidean", 0.74, 0.75, 0.76)
    keep("LSTM", "Euclidean", 0.29, 0.30, 0.31)
    assert said() == [f"{often}; in ours GRU 1 (0 apart) of 1{legend}"]
    # 75 - 2.48 = 72.52 > 70.01 + 2.48 = 72.49
    keep("DAN", "Euclidean", 0.6901, 0.7001, 0.7101)
    assert said() == [f"{often}; in ours GRU 1 (1 apart) of 1{legend}"]
    # the runner-up is far below, but the last one's interval is wide: 30 +- 12.706 * sqrt(1800) / sqrt(2) = 30 +- 381
    keep("LSTM", "Hyperbolic", 0.0, 0.6)
    keep("GRU", "Hyperbolic", 0.9, 0.9)
    keep("DAN", "Hyperbolic", 0.4, 0.4)
    assert said() == [f"{often}; in ours GRU 2 (1 apart) of 2{legend}"]


def test_what_has_no_interval_is_not_called_apart(lay, keep, said):
    lay(CONTEST)
    often = "How often each of DAN, GRU, LSTM is the highest: in the paper LSTM 2 of 2"
    for row, score in (("DAN", 0.1), ("GRU", 0.2), ("LSTM", 0.9)):
        keep(row, "Euclidean", score)
    assert said() == [f"{often}; in ours LSTM 1 of 1"]
    for row, score in (("DAN", 0.1), ("GRU", 0.2), ("LSTM", 0.9)):
        keep(row, "Hyperbolic", score, score)
    assert said()[0].startswith(f"{often}; in ours LSTM 2 (1 apart of 1 with intervals) of 2. Apart: ")


def test_deviations_are_no_intervals(lay, keep, said):
    lay(CONTEST.replace("spread: confidence", "") + INTERVALS)
    for row, score in (("DAN", 0.1), ("GRU", 0.2), ("LSTM", 0.9)):
        keep(row, "Euclidean", score, score)
    assert said() == ["How often each of DAN, GRU, LSTM is the highest: in the paper LSTM 2 of 2; in ours LSTM 1 of 1"]


def test_equal_means_are_not_apart(lay, keep, said):
    lay(CONTEST)
    for row, score in (("DAN", 0.1), ("GRU", 0.9), ("LSTM", 0.9)):
        keep(row, "Euclidean", score, score)
    assert said()[0].endswith("in ours none alone 1 of 1")


@pytest.mark.parametrize(
    ("changes", "rises"),
    [
        ({"selection": {"epoch": 10, "step": 100}}, True),
        ({"selection": {"epoch": 9, "step": 90}}, False),
        ({"selection": {"epoch": 10, "step": 100}, "config.optim.rule": "lbfgs"}, False),
        ({"selection": {"epoch": 10, "step": 100}, "config.trainer.check_val_every_n_epoch": 10}, False),  # the only one
        ({"selection": {"epoch": 3, "step": 50}, "config.trainer.max_steps": 50}, True),
        ({"selection": {"epoch": 3, "step": 40}, "config.trainer.max_steps": 50}, False),
        ({"selection": None}, False),
    ],
)
def test_a_run_whose_last_of_several_validations_was_the_best_was_rising(make_record, changes, rises):
    assert was_rising(make_record({"config.trainer.max_epochs": 10, **changes})) is rises


@pytest.mark.parametrize(("data", "short", "long"), [("wn18rr", 50, 200), ("fb15k237", 20, 80)])
def test_the_settings_of_longer_runs_are_those_that_the_trials_chose(data, short, long):
    layouts = {layout.file: layout for layout in load_layouts()}
    chosen = {cell.row: {*cell.words} for cell in layouts[f"hybonet_table1_{data}_tuned"].cells}
    longer = layouts[f"hybonet_table1_{data}_tuned_{long}"].cells
    assert len(longer) == len(chosen)
    for cell in longer:
        assert {*cell.words} - {f"trainer.max_epochs={long}"} == chosen[cell.row] - {f"trainer.max_epochs={short}"}


def test_what_was_measured_on_other_data_is_not_compared(lay, keep, tables, capsys):
    lay(ordering("{higher_column: Hyperbolic, lower_column: Euclidean}"))
    keep("DAN", "Hyperbolic", 0.70, 0.73, sha256={"test": "ab"})
    keep("DAN", "Euclidean", 0.60, 0.61, sha256={"test": "cd"})
    assert tables() == 1
    assert "seed 0: data.sha256.test of their records differ, so they were measured on other data" in capsys.readouterr().err
