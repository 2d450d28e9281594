"""Faults of files and of the cache that appear while pieces are learnt or read again."""

import numpy as np
import pytest

from tasks.errors import UserError
from tasks.translation.prepared import prepare
from tests.cli import QUIET, call, places
from tests.tasks.translation.files import TRAIN, aligned, data, german


def test_different_line_counts_are_said_where_pieces_are_learnt(tmp_path):
    folder = aligned(tmp_path / "texts", train_de=[german(line) for line in TRAIN[:4]])
    with pytest.raises(UserError, match=r"train\.(en|de)") as error:
        data(folder, tmp_path / "cache", subwords="bpe").corpus()
    assert "task.data.pieces" not in str(error.value)


def test_bytes_that_are_no_text_are_said_where_pieces_are_learnt(tmp_path):
    folder = aligned(tmp_path / "texts")
    (folder / "train.de").write_bytes((folder / "train.de").read_bytes().replace("ä".encode(), b"\xe4"))
    with pytest.raises(UserError, match=r"train\.de, line 1: it is not UTF-8"):
        data(folder, tmp_path / "cache", subwords="bpe").corpus()
    assert not list((tmp_path / "cache").rglob("*.bin"))


def test_an_interruption_while_pieces_are_learnt_is_one(tmp_path):
    def pairs():
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        prepare(pairs, data(aligned(tmp_path), tmp_path, subwords="bpe").recipe)


def test_a_damaged_model_in_the_cache_is_made_again(tmp_path):
    folder = aligned(tmp_path / "texts")
    first = data(folder, tmp_path / "cache", subwords="bpe").corpus().arrays.model.copy()
    [file] = (tmp_path / "cache").rglob("model.bin")
    damaged = first.copy()
    damaged[len(damaged) // 2] ^= 1
    damaged.tofile(file)
    again = data(folder, tmp_path / "cache", subwords="bpe")
    with pytest.warns(UserWarning, match=r"is damaged \(model.bin was changed\); it is made again"):
        assert np.array_equal(again.corpus().arrays.model, first)
    assert np.array_equal(np.fromfile(file, np.uint8), first)
    assert again.subwords is again.subwords


@pytest.mark.slow
def test_a_checkpoint_is_refused_with_another_model_of_pieces(tmp_path):
    def words(pieces: int) -> tuple[str, ...]:
        return (
            "task=translation", f"data.dir={aligned(tmp_path / 'texts')}", f"task.data.pieces={pieces}",
            "geometry=euclidean", "task.transformer.n_layers=1", "trainer.accelerator=cpu", *QUIET, *places(tmp_path),
        )  # fmt: skip

    first = call(*words(60), "trainer.max_steps=1", "task.module.search.max_length_constant=1")
    assert first.code == 0, first.err
    (tmp_path / "input.txt").write_text("a dog\n", encoding="utf-8")
    for mode, more in (("test", []), ("predict", [f"input={tmp_path / 'input.txt'}", f"output={tmp_path / 'o.jsonl'}"])):
        result = call(*words(55), f"mode={mode}", f"checkpoint={first.record_path.parent}", *more)
        assert result.code == 1
        assert "subwords" in result.err
        assert len(result.err.strip().splitlines()) == 1, "one paragraph"
    assert not (tmp_path / "o.jsonl").exists()
