"""Runs compared: which settings differ, what is one setting, the ranking, and the paired tests."""

import copy
import json
import math
from pathlib import Path

import pytest
from scipy import stats

from tasks.comparison import PairedTest, compare, holm, paired_test
from tasks.comparison_notes import in_parts
from tasks.comparison_table import grid, markdown, numbers

RECORD = {
    "experiment": None,
    "commit": "a",
    "config": {
        "seed": 0,
        "mode": "fit",
        "task": {
            "name": "toy",
            "data": {"_target_": "tasks.toy.Data", "seed": 0, "batch_size": 8, "vectors": None},
            "module": {"select": "val/accuracy", "select_mode": "max"},
        },
        "geometry": {"name": "poincare", "manifold": "PoincareBall", "layers": "mobius", "c": 1.0, "parts": {}},
        "encoder": {"_target_": "hyperbolic.encoders.rnn.RecurrentEncoder", "cell": "gru"},
        "optim": {"lr": 0.01},
        "trainer": {"max_epochs": 3, "threads": 1},
    },
    "overrides": [],
    "metrics": {"val/accuracy": 0.5, "test/accuracy": 0.5, "test/loss": 1.0, "test/fine/accuracy": 0.25},
    "selection": {"metric": "val/accuracy", "mode": "max", "value": 0.5},
    "data": {
        "files": {"test": "test.tsv"},
        "counts": {"dev": {"pairs": 10, "unknown": 3}, "test": {"pairs": 12}},
        "sha256": {"dev": "d", "test": "t", "train": "r"},
    },
    "seed": 0,
}


def record(seed: int = 0, val: float = 0.5, test: float = 0.5, words: tuple[str, ...] = (), **settings) -> dict:
    """A record with these metrics; settings: dotted keys of the whole, `.` written as `__`."""
    made = copy.deepcopy(RECORD)
    changes = {"seed": seed, "config__seed": seed, "config__task__data__seed": seed, **settings}
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = made
        for key in parents:
            node = node[key]
        node[last] = value
    made["metrics"] |= {"val/accuracy": val, "test/accuracy": test}
    made["overrides"] = [*words, f"seed={seed}"]
    return made


def compared(*records: dict, **keywords):
    files = {Path(f"out/toy/{k:03d}-seed{r['seed']}/record.json"): r for k, r in enumerate(records)}
    return compare(files, **keywords)


def labels_of(*records: dict, **keywords) -> list[dict[str, str]]:
    (comparison,) = compared(*records, **keywords)
    return [setting.labels for setting in comparison.settings]


def test_runs_that_differ_in_the_seed_are_one_setting_and_the_best_comes_first():
    slow = [record(seed, val, test, config__optim__lr=0.1) for seed, val, test in ((0, 0.6, 0.3), (1, 0.8, 0.5))]
    quick = [record(seed, val, test) for seed, val, test in ((0, 0.8, 0.7), (1, 0.9, 0.9), (2, 1.0, 0.8))]
    (comparison,) = compared(*slow, *quick)
    assert [setting.labels for setting in comparison.settings] == [{"optim.lr": "0.01"}, {"optim.lr": "0.1"}]
    content = grid(comparison)
    assert content.title == "toy, test.tsv"
    assert content.header == [
        "rank",
        "optim.lr",
        "seeds",
        "val/accuracy",
        "test/accuracy",
        "test/loss",
        "difference from 1",
    ]
    first, second = ([cell for (cell,) in row] for row in content.rows)
    assert first[:5] == ["1", "0.01", "3", "0.9000 ± 0.1000", "0.8000 ± 0.1000"]
    assert second[:5] == ["2", "0.1", "2", "0.7000 ± 0.1414", "0.4000 ± 0.1414"]
    assert second[-1] == "−0.4000 ± 0.0000"
    assert content.notes[-1] == "There is no test: the difference of two settings is the same with every seed."


def test_the_lower_is_better_where_the_metric_is_to_be_minimised():
    chosen = {"selection": {"metric": "val/loss", "mode": "min", "value": 1}}
    losses = {0.01: 2.0, 0.1: 1.0}
    records = [record(config__optim__lr=lr, **chosen) for lr in losses]
    for made, loss in zip(records, losses.values(), strict=True):
        made["metrics"]["val/loss"] = loss
    (comparison,) = compared(*records)
    assert [setting.labels["optim.lr"] for setting in comparison.settings] == ["0.1", "0.01"]
    assert "the lower the better" in grid(comparison).notes[0]


def test_the_mean_of_the_last_weights_is_ranked_by_what_would_have_selected():
    averaged = {"selection": {"metric": None, "average_last": 5}}
    (comparison,) = compared(record(val=0.5, **averaged), record(val=0.7, config__optim__lr=0.1))
    assert comparison.metric == "val/accuracy"
    assert comparison.settings[0].labels == {"optim.lr": "0.1"}


def test_a_run_without_the_selecting_metric_comes_last():
    without = record(config__optim__lr=0.1)
    del without["metrics"]["val/accuracy"]
    (comparison,) = compared(without, record(val=0.1))
    assert [setting.labels["optim.lr"] for setting in comparison.settings] == ["0.01", "0.1"]
    assert "Runs without val/accuracy come last" in " ".join(grid(comparison).notes)


def test_words_of_the_command_line_name_settings_where_they_say_all():
    gru = record(words=("task=toy", "logger=none"))
    transformer = record(
        words=("task=toy", "encoder=transformer", "optim.lr=0.1"), config__optim__lr=0.1,
        config__encoder={"_target_": "hyperbolic.encoders.transformer.Transformer", "n_heads": 4},
    )  # fmt: skip
    other = {"encoder": "transformer", "optim.lr": "0.1"}
    assert labels_of(gru, transformer) == [{"encoder": "RecurrentEncoder", "optim.lr": "0.01"}, other]
    known = [{"encoder": "gru", "optim.lr": "0.01"}, other]
    assert labels_of(gru, transformer, choices=lambda file: {"encoder": "gru"} if "000" in str(file) else {}) == known
    stored = labels_of(gru, transformer, choices=lambda file: {"encoder": "checkpoint"})
    assert stored[0]["encoder"] == "RecurrentEncoder"
    transformer["commit"] = "b"  # where the same words may mean something else
    keys = {"encoder": "RecurrentEncoder", "optim.lr": "0.01"}
    assert labels_of(gru, transformer) == [keys, {"encoder": "Transformer", "optim.lr": "0.1"}]
    flat_one = {"name": "euclidean", "manifold": "Euclidean", "layers": "euclidean", "c": None, "parts": {}}
    named = labels_of(gru, record(commit="d" * 40, config__geometry=flat_one))
    assert named == [{"geometry": "poincare", "geometry.c": "1.0"}, {"geometry": "euclidean", "geometry.c": "–"}]
    curved = labels_of(gru, record(commit="d" * 40, config__geometry__c=2.0))
    assert curved == [{"geometry.c": "1.0"}, {"geometry.c": "2.0"}]


def test_a_run_that_went_on_is_of_the_experiment_that_its_checkpoint_was_of():
    fresh, other = record(words=("task=toy",)), record(words=("experiment=mine",), experiment="mine", config__optim__lr=0.1)
    again = record(words=("experiment=checkpoint", "trainer.max_epochs=9"), config__trainer__max_epochs=9)
    assert [own["experiment"] for own in labels_of(fresh, other, again)] == ["–", "mine", "–"]


def test_words_that_hide_a_difference_do_not_name_settings():
    """The file of the encoder was changed between two runs of the same words."""
    assert labels_of(record(words=("encoder=gru",)), record(words=("encoder=gru",), config__encoder__cell="rnn")) == [
        {"encoder.cell": "gru"},
        {"encoder.cell": "rnn"},
    ]


def test_a_setting_that_one_run_does_not_name_has_its_value_all_the_same():
    euclidean = {"name": "euclidean", "manifold": "Euclidean", "layers": "euclidean", "c": 1.0, "parts": {}}
    plain, named = record(), record(words=("geometry=euclidean",), config__geometry=euclidean)
    assert labels_of(plain, named) == [{"geometry": "poincare"}, {"geometry": "euclidean"}]
    same = record(words=("encoder=gru", "optim.lr=0.1"), config__optim__lr=0.1)
    assert labels_of(plain, same) == [{"optim.lr": "0.01"}, {"optim.lr": "0.1"}], "both have this encoder"
    experiment = record(words=("experiment=a", "optim.lr=0.1"), experiment="a", config__optim__lr=0.1)
    assert labels_of(plain, experiment)[0] == {"experiment": "–", "optim.lr": "0.01"}


def test_how_a_word_is_written_is_no_setting():
    def run(k: int, root: str, lr: str, encoder: str) -> dict:
        words = (f"task.root={root}", f"optim.lr={lr}", f"encoder={encoder}", f"task.data.batch_size={8 + k}")
        settings = {"config__task__root": "Säugetier", "config__task__data__batch_size": 8 + k}
        return record(words=words, **settings)

    runs = run(0, '"Säugetier"', "0.01", "gru"), run(1, "'Säugetier'", "1e-2", "'gru'")
    assert labels_of(*runs) == [{"task.data.batch_size": "8"}, {"task.data.batch_size": "9"}]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"config__trainer__threads": 4}, []),
        ({"config__trainer__logger": "wandb"}, []),
        ({"config__task__data__root": "elsewhere"}, []),
        ({"config__task__data__batch_size": 16}, [("task.data.batch_size", "8", "16")]),
        ({"config__geometry__parts": {"classifier": "euclidean"}}, [("geometry.parts.classifier", "–", "euclidean")]),
        ({"config__task__data__vectors": {"root": "x", "files": "y"}}, [("task.data.vectors", "–", "given")]),
        ({"config__optim__newer_setting": None}, []),
        (
            {"config__geometry__name": "lorentz", "config__geometry__manifold": "Lorentz", "config__geometry__layers": "lorentz"},
            [("geometry", "poincare", "lorentz")],
        ),
    ],
)  # fmt: skip
def test_what_counts_as_a_difference(settings, expected):
    (comparison,) = compared(record(seed=0), record(seed=1, **settings))
    assert [(key, *(setting.labels[key] for setting in comparison.settings)) for key in comparison.keys] == expected
    assert len(comparison.settings) == (2 if expected else 1)


def test_of_the_same_setting_and_seed_the_last_run_counts():
    (comparison,) = compared(record(val=0.9), record(val=0.2))
    assert comparison.settings[0].values("val/accuracy") == {0: 0.2}
    assert "1 earlier left out" in comparison.notes[0]


def test_runs_on_other_training_data_are_settings_of_their_own():
    def run(seed: int, train: str) -> dict:
        return record(seed, config__task__data__folder=f"data/{train}", data__sha256={"dev": "d", "test": "t", "train": train})

    (same,) = compared(run(0, "r"), run(1, "r"))
    assert not any("different data" in note for note in same.notes)
    assert (len(same.settings), same.keys) == (1, [])
    (other,) = compared(run(0, "aaaaaaaa"), run(1, "aaaaaaaa"), run(0, "bbbbbbbb"), run(1, "bbbbbbbb"))
    assert {each.labels["training data"]: [*each.records] for each in other.settings} == {
        "train aaaaaa": [0, 1],
        "train bbbbbb": [0, 1],
    }
    assert any("trained on different data (train), and have rows of their own" in note for note in other.notes)
    assert not any("earlier left out" in note for note in other.notes)


def test_settings_on_other_training_data_are_noted():
    def run(lr: float, train: str) -> dict:
        return record(config__optim__lr=lr, data__sha256={"dev": "d", "test": "t", "train": train})

    (same,) = compared(run(0.1, "aaaaaaaa"), run(0.2, "aaaaaaaa"))
    assert same.notes == ()
    (other,) = compared(run(0.1, "aaaaaaaa"), run(0.2, "bbbbbbbb"))
    assert other.notes[0].startswith("The runs were trained on different data (train aaaaaa; train bbbbbb: ")


def test_changes_that_were_not_committed_are_another_version_of_the_code():
    (clean,) = compared(record(0, dirty=False), record(1, dirty=False))
    (changed,) = compared(record(0, dirty=False), record(1, dirty=True))
    assert clean.notes == ()
    assert changed.notes == (
        "The runs are of 2 versions of the code.",
        "1 of 2 runs had changes in their code that were not committed.",
    )


def test_a_run_that_went_on_with_other_code_is_of_several_versions():
    code = [{"commit": commit, "dirty": False, "versions": {}} for commit in ("b", "a")]
    (other,) = compared(record(0, code=code), record(1))
    assert other.notes == (
        "The runs are of 2 versions of the code.",
        "1 of 2 runs went on with another version than they began with.",
    )


def test_settings_that_follow_from_others_are_noted_and_the_best_run_named():
    one = record(words=("encoder=gru",))
    other = record(
        words=("encoder=murp",), val=0.1, config__encoder={"_target_": "hyperbolic.encoders.relational.mur.MuR"},
        config__geometry__name="lorentz", config__optim__lr=0.5,
    )  # fmt: skip
    (both,) = compared(one, other)
    assert both.keys == ["encoder"]
    assert both.notes[0] == "The runs differ besides in geometry.name (poincare, lorentz), optim.lr (0.01, 0.5)."
    assert "Rank 1 is out/toy/000-seed0." in grid(both).notes


def test_metrics_are_in_the_order_of_their_numbers():
    hits = {f"test/hits@{k}": 0.5 for k in (10, 1, 3)}
    (runs,) = compared(*({**each, "metrics": each["metrics"] | hits} for each in (record(0), record(1))))
    assert runs.test_metrics() == ["test/accuracy", "test/hits@1", "test/hits@3", "test/hits@10", "test/loss"]
    versions = ["1" + "0" * 5000, "2.10", "²", "2.9", "02.9"]
    assert sorted(versions, key=in_parts)[:3] == ["2.9", "02.9", "2.10"]


def test_packages_of_several_versions_are_noted():
    one, other = ({"torch": version, "numpy": "2.2.0"} for version in ("2.9.0", "2.13.0"))
    (mixed,) = compared(record(0, versions=one), record(1, versions=other))
    assert mixed.notes == ("The runs are of several versions of torch 2.9.0, 2.13.0.",)


def test_a_part_of_the_data_is_noted():
    def run(seed: int, share: float, **settings) -> dict:
        return record(seed, data=RECORD["data"] | {"share": share}, **settings)

    cut = {"config__trainer__limit_test_batches": 2, "config__task__data__eval_batch_size": 8}
    full = {"config__trainer__limit_test_batches": 1.0}
    whole, part = compared(run(0, 1.0, **full), run(0, 0.25, **cut), run(1, 0.5, **cut))
    assert whole.notes == ()
    assert part.title == "toy, test.tsv, trainer.limit_test_batches=2"
    assert part.notes == (
        "The evaluation was cut (trainer.limit_test_batches=2, task.data.eval_batch_size=8): metrics are of a part of the "
        "data.",
        "Runs used a part of their training or test data only; the share (data.share) is 0.25 to 0.5.",
    )


def test_seeds_with_other_numbers_of_parameters_are_noted():
    (other,) = compared(record(0, parameters=10), record(1, parameters=11), record(0, parameters=9, config__optim__lr=1.0))
    assert other.notes == ("Runs of 1 settings have different numbers of parameters from seed to seed.",)


@pytest.mark.parametrize(
    ("settings", "tables"),
    [
        ({"data__sha256": {"dev": "d", "test": "other"}}, 2),
        ({"data__sha256": {"dev": "d", "test": "t", "train": "less"}}, 1),
        ({"data__counts": {"dev": {"pairs": 10, "unknown": 9}, "test": {"pairs": 12}}}, 1),
        ({"data__counts": {"dev": {"pairs": 9}, "test": {"pairs": 12}}}, 2),
        ({"selection": {"metric": "val/loss", "mode": "min"}}, 2),
        ({"config__task__data__batch_size": 9}, 1),
        ({"config__task__data__without_self": True}, 2),
        ({"config__task__module": {"ties": "pessimistic"}}, 2),
        ({"config__task__module": {"negatives": 7}}, 1),
        ({"config__trainer__limit_test_batches": 1}, 2),
        ({"config__trainer__limit_test_batches": 1.0}, 1),
        ({"config__trainer__limit_val_batches": 0.5}, 2),
        ({"config__trainer__limit_train_batches": 0.5}, 1),
    ],
)
def test_runs_are_compared_on_the_same_evaluation_only(settings, tables):
    assert len(compared(record(seed=0), record(seed=1, **settings))) == tables


def test_tables_of_other_data_say_what_was_chosen_otherwise():
    def run(root: str, lr: float, seed: int = 0) -> dict:
        words = (f"task.root={root}", f"optim.lr={lr}", "geometry=poincare")
        data = {"data__sha256": {"dev": "d", "test": root, "train": "r"}}
        return record(seed, words=words, config__task__root=root, config__optim__lr=lr, **data)

    titles = [each.title for each in compared(*(run(root, lr) for root in ("Vogel", "Fisch") for lr in (0.1, 0.2)))]
    assert titles == ["toy, test.tsv, task.root=Vogel", "toy, test.tsv, task.root=Fisch"]
    titles = [each.title for each in compared(run("Vogel", 0.1), run("Fisch", 0.2))]
    assert titles == ["toy, test.tsv, task.root=Vogel, optim.lr=0.1", "toy, test.tsv, task.root=Fisch, optim.lr=0.2"]
    titles = [each.title for each in compared(run("V" * 99, 0.1), run("F" * 99, 0.1))]
    assert titles[0] == f"toy, test.tsv, task.root={'V' * 40}..."


def test_tables_of_the_data_of_each_seed_say_the_seed():
    draws = [record(seed, data__sha256={"dev": "d", "test": f"t{seed}", "train": "r"}) for seed in (0, 1)]
    assert [each.title for each in compared(*draws)] == ["toy, test.tsv, seed=0", "toy, test.tsv, seed=1"]


def test_tables_of_data_that_nothing_else_tells_apart_have_their_fingerprint():
    draws = [record(data__sha256={"dev": "d", "test": f"t{k}", "train": "r"}) for k in (0, 1)]
    titles = [each.title for each in compared(*draws)]
    assert titles == ["toy, test.tsv (data.sha256.test t0)", "toy, test.tsv (data.sha256.test t1)"]
    draws = [record(data__sha256={"dev": f"d{k}", "test": "t", "train": "r"}) for k in (0, 1)]
    assert [each.title for each in compared(*draws)][1] == "toy, test.tsv (data.sha256.dev d1)"
    draws = [record(data__counts={"test": {"pairs": k}}) for k in (1, 2)]
    titles = [each.title for each in compared(*draws)]
    assert all(title.startswith("toy, test.tsv (settings of the evaluation ") for title in titles)
    assert len({*titles}) == 2


def test_a_paired_test_is_students():
    a = {0: 0.81, 1: 0.84, 2: 0.79, 3: 0.85, 7: 0.1}
    b = {3: 0.80, 2: 0.78, 1: 0.80, 0: 0.80, 8: 0.9}
    result = paired_test(a, b)
    expected = stats.ttest_rel([a[k] for k in range(4)], [b[k] for k in range(4)])
    assert result.n == 4
    assert result.mean == pytest.approx(0.0275)
    assert result.p == pytest.approx(expected.pvalue, rel=1e-9)


def test_there_is_no_test_of_one_seed_of_none_and_of_equal_differences():
    assert paired_test({0: 0.5}, {0: 0.25}) == PairedTest(1, 0.25, None, None)
    assert paired_test({0: 0.5}, {1: 0.25}).n == 0
    assert paired_test({0: 0.5, 1: 0.7}, {0: 0.4, 1: 0.6}).p is None


def test_holms_correction():
    tests = [PairedTest(3, 0.1, 0.1, p) for p in (0.04, 0.01, None, 0.03)]
    assert [test.p for test in holm(tests)] == pytest.approx([0.06, 0.03, None, 0.06])
    assert [test.p for test in holm(tests[:1])] == [0.04]


def test_a_test_of_few_seeds_says_so():
    best = [record(seed, val=0.9, test=0.9 + seed / 100) for seed in range(3)]
    other = [record(seed, val=0.5, test=0.5, config__optim__lr=0.1) for seed in range(3)]
    (comparison,) = compared(*best, *other)
    content = grid(comparison)
    p = stats.ttest_rel([0.5] * 3, [0.9, 0.91, 0.92]).pvalue
    assert p < 0.001
    assert content.rows[1][-1] == ["−0.4100 ± 0.0100, p < 0.001"]
    assert "With 3 pairs of seeds" in content.notes[-1]
    (alone,) = compared(best[0], other[0])
    assert "There is no test: it needs at least two seeds" in grid(alone).notes[-1]
    assert grid(alone).rows[1][-1] == ["−0.4000 (1 seed)"]


def test_a_search_is_shown_without_test_metrics():
    content = grid(compared(record(), record(config__optim__lr=0.1))[0], with_test=False)
    assert content.header == ["rank", "optim.lr", "seeds", "val/accuracy"]
    assert "test/" not in json.dumps(content)


def test_many_differences_stand_in_one_column():
    many = {f"config__optim__k{k}": 1 for k in range(5)}
    none = dict.fromkeys(many, 2)
    content = grid(compared(record(experiment="first", **many), record(experiment="second", **none))[0])
    assert content.header[:3] == ["rank", "settings", "seeds"]
    assert content.rows[0][1] == ["first", *(f"optim.k{k}=1" for k in range(5))]


def test_markdown_keeps_its_columns():
    text = markdown(compared(record(words=("a=x|y",), config__optim__lr=0.1), record(words=("a=z",))))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert lines[0].startswith("| rank | a | seeds | val/accuracy |")
    assert lines[1] == "|---:|---|---:|---:|---:|---:|---:|"
    assert lines[2].startswith("| 1 | x\\|y | 1 | 0.5000 |")


def test_numbers_are_whole_and_of_groups_too():
    header, rows = numbers(
        compared(record(0, 0.9, 0.4), record(1, 0.9, 0.5), record(0, 0.1, 0.2, config__optim__lr=0.1))
    )
    first, second = (dict(zip(header, row, strict=True)) for row in rows)
    assert (first["seeds"], first["seed_list"]) == (2, "0 1")
    assert first["test/accuracy mean"] == pytest.approx(0.45)
    assert first["test/accuracy sd"] == pytest.approx(math.sqrt(0.005))
    assert second["test/fine/accuracy mean"] == 0.25
    assert second["test/fine/accuracy sd"] is None
    assert second["difference"] == pytest.approx(-0.2)
    assert (second["common seeds"], second["p (Holm)"]) == (1, None)


def test_a_first_setting_of_one_seed_is_not_what_the_others_are_tested_against():
    once = [record(0, 0.95, 0.9, config__optim__lr=0.1)]
    twice = [record(seed, 0.9, test) for seed, test in ((0, 0.7), (1, 0.72))]
    again = [record(seed, 0.8, test, config__optim__lr=0.2) for seed, test in ((0, 0.6), (1, 0.65))]
    (comparison,) = compared(*once, *twice, *again)
    assert comparison.reference == 1
    content = grid(comparison)
    assert content.header[-1] == "difference from 2"
    first, second, third = ("".join(row[-1]) for row in content.rows)
    assert "(1 seed)" in first
    assert second == ""
    assert "0.0850 ± 0.0212, p = " in third
    assert not any("There is no test" in note for note in content.notes)
