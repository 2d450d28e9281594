"""Tables of which a run fills a row: in the table, its variants and parts, and what does not fit."""

import re

import pytest

ROWS = """
name: hyfi
table: 3
title: "Table 3: the test split"
source: The paper
measure: macro F1 in %
protocol: Mean of three.
digits: 1
columns: {coarse: test/coarse/macro_f1, fine: test/fine/macro_f1, ultra: test/ultrafine/macro_f1}
rows:
  BERT: {published: [0.8, 0.6, 0.4]}
  HY BASE: {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=1], published: [0.696, null, 0.212]}
  EU BASE: {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=2], published: [0.685, 0.398, 0.178]}
parameters: {HY BASE: 1800000}
sources: [crowd, el]
orderings:
  - {higher: HY BASE, lower: EU BASE, columns: [coarse, ultra]}
"""
CROWD = """
name: hyfi
table: 3
values_of: hyfi_table3
title: Table 3, crowd only
label: Crowd only.
protocol: Other data.
overrides: [task.model.d_word=9]
rows:
  HY BASE: {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=1]}
  LABELGCN: {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=3]}
"""
PART = """
name: hyfi
table: 4
title: Table 4, left
overrides: [task.model.d_word=6]
source: The paper
measure: macro F1 in %
protocol: Mean of three.
digits: 1
columns: {coarse: test/coarse/macro_f1, fine: test/fine/macro_f1}
rows:
  "HY, best d": {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=1], published: [0.7, 0.5]}
  "EU, best d": {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=2], published: [0.6, 0.4]}
orderings:
  - {higher: "HY, best d", lower: "EU, best d", columns: [coarse]}
"""
SHORT = """
name: hyfi
table: 4
values_of: hyfi_table4_left
title: Table 4, left, short
label: Short runs.
theirs: paper, its own epochs
protocol: Few epochs.
overrides: [task.model.d_word=8]
rows:
  "HY, best d": {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=1]}
  "EU, small d": {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=2]}
orderings:
  - {higher: "HY, best d", lower: "EU, small d", columns: [coarse]}
"""
ALSO = """
name: hybonet
table: 6
title: HyboNet
source: The other paper
measure: macro F1 in %
protocol: As there.
columns: {a: test/coarse/macro_f1, b: test/coarse/macro_f1, c: test/coarse/macro_f1, d: test/coarse/macro_f1,
  e: test/coarse/macro_f1, f: test/coarse/macro_f1, g: test/fine/macro_f1}
rows:
  HY BASE: {experiment: hnn_prefix10_gru_hyp, overrides: [task.model.d_hidden=1], published: [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]}
"""


@pytest.fixture
def rows(tmp_path, write_record):
    """The files of three tables whose rows are filled by one run each."""
    for name, text in (("hyfi_table3", ROWS), ("hyfi_table3_crowd", CROWD), ("hybonet_table6", ALSO)):
        write_record(tmp_path / f"published/{name}.yaml", text)


@pytest.fixture
def keep_row(tmp_path, make_record, write_record):
    """A function that keeps runs of a row: (coarse, fine, ultra) for each seed."""

    def write(row: str, *scores: tuple[float, float, float], d_word: int = 5, **changes) -> None:
        model = {"d_word": d_word, "d_hidden": {"HY": 1, "EU": 2, "LA": 3}[row[:2]], "d_ffnn": 5}
        for seed, values in enumerate(scores):
            groups = ("coarse", "fine", "ultrafine")
            metrics = {f"test/{g}/macro_f1": v for g, v in zip(groups, values, strict=True)}
            record = make_record({"seed": seed, "metrics": metrics, "config.task.model": model})
            record["parameters"] = 1_812_345
            sources = {name: {"mentions": 10} for name in (*changes.get("sources", ("crowd", "el")), "dev", "test")}
            record["data"] |= {**changes, "sources": sources, "files": {"train": "crowd.json", "vectors": "glove.txt"}}
            write_record(tmp_path / f"runs/{row}{d_word}{seed}.json", record)

    return write


@pytest.fixture
def lines(tmp_path):
    """A function that reads a file of tables as its lines, the rows of tables as lists of lists of lines."""

    def read(name: str) -> list:
        text = (tmp_path / f"tables/{name}.md").read_text().splitlines()
        return [[c.strip().split("<br>") for c in t[1:-1].split("|")] if t.startswith("| ") else t for t in text]

    return read


def test_a_run_fills_a_row_and_what_is_not_run_or_only_quoted_says_so(tables, rows, keep_row, lines):
    keep_row("HY BASE", (0.70, 0.40, 0.20), (0.72, 0.42, 0.22))
    assert tables() == 0
    output = lines("hyfi")
    # means 71, 41, 21; deviations -1 and 1 in each: sample standard deviation 1.41
    assert [["HY BASE"], ["published", "**ours** (2 seeds)", "difference"], ["69.6", "**71.00 ± 1.41**", "+1.40"],
            ["?", "**41.00 ± 1.41**", "–"], ["21.2", "**21.00 ± 1.41**", "-0.20"], ["1.8M", "1,812,345"]] in output  # fmt: skip
    assert [["EU BASE"], ["published", "not run"], ["68.5"], ["39.8"], ["17.8"], ["–"]] in output
    assert [["BERT"], ["published", "quoted, not built"], ["80.0"], ["60.0"], ["40.0"], ["–"]] in output
    assert "- A value shown as ? is in the paper, but cannot be read in the copy that was at hand." in output
    assert any(str(line).startswith("- Ours, trained on crowd, el, word vectors glove.txt, 10 epochs") for line in output)


def test_a_variant_has_the_numbers_of_its_table_and_no_difference(tables, rows, keep_row, lines):
    keep_row("HY BASE", (0.50, 0.20, 0.10), d_word=9, sources=["crowd"])
    assert tables() == 0
    output = lines("hyfi")
    output = output[output.index("## Table 3, crowd only") :]
    assert "**Crowd only.**" in output
    assert [["HY BASE"], ["paper, its own data", "**ours** (1 seed)"], ["69.6", "**50.00**"], ["?", "**20.00**"],
            ["21.2", "**10.00**"], ["–", "1,812,345"]] in output  # fmt: skip
    assert [["LABELGCN"], ["not in the paper", "not run"], ["–"], ["–"], ["–"], ["–"]] in output
    assert not any("Other data" in str(line) and "Paper:" in str(line) for line in output)


def test_one_run_stands_in_several_tables_and_a_wide_one_is_split(tables, rows, keep_row, lines, capsys):
    keep_row("HY BASE", (0.70, 0.40, 0.20))
    assert tables() == 0
    assert any(line[:1] == [["HY BASE"]] and ["69.6", "**70.00**", "+0.40"] in line for line in lines("hyfi"))
    first, second = (line for line in lines("hybonet") if line[:1] == [["HY BASE"]])
    assert first[2:] == [[f"{n}0.00", "**70.00**", f"{70 - 10 * n:+.2f}"] for n in range(1, 7)]
    assert second[2:] == [["70.00", "**40.00**", "-30.00"], ["–", "1,812,345"]]
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 150


def test_a_row_on_less_data_is_partial_and_decides_no_ordering(tables, rows, keep_row, lines):
    keep_row("HY BASE", (0.70, 0.40, 0.20), sources=["crowd"])
    keep_row("EU BASE", (0.60, 0.40, 0.20), share=0.5)
    assert tables() == 0
    output = {row[0][0]: row[1] for row in lines("hyfi") if isinstance(row, list)}
    assert output["EU BASE"][3:] == ["partial: 50 % of the data"]
    text = lines("hyfi")
    labels = [row[1] for row in text if isinstance(row, list) and row[0] == ["HY BASE"]]
    assert labels[0][3:] == ["partial: without", "el"]
    assert not any("above" in str(line) for line in text)


def test_orderings_of_the_paper_are_checked_on_our_runs(tables, rows, keep_row, lines):
    keep_row("HY BASE", (0.90, 0.4, 0.20), (0.92, 0.4, 0.20))
    keep_row("EU BASE", (0.60, 0.4, 0.21), (0.60, 0.4, 0.23))
    assert tables() == 0
    # coarse 91 - 60, 12.706 times the standard error 1 of the differences 30 and 32; ultra 20 - 22, of -1 and -3
    assert (
        "- The paper's numbers have HY BASE above EU BASE. Ours, difference in points: "
        "holds for coarse +31.00 ± 12.71; undecided for ultra -2.00 ± 12.71"
    ) in lines("hyfi")


@pytest.fixture
def parts(tmp_path, write_record, rows):
    """Table 4 in two halves with values of their own, and the left one again under another protocol."""
    for name, text in (("left", PART), ("right", PART.replace("left", "right").replace("0.7", "0.8").replace("d_word=6", "d_word=7")), ("short", SHORT)):
        write_record(tmp_path / f"published/hyfi_table4_{name}.yaml", text)


def of_table(output: list, title: str) -> list:
    """The lines of one table."""
    start = output.index(f"## {title}")
    end = next((k for k in range(start + 1, len(output)) if str(output[k]).startswith("## ")), None)
    return output[start:end]


def test_the_parts_of_a_table_have_values_and_runs_of_their_own(tables, parts, keep_row, lines):
    keep_row("HY, best d", (0.75, 0.50, 0.10), d_word=6)
    keep_row("EU, best d", (0.65, 0.50, 0.10), d_word=6)
    assert tables() == 0
    left, right = (of_table(lines("hyfi"), f"Table 4, {name}") for name in ("left", "right"))
    assert [["HY, best d"], ["published", "**ours** (1 seed)", "difference"], ["70.0", "**75.00**", "+5.00"],
            ["50.0", "**50.00**", "+0.00"], ["–", "1,812,345"]] in left  # fmt: skip
    assert [["HY, best d"], ["published", "not run"], ["80.0"], ["50.0"]] in right
    assert left[2].endswith("differences in points.")
    assert "- Paper: Mean of three." in left
    above = "- The paper's numbers have HY, best d above EU, best d. Ours, difference in points: not tested, 1 seed each: "
    assert f"{above}coarse +10.00" in left


def test_a_part_is_made_again_with_its_own_values(tables, parts, keep_row, lines):
    keep_row("HY, best d", (0.50, 0.30, 0.10), d_word=8)
    keep_row("EU, small d", (0.55, 0.30, 0.10), d_word=8)
    assert tables() == 0
    short = of_table(lines("hyfi"), "Table 4, left, short")
    assert [["HY, best d"], ["paper, its own epochs", "**ours** (1 seed)"], ["70.0", "**50.00**"], ["50.0", "**30.00**"],
            ["–", "1,812,345"]] in short  # fmt: skip
    assert [["EU, small d"], ["not in the paper", "**ours** (1 seed)"], ["–", "**55.00**"], ["–", "**30.00**"],
            ["–", "1,812,345"]] in short  # fmt: skip
    above = "- Expected, not in the paper: HY, best d above EU, small d. Ours, difference in points: not tested, 1 seed each: "
    assert f"{above}coarse -5.00" in short
    assert "- Few epochs." in short
    assert not any("differences in points." in str(line) for line in short)


def test_the_values_of_a_part_that_is_not_there_are_missed(tmp_path, tables, parts, capsys):
    (tmp_path / "published/hyfi_table4_left.yaml").unlink()
    assert tables() == 1
    assert "hyfi_table4_short.yaml: values_of names hyfi_table4_left, and there is no such table" in capsys.readouterr().err


def test_a_run_of_a_row_without_one_of_its_metrics_is_named(
    tmp_path, tables, rows, keep_row, make_record, write_record, capsys
):
    keep_row("HY BASE", (0.7, 0.4, 0.2))
    (tmp_path / "published/hybonet_table6.yaml").unlink()
    path = tmp_path / "runs/HY BASE50.json"
    path.write_text(path.read_text().replace("test/fine/macro_f1", "test/fine/accuracy"))
    assert tables() == 1
    assert "'HY BASE' of Table 3: the test split needs test/fine/macro_f1" in capsys.readouterr().err


def test_a_metric_between_0_and_100_is_printed_as_it_is(tmp_path, tables, rows, write_record, keep_row, capsys):
    """BLEU: 25.9 of the paper and 24.4 of ours, and no values of 2590."""
    keep_row("HY BASE", (24.4, 10.0, 20.0))
    file = tmp_path / "published/hyfi_table3.yaml"
    write_record(file, "scale: 1\n" + re.sub(r"0\.(\d\d)(\d)", r"\1.\2", ROWS))
    assert tables() == 0
    assert "24.40" in capsys.readouterr().out
    write_record(file, "scale: 10\n" + ROWS)
    assert tables() == 1
    assert "scale must be 100" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0.685", "68.5", "values are fractions between 0 and 1, or null; not so: EU BASE, coarse: 68.5"),
        ("parameters: {HY BASE", "parameters: {HY HUGE", "names rows that the table has not: HY HUGE"),
        ("lower: EU BASE", "lower: EU HUGE", "names rows that the table has not: EU HUGE"),
        ("[coarse, ultra]", "[coarse, medium]", "names columns that the table has not: medium"),
        (
            "higher: HY BASE, lower: EU BASE, columns: [coarse, ultra]",
            "higher_column: coarse, lower_column: ultra",
            "higher_column coarse and lower_column ultra are different metrics, test/coarse/macro_f1 and test/ultrafine",
        ),
    ],
)
def test_a_faulty_table_file_is_named(tmp_path, tables, rows, write_record, capsys, old, new, words):
    assert old in ROWS
    write_record(tmp_path / "published/hyfi_table3.yaml", ROWS.replace(old, new))
    assert tables() == 1
    assert words in capsys.readouterr().err
