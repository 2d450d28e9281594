"""Ranking the trials of a search, and how much each setting matters."""

import json
from dataclasses import replace

import pytest
from scipy import stats

from tasks import search
from tasks.errors import UserError
from tasks.search import COMPLETE, DIVERGED, FAILED, PRUNED, Search, Trial


def made(trials: list[Trial], mode: str = "max", space: dict | None = None) -> Search:
    identity = {"words": [], "space": space or {}}
    return Search("toy", ["-m"], ["task=toy"], "random", 0, 20, identity, "0", "val/mrr", mode, trials, {})


def trial(number: int, value: float | None, state: str = COMPLETE, **settings: object) -> Trial:
    own = {key.replace("__", "."): str(each) for key, each in settings.items()}
    return Trial(number, own, state, f"trial-{number:03d}", value)


@pytest.mark.parametrize(("mode", "order"), [("max", [1, 3, 0, 5, 2, 4]), ("min", [0, 3, 1, 5, 2, 4])])
def test_trials_without_a_value_come_last(mode, order):
    trials = [trial(0, 0.1), trial(1, 0.9), trial(2, None, DIVERGED), trial(3, 0.5), trial(4, None, FAILED), trial(5, None, PRUNED)]
    assert [each.number for each in made(trials, mode).ranked()] == order


def test_importance_of_two_groups_by_hand():
    """a has the ranks 0, 1, 2, 4 and b 3, 5, 6, 7: means 1.75 and 5.25, within 8.75 + 8.75, in all 42."""
    values = {"a": [8, 7, 6, 4], "b": [5, 3, 2, 1]}
    trials = [trial(k, float(v), x=name, y=0) for k, (name, v) in enumerate((n, v) for n, vs in values.items() for v in vs)]
    result = made(trials)
    assert result.different() == ["x"]
    assert search.importance(result) == {"x": pytest.approx(1 - (17.5 / 6) / (42 / 7))}


def test_equal_trials_share_a_rank():
    same = [trial(k, 1.0, x="ab"[k % 2]) for k in range(8)]
    assert search.importance(made([*same[:7], trial(7, 1.0, x="a")])) == {"x": 0.0}
    apart = [trial(k, None, DIVERGED, x="a") for k in range(10)] + [trial(10 + k, 0.5, x="b") for k in range(10)]
    assert search.importance(made(apart)) == {"x": pytest.approx(1.0)}
    assert search.short_names(["encoder", "geometry.parts.encoder"]) == ["encoder", "parts.encoder"]


def test_importance_agrees_with_the_f_of_an_analysis_of_variance():
    """epsilon² = (k - 1)(F - 1) / ((k - 1) F + n - k), here of three values and of thirds of an interval."""
    trials = [trial(k, (k * 7919 % 31) / 31, x="abc"[k * k % 7 % 3], lr=f"{(k * 37 % 30) / 30:.4f}") for k in range(30)]
    result = made(trials)
    place = {each.number: k for k, each in enumerate(result.ranked())}
    by_rate = sorted(range(30), key=lambda k: float(trials[k].settings["lr"]))
    groups = {
        "x": [[place[t.number] for t in trials if t.settings["x"] == name] for name in "abc"],
        "lr": [[place[k] for k in by_rate[10 * third : 10 * third + 10]] for third in range(3)],
    }
    for key, ranks in groups.items():
        f = stats.f_oneway(*ranks).statistic
        assert search.importance(result)[key] == pytest.approx(max(0.0, 2 * (f - 1) / (2 * f + 27)))


def test_few_trials_have_no_importance():
    assert search.importance(made([trial(k, k / 7, x=k % 2) for k in range(7)])) == {}


def test_a_diverged_trial_counts_as_the_worst_and_a_failed_one_not_at_all():
    good = [trial(k, 1.0 - k / 100, x="good") for k in range(5)]
    bad = [trial(5 + k, None, DIVERGED, x="bad") for k in range(5)]
    assert search.importance(made([*good, *bad]))["x"] > 0.7
    failed = [trial(5 + k, None, FAILED, x="bad") for k in range(5)]
    assert search.importance(made([*good, *failed])) == {}


def test_the_table_names_columns_by_the_last_parts_of_keys():
    space = {"encoder.d": [], "task.data.batch_size": [], "geometry.c": [], "encoder.reader.c": []}
    trials = [
        trial(0, 0.5, task__data__batch_size=1, encoder__d=3, geometry__c=1, encoder__reader__c=5),
        trial(1, 0.7, task__data__batch_size=2, encoder__d=4, encoder__reader__c=6),
    ]  # fmt: skip
    content = search.grid(made(trials, space=space))
    assert content.header == ["rank", "trial", "val/mrr", "d", "batch_size", "geometry.c", "reader.c", "epoch", "seconds"]
    assert content.rows[0][:6] == [["1"], ["1"], ["0.7000"], ["4"], ["2"], ["–"]]


def test_the_file_is_read_as_it_was_written_without_paths(tmp_path):
    written = made([trial(0, 0.5, x=1), trial(1, None, DIVERGED, x=2)])
    search.write(written, tmp_path)
    assert search.read(tmp_path).trials == written.trials
    file, space = "/home/somebody/a.txt", {"task.data.file": ["/home/somebody/a.txt", "b.txt"]}
    failed = replace(trial(0, None, FAILED, task__data__file=file), reason=f"There is no file {file}; correct it.")
    written = made([failed, trial(1, 0.5, task__data__file="b.txt")], space=space)
    written.words.append("paths.output_dir=/home/somebody/out")
    search.write(written, tmp_path)
    for name in ("search.json", "search.csv", "search.md"):
        assert "somebody" not in (tmp_path / name).read_text()
    read = search.read(tmp_path)
    assert read.trials[0].settings == {"task.data.file": "a.txt"}
    assert read.trials[0].reason == "There is no file a.txt; correct it."
    search.note_failure(tmp_path, FAILED, str(failed.reason), [f"task.data.file={file}"])
    assert "somebody" not in (tmp_path / search.FAILURE).read_text()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"trials": []}', '{"trials": [{"number": 1}]}', "[" * 100_000])
def test_a_damaged_file(tmp_path, text):
    (tmp_path / "search.json").write_text(text)
    with pytest.raises(UserError, match="is damaged"):
        search.read(tmp_path)


def test_other_versions_of_the_code_are_noted():
    one, two, three, failed = (trial(k, k / 7, x=k) for k in range(4))
    one, two = (replace(each, commit="a", dirty=False) for each in (one, two))
    assert len(search.grid(made([one, two, failed])).notes) == 1
    assert search.grid(made([one, two, replace(three, commit="a", dirty=True)])).notes[1:] == [
        "The trials are of 2 versions of the code.",
        "1 of 3 trials had changes in their code that were not committed.",
    ]


def test_no_search(tmp_path):
    with pytest.raises(UserError, match="name the folder of a search"):
        search.read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("selection", "metrics", "state", "value"),
    [
        ({"metric": "val/mrr", "value": 0.5, "epoch": 2}, {"val/mrr": 0.4}, COMPLETE, 0.5),
        ({"metric": None, "average_last": 3}, {"val/mrr": 0.4}, COMPLETE, 0.4),
        (None, {}, DIVERGED, None),
    ],
)  # fmt: skip
def test_what_became_of_a_run(tmp_path, selection, metrics, state, value):
    assert search.outcome(tmp_path, 3, {}, "val/mrr") is None
    record = {"selection": selection, "metrics": metrics, "seed": 1, "commit": "abc", "wall_s": 2.0}
    (tmp_path / "record.json").write_text(json.dumps(record))
    result = search.outcome(tmp_path, 3, {}, "val/mrr")
    assert (result.state, result.value) == (state, value)
    search.note_failure(tmp_path, PRUNED, "it was behind", ["optim.lr=1", "task.data.file=/home/somebody/x"])
    assert search.outcome(tmp_path, 3, {}, "val/mrr").reason == "it was behind"
    assert search.overrides(tmp_path) == ["optim.lr=1", "task.data.file=x"]


def test_files_of_trials_with_odd_values(tmp_path):
    assert search.overrides(tmp_path) is None
    (tmp_path / "record.json").write_text('{"metrics": [], "selection": 3, "overrides": "x"}')
    assert search.outcome(tmp_path, 3, {}, "val/mrr").state == DIVERGED
    assert search.overrides(tmp_path) is None
    (tmp_path / "failure.json").write_text('{"state": "odd"}')
    assert search.outcome(tmp_path, 3, {}, "val/mrr").state == FAILED


@pytest.mark.parametrize(
    "change",
    [
        {"identity": ["words"]}, {"identity": {"words": [], "space": []}}, {"mode": "best"}, {"digest": 3}, {"seed": "0"},
        {"trials": [{"number": 0, "settings": {}, "state": "odd", "folder": "x"}]},
        {"trials": [{"number": 0, "settings": {"x": 1}, "state": "complete", "folder": "x", "value": 1.0}]},
        {"trials": [{"number": 0, "settings": {}, "state": "complete", "folder": "x", "value": "high"}]},
    ],
)  # fmt: skip
def test_a_file_with_odd_values(tmp_path, change):
    search.write(made([trial(0, 0.5, x=1)]), tmp_path)
    values = json.loads((tmp_path / "search.json").read_text())
    search.read(tmp_path)
    (tmp_path / "search.json").write_text(json.dumps(values | change))
    with pytest.raises(UserError, match="is damaged"):
        search.read(tmp_path)
