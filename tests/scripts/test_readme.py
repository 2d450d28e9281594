"""The section of README.md that is made from measurements."""

import json

import pytest

from scripts import readme

NUMERICS = """# How exact

## Summary: the largest error

| function | ours f32 |
|---|---|
| dist | <1e-7 |

## Klein disk

| other | table |
"""


TRIED = {"torch": "2.13.0", "layers": {"ball": {"Linear": {"vmap": "", "jvp": ""}, "GRU": {"vmap": "", "jvp": "no rule"}}}}


def bench(ratio: float, passed: bool = True, commit: str = "a1b2c3d4e5", dirty: bool = False) -> str:
    variants = [
        {"name": "nn.Linear", "role": "floor", "ratio": 1.0},
        {"name": "ours", "role": "ours", "ratio": ratio},
        {"name": "geoopt", "role": "peer", "ratio": 12.34},
    ]
    gate = {"what": "time", "against": "floor", "limit": 2.0, "value": ratio, "passed": passed}
    row = {"name": "linear", "title": "a linear layer", "variants": variants, "gates": [gate], "passed": passed}
    where = {"device_name": "A processor", "threads": 2, "packages": {"torch": "2.13.0"}, "date": "2026-11-21T07:00:00"}
    return json.dumps({**where, "commit": commit, "dirty": dirty, "rows": [row]})


@pytest.fixture
def files(tmp_path):
    (tmp_path / "README.md").write_text(
        f"# Title\n\n{readme.START}\nold\n{readme.END}\n\n{readme.TRIED}\n{readme.TRIED_END}\n\n## Next\n"
    )
    (tmp_path / "bench.json").write_text(bench(1.5))
    (tmp_path / "numerics.md").write_text(NUMERICS)
    (tmp_path / "composability.json").write_text(json.dumps(TRIED))
    return [tmp_path / name for name in ("README.md", "bench.json", "numerics.md", "composability.json")]


def test_the_section_is_written_between_its_markers_and_checked(files, capsys):
    assert readme.main(["--check"], *files) == 1
    assert "old" in files[0].read_text()
    assert readme.main([], *files) == 0
    text = files[0].read_text()
    assert "| a linear layer | 1.5 | geoopt 12 | 2 |" in text
    assert "| dist | <1e-7 |" in text
    assert "other | table" not in text
    assert "| geometry | vmap | jvp |\n|---|---|---|\n| ball | 2 | not GRU |" in text
    assert "old" not in text
    assert "another run" not in text
    assert text.startswith("# Title\n")
    assert text.endswith("\n\n## Next\n")
    assert readme.main(["--check"], *files) == 0
    files[1].write_text(bench(1.9))
    assert readme.main(["--check"], *files) == 1
    assert "make tables" in capsys.readouterr().out


def test_huge_pages_and_missed_gates_are_shown(files):
    files[1].write_text(bench(2.5, passed=False))
    files[1].with_name("bench-thp.json").write_text(bench(1.25))
    assert readme.main([], *files) == 0
    assert "| a linear layer | 2.5 (1.2) **missed** |" in files[0].read_text()


def test_plain_formulas_and_a_gpu_have_columns_where_they_were_measured(files):
    cpu = files[1].rename(files[1].with_name("cpu-float32.json"))
    cpu.with_name("cpu-float32-plain.json").write_text(bench(31.0, commit="f6e7d8c9b0", dirty=True))
    arguments = ([], files[0], cpu, *files[2:])
    assert readme.main(*arguments) == 0
    text = files[0].read_text()
    assert "| a linear layer | 1.5 | 31 | geoopt 12 | 2 |" in text
    assert "2026-11-21, commit a1b2c3d; `make bench`" in text
    assert "Euclidean times: plain formulas (2026-11-21, commit f6e7d8c with changes). Forward" in text
    content = json.loads(bench(1.1))
    for gates, passed, cell in (
        ([], None, "1.1"),
        ([{"what": "time", "against": "floor", "limit": 1.3}], True, "1.1 (at most 1.3)"),
        ([{"what": "time", "against": "twin", "limit": 1.05}], False, "1.1 (at most 1.05 of twin) **missed**"),
    ):
        content["rows"][0] |= {"gates": gates, "passed": passed}
        cpu.with_name("cuda-float32.json").write_text(json.dumps(content))
        assert readme.main(*arguments) == 0
        assert "| work | ours | plain formulas | on a GPU | others (on a CPU) | must be at most (on a CPU) |" in files[0].read_text()
        assert f"| a linear layer | 1.5 | 31 | {cell} | geoopt 12 | 2 |" in files[0].read_text()


@pytest.mark.parametrize(
    ("gate", "text"),
    [
        ({"what": "time", "against": "floor", "limit": 2.0}, "2"),
        ({"what": "time", "against": "HypLL", "limit": 0.4}, "0.4 of HypLL"),
        ({"what": "memory", "against": "floor", "limit": 0.125}, "0.125 memory"),
        ({"what": "difference", "against": "floor", "limit": 0}, "no result may differ"),
        ({"what": "difference", "against": "floor", "limit": 3}, "3 results may differ"),
    ],
)
def test_a_gate_says_what_it_limits(files, gate, text):
    content = json.loads(bench(1.5))
    content["rows"][0]["gates"] = [gate]
    files[1].write_text(json.dumps(content))
    assert readme.main([], *files) == 0
    assert f"| a linear layer | 1.5 | geoopt 12 | {text} |" in files[0].read_text()


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        (0, "# no markers", "README.md must have the lines"),
        (1, None, "there is no bench.json"),
        (1, "{", "bench.json is damaged (JSONDecodeError: "),
        (1, "[]", "bench.json is damaged (TypeError: "),
        (1, "{}", "bench.json is damaged (KeyError: 'device_name'); make it again with: make bench\n"),
        (1, bench(1.5).replace('"ours"', '"hers"'), "bench.json is damaged (ValueError: "),
        (1, bench(1.5).replace('"limit"', '"limits"'), "bench.json is damaged (KeyError: 'limit'); make it again with: make bench\n"),
        (2, "# nothing", "numerics.md has no section"),
        (3, "{", "make it again with: make composability\n"),
        (3, "[]", "composability.json is damaged (TypeError: "),
        (3, '{"layers": {}}', "composability.json is damaged (ValueError: "),
        (3, '{"layers": {"ball": {"Linear": {}}}}', "composability.json is damaged (KeyError: 'torch'); make it again with: make composability\n"),
    ],
)
def test_unusable_files_are_named_and_nothing_is_written(files, capsys, file, text, said):
    if text is None:
        files[file].unlink()
    else:
        files[file].write_text(text)
    before = files[0].read_text()
    assert readme.main([], *files) == 1
    assert said in capsys.readouterr().err
    assert files[0].read_text() == before
