"""scripts/bench.py at tiny sizes: every row of the table, agreement of the variants, gates, output, bad input."""

import contextlib
import functools
import importlib
import itertools
import json
import pkgutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hyperbolic import kernels, native, switch
from hyperbolic.encoders import relational
from hyperbolic.geometry import make_geometry
from hyperbolic.operator import OPERATORS
from scripts import bench
from scripts.benchmarks import measure, peers, report, triples
from scripts.benchmarks import row as row_module
from scripts.benchmarks.measure import Case, Effort, Timing, Variant
from scripts.benchmarks.row import Gate, Row, Setting, run_row
from scripts.benchmarks.rows import ROWS, graph_step, ranking

TINY = Setting(tiny=True)
TABLE = {
    *("mlr-bce", "mlr-logits", "mobius-gru", "training-step"),
    *("lorentz-linear-64", "lorentz-linear-256", "lorentz-linear-512"),
    *("mobius-linear-64", "mobius-linear-256", "mobius-linear-512"),
    *("lorentz-attention-64", "lorentz-attention-512", "kg-scoring", "kg-step", "filtered-evaluation", "lazy-rows"),
    *("translation-step", "translation-step-dropout", "prefix-step", "transformer-layer"),
    *("radam-lorentz", "radam-poincare"),
}


def build(row: Row, dtype: torch.dtype = torch.float64) -> Case:
    torch.manual_seed(0)
    return row.build(replace(TINY, dtype=dtype), **row.tiny)


def row_of(floor, ours, *gates: Gate, peers: tuple = (), **options) -> Row:
    case = Case(Variant("floor", floor), Variant("ours", ours), peers)
    return Row("made", "made for a test", lambda setting: case, {}, {}, gates=gates, **options)


def nothing() -> None:
    pass


def pause() -> None:
    time.sleep(0.002)


@pytest.fixture
def run(tmp_path):
    """A function that runs the command at tiny sizes and returns its exit code and the content of the JSON file."""

    def run(*arguments: str, rows: list[Row] = ROWS):
        code = bench.main(["--sizes", "tiny", "--quick", "--threads", "1", "--output", str(tmp_path), *arguments], rows)
        files = sorted(tmp_path.glob("*.json"))
        return code, json.loads(files[-1].read_text()) if files else None

    return run


def test_the_table_is_complete():
    names = [row.name for row in ROWS]
    assert set(names) >= TABLE
    assert len(set(names)) == len(names)


def test_every_row_of_the_table_has_a_gate():
    assert [row.name for row in ROWS if not row.gates] == []


def test_every_kernel_has_a_row():
    """And no row names what is none."""
    for package in (kernels, relational):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "triton" not in module.name:  # which need not be installed
                importlib.import_module(module.name)
    folder = Path(kernels.__file__).parent
    triton = {f"{path.parent.name}.triton" for path in folder.glob("*/triton*.py")}
    assert triton
    named = {kernel for row in ROWS for kernel in row.kernels}
    assert named == {*native.sources(), *OPERATORS, *triton}


@pytest.mark.parametrize("row", [row for row in ROWS if row.kernels], ids=lambda row: row.name)
def test_a_row_runs_the_kernels_that_it_names(row, monkeypatch, native_kernels):
    """But for those in Triton."""
    ran, call = set(), native.Library.run
    monkeypatch.setattr(native.Library, "run", lambda self, *words: ran.add(self.name) or call(self, *words))
    for name, operator in OPERATORS.items():
        watched = functools.partial(lambda name, run, *words: ran.add(name) or run(*words), name, operator.run)
        monkeypatch.setattr(operator, "run", staticmethod(watched))
    build(row, torch.float32).ours.run()
    missing = {kernel for kernel in row.kernels if not kernel.endswith(".triton")} - ran
    assert missing <= (set() if switch.native() else {*native.sources()})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_variants_of_a_row_agree(row):
    case = build(row)
    if case.ours.value is None:
        assert row.name.startswith(("training-step", "kg-step", "translation-step", "prefix-step", "transformer-layer"))  # two models
        return
    ours = case.ours.value().double()
    assert ours.isfinite().all()
    assert ours.abs().max() > 0
    for variant in case.variants:
        if variant is not case.ours and variant.value is not None:
            other = variant.value().double()
            gap = (ours - other).abs().max() / other.abs().max()
            assert gap < variant.tolerance, f"{variant.name}: {gap}"


@pytest.mark.parametrize(
    ("row", "dtype"),
    [
        pytest.param(row, dtype, id=f"{row.name}-{dtype}", marks=[pytest.mark.slow] if wide and k > 1 else [])
        for k, row in enumerate(ROWS)
        for wide, dtype in enumerate((torch.float32, torch.float64))
    ],
)
def test_every_variant_runs_and_is_timed(row, dtype):
    result = run_row(row, replace(TINY, dtype=dtype))
    assert result.timings[0].ratio == 1
    assert all(timing.seconds > 0 and timing.ratio > 0 for timing in result.timings)
    named = {timing.name for timing in result.timings} | {"floor"}
    assert {gate.against for gate in row.gates} <= named | ({"HypLL"} if peers.hypll() is None else set())
    if row.memory:
        assert all(timing.peak_bytes > 0 for timing in result.timings)


def test_ranks_of_the_evaluation_are_those_of_the_loop():
    (row,) = [row for row in ROWS if row.name == "filtered-evaluation"]
    assert build(row).difference() == 0


@pytest.mark.parametrize(("target", "answers", "rank"), [(2, [2], 3), (2, [2, 0], 2), (2, [0, 1, 2], 1), (3, [3, 2], 3)])
def test_the_loop_ranks_by_hand(target, answers, rank):
    assert ranking.rank_one_by_one(torch.tensor([4.0, 3.0, 2.0, 1.0]), target, torch.tensor(answers)) == rank


def test_the_training_step_learns():
    (row,) = [row for row in ROWS if row.name == "training-step"]
    for variant in build(row).variants:
        first = float(variant.run().detach())
        for _ in range(20):
            last = float(variant.run().detach())
        assert last < first, variant.name


def test_json_and_chart(run, tmp_path, capsys):
    code, content = run("--rows", "mobius-linear-*", "--dtype", "both")
    assert code == 0
    assert content["schema"] == report.SCHEMA
    assert {"date", "mode", "device", "device_name", "threads", "thp_mem_alloc_enable", "kernels", "packages"} <= content.keys()
    assert content["threads"] == 1
    assert [(row["name"], row["dtype"]) for row in content["rows"][:2]] == [
        ("mobius-linear-64", "float32"),
        ("mobius-linear-64", "float64"),
    ]
    assert len(content["rows"]) == 6
    row = content["rows"][0]
    assert row.keys() == {
        *("name", "title", "dtype", "variants", "gates", "aim", "kernels", "passed", "measured_again", "notes"),
        "parts",
    }
    assert [variant["role"] for variant in row["variants"][:3]] == ["floor", "ours", "peer"]
    assert row["variants"][0]["ratio"] == 1
    low, high = row["variants"][1]["seconds_quartiles"]
    assert low <= row["variants"][1]["seconds"] <= high
    assert content["rows"][0]["gates"]
    assert content["rows"][1]["gates"] == []  # no gates for float64
    chart = tmp_path / "cpu-both-1threads-quick-partial.png"
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".json", ".png"]
    printed = capsys.readouterr().out
    assert f"torch {torch.__version__}" in printed
    assert "THP_MEM_ALLOC_ENABLE" in printed
    assert "1 threads" in printed


@pytest.mark.parametrize(("gate", "code"), [(Gate(1e-9), 1), (Gate(1e9), 0)])
def test_check_fails_when_a_gate_is_missed_and_names_the_row(run, capsys, gate, code):
    got, content = run("--check", rows=[row_of(pause, pause, gate)])
    assert got == code
    assert content["rows"][0]["passed"] is (code == 0)
    assert ("miss their gate: made" in capsys.readouterr().out) is (code == 1)


@pytest.fixture
def on_a_gpu(run, monkeypatch):
    """`run`, with a GPU that is made up: ours takes 2.0 times as long as the floor there, and launches 7 kernels."""

    def measure_as_told(case, effort, device, memory=False):
        assert device.type == "cuda"
        ratios = {"floor": 1.0, "ours": 2.0}
        return [Timing(v.name, 0.1, (0.1, 0.1), ratios[v.name], (1.0, 1.0), 1) for v in case.variants]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A GPU")
    monkeypatch.setattr(row_module, "measure", measure_as_told)
    monkeypatch.setattr(row_module, "launches", lambda variant, device: 7)
    return lambda *gates: run("--check", "--device", "cuda", rows=[row_of(nothing, nothing, *gates)])


@pytest.mark.parametrize(("limit", "code"), [(1.3, 1), (2.5, 0)])
def test_check_on_a_gpu_applies_its_gates_alone(on_a_gpu, capsys, limit, code):
    got, content = on_a_gpu(Gate(9.0 if code else 0.1), Gate(limit, device="cuda"))
    assert (got, content["device"]) == (code, "cuda")
    assert [gate["limit"] for gate in content["rows"][0]["gates"]] == [limit]
    assert content["rows"][0]["passed"] is (code == 0)
    assert ("miss their gate: made" in capsys.readouterr().out) is (code == 1)


def test_a_row_keeps_its_launches_and_has_no_gate_of_a_cpu_on_a_gpu(on_a_gpu, capsys):
    code, content = on_a_gpu(Gate(0.1))
    assert (code, content["rows"][0]["gates"], content["rows"][0]["launches"]) == (0, [], 7)
    assert "no gate applies here" in " ".join(capsys.readouterr().out.split())


def test_a_gate_of_a_gpu_says_nothing_of_a_cpu():
    result = run_row(row_of(pause, pause, Gate(1e-9, device="cuda")), TINY)
    assert (result.verdicts, result.passed, result.launches) == ([], None, None)


def test_which_rows_have_gates_on_a_gpu():
    gates = {row.name: [(g.limit, g.against) for g in row.gates if g.device == "cuda"] for row in ROWS}
    assert {name: limits for name, limits in gates.items() if limits} == {
        "kg-step": [(1.3, "bilinear twin, our parts")],
        **{name: [(1.3, "floor")] for name in ("training-step", "prefix-step", "transformer-layer")},
    }


def test_kernels_are_counted_in_a_profile_of_the_device(monkeypatch):
    cuda, cpu = torch.autograd.DeviceType.CUDA, torch.autograd.DeviceType.CPU
    events = [(cuda, "add"), (cuda, "Memcpy DtoD"), (cuda, "Memset (Device)"), (cpu, "aten::add"), *[(cuda, "mm")] * 5]
    happened = [SimpleNamespace(device_type=device, name=name, is_user_annotation=False) for device, name in events]
    happened.append(SimpleNamespace(device_type=cuda, name="Optimizer.step", is_user_annotation=True))
    profile = SimpleNamespace(events=lambda: happened)
    monkeypatch.setattr(torch.profiler, "profile", lambda activities: contextlib.nullcontext(profile))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    ran = []
    variant = Variant("ours", lambda: ran.append(1), share=2)
    assert measure.launches(variant, torch.device("cuda")) == 3
    assert measure.launches(variant, torch.device("cpu")) is None
    assert ran == [1]


def test_without_check_a_missed_gate_is_only_printed(run, capsys):
    code, content = run(rows=[row_of(pause, pause, Gate(1e-9))])
    assert code == 0
    assert content["rows"][0]["passed"] is False
    assert "MISS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ratios", "times", "passed"),
    [
        ([2.8, 2.1, 1.9], 2, True),
        ([2.8, 1.9], 1, True),
        ([2.8, 2.2, 2.1], 2, False),
        ([3.2], 0, False),
        ([1.9], 0, True),
    ],
)
def test_a_row_that_misses_its_gate_by_little_is_measured_again(monkeypatch, ratios, times, passed):
    efforts, measured = [], iter(ratios)

    def measure_as_told(case, effort, device, memory=False):
        efforts.append((effort.rounds, [variant.name for variant in case.variants]))
        values = {"floor": 1.0, "ours": next(measured), "gated": 1.0, "other": 9.0}
        return [Timing(v.name, 1.0, (1.0, 1.0), values[v.name], (1.0, 1.0), 1) for v in case.variants]

    monkeypatch.setattr(row_module, "measure", measure_as_told)
    others = (Variant("gated", nothing), Variant("other", nothing))
    result = run_row(row_of(nothing, nothing, Gate(2.0, against="gated"), peers=others), TINY, again=2)
    assert (result.measured_again, result.passed) == (times, passed)
    assert [rounds for rounds, _ in efforts] == [1, 2, 3][: times + 1]
    assert all(names == ["floor", "ours", "gated"] for _, names in efforts[1:])  # "other" has no gate
    assert [timing.ratio for timing in result.timings] == [1.0, ratios[-1], 1.0, 9.0]


def test_a_missed_gate_of_memory_is_no_chance():
    row = row_of(lambda: torch.ones(1 << 18), lambda: torch.ones(1 << 18), Gate(0.9, what="memory"), memory=True)
    result = run_row(row, TINY, again=2)
    assert (result.passed, result.measured_again) == (False, 0)


def test_quick_runs_slow_peers_twice_and_takes_peak_memory_of_ours_only(monkeypatch):
    monkeypatch.setattr(measure, "_LONG_SECONDS_BRIEF", 0.001)
    calls = []
    peer = Variant("other", lambda: (calls.append(1), pause()))
    row = row_of(lambda: torch.ones(1 << 18), lambda: torch.ones(1 << 18), peers=(peer,), memory=True)
    floor, ours, other = run_row(row, Setting(quick=True)).timings
    assert ours.rounds == floor.rounds >= 5
    assert [timing.peak_bytes for timing in (floor, ours, other)] == [1 << 20, 1 << 20, None]
    calls.clear()
    effort = Effort(5, 0.0, brief=True)
    *_, other = measure.measure(row.build(None), effort, torch.device("cpu"))
    assert (len(calls), other.rounds) == (2, 1)


@pytest.mark.slow
def test_the_parts_of_the_training_step_are_those_of_its_forward_pass_and_the_optimiser(run, capsys):
    _, content = run("--rows", "training-step")
    (row,) = content["rows"]
    names = [part["name"] for part in row["parts"]]
    assert {"context GRU", "context attention", "characters", "mention", "concat", "MLR + BCE", "optimiser"} <= {*names}
    assert all(part["floor_seconds"] > 0 and part["ours_seconds"] > 0 for part in row["parts"])
    assert "part by part, Euclidean twin → ours in ms: mention" in " ".join(capsys.readouterr().out.split())


def test_a_part_computes_what_it_does_in_the_whole_step():
    (row,) = [row for row in ROWS if row.name == "training-step"]
    for variant in build(row).variants:
        with torch.no_grad():
            expected = variant.run.model(variant.run.batch)
        variant.run.optimiser.param_groups[0]["lr"] = 0.0
        runs = variant.run.parts()
        assert torch.allclose(runs["MLR + BCE"](), expected)
        before = [parameter.detach().clone() for parameter in variant.run.model.parameters()]
        variant.run.optimiser.param_groups[0]["lr"] = 0.1
        runs["optimiser"]()
        after = list(variant.run.model.parameters())
        assert not any(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_the_bilinear_twin_has_the_parameters_of_hybonet_and_a_flat_score():
    flat = make_geometry("euclidean", "Euclidean", "euclidean")
    lorentz = make_geometry("lorentz", "Lorentz", "lorentz", c=1.0)
    twin = graph_step._Twin(flat, 9, 3, 5)
    hybonet = graph_step.HyboNet(lorentz, 9, 3, False, 4, False, 2.0, 8.0, 1.5)
    assert {name for name, _ in twin.named_parameters()} == {name for name, _ in hybonet.named_parameters()}
    for parameter in twin.parameters():
        torch.nn.init.normal_(parameter)
    h, r, t = torch.randint(9, (7,)), torch.randint(3, (7,)), torch.randint(9, (7, 2))
    moved = torch.einsum("bij,bj->bi", twin.matrix[r], twin.entity(h)) + twin.bias[r]
    scores = torch.einsum("bi,bki->bk", moved, twin.entity(t)) + twin.head_bias[h] + twin.tail_bias[t].squeeze(-1)
    torch.testing.assert_close(twin(h, r, t), scores)


def test_a_gate_against_a_peer_that_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr(peers, "hypll", lambda: None)
    (row,) = [row for row in ROWS if row.name == "mlr-bce"]
    result = run_row(row, TINY)
    assert "HypLL" not in {timing.name for timing in result.timings}
    assert [verdict.passed for verdict in result.verdicts if verdict.gate.against == "HypLL"] == [None]


def test_gates_against_peers_and_of_memory():
    peer = Variant("other", pause)
    row = row_of(pause, pause, Gate(0.01, against="other"), Gate(100, against="other"), peers=(peer,))
    assert [verdict.passed for verdict in run_row(row, TINY).verdicts] == [False, True]
    row = row_of(lambda: torch.ones(1 << 18), lambda: torch.ones(1 << 20), Gate(3.9, what="memory"), memory=True)
    assert [verdict.value for verdict in run_row(row, TINY).verdicts] == [4.0]


@pytest.mark.parametrize(("setting", "limit"), [("1", 1.25), ("0", 0.9)])
def test_huge_pages_have_their_own_gate(monkeypatch, setting, limit):
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", setting)
    (row,) = [row for row in ROWS if row.name == "mlr-bce"]
    assert row.gates[0].here() == limit


def test_peak_memory_counts_what_is_held_at_once():
    def hold():
        for _ in range(3):
            first, second = torch.ones(1 << 18), torch.ones(1 << 18)
            del first, second

    assert measure.peak_memory(hold, torch.device("cpu")) == 2 << 20


def test_each_round_begins_with_the_next_variant():
    order = []
    case = Case(*(Variant(name, lambda name=name: (order.append(name), pause())) for name in ("a", "b")))
    case.peers = [Variant("c", lambda: (order.append("c"), pause()))]
    measure.measure(case, Effort(4, 0.0, peer_rounds=4, brief=True), torch.device("cpu"))
    assert "".join(name for name, _ in itertools.groupby(order))[-12:] == "abcbcacababc"


def test_times_of_a_share_of_the_work_are_scaled():
    case = Case(Variant("floor", pause), Variant("ours", nothing), [Variant("tenth", pause, share=0.1)])
    floor, ours, tenth = measure.measure(case, Effort(3, 0.0), torch.device("cpu"))
    assert ours.ratio < 0.5
    assert 2 < tenth.ratio < 50
    assert floor.rounds == 3
    assert tenth.ratio_quartiles[0] <= tenth.ratio_quartiles[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "nothing-*"], "matches no row; the rows are mlr-bce"),
        (["--threads", "0"], "--threads must be between 1 and 1,024, got 0"),
        (["--threads", "1025"], "got 1025"),
        (["--output", "/proc/nothing/x"], "/proc/nothing"),
        (["--dtype", "float16"], "invalid choice"),
        (["--output", __file__], "is a file"),
    ],
)
def test_bad_input_is_named(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        bench.main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_device_that_is_absent_is_named(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        bench.main(["--device", "cuda"])
    assert "no CUDA device" in capsys.readouterr().err


@pytest.fixture
def wordnet(tmp_path, monkeypatch):
    """A folder with three files of WN18RR's kind; the function replaces a line of the test split."""
    folder = tmp_path / "data" / "WN18RR"
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("a\tpart\tb\na\tpart\tc\n")
    (folder / "valid.txt").write_text("d\tkind\tb\n")
    monkeypatch.setenv("HYPERBOLIC_DATA", str(folder.parent))

    def write(line: str):
        (folder / "test.txt").write_text(f"{line}\n")

    return write


def test_queries_go_both_ways_and_know_all_true_answers(wordnet):
    wordnet("a\tpart\td")
    queries = triples.load()
    a, b, c, d = range(4)
    assert queries.origin == "WN18RR's own triples"
    assert queries.entities == 4
    assert queries.targets.tolist() == [d, a]
    assert (queries.offsets.tolist(), queries.answers.tolist()) == ([0, 3, 4], [b, c, d, a])


def test_a_line_that_is_no_triple_is_named(wordnet):
    wordnet("a part d")
    with pytest.raises(ValueError, match=r"WN18RR/test\.txt, line 1 has 1 column"):
        triples.load()


def test_without_data_triples_are_drawn(monkeypatch):
    monkeypatch.delenv("HYPERBOLIC_DATA", raising=False)
    queries = triples.load(tiny=True)
    assert "at random" in queries.origin
    answers = queries.answers.split(queries.offsets.diff().tolist())
    assert all(target in true for target, true in zip(queries.targets, answers, strict=True))
    assert max(map(len, answers)) > 1
