"""A record that is not of a finished run is named with every fault it has."""

from pathlib import Path

import pytest

from scripts.records import MAX_KEPT_BYTES, REQUIRED, REQUIRED_DATA, RecordError, read, validate

HERE = Path("outputs/run/record.json")


def test_a_whole_record_passes(make_record):
    validate(make_record(), HERE)


def test_what_old_records_say_of_a_paper_is_not_looked_at(make_record):
    validate(make_record({"paper": "anything"}), HERE)


@pytest.mark.parametrize("key", [*REQUIRED, *(f"data.{k}" for k in REQUIRED_DATA)])
def test_a_missing_key_is_named(make_record, key):
    with pytest.raises(RecordError, match=f"{HERE}: .*'{key}' is missing"):
        validate(make_record(without=key), HERE)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("seed", "0", "'seed' is '0', a str"),
        ("seed", True, "'seed' is True, a bool"),
        ("metrics", [], r"'metrics' is \[\]"),
        ("metrics", {"val/accuracy": 0.5}, "no test/... value"),
        ("metrics.test/accuracy", None, "'test/accuracy' is None, not a finite number"),
        ("metrics.val/accuracy", float("inf"), "'val/accuracy' is inf"),
        ("data.share", 0.0, r"share of the data a run used lies in \(0, 1\]"),
        ("data.share", 1.5, "'data.share' is 1.5"),
        ("wall_s", -1.0, "'wall_s' is -1.0"),
        ("wall_s", 10**400, "'wall_s' is 1000"),
        ("metrics.test/accuracy", 10**400, "'test/accuracy' is 1000.*not a finite number"),
        ("config.task.data", 5, "'config.task.data' is no node"),
        ("config.geometry", "parts", "'config.geometry' is no node"),
        ("overrides", 5, "'overrides' is 5, no list"),
        ("selection.step", "many", "'selection.step' is 'many', no number"),
        ("data.sources", 5, "'data.sources' is 5, which names none"),
        ("data.paper", "x", "'data.paper' is 'x', no node with a number as its share"),
        ("data.paper", 0.5, "'data.paper' is 0.5, no node"),
        ("data.paper", {"share": "x"}, "no node with a number as its share"),
        ("config.optim.biases", "x", "'config.optim.biases' is 'x', no node"),
    ],
)
def test_a_wrong_value_is_named(make_record, key, value, words):
    with pytest.raises(RecordError, match=words):
        validate(make_record({key: value}), HERE)


def test_all_faults_come_at_once(make_record):
    record = make_record({"metrics.test/accuracy": float("nan"), "data.share": 2})
    with pytest.raises(RecordError, match=r"test/accuracy.*share"):
        validate(record, HERE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"metrics": ', "it is not a JSON object"),
        ('{"metrics": {"test/accuracy": NaN}}', "NaN is no number of JSON"),
        ('{"wall_s": 1e999}', "1e999 is too large for a number"),
        ("[1]", "it is not a JSON object"),
        ('"' + "x" * 300_000 + '"', "it is not a JSON object"),
    ],
)
def test_an_unreadable_record_is_named(tmp_path, write_record, text, words):
    path = write_record(tmp_path / "record.json", text)
    with pytest.raises(RecordError, match=words) as caught:
        read(path)
    assert str(caught.value).count(str(path)) == 1


def test_a_record_of_many_classes_is_read_and_not_kept(tmp_path, write_record):
    path = write_record(tmp_path / "record.json", '{"data": "' + "x" * 300_000 + '"}')
    assert len(read(path)["data"]) == 300_000
    with pytest.raises(RecordError, match="a record has at most 1000 here"):
        read(path, 1000)
    with pytest.raises(RecordError, match="at most 200000 here"):
        read(path, MAX_KEPT_BYTES)


def test_a_folder_called_as_a_record_is_named(tmp_path):
    (tmp_path / "record.json").mkdir()
    with pytest.raises(RecordError, match="is a folder"):
        read(tmp_path / "record.json")
