"""What layers go with is tried with numbers, and the committed record says what the layers of today do."""

import json

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hyperbolic.geometry import FAMILIES, GEOMETRIES
from scripts import composability, readme
from scripts.composability import CHECKS, RECORD, problem, tried
from scripts.subjects import First, Subject

SLOW = ["fullgraph", "export"]  # which take minutes; "compile" takes an hour
QUICK = ["eager", "vmap", "jvp", "per-sample", "twice", "meta", "fake", "autocast", "pickle", "trace"]


@pytest.mark.parametrize(
    ("geometry", "layer"),
    [("poincare", "Linear"), pytest.param("lorentz", "MultiHeadAttention", marks=pytest.mark.long)],
)
def test_layers_go_with_everything(geometry, layer, native_kernels):
    (problems,) = tried(geometry, {layer}, [*QUICK, *SLOW]).values()
    assert not any(problems.values()), problems


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's own attention under vmap
@pytest.mark.parametrize("checks", [QUICK, SLOW])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_record_is_of_these_layers(geometry, checks, native_kernels):
    record = json.loads(RECORD.read_text())["layers"]
    assert tried(geometry, set(), checks) == {
        layer: {check: problems[check] for check in checks} for layer, problems in record[geometry].items()
    }


class Mode(TorchDispatchMode):
    """Sees every operation, as PyTorch's FlopCounterMode, and changes none."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_gradients_where_a_mode_sees_every_operation(geometry, native_kernels, monkeypatch):
    def check(subject: Subject) -> None:
        expected = subject.gradients(First(subject))
        with Mode():
            torch.testing.assert_close(subject.gradients(First(subject)), expected)

    monkeypatch.setitem(CHECKS, "mode", check)
    assert not any(problems["mode"] for problems in tried(geometry, set(), ["mode"]).values())


def test_the_record_has_every_layer():
    record = json.loads(RECORD.read_text())["layers"]
    for geometry, (_, family) in GEOMETRIES.items():
        assert set(FAMILIES[family].layers) <= set(record[geometry]), geometry
        assert all(list(problems) == list(CHECKS) for problems in record[geometry].values())


def test_a_record_says_when_and_of_which_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(composability, "tried", lambda geometry, names, checks: {"Linear": dict.fromkeys(checks, "")})
    record = tmp_path / "record.json"
    assert composability.main([], record) == 0
    written = json.loads(record.read_text())
    assert list(written) == ["torch", "date", "commit", "dirty", "layers"]
    assert f"{written['date'][:10]}, " in readme.composability(record)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad.detach()  # wrong, and without a derivative of its own


class Layer(torch.nn.Module):
    def forward(self, x):
        return Doubled.apply(x)


def test_a_layer_without_parameters_is_compiled_for_inputs_with_and_without_a_gradient():
    assert tried("poincare", {"Activation"}, ["fullgraph"])["Activation"]["fullgraph"] == ""


@pytest.mark.parametrize("check", ["vmap", "jvp", "per-sample", "twice"])
def test_what_does_not_go_is_named(check):
    text = problem(lambda: Subject(Layer(), torch.ones(3, 2, dtype=torch.float64)), CHECKS[check])
    assert "Error" in text.partition(":")[0]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("lorentz.Norm", ["lorentz: 2 of 2"]),
        ("mobius.Linear", ["poincare: 2 of 2"]),
        ("tangent.Linear", ["poincare_tangent: 2 of 2", "lorentz_tangent: 2 of 2", "klein_tangent: 2 of 2"]),
        ("klein_tangent.Linear", ["klein_tangent: 2 of 2"]),
    ],
)
def test_names_choose_and_nothing_is_written(tmp_path, capsys, name, lines):
    record = tmp_path / "record.json"
    assert composability.main([name, "--checks", "eager", "vmap"], record) == 0
    assert [line.partition(" in ")[0] for line in capsys.readouterr().out.splitlines()] == lines
    assert not record.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mobius.Linaer"], "'mobius.Linaer' is no layer of euclidean, hatt, "),
        (["mobius.Linear", "xyzzy"], "'xyzzy' is no layer of "),
        (["mobius.Linear", "--geometries", "klein"], "'mobius.Linear' is no layer of klein. Did you mean "),
    ],
)
def test_a_name_of_no_layer_is_told_before_anything_is_tried(capsys, words, said):
    assert composability.main([*words, "--checks", "eager"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"error: {said}")
