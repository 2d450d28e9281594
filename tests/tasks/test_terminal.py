"""Tables that are too wide for the terminal."""

import pytest

from tasks.terminal import show_table

HEADER = ["metric", "all", "1-1", "1-N", "N-1"]
ROWS = [["test/hits@10", "0.5123", "0.6000", "0.4000", "0.3000"], ["test/mrr", "0.4000", "0.5000", "", "0.2000"]]
NUMERIC = [False, True, True, True, True]


@pytest.mark.parametrize(("width", "parts"), [(80, 1), (45, 2), (30, 4), (28, 4)])
def test_as_many_columns_as_fit_stand_beside_the_first(capsys, width, parts):
    show_table("a run [of mine]", HEADER, ROWS, NUMERIC, footer=[["parameters", "1,234"]], width=width)
    out = capsys.readouterr().out
    assert out.count("test/hits@10") == parts
    assert all(out.count(value) == 1 for value in ("0.5123", "0.6000", "0.3000", "N-1", "1,234", "a run [of mine]"))
    assert max(map(len, out.splitlines())) <= width


def test_a_title_is_not_wrapped_to_the_width_of_its_table(capsys):
    show_table("a title that is wider than the table", ["a", "b"], [["1", "2"]], [False, True], width=80)
    assert capsys.readouterr().out.splitlines()[0] == "a title that is wider than the table"
    show_table("of letters " * 9, ["a", "b"], [["1", "2"]], [False, True], width=40)
    assert capsys.readouterr().out.splitlines()[0] == "of letters " * 9


def test_the_footer_is_whole_too(capsys):
    footer = [["mean of the weights of so many epochs", "123,456,789"]]
    show_table("", HEADER, ROWS, NUMERIC, footer=footer, width=60)
    out = capsys.readouterr().out
    assert "mean of the weights of so many epochs │ 123,456,789" in out
    assert max(map(len, out.splitlines())) <= 60


def test_columns_of_several_lines_are_as_wide_as_the_longest(capsys):
    show_table("", ["settings", "a", "b"], [["x=1\na longer one=2", "0.1 ± 0.2", "0.3 ± 0.4"]], [False, True, True], width=50)
    assert "a longer one=2" in capsys.readouterr().out
