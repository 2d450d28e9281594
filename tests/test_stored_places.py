"""Checkpoints and records name no folder of the machine that wrote them, and their notes are no way to other files."""

import shutil
from pathlib import Path

import pytest
import torch

from configs import stored
from tests.cli import QUIET, Result, call, places, short


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("finished")
    return folder, short(folder, "seed=5", "geometry=lorentz", "optim.lr=0.02")


def states(finished) -> Path:
    return finished[1].record_path.parent / "checkpoints"


PAIRS = "".join(f'{{"label": "{k % 2}", "premise": "a w{k}", "hypothesis": "b w{k % 3}"}}\n' for k in range(12))


@pytest.mark.long
def test_neither_checkpoint_nor_record_keeps_a_folder_of_this_machine(tmp_path, monkeypatch):
    """The run is used where it was made, also when its folder was moved there; elsewhere data.dir has to be given."""
    pairs = tmp_path / "home of somebody" / "my_pairs"
    pairs.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (pairs / f"{split}.jsonl").write_text(PAIRS)
    begun = call(
        "task=nli", f"data.dir='{pairs}'", "encoder=dan", "geometry=euclidean", "trainer.max_epochs=1", *QUIET,
        *places(tmp_path),
    )  # fmt: skip
    assert begun.code == 0, begun.err
    run = begun.record_path.parent
    assert "home of somebody" not in begun.record_path.read_text()
    for state in (run / "checkpoints").iterdir():
        assert b"home of somebody" not in state.read_bytes(), state
    config = torch.load(run / "checkpoints" / "best.ckpt")["config"]
    assert config["data"]["dir"] == "<outside>/my_pairs"
    assert config["task"]["data"]["folder"] == "<data.dir>"
    tested = call("mode=test", f"checkpoint={run}", *QUIET, *places(tmp_path))
    assert tested.code == 0, tested.err
    assert tested.record["metrics"]["test/accuracy"] == begun.record["metrics"]["test/accuracy"]
    state = shutil.copy(run / "checkpoints" / "best.ckpt", tmp_path)
    refused = call("mode=test", f"checkpoint={state}", *QUIET, *places(tmp_path))
    assert refused.code == 1
    assert "data.dir='<outside>/my_pairs': a checkpoint keeps no absolute paths" in refused.err
    assert "data.dir=..." in refused.err
    tested = call("mode=test", f"checkpoint={state}", f"data.dir='{pairs}'", *QUIET, *places(tmp_path))
    assert tested.code == 0, tested.err
    monkeypatch.chdir(pairs.parent)
    relative = call(
        "task=nli", f"data.dir='{pairs}'", "encoder=dan", "geometry=euclidean", "trainer.max_epochs=1", *QUIET,
        *places(tmp_path),
    )  # fmt: skip
    config = torch.load(relative.record_path.parent / "checkpoints" / "best.ckpt")["config"]
    assert config["data"]["dir"] == "my_pairs"
    monkeypatch.chdir(tmp_path)
    tested = call("mode=test", f"checkpoint={relative.record_path.parent}", *QUIET, *places(tmp_path))
    assert tested.code == 0, tested.err


def test_a_relative_folder_is_one_below_that_in_which_the_run_was_started(tmp_path, monkeypatch):
    """As Hydra noted it beside the run; else it is one outside, which has to be named."""
    (tmp_path / "home" / "pairs").mkdir(parents=True)
    (tmp_path / "run" / ".hydra").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run")
    state = tmp_path / "run" / "checkpoints" / "best.ckpt"
    assert stored._from_here({"dir": "pairs"}, state) == {"dir": "<outside>/pairs"}
    (tmp_path / "run" / ".hydra" / "hydra.yaml").write_text(f"hydra: {{runtime: {{cwd: '{tmp_path}/home'}}}}")
    assert stored._from_here({"dir": "pairs"}, state) == {"dir": f"{tmp_path}/home/pairs"}
    monkeypatch.chdir(tmp_path / "home")
    assert stored._from_here({"dir": "pairs"}, state) == {"dir": "pairs"}
    for node in ({"dir": None}, {"dir": "<paths.data_dir>/pairs"}, {"dir": "<outside>/pairs"}, None):
        assert stored._from_here(node, state) == node
    monkeypatch.chdir(tmp_path)
    assert stored._from_here({"dir": "."}, state) == {"dir": f"{tmp_path}/home"}


@pytest.mark.long
@pytest.mark.parametrize("cache", ["{}", "../../elsewhere", "<outside>/elsewhere"])
def test_a_checkpoint_does_not_say_where_caches_are(tmp_path, monkeypatch, cache):
    for split in ("train", "dev", "test"):
        (tmp_path / "pairs").mkdir(exist_ok=True)
        (tmp_path / "pairs" / f"{split}.jsonl").write_text(PAIRS)
    words = (f"data.dir={tmp_path}/pairs", *QUIET, *places(tmp_path))
    begun = call("task=nli", "encoder=dan", "geometry=euclidean", "trainer.max_epochs=1", *words)
    checkpoint, elsewhere = torch.load(begun.record_path.parent / "checkpoints" / "best.ckpt"), tmp_path / "elsewhere"
    checkpoint["config"]["task"]["data"]["cache"] = cache.format(elsewhere)
    (tmp_path / "shipped" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shipped" / "deep")
    torch.save(checkpoint, tmp_path / "shipped" / "best.ckpt")
    shutil.rmtree(tmp_path / "out" / ".cache")
    tested = call("mode=test", f"checkpoint={tmp_path}/shipped/best.ckpt", *words)
    assert tested.code == 0, tested.err
    assert not elsewhere.exists()
    assert (tmp_path / "out" / ".cache").exists()


def test_a_name_that_begins_as_that_of_the_caches_is_another_one():
    node = {"cache": "<paths.cache_dir>evil/y", "data": {"cache": "<paths.cache_dir>/y"}}
    assert stored._in_the_cache(node) == {"cache": "<paths.cache_dir>", "data": {"cache": "<paths.cache_dir>/y"}}


def test_a_checkpoint_does_not_say_where_generated_pairs_are_kept(finished, tmp_path):
    """PREFIX calls its cache root."""
    checkpoint, elsewhere = torch.load(states(finished) / "best.ckpt"), tmp_path / "elsewhere"
    checkpoint["config"]["task"]["data"]["root"] = str(elsewhere)
    torch.save(checkpoint, tmp_path / "best.ckpt")
    tested = call("mode=test", f"checkpoint={tmp_path}/best.ckpt", *QUIET, *places(tmp_path))
    assert tested.code == 0, tested.err
    assert not elsewhere.exists()
    assert any((tmp_path / "out").rglob("noise*"))


@pytest.mark.long
@pytest.mark.parametrize("file", ["{}", "../precious.npz", "<paths.output_dir>/prefix_toy/checkpoints/best.ckpt"])
def test_a_checkpoint_does_not_say_where_points_are_written(tmp_path, monkeypatch, file):
    words = ("optim.schedule=constant", *QUIET, *places(tmp_path))
    begun = call("task=poincare_embeddings_toy", "trainer.max_epochs=1", *words)
    assert begun.code == 0, begun.err
    shared = next((tmp_path / "out" / "embeddings").glob("toy-*.npz"))
    (tmp_path / "precious.npz").write_text("precious")
    (tmp_path / "shipped" / "checkpoints").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shipped")
    for state in (begun.record_path.parent / "checkpoints").iterdir():
        checkpoint = torch.load(state)
        assert checkpoint["config"]["task"]["module"]["file"].startswith("<paths.output_dir>/embeddings/")
        checkpoint["config"]["task"]["module"]["file"] = file.format(tmp_path / "precious.npz")
        torch.save(checkpoint, tmp_path / "shipped" / "checkpoints" / state.name)
    shared.unlink()
    longer = call(f"trainer.resume={tmp_path}/shipped", "trainer.max_epochs=2", *words)
    assert longer.code == 0, longer.err
    assert (tmp_path / "precious.npz").read_text() == "precious"
    assert not (tmp_path / "out" / "prefix_toy").exists()
    assert not shared.exists()
    assert (longer.record_path.parent / "points.npz").exists()
    assert "of the checkpoint is not written: points go into this run's folder alone" in longer.out


@pytest.mark.long
def test_points_that_runs_share_are_where_this_run_has_them(tmp_path):
    words = (*QUIET, "optim.schedule=constant")
    begun = call("task=poincare_embeddings_toy", "trainer.max_epochs=1", *words, *places(tmp_path / "a"))
    longer = call(f"trainer.resume={begun.record_path.parent}", "trainer.max_epochs=2", *words, *places(tmp_path / "b"))
    assert longer.code == 0, longer.err
    assert "is not written" not in longer.out
    assert [file.name for file in (tmp_path / "b" / "out" / "embeddings").iterdir()]


def test_notes_of_a_run_are_no_more_than_places_of_its_own_files(tmp_path):
    from configs.stored import _interpolate

    kept = {"a": "<outside>/x", "b": ["<outside>/y"], "c": "<outside>/z"}
    (tmp_path / "x").mkdir()
    noted = {"a": str(tmp_path / "x"), "b": ["${oc.env:HOME}/y"], "c": "/etc/passwd"}
    assert _interpolate(kept, noted) == kept | {"a": str(tmp_path / "x")}


def test_a_path_in_the_folder_of_the_run_is_the_noted_one_unless_it_names_another_file(tmp_path, monkeypatch):
    """Word vectors are looked for below the folder of data."""
    from configs.stored import _interpolate

    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "vectors.txt").write_text("a 1\n")
    monkeypatch.chdir(tmp_path / "here")
    for place, expected in (("here", str(tmp_path / "here" / "vectors.txt")), ("there", "vectors.txt")):
        assert _interpolate("vectors.txt", str(tmp_path / place / "vectors.txt")) == expected


@pytest.mark.parametrize("text", ["a: &a {b: c}\nd: *a\n", "a: b\n" + "#" * 1_000_000, "- a\n", "[" * 99_999])
def test_notes_that_may_stand_for_more_than_they_say_are_not_read(tmp_path, text):
    from configs.stored import _notes

    (tmp_path / ".hydra").mkdir()
    for content, notes in (("a: {b: c}\nd: ${a.b}\n", {"a": {"b": "c"}, "d": "c"}), (text, {})):
        (tmp_path / ".hydra" / "config.yaml").write_text(content)
        assert _notes(tmp_path / "checkpoints" / "best.ckpt") == notes
