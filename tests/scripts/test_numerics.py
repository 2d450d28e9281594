"""The numerics report: its marks, its comparison with the committed file, and the rows README shows."""

import math

import pytest

from scripts import numerics
from scripts.exactness import failures, finite
from scripts.exactness.measure import Cell, judge, product_rounding
from scripts.golden import load


@pytest.fixture
def small(monkeypatch):
    """A report of one case for each model and dtype."""
    firsts = {(case.space, case.dtype): (case, values) for case, values in reversed(load())}
    monkeypatch.setattr(numerics, "load", lambda folder: list(firsts.values()))
    monkeypatch.setattr(failures, "all_rows", lambda: failures.scalars_and_distances()[:2])
    stated = [("Klein", "float32", 6.6, {"ours": (0, 5), "geoopt": None, "HypLL": None})]
    monkeypatch.setattr(finite, "table", lambda: stated)
    return stated


def test_the_report_is_the_same_twice_and_checks(small, tmp_path):
    report = tmp_path / "numerics.md"
    assert numerics.main([], report) == 0
    first = report.read_bytes()
    assert numerics.main([], report) == 0
    assert report.read_bytes() == first
    assert numerics.main(["--check"], report) == 0
    assert b"OVER" not in first.replace(b"`OVER`", b"")


@pytest.mark.long
@pytest.mark.parametrize(("old", "new"), [("<1e-7", "1"), ("| ok |", "| OVER |"), ("-9.90349", "9.90349")])
def test_check_finds_an_edit(small, tmp_path, old, new):
    report = tmp_path / "numerics.md"
    numerics.main([], report)
    text = report.read_text()
    assert old in text
    report.write_text(text.replace(old, new, 1))
    assert numerics.main(["--check"], report) == 1


def test_check_without_a_report_fails(small, tmp_path):
    assert numerics.main(["--check"], tmp_path / "none.md") == 1


def test_a_number_that_is_none_is_a_miss(small, tmp_path, capsys):
    small[0][3]["ours"] = (2, 5)
    assert numerics.main([], tmp_path / "numerics.md") == 1
    assert "2 results are not finite" in capsys.readouterr().err


def test_an_error_over_target_is_marked_and_fails():
    case, _ = next(row for row in load() if row[0].space == "Klein" and row[0].dtype == "float64")
    cell = Cell({"ours": 2e-13})
    judge(cell, 2e-13, 1e-13, case, "dist")
    key = ("Klein", "dist", "float64", case.regime)
    text, misses = numerics.render({key: cell, ("Klein", "dist", "float32", case.regime): Cell()}, [], [])
    assert misses == [f"Klein disk: dist, {case.regime}"]
    assert f"| dist | {case.regime} | {numerics.DASH} | 2e-13 |" in text
    assert "| OVER |" in text


@pytest.mark.parametrize("error", [float("nan"), float("inf"), 1.0])
def test_nothing_but_a_logit_is_excused(error):
    case, _ = next(row for row in load() if row[0].space == "PoincareBall")
    cell = Cell()
    judge(cell, error, 1e-6, case, "dist")
    assert cell.over


def test_a_logit_is_excused_only_within_the_rounding_of_its_product():
    hard = [case for case, v in load() if case.regime == "near the boundary" and "mlr_logits_beside" in v]
    case = max(hard, key=lambda case: product_rounding(case, "mlr_logits_beside"))
    allowed = product_rounding(case, "mlr_logits_beside")
    for error, over in ((allowed / 2, False), (2 * allowed, True), (float("nan"), True)):
        cell = Cell()
        judge(cell, error, 1e-6, case, "mlr_logits_beside")
        assert (cell.over, cell.limited) == (over, not over)


@pytest.mark.parametrize(
    ("error", "dtype", "text"),
    [
        (None, "float32", "–"),
        (float("nan"), "float32", "NaN"),
        (float("inf"), "float64", "inf"),
        (0.0, "float32", "<1e-7"),
        (0.0, "float64", "<2e-16"),
        (3.2e-7, "float32", "3e-7"),
        (1.04, "float64", "1"),
        (2.4e12, "float32", "2e12"),
    ],
)
def test_error_text(error, dtype, text):
    assert numerics.error_text(error, dtype) == text


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("| dist | <1e-7 | ok |", "| dist | 3e-7 | ok |", True),
        ("| dist | 1e-7 | ok |", "| dist | 9e-7 | ok |", False),
        ("| dist | 1e-7 | ok |", "| dist | NaN | ok |", False),
        ("| dist | 1e-7 | ok |", "| dist | 1e-7 | OVER |", False),
        ("| -1 |", "| 1 |", False),
        ("Versions: torch 2.13.0.", "Versions: torch 2.11.0, more.", True),
    ],
)
def test_differences_ignore_last_digits_only(a, b, same):
    assert (numerics.differences(a, b) == []) is same


def test_columns_of_a_library_that_is_missing_are_not_compared(monkeypatch):
    monkeypatch.setattr(numerics, "installed", lambda library: library != "HypLL")
    head = "| case \\| x | ours f32 | HypLL f32 | |\n|---|---|---|---|\n"
    assert numerics.differences(f"{head}| a | 1e-7 | 5e-3 | ok |", f"{head}| a | 1e-7 | – | ok |") == []
    assert numerics.differences(f"{head}| a | 1e-7 | 5e-3 | ok |", f"{head}| a | 1e-3 | – | ok |")


def test_the_rows_of_readme():
    cells = {
        ("PoincareBall", "dist", "float32", "ordinary"): Cell({"ours": 1e-8, "geoopt": 1e-6, "HypLL": math.nan}),
        ("PoincareBall", "dist", "float32", "near 0"): Cell({"ours": 2e-7, "geoopt": 1e-3, "HypLL": 1e-8}),
    }
    head, first, *_ = numerics.summary_rows(cells)
    assert head == ["function", "ours f32", "geoopt f32", "HypLL f32", "ours f64", "geoopt f64", "HypLL f64"]
    assert first == ["Poincaré ball: dist", "2e-7", "1e-3", "NaN", "–", "–", "–"]


def test_the_failure_table_holds_for_ours():
    rows = failures.all_rows()
    assert len(rows) >= 25
    assert [row.name for row in rows if row.over] == []


@pytest.mark.long
def test_values_and_gradients_are_finite_up_to_the_stated_radius():
    for space in ("PoincareBall", "Lorentz", "Klein"):
        bad, total = finite.count(space, finite.torch.float32, "ours", c=0.3)
        assert (bad, total > 500) == (0, True)
