"""python scripts/bench_against.py: two checkouts measured in turn, and what cannot be measured."""

import json
from pathlib import Path

import pytest

from scripts import bench_against

ROOT = Path(__file__).resolve().parents[2]


def run(commit: str, **ratios: float | None) -> dict:
    def variants(ratio: float | None) -> list[dict]:
        ours = {"role": "ours", "ratio": ratio, "seconds": 10 * (ratio or 0)}
        return [{"role": "floor", "ratio": 1.0, "seconds": 10.0}, ours, {"role": "peer", "ratio": 9.0, "seconds": 90.0}]

    where = {"commit": commit, "dirty": False, "packages": {}, "threads": 1, "device_name": "", "mode": "quick"}
    return where | {"rows": [{"name": name, "variants": variants(ratio)} for name, ratio in ratios.items()]}


def test_medians_are_compared_of_the_rows_that_both_have():
    runs = [(run("a", x=2.0, old=1.0, y=None), run("b", x=k, new=1.0, y=1.0)) for k in (1.0, 9.0, 3.0)]
    made = bench_against.compare(runs)
    assert made["rows"] == {"x": {"before": 20.0, "now": 30.0, "ratio": 1.5, "ratio_to_floor": 1.5}}
    assert made["left_out"] == ["new", "old", "y"]
    assert (made["before"]["commit"], made["now"]["commit"]) == ("a", "b")
    gone = bench_against.compare([(run("a", x=1.0), run("b", x=1.0)), (run("a", x=None), run("b", x=3.0))])
    assert gone["rows"]["x"]["ratio"] == 2.0


def test_a_folder_that_cannot_be_measured_is_named(tmp_path, capsys):
    assert bench_against.main([str(tmp_path / "nowhere"), "--repeats", "1"]) == 1
    assert "nowhere: its scripts/bench.py ended with 2: " in capsys.readouterr().err
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "bench.py").write_text("raise SystemExit('no benchmark here')\n")
    assert bench_against.main([str(tmp_path), "--repeats", "1"]) == 1
    assert "its scripts/bench.py ended with 1: no benchmark here" in capsys.readouterr().err


@pytest.mark.long
def test_two_checkouts_are_measured_in_turn(tmp_path, capsys):
    written = tmp_path / "against.json"
    words = [str(ROOT), "--repeats", "1", "--rows", "mobius-linear-64", "--sizes", "tiny", "--output", str(written)]
    assert bench_against.main(words) == 0
    output = capsys.readouterr()
    assert output.err == "1/1\n"
    assert "mobius-linear-64" in output.out
    row = json.loads(written.read_text())["rows"]["mobius-linear-64"]
    assert row["ratio"] == pytest.approx(row["now"] / row["before"])
