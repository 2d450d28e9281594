"""The configuration that a checkpoint keeps: it alone rebuilds the run, it can be changed in single settings, and it is
data, so that nothing in it is executed or imported."""

import collections
import copy
import io
import json
import math
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from scripts.figures import main as figures
from tasks import resume
from tasks.checkpoint_reader import load
from tasks.errors import UserError
from tests.cli import QUIET, Result, call, places, short
from tests.configurations import TOYS, checked


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("finished")
    return folder, short(folder, "seed=5", "geometry=lorentz", "optim.lr=0.02")


def states(finished) -> Path:
    return finished[1].record_path.parent / "checkpoints"


@pytest.mark.long
def test_a_run_is_continued_by_its_folder_alone(finished, tmp_path):
    """Here from within: two of three epochs, then the rest in another folder, with the same end as the whole run."""
    whole = finished[1].record
    part = short(tmp_path, "seed=5", "geometry=lorentz", "optim.lr=0.02", "trainer.max_epochs=2")
    assert part.code == 0, part.err
    longer = call(f"trainer.resume={part.record_path.parent}", "trainer.max_epochs=3", *QUIET, *places(tmp_path))
    assert longer.code == 0, longer.err
    record = longer.record
    for key in ("task", "geometry", "encoder", "seed"):
        assert record["config"][key] == whole["config"][key]
    assert record["config"]["optim"]["lr"] == 0.02
    assert record["selection"]["epoch"] <= 3
    assert longer.record_path.parent.parent == part.record_path.parent.parent, "it has the name of that run"
    same = short(tmp_path, "seed=5", "geometry=lorentz", "optim.lr=0.02")
    assert record["metrics"] == same.record["metrics"]


@pytest.mark.long
def test_an_experiment_that_is_continued_is_still_that_experiment(tmp_path):
    words = ("task.data.sizes={train: 200, dev: 40, test: 40}", "task.data.batch_size=50", "trainer.kernels=plain")
    begun = call(
        "experiment=hnn_prefix10_gru_eucl", *words, "trainer.max_epochs=1", "optim.schedule=constant", *QUIET,
        *places(tmp_path),
    )  # fmt: skip
    longer = call(f"trainer.resume={begun.record_path.parent}", "trainer.max_epochs=2", *QUIET, *places(tmp_path))
    assert longer.code == 0, longer.err
    assert longer.record["experiment"] == "hnn_prefix10_gru_eucl"
    assert longer.record["config"]["optim"] == begun.record["config"]["optim"]
    assert longer.record_path.parent.parent.name == "hnn_prefix10_gru_eucl"


def test_single_settings_are_changed_on_the_command_line(finished, tmp_path):
    folder, _ = finished
    tested = call("mode=test", f"checkpoint={states(finished)}", "task.data.sizes.test=30", *QUIET, *places(folder))
    assert tested.code == 0, tested.err
    assert tested.record["data"]["counts"]["test"]["pairs"] == 30
    assert tested.record["config"]["geometry"]["name"] == "lorentz"
    for word in ("fidelity=code", "task.name=other"):
        refused = call("mode=test", f"checkpoint={states(finished)}", word, *QUIET, *places(folder))
        assert refused.code == 1
        assert f"{word}: other settings of the checkpoint follow from its {word.partition('=')[0]}" in refused.err
    for word in ("seed=4", "optim.lr=5", "optim=hnn"):  # its record would say what the model was not trained with
        refused = call("mode=test", f"checkpoint={states(finished)}", word, *QUIET, *places(folder))
        assert refused.code == 1
        assert f"{word}: the model is trained already" in refused.err
    for word in ("trainer=quick", "optim=hnn"):  # which the values of the checkpoint would replace
        refused = call(f"trainer.resume={states(finished)}", word, *QUIET, *places(folder))
        assert refused.code == 1
        assert f"{word}: a run that goes on has the {word.partition('=')[0]} of its checkpoint" in refused.err


@pytest.mark.long
def test_a_checkpoint_is_tested_several_times_at_once(finished, tmp_path):
    """With -m, and a mode in quotation marks."""
    words = ("'mode=\"test\"'".strip("'"), f"checkpoint={states(finished)}", "task.data.sizes.test=10,20")
    result = call("-m", *words, *QUIET, *places(tmp_path))
    assert result.code == 0, result.err
    records = [json.loads(file.read_text()) for file in tmp_path.rglob("record.json")]
    assert sorted(record["data"]["counts"]["test"]["pairs"] for record in records) == [10, 20]


def test_a_best_state_that_is_lost_is_noticed_before_training_goes_on(tmp_path):
    best = short(tmp_path, "trainer.max_epochs=1").record_path.parent / "checkpoints" / "best.ckpt"
    whole = best.read_bytes()
    for content in (whole[:999], None):
        if content is None:
            best.unlink()
        else:
            best.write_bytes(content)
        result = call(f"trainer.resume={best.parent.parent}", "trainer.max_epochs=2", *QUIET, *places(tmp_path))
        assert result.code == 1
        assert "best.ckpt" in result.err
        assert len(list(tmp_path.rglob("history.csv"))) == 1, "no other run has begun"


def test_a_checkpoint_without_its_configuration_is_refused(finished, tmp_path):
    old = torch.load(states(finished) / "best.ckpt")
    del old["config"]
    torch.save(old | {"settings": {"task.name": "prefix_toy"}, "words": ["task=prefix_toy"]}, tmp_path / "best.ckpt")
    for words in (("mode=test", f"checkpoint={tmp_path}"), (f"trainer.resume={tmp_path}/best.ckpt",)):
        result = call(*words, *QUIET, *places(tmp_path))
        assert result.code == 1
        assert "lacks the configuration of its run" in result.err
        assert result.err.count("\n") == 1


def _set(node: dict, key: str, value: object) -> None:
    *parents, last = key.split(".")
    for part in parents:
        node = node.setdefault(part, {})
    node[last] = value


HOSTILE = {
    "another class of ours": ("task.module._target_", "tasks.prefix.data.PrefixData.load"),
    "a function of Python": ("task.module._target_", "os.system"),
    "a module of somebody": ("encoder._target_", "hostile_module.run"),
    "a logger among the options of layers": (
        "geometry.options.csv", {"_target_": "pytorch_lightning.loggers.CSVLogger", "save_dir": "reference://x"},
    ),
    "a nested node": ("geometry.options.Linear.x", {"_target_": "hostile_module.run"}),
    "a node in a list": ("task.data.files.dev", [{"_target_": "hostile_module.run"}]),
    "an unknown node": ("optim.hostile", {"_target_": "hostile_module.run"}),
    "a target that is no word": ("encoder._target_", ["hostile_module.run"]),
    "an interpolation": ("task.data.root", "${oc.env:HOME}"),
    "an interpolated target": ("encoder._target_", "${oc.decode:hostile_module.run}"),
    "a place that is none": ("task.data.root", "<paths.${oc.env:HOME}>/x"),
    "a list of defaults": ("task.defaults", ["override /hydra/launcher: joblib"]),
    "a key that is evaluated": ("task.${oc.env:HOME}", 1),
    "a number as a key": ("task", {1: 2}),
    "a tensor": ("optim.lr", torch.zeros(2)),
    "a node of Hydra": ("hydra.run.dir", "/tmp/hostile"),
    "a deep nesting": ("task.data.sizes", __import__("functools").reduce(lambda n, _: {"a": n}, range(90), {})),
    "a node that is text": ("geometry", "poincare"),
    "parts that are none": ("geometry.parts", 3),
    "another of our classes": ("task.data", {"_target_": "pytorch_lightning.loggers.CSVLogger", "save_dir": "x"}),
    "arguments without names": ("task.data._args_", [1]),
    "a way out of a place": ("task.data.root", "<paths.data_dir>/../elsewhere"),
    "a name of no text": ("task.data.root", "a\0b"),
    "no node": ("trainer", None),
}
OFTEN = {  # tested by the default suite, one of each kind
    "a function of Python", "a logger among the options of layers", "an interpolation", "a way out of a place",
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("loops", 3), ("loops", {}), ("callbacks", 3), ("optimizer_states", [{"state": 1}]), ("global_step", "x"),
        ("optimizer_states", [torch.ones(3, 4)]), ("optimizer_states", []),
        ("processes", 5), ("processes", [{"sums": {}, "random": {"torch": 5}}]),
        ("processes", [{"sums": {"loss": None}, "random": {}}]), ("processes", [{"sums": {"examples": math.inf}, "random": {}}]),
        ("metrics", {"val/" + "x" * 200: 1.0}), ("metrics", {"val/\x1b[31m": 1.0}), ("metrics", {"val/loss": "x"}), ("data", {"words": 1}),
    ],
)
def test_a_damaged_state_of_the_training_is_one_sentence(finished, tmp_path, key, value):
    (tmp_path / "checkpoints").mkdir()
    shutil.copy(states(finished) / "best.ckpt", tmp_path / "checkpoints")
    torch.save(torch.load(states(finished) / "last.ckpt") | {key: value}, tmp_path / "checkpoints" / "last.ckpt")
    result = call(f"trainer.resume={tmp_path}", "trainer.max_epochs=4", *QUIET, *places(tmp_path))
    assert result.code == 1
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1, result.err
    assert "is damaged" in result.err or "is not a checkpoint of this program" in result.err


@pytest.mark.parametrize("mode", ["test", "predict", "fit"])
def test_weights_that_are_not_finite_give_no_result(finished, tmp_path, mode):
    (tmp_path / "checkpoints").mkdir()
    for name in ("best.ckpt", "last.ckpt"):
        checkpoint = torch.load(states(finished) / name)
        next(iter(checkpoint["state_dict"].values())).view(-1)[0] = float("nan")
        torch.save(checkpoint, tmp_path / "checkpoints" / name)
    (tmp_path / "new.txt").write_text("1 2\t1\n")
    words = {
        "test": ("mode=test", f"checkpoint={tmp_path}"),
        "predict": ("mode=predict", f"checkpoint={tmp_path}", f"input={tmp_path}/new.txt", f"output={tmp_path}/out.jsonl"),
        "fit": (f"trainer.resume={tmp_path}", "trainer.max_epochs=4"),
    }
    result = call(*words[mode], *QUIET, *places(tmp_path))
    assert result.code == 1
    assert "holds NaN or infinity in model." in result.err
    assert result.err.count("\n") == 1, result.err
    assert not list(tmp_path.rglob("record.json"))
    assert not (tmp_path / "out.jsonl").exists()


def test_weights_that_are_too_large_give_no_record(finished, tmp_path):
    checkpoint = torch.load(states(finished) / "best.ckpt")
    for value in checkpoint["state_dict"].values():
        if value.is_floating_point():
            value.fill_(3e38)
    torch.save(checkpoint, tmp_path / "best.ckpt")
    result = call("mode=test", f"checkpoint={tmp_path / 'best.ckpt'}", *QUIET, *places(tmp_path))
    if result.code == 0:
        assert all(map(math.isfinite, result.record["metrics"].values()))
    else:
        assert "The run has no result, because metrics.test/loss is " in result.err
        assert result.err.count("\n") == 1, result.err


def test_names_in_a_checkpoint_lead_nowhere_else(finished, tmp_path):
    state = torch.load(states(finished) / "best.ckpt") | {"experiment": "../../escaped", "name": "/tmp/escaped"}
    torch.save(state, tmp_path / "best.ckpt")
    result = call("mode=test", f"checkpoint={tmp_path / 'best.ckpt'}", *QUIET, *places(tmp_path))
    assert result.code == 0, result.err
    assert result.record["experiment"] is None
    assert result.record_path.is_relative_to(tmp_path / "out")


@pytest.mark.every_case
@pytest.mark.parametrize("case", [pytest.param(c, marks=() if c in OFTEN else pytest.mark.long) for c in HOSTILE])
def test_nothing_in_a_checkpoint_is_executed(finished, tmp_path, monkeypatch, capsys, case):
    marker = tmp_path / "executed"
    (tmp_path / "hostile_module.py").write_text(f"open({str(marker)!r}, 'w')\ndef run(*a, **k): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "record.json").write_bytes((states(finished).parent / "record.json").read_bytes())
    for name in ("best.ckpt", "last.ckpt"):
        checkpoint = torch.load(states(finished) / name)
        _set(checkpoint["config"], *HOSTILE[case])
        checkpoint["words"] = ["task=prefix_toy", "hydra.run.dir=/tmp/hostile", "+x={_target_:hostile_module.run}"]
        torch.save(checkpoint, run / "checkpoints" / name)
    for words in (
        ("mode=test", f"checkpoint={run}"),
        ("mode=predict", f"checkpoint={run}", f"input={__file__}"),
        (f"trainer.resume={run}", "trainer.max_epochs=9"),
    ):
        result = call(*words, *QUIET, *places(tmp_path))
        if case == "a node of Hydra" and words[0] != "mode=predict":  # it is left out
            assert result.record_path.is_relative_to(tmp_path)
            continue
        assert result.code == 1, result.out
        assert result.err.startswith("error: ")
        if "logger" in case:  # before it is made, which opens its folder
            assert "is refused: the files in configs/ have it as logger.csv" in result.err
        assert result.err.count("\n") == 1, result.err
        assert len(result.err) < 2000
    assert figures(["norms", "attention", str(run), "--out", str(tmp_path / "figures")]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert not marker.exists()
    assert not Path("/tmp/hostile").exists()
    assert "hostile_module" not in sys.modules


NODES = ("geometry", "encoder", "task.data", "task.model", "task.module")


def _node(values: dict, key: str) -> object:
    for part in key.split("."):
        values = values[part]
    return copy.deepcopy(values)


@pytest.mark.long
@pytest.mark.parametrize("key", NODES)
def test_nodes_of_another_task_are_one_sentence(finished, tmp_path, key):
    """Without the vocabulary and the weights, which would be refused first."""
    best = torch.load(states(finished) / "best.ckpt")
    for toy in TOYS:
        node = _node(checked(f"task={toy}"), key)
        checkpoint = copy.deepcopy(best) | {"state_dict": {}, "vocabulary": None}
        _set(checkpoint["config"], key, node)
        torch.save(checkpoint, tmp_path / "best.ckpt")
        result = call("mode=test", f"checkpoint={tmp_path / 'best.ckpt'}", *QUIET, *places(tmp_path))
        if result.code:  # some fit, as a GRU of another task
            assert result.err.startswith("error: "), (toy, result.err)
            assert result.err.count("\n") == 1, (toy, result.err)
            assert len(result.err) < 2000


class Shadowing(collections.OrderedDict):
    """A mapping of a file with an attribute in the place of a method."""

    def __reduce__(self):
        return collections.OrderedDict, (), self.attributes, None, iter(collections.OrderedDict.items(self))


def shadowing(values, **attributes) -> Shadowing:
    node = Shadowing(values)
    node.attributes = attributes
    return node


@pytest.mark.parametrize("mode", ["fit", "test", "predict"])
def test_a_mapping_whose_methods_the_file_brings_hides_nothing(finished, tmp_path, mode):
    """Else a list of defaults would be passed over, and Hydra would instantiate what it names."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "words.txt").write_text("1 2\t1\n")
    for name in ("best.ckpt", "last.ckpt"):
        state = torch.load(states(finished) / name)
        state["config"]["encoder"] = {"_target_": "pathlib.Path.touch", "self": str(tmp_path / "executed")}
        state["config"]["task"]["defaults"] = ["_self_", {"/encoder@_global_.hydra.callbacks.x": "checkpoint"}]
        state["config"] = shadowing(state["config"], items=collections.OrderedDict)
        torch.save(state, tmp_path / "checkpoints" / name)
    words = {"fit": (f"trainer.resume={tmp_path}",), "test": (f"checkpoint={tmp_path}",)}
    words["predict"] = (f"checkpoint={tmp_path}", f"input={tmp_path / 'words.txt'}")
    result = call(f"mode={mode}", *words[mode], *QUIET, *places(tmp_path))
    assert result.code == 1
    assert "the key 'defaults' cannot stand in the configuration of a run" in result.err


@pytest.mark.parametrize("part", ["state_dict", "config", "data", "callbacks", "loops"])
@pytest.mark.parametrize("attributes", [{"items": "x", "get": "x"}, {"_metadata": {"": {"assign_to_params_buffers": True}}}])
def test_attributes_of_mappings_are_left_out(finished, tmp_path, part, attributes):
    state = torch.load(states(finished) / "last.ckpt")
    state[part] = shadowing(state[part], **attributes)
    torch.save(state, tmp_path / "x.ckpt")
    values = load(tmp_path / "x.ckpt", "cpu")[part]
    assert type(values) is dict
    assert not hasattr(values, "_metadata")
    assert values.keys() == dict.keys(state[part])


@pytest.mark.parametrize(
    "pickled",
    [
        b"K\x01" + b"\x85" * 200_000 + b"K\x02s",
        b"(" * 200_000 + b"K\x01" + b"t" * 200_000 + b"K\x02s",
        b"K\x01" + b"q\x00K\x01\x86" * 200_000 + b"K\x02s",
        b"K\x01" + b"\x85q\x000h\x00" * 200_000 + b"K\x02s",
        b"K\x01" + b"]" * 200_000 + b"a" * 199_999 + b"s",
    ],
)
def test_nodes_that_are_nested_deeply_do_not_end_the_process(tmp_path, pickled):
    torch.save({"a": torch.zeros(1)}, tmp_path / "x.ckpt")
    with zipfile.ZipFile(tmp_path / "x.ckpt") as usual, zipfile.ZipFile(tmp_path / "y.ckpt", "w") as deep:
        for name in usual.namelist():
            own = b"\x80\x02}" + pickled + b"." if name.endswith("data.pkl") else usual.read(name)
            deep.writestr(name.replace("x/", "y/"), own)
    result = call("mode=test", f"checkpoint={tmp_path / 'y.ckpt'}", *QUIET, *places(tmp_path))
    assert result.code == 1
    assert "its nodes are nested more than 100 deep" in result.err


def test_nodes_that_share_others_are_as_deep_as_they_are_nested(tmp_path):
    chain = [[]]
    for _ in range(150):
        chain.append([chain[-1]])
    torch.save(chain, tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match="nested more than 100 deep"):
        load(tmp_path / "x.ckpt", "cpu")


def test_a_pickle_in_front_of_an_archive_is_not_read(tmp_path):
    """torch looks at the beginning of a file, and zipfile at its end."""
    torch.save({"a": 1}, tmp_path / "x.ckpt")
    torch.save({"b": 2}, tmp_path / "old.ckpt", _use_new_zipfile_serialization=False)
    both = (tmp_path / "old.ckpt").read_bytes() + (tmp_path / "x.ckpt").read_bytes()
    (tmp_path / "y.ckpt").write_bytes(both)
    with pytest.raises(ValueError, match="no zip archive"):
        load(tmp_path / "y.ckpt", "cpu")


def test_a_compressed_archive_is_not_unpacked(tmp_path):
    """Its members may be a thousand times as long as the file."""
    torch.save({"a": torch.ones(2)}, tmp_path / "x.ckpt")
    with zipfile.ZipFile(tmp_path / "x.ckpt") as old, zipfile.ZipFile(tmp_path / "y.ckpt", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + bytes(1 << 24) * name.endswith("data.pkl"))
    assert (tmp_path / "y.ckpt").stat().st_size < 1 << 17
    with pytest.raises(ValueError, match="compressed"):
        load(tmp_path / "y.ckpt", "cpu")
    with pytest.raises(UserError, match="compressed"):
        resume.read(tmp_path / "y.ckpt", "checkpoint=y.ckpt")


def test_an_archive_with_a_second_directory_is_not_read(tmp_path):
    """Python's reader takes the directory that stands right before the end, torch's the one that the end names."""
    torch.save({"a": 1}, tmp_path / "x.ckpt")
    whole = (tmp_path / "x.ckpt").read_bytes()
    decoy = io.BytesIO()
    with zipfile.ZipFile(decoy, "w") as other:
        other.writestr("x/data.pkl", b"")
    directory = decoy.getvalue()[decoy.getvalue().index(b"PK\1\2") : -22]
    for place in (len(whole) - 22, len(whole) - 42, len(whole) - 98):
        (tmp_path / "y.ckpt").write_bytes(whole[:place] + directory + whole[place:])
        with pytest.raises(ValueError, match="directory at the end"):
            load(tmp_path / "y.ckpt", "cpu")
    (tmp_path / "y.ckpt").write_bytes(whole[:-2] + b"\1\0x")
    with pytest.raises(ValueError, match="directory at the end"):
        load(tmp_path / "y.ckpt", "cpu")


def test_what_is_no_plain_value_is_refused_and_tensors_are_nothing_more(tmp_path):
    weight = torch.nn.Parameter(torch.ones(2))
    weight.hostile = "x"
    torch.save({"a": weight}, tmp_path / "x.ckpt")
    value = load(tmp_path / "x.ckpt", "cpu")["a"]
    assert type(value) is torch.Tensor
    assert not value.requires_grad
    assert not hasattr(value, "hostile")
    for other in ({"a": {1, 2}}, {(1, 2): "a"}, {"a": torch.float32}):
        torch.save(other, tmp_path / "x.ckpt")
        with pytest.raises(ValueError, match="it holds a|keys that are neither"):
            load(tmp_path / "x.ckpt", "cpu")


@pytest.mark.parametrize("auto", ["task.data.batch_size", [1], ["optim.lr"], None])
def test_settings_that_no_size_of_data_decides_are_refused(finished, tmp_path, auto):
    torch.save(torch.load(states(finished) / "last.ckpt") | {"auto": auto}, tmp_path / "last.ckpt")
    with pytest.raises(UserError, match="is not a checkpoint of this program"):
        resume.read(tmp_path / "last.ckpt", "checkpoint=x")


@pytest.mark.parametrize("code", ["a", [1], [{"commit": "a"}], [{"commit": 5, "dirty": None, "versions": None}]])
def test_versions_of_the_code_that_are_none_are_refused(finished, tmp_path, code):
    torch.save(torch.load(states(finished) / "last.ckpt") | {"code": code}, tmp_path / "last.ckpt")
    with pytest.raises(UserError, match="is not a checkpoint of this program"):
        resume.read(tmp_path / "last.ckpt", "checkpoint=x")


def test_a_configuration_of_shared_lists_is_refused(finished, tmp_path):
    """A few of them stand for 2^40 values; each would be looked at."""
    checkpoint, node = torch.load(states(finished) / "last.ckpt"), [0]
    for _ in range(22):
        node = [node, node]
    for config in ({"task": node}, {**checkpoint["config"], "more": node}):
        torch.save(checkpoint | {"config": config}, tmp_path / "last.ckpt")
        with pytest.raises(UserError, match="is not a checkpoint of this program"):
            resume.read(tmp_path / "last.ckpt", "checkpoint=x")


def test_indices_outside_of_a_sparse_tensor_are_noticed(finished, tmp_path):
    checkpoint = torch.load(states(finished) / "last.ckpt")
    for place, fits in ((2, True), (99, False)):
        sparse = torch.sparse_coo_tensor([[place]], [1.0], (3,), check_invariants=False)
        torch.save(checkpoint | {"more": sparse}, tmp_path / "last.ckpt")
        if fits:
            assert resume.read(tmp_path / "last.ckpt", "checkpoint=x")["more"].is_sparse
        else:
            with pytest.raises(UserError, match="is damaged or no checkpoint"):
                resume.read(tmp_path / "last.ckpt", "checkpoint=x")


@pytest.mark.long
def test_a_probe_is_not_what_a_probe_looks_into(tmp_path):
    """It would be built for ever."""
    begun = call("task=probing_toy", "trainer.max_epochs=1", "task.data.sizes={train: 20, dev: 4, test: 4}", *QUIET, *places(tmp_path))  # fmt: skip
    assert begun.code == 0, begun.err
    checkpoint = torch.load(begun.record_path.parent / "checkpoints" / "best.ckpt")
    checkpoint["config"]["task"]["data"]["toy"] = None
    checkpoint["config"]["probe"] = {"checkpoint": str(tmp_path / "best.ckpt")}
    checkpoint.pop("vocabulary", None)
    torch.save(checkpoint, tmp_path / "best.ckpt")
    tested = call("mode=test", f"checkpoint={tmp_path}/best.ckpt", *QUIET, *places(tmp_path))
    assert tested.code == 1
    assert "is of a probe, and what it probes has to be another model" in tested.err
    assert tested.err.count("\n") == 1, tested.err


def test_a_flipped_bit_is_noticed(finished, tmp_path):
    whole = (states(finished) / "best.ckpt").read_bytes()
    weights = next(iter(torch.load(states(finished) / "best.ckpt")["state_dict"].values())).numpy().tobytes()
    place = whole.index(weights)
    (tmp_path / "best.ckpt").write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    result = call("mode=test", f"checkpoint={tmp_path}/best.ckpt", *QUIET, *places(tmp_path))
    assert result.code == 1
    assert "is damaged or no checkpoint" in result.err
    assert "checksum" in result.err
