"""The published tables: their values are the papers', every cell composes, and the committed tables are what the records give."""

import json

import pytest

from configs.matching import cells_of, decisive, differences, fits, settings_of
from configs.tables import PUBLISHED, load_layouts
from scripts.records import RUNS
from scripts.reproduce import commands
from scripts.tables import main
from tests.configurations import EXPERIMENTS

LAYOUTS = {layout.file: layout for layout in load_layouts()}
# Per cent, as printed, in the order of the columns: a second reading of the papers, to catch a slip of the first.
PRINTED = {
    ("hyfi_table1", "HY XLARGE"): "43.4 34.2 38.2 61.4 73.9 67.1 35.7 46.6 40.4 36.5 19.9 25.7",
    ("hyfi_table1", "BERT"): "51.6 32.8 40.1 67.4 80.6 73.4 41.6 54.7 47.3 46.3 15.6 23.4",
    ("hyfi_table3", "EU LARGE"): "67.1 63.8 36.7 34.7 22.0 19.7",
    ("hyfi_table4", "HY BASE"): "68.7 66.6 41.5 38.8 22.1 20.1",
    ("hyfi_table5", "EU MLR"): "69.2 67.1 40.8 38.0 17.3 15.8",
    ("hyfi_table6", "HY LARGE"): "83.1 81.3 42.0 41.4 24.0 25.2",
    ("hyfi_table7", "HY LARGE"): "47.4 75.8 69.4",
    ("hybonet_table6", "HyboNet"): "38.2 68.1 43.2 23.5",
    ("hybonet_table1_wn18rr", "TransE, d 180"): "22.7 50.6 38.6 3.5",
    ("hybonet_table1_wn18rr", "RotatE, d 1000"): "47.3 55.3 48.8 43.2",
    ("hybonet_table1_wn18rr", "HyboNet, d 32"): "48.9 55.3 50.3 45.5",
    ("hybonet_table1_wn18rr", "HyboNet, best d"): "51.3 56.9 52.7 48.2",
    ("hybonet_table1_fb15k237", "TuckER, d 200"): "34.7 53.3 38.4 25.4",
    ("hybonet_table1_fb15k237", "AttH, d 32"): "32.4 50.1 35.4 23.6",
    ("hybonet_table1_fb15k237", "HyboNet, d 32"): "33.4 51.6 36.5 24.4",
    ("hybonet_table1_fb15k237", "HyboNet, best d"): "35.2 52.9 38.7 26.3",
}
# Table 2, F1 and its interval, as they follow each other in print.
PRINTED_OF_A_SUBTREE = {
    "animal": "47.43 1.07 41.69 0.19 38.89 0.01 91.92 0.61 68.43 3.90 62.57 0.61 "
    "98.07 0.55 95.59 1.18 89.21 1.34 99.26 0.59 99.36 0.18 98.27 0.70",
    "group": "81.72 0.17 61.13 0.42 60.75 0.24 89.87 2.73 63.56 1.22 61.98 0.57 "
    "87.89 0.80 67.82 0.81 67.92 0.74 91.91 3.07 91.38 1.19 91.41 0.18",
    "worker": "12.68 0.82 10.86 0.01 9.04 0.06 24.09 1.49 22.39 0.04 22.57 0.20 "
    "55.46 5.49 35.23 3.16 26.47 0.78 66.83 11.38 47.29 3.93 36.66 2.74",
    "mammal": "32.01 17.14 15.58 0.04 13.10 0.13 87.54 4.55 44.68 1.87 44.89 1.18 "
    "88.73 3.22 59.35 1.31 52.51 0.85 91.37 6.09 77.76 5.08 56.11 2.21",
}


QUICK = ("hnn_table1_authors", "hybonet_table1_wn18rr_short", "hyfi_table5_crowd")
CASES = [pytest.param(LAYOUTS[k], id=k, marks=[] if k in QUICK else [pytest.mark.slow]) for k in LAYOUTS]


@pytest.mark.long
@pytest.mark.parametrize("layout", CASES)
def test_every_cell_composes_and_no_two_of_a_table_are_the_same_run(layout):
    settings = [settings_of(cell) for cell in layout.cells]
    for k, one in enumerate(settings):
        for other in range(k):
            assert differences(one, settings[other]), f"{layout.cells[k]} and {layout.cells[other]}"


def test_every_experiment_of_a_paper_has_a_cell():
    used = {cell.experiment for layout in LAYOUTS.values() for cell in layout.cells}
    assert set(EXPERIMENTS) - used == {"quickstart"}


@pytest.mark.long
@pytest.mark.parametrize("file", ["hnn_table1", "hnn_table2", "multinli_report_table9"])
def test_every_cell_of_a_table_of_cells_can_be_run(file):
    layout = LAYOUTS[file]
    assert {cell.place for cell in layout.cells} == {(row, column) for row in layout.rows for column in layout.columns}
    assert len(commands(layout, "0,1", [])) == len(layout.cells) == {"hnn_table1": 24, "hnn_table2": 48}.get(file, 6)


@pytest.mark.long
def test_a_cell_is_what_its_row_and_column_say():
    for cell in LAYOUTS["hnn_table1"].cells:
        values = settings_of(cell)
        assert values["task.name"] == cell.column.lower().replace("-", "")
        assert values["encoder.cell"].upper() in cell.row
        assert values["geometry.name"] == ("euclidean" if cell.row.startswith("fully Eucl") else "poincare")
        assert values["geometry.parts"] == ({"classifier": "euclidean"} if cell.row.endswith("MLR") else {})
    for cell in LAYOUTS["hnn_table2"].cells:
        values, (root, kind) = settings_of(cell), cell.row.split(", ")
        assert (values["task.data.subtree"], f"D = {values['task.data.dim']}") == (root, cell.column)
        assert values["task.data.embeddings"] == f"wordnet_nouns-poincare-{values['task.dim']}d.npz"
        assert values["geometry.name"] == ("euclidean" if kind == "EUCL" else "poincare")
        assert values["geometry.parts"] == ({"classifier": "euclidean"} if kind == "LOG0" else {})
        assert values["optim.rule"] == "lbfgs"
    for cell in (*LAYOUTS["hyfi_table3"].cells, *LAYOUTS["hyfi_table5"].cells, *LAYOUTS["hyfi_table5_crowd"].cells):
        values, (first, last) = settings_of(cell), cell.row.split(" ")
        size = last if last in ("LARGE", "XLARGE") else "BASE"
        assert values["task.model.s"] == {"BASE": 20, "LARGE": 50, "XLARGE": 100}[size]
        assert values["geometry.name"] == ("euclidean" if first == "EU" and last == size else "poincare")
        part = {"HY XLARGE": "encoder", "EU MLR": "classifier"}.get(
            cell.row, last if last.islower() else None
        )  # appendix F
        assert values["geometry.parts"] == ({part: "euclidean"} if part else {})


def records() -> dict[str, dict]:
    """All records, by their files; the cell whose name a file begins with is that of its run."""
    every = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RUNS.glob("*.json"))}
    assert len(every) >= 205
    return every


@pytest.mark.long
def test_a_record_of_each_task_fits_the_cell_of_its_name():
    cells = {cell.name: cell for layout in LAYOUTS.values() for cell in layout.cells}
    by_task = {}
    for file, record in records().items():
        if cell := cells.get(file.partition("-seed")[0]):
            by_task[record["config"]["task"]["name"]] = record, cell
    assert len(by_task) >= 20
    for record, cell in by_task.values():
        assert fits(record, cell), f"{cell}: {differences(decisive(record['config']), settings_of(cell))}"


@pytest.mark.slow  # `make check-tables` says it, too
def test_every_record_fills_a_cell():
    for file, record in records().items():
        assert cells_of(record, LAYOUTS.values()), file


def test_one_run_stands_in_all_tables_that_have_it():
    path = next(RUNS.glob("hyfi_crowd_base_hyp-seed0-*.json"))
    cells = cells_of(json.loads(path.read_text(encoding="utf-8")), LAYOUTS.values())
    tables = {"hyfi_table1_crowd", "hyfi_table3_crowd", "hyfi_table5_crowd", "hybonet_table6_crowd"}
    assert {(cell.table, cell.row) for cell in cells} == {(table, "HY BASE") for table in tables}


@pytest.mark.long
def test_a_record_from_before_an_experiment_was_renamed_counts():
    """A record by the name of an experiment that is gone; the settings say where it belongs."""
    name = "hnn_subtree-root=worker.n.01-geometry=poincare-classifier=euclidean-dim=5-seed1-*.json"
    record = json.loads(next(RUNS.glob(name)).read_text(encoding="utf-8"))
    record["experiment"] = "hnn_subtree_worker_d5_log0"
    assert record["experiment"] not in EXPERIMENTS
    record["paper"] = {"row": "something else"}
    layouts = [LAYOUTS[file] for file in ("hnn_table1", "hnn_table2")]
    (cell,) = cells_of(record, layouts)
    assert cell.words == (
        "experiment=hnn_subtree", "task.root=worker.n.01", "geometry=poincare",
        "geometry.parts.classifier=euclidean", "task.dim=5",
    )  # fmt: skip
    record["config"]["optim"]["lr"] = 0.5
    assert cells_of(record, layouts) == []
    assert differences(decisive(record["config"]), settings_of(cell)) == ["optim.lr=0.5, not 1.0"]


@pytest.mark.parametrize(("root", "printed"), PRINTED_OF_A_SUBTREE.items())
def test_values_of_subtrees_are_those_that_the_paper_prints(root, printed):
    """The paper prints HYP, EUCL and LOG0 below each other, each with its interval, dimension by dimension."""
    layout = LAYOUTS["hnn_table2"]
    cells = [(f"{root}.n.01, {kind}", column) for column in layout.columns for kind in ("HYP", "EUCL", "LOG0")]
    values = [f"{100 * layout.published[cell]:.2f} {100 * layout.intervals[cell]:.2f}" for cell in cells]
    assert " ".join(values) == printed


def test_every_row_has_an_experiment_or_is_only_quoted():
    quoted = {file: layout.quoted for file, layout in LAYOUTS.items() if layout.quoted}
    assert quoted == {
        "hyfi_table1": {"DENOISED", "BERT"}, "hyfi_table7": {"Shimaoka et al. (2017)", "AFET", "PLE", "BERT"},
        "hype_han_table2": {"generative LSTM", "char-CNN", "char-CRNN", "VDCNN"},
        "hybonet_table3": {"Transformer big"},
    }  # fmt: skip


def test_every_table_of_hyfi_is_there():
    assert {f"hyfi_table{n}" for n in (1, 3, 4, 5, 6, 7)} | {f"hyfi_table{n}_crowd" for n in (1, 3, 5)} == {
        file for file in LAYOUTS if file.startswith("hyfi")
    }


@pytest.mark.parametrize(("file", "row"), PRINTED)
def test_values_are_those_that_the_paper_prints(file, row):
    layout = LAYOUTS[file]
    values = [f"{100 * layout.published[row, column]:.1f}" for column in layout.columns]
    assert " ".join(values) == PRINTED[file, row]


@pytest.mark.parametrize("file", [file for file in LAYOUTS if file.startswith("hybonet_table1")])
def test_fewer_hits_are_in_a_shorter_list_and_the_mean_reciprocal_rank_lies_between(file):
    layout = LAYOUTS[file]
    assert tuple(layout.columns) == ("MRR", "H@10", "H@3", "H@1")
    for row in dict.fromkeys(row for row, _ in layout.published):
        mrr, *hits = (layout.published[row, column] for column in layout.columns)
        assert hits == sorted(hits, reverse=True)
        assert hits[-1] < mrr < hits[0]


def test_f1_lies_between_precision_and_recall():
    layout = LAYOUTS["hyfi_table1"]
    for row in layout.rows:
        for group in ("total", "coarse", "fine", "ultra"):
            p, r, f1 = (layout.published[row, f"{group} {name}"] for name in ("P", "R", "F1"))
            # 0.6 points: both are rounded, and the paper's F1 is the mean of three runs
            assert f1 == pytest.approx(2 * p * r / (p + r), abs=0.006), f"{row}, {group}"


@pytest.mark.parametrize(("one", "other", "columns"), [
    (("hyfi_table3", "HY BASE"), ("hyfi_table5", "HY BASE"), None),
    (("hyfi_table1", "HY BASE"), ("hybonet_table6", "HY BASE"), {"total F1": "total", "coarse F1": "coarse", "fine F1": "fine", "ultra F1": "ultra"}),
    (("hyfi_table1", "LABELGCN"), ("hybonet_table6", "LabelGCN"), {"total F1": "total", "coarse F1": "coarse", "fine F1": "fine", "ultra F1": "ultra"}),
])  # fmt: skip
def test_a_row_that_stands_in_two_tables_has_the_same_values(one, other, columns):
    first, second = LAYOUTS[one[0]], LAYOUTS[other[0]]
    for column, twin in (columns or {name: name for name in first.columns}).items():
        assert first.published[one[1], column] == second.published[other[1], twin]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_what_a_layout_says_of_its_rows_and_columns_holds_in_the_paper(layout):
    for ordering in layout.orderings:
        for name, *pair in ordering.pairs:
            high, low = (layout.published.get(place) for place in pair)
            if high is not None and low is not None:
                assert high > low, f"{layout.title}: {ordering.higher}, {ordering.lower}, {name}"


def test_crowd_tables_say_so_and_repeat_no_number():
    tables = [LAYOUTS[path.stem] for path in PUBLISHED.glob("*_crowd.yaml")]
    assert len(tables) == 4
    for layout in tables:
        assert layout.again
        assert layout.label.startswith("Crowd only, 1,998 training mentions, GloVe 50d: not the paper's data")
        assert (
            "published" not in (PUBLISHED / f"{layout.file}.yaml").read_text(encoding="utf-8").partition("\nrows:")[2]
        )


@pytest.mark.slow  # as `make check-tables`, which .ci/run calls
def test_the_committed_tables_are_what_the_records_give(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().out
