"""The published values: the layouts agree with the experiments, and the committed tables with the records."""

import pytest
import yaml

from scripts.layouts import EXPERIMENTS, PUBLISHED, experiments, find, load_layouts, places
from scripts.layouts import main as list_experiments
from scripts.tables import main

LAYOUTS = {layout.key: layout for layout in load_layouts()}
PAPERS = experiments()
ALL = sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))
# Per cent, as printed, in the order of the columns: a second reading of the papers, to catch a slip of the first.
PRINTED = {
    ("hyfi", 1, "HY XLARGE"): "43.4 34.2 38.2 61.4 73.9 67.1 35.7 46.6 40.4 36.5 19.9 25.7",
    ("hyfi", 1, "BERT"): "51.6 32.8 40.1 67.4 80.6 73.4 41.6 54.7 47.3 46.3 15.6 23.4",
    ("hyfi", 3, "EU LARGE"): "67.1 63.8 36.7 34.7 22.0 19.7",
    ("hyfi", 4, "HY BASE"): "68.7 66.6 41.5 38.8 22.1 20.1",
    ("hyfi", 5, "EU MLR"): "69.2 67.1 40.8 38.0 17.3 15.8",
    ("hyfi", 6, "HY LARGE"): "83.1 81.3 42.0 41.4 24.0 25.2",
    ("hyfi", 7, "HY LARGE"): "47.4 75.8 69.4",
    ("hybonet", 6, "HyboNet"): "38.2 68.1 43.2 23.5",
}
PRINTED_OF_A_DATA_SET = {
    ("wn18rr", "TransE, d 180"): "22.7 50.6 38.6 3.5",
    ("wn18rr", "RotatE, d 1000"): "47.3 55.3 48.8 43.2",
    ("wn18rr", "HyboNet, d 32"): "48.9 55.3 50.3 45.5",
    ("wn18rr", "HyboNet, best d"): "51.3 56.9 52.7 48.2",
    ("fb15k237", "TuckER, d 200"): "34.7 53.3 38.4 25.4",
    ("fb15k237", "AttH, d 32"): "32.4 50.1 35.4 23.6",
    ("fb15k237", "HyboNet, d 32"): "33.4 51.6 36.5 24.4",
    ("fb15k237", "HyboNet, best d"): "35.2 52.9 38.7 26.3",
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


def filled() -> list[tuple]:
    """(paper, table, variant, row, column) of every cell or row that an experiment fills, once for each time."""
    found = ((key, node) for paper in PAPERS.values() for key, node in places(paper))
    return [(*key, node["row"], node["column"]) for key, node in found]


@pytest.mark.parametrize("name", ALL)
def test_an_experiment_quotes_the_table_it_belongs_to(name):
    if name not in PAPERS:
        assert not name.startswith(("hnn_", "hyfi_", "hybonet_")), f"{name} names a paper and has no paper node"
        return
    for key, paper in places(PAPERS[name]):
        find(LAYOUTS, key, name).check(paper, name)


def test_no_two_experiments_stand_for_one_cell():
    assert filled()
    assert len(filled()) == len(set(filled()))


def test_every_prefix_cell_of_table_1_has_an_experiment():
    layout = LAYOUTS["hnn", 1, None]
    covered = {tuple(place[3:]) for place in filled() if place[:3] == layout.key}
    prefix = {(row, column) for row in layout.rows for column in layout.columns if column.startswith("PREFIX")}
    assert len(prefix) == 18
    assert prefix <= covered


def test_every_cell_of_table_2_has_an_experiment():
    layout = LAYOUTS["hnn", 2, None]
    covered = {tuple(place[3:]) for place in filled() if place[:3] == layout.key}
    assert len(covered) == 48
    assert covered == set(layout.published)


@pytest.mark.parametrize(("root", "printed"), PRINTED_OF_A_SUBTREE.items())
def test_values_of_subtrees_are_those_that_the_paper_prints(root, printed):
    """The paper prints HYP, EUCL and LOG0 below each other, each with its interval, dimension by dimension."""
    layout = LAYOUTS["hnn", 2, None]
    cells = [(f"{root}.n.01, {kind}", column) for column in layout.columns for kind in ("HYP", "EUCL", "LOG0")]
    values = [f"{100 * layout.published[cell]:.2f} {100 * layout.intervals[cell]:.2f}" for cell in cells]
    assert " ".join(values) == printed


@pytest.mark.parametrize("key", [key for key in LAYOUTS if LAYOUTS[key].whole_rows], ids=str)
def test_every_row_has_an_experiment_or_is_only_quoted(key):
    layout = LAYOUTS[key]
    covered = {place[3] for place in filled() if place[:3] == key}
    assert covered == set(layout.rows) - set(layout.quoted)


def test_every_table_of_the_issue_has_a_layout():
    assert {key for key in LAYOUTS if key[0] == "hyfi" and key[2] is None} == {("hyfi", n, None) for n in (1, 3, 4, 5, 6, 7)}
    assert {key for key in LAYOUTS if key[2] == "crowd"} == {
        ("hyfi", 1, "crowd"), ("hyfi", 3, "crowd"), ("hyfi", 5, "crowd"), ("hybonet", 6, "crowd"),
    }  # fmt: skip


@pytest.mark.parametrize(("name", "table", "row"), PRINTED)
def test_values_are_those_that_the_paper_prints(name, table, row):
    layout = LAYOUTS[name, table, None]
    values = [f"{100 * layout.published[row, column]:.1f}" for column in layout.columns]
    assert " ".join(values) == PRINTED[name, table, row]


@pytest.mark.parametrize(("data", "row"), PRINTED_OF_A_DATA_SET)
def test_values_of_knowledge_graphs_are_those_that_the_paper_prints(data, row):
    layout = LAYOUTS["hybonet", 1, data]
    assert layout.columns == ("MRR", "H@10", "H@3", "H@1")
    values = [f"{100 * layout.published[row, column]:.1f}" for column in layout.columns]
    assert " ".join(values) == PRINTED_OF_A_DATA_SET[data, row]


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS.values() if layout.key[:2] == ("hybonet", 1)], ids=lambda one: one.variant)
def test_fewer_hits_are_in_a_shorter_list_and_the_mean_reciprocal_rank_lies_between(layout):
    assert not layout.quoted
    for row in dict.fromkeys(row for row, _ in layout.published):
        mrr, *hits = (layout.published[row, column] for column in layout.columns)
        assert hits == sorted(hits, reverse=True)
        assert hits[-1] < mrr < hits[0]


def test_f1_lies_between_precision_and_recall():
    layout = LAYOUTS["hyfi", 1, None]
    for row in layout.rows:
        for group in ("total", "coarse", "fine", "ultra"):
            p, r, f1 = (layout.published[row, f"{group} {name}"] for name in ("P", "R", "F1"))
            # 0.6 points: both are rounded, and the paper's F1 is the mean of three runs
            assert f1 == pytest.approx(2 * p * r / (p + r), abs=0.006), f"{row}, {group}"


@pytest.mark.parametrize(("one", "other", "columns"), [
    (("hyfi", 3, "HY BASE"), ("hyfi", 5, "HY BASE"), None),
    (("hyfi", 1, "HY BASE"), ("hybonet", 6, "HY BASE"), {"total F1": "total", "coarse F1": "coarse", "fine F1": "fine", "ultra F1": "ultra"}),
    (("hyfi", 1, "LABELGCN"), ("hybonet", 6, "LabelGCN"), {"total F1": "total", "coarse F1": "coarse", "fine F1": "fine", "ultra F1": "ultra"}),
])  # fmt: skip
def test_a_row_that_stands_in_two_tables_has_the_same_values(one, other, columns):
    first, second = (LAYOUTS[name, table, None] for name, table, _ in (one, other))
    for column, twin in (columns or {name: name for name in first.columns}).items():
        assert first.published[one[2], column] == second.published[other[2], twin]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=lambda layout: str(layout.key))
def test_what_a_layout_says_of_its_rows_and_columns_holds_in_the_paper(layout):
    for ordering in layout.orderings:
        for name, *pair in ordering.pairs():
            high, low = (layout.published.get(place) for place in pair)
            if high is not None and low is not None:
                assert high > low, f"{layout.title}: {ordering.higher}, {ordering.lower}, {name}"


def test_crowd_tables_say_so_and_repeat_no_number():
    for path in PUBLISHED.glob("*_crowd.yaml"):
        node = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert isinstance(node["rows"], list)
        assert node["label"].startswith("Crowd only, 1,998 training mentions, GloVe 50d: not the paper's data")


def test_the_experiments_of_a_table_are_listed_for_make(capsys):
    assert list_experiments(["hyfi_table5_crowd"]) == 0
    assert capsys.readouterr().out.strip() == (
        "hyfi_crowd_attention_eucl,hyfi_crowd_base_hyp,hyfi_crowd_concat_eucl,hyfi_crowd_encoder_eucl,hyfi_crowd_mlr_eucl"
    )
    assert list_experiments(["hyfi_table2"]) == 1
    assert "There are: " in capsys.readouterr().err


def test_the_committed_tables_are_what_the_records_give(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().out
