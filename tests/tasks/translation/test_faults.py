"""Faults of files and of the cache that appear while pieces are learnt or read again."""

import numpy as np
import pytest

from tasks.errors import UserError
from tasks.translation.corpus import HeldOut
from tasks.translation.prepared import prepare
from tasks.translation.subwords import LONGEST, learn
from tests.cli import QUIET, call, places
from tests.tasks.translation.files import TRAIN, aligned, data, german, write


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


@pytest.mark.parametrize("subwords", ["bpe", "none"])
def test_files_without_a_pair_are_named_before_pieces_are_learnt(tmp_path, subwords):
    for english, dutch, said in (
        (b"", b"", r"train\.en and .*train\.de: no pair of sentences is left to train on, as it has no text"),
        (b"dog\n\n", b"\nhond\n", "as all of its 2 pairs have an empty side"),
        (b"a dog\rruns\r", b"een hond\rloopt\r", r"train\.en, line 1: its lines end with carriage returns alone; `tr '\\r'"),
        (b"a dog\nruns\n", b"een hond\rloopt\r", r"train\.de, line 1: its lines end with carriage returns"),
    ):
        folder = aligned(tmp_path / "texts")
        (folder / "train.en").write_bytes(english)
        (folder / "train.de").write_bytes(dutch)
        with pytest.raises(UserError, match=said):
            data(folder, tmp_path / "cache", subwords=subwords).corpus()
    write(tmp_path / "texts", {"one.tsv": ["held out 7\tx"]})
    held_out = HeldOut({"dev": 0.5, "test": 0.49}, "en")
    with pytest.raises(UserError, match=r"one\.tsv: no pair .* as the 1 pairs in it are held out \(task\.data\.held_out"):
        data(tmp_path / "texts" / "one.tsv", tmp_path / "cache", subwords=subwords, held_out=held_out).corpus()


def test_sentences_that_are_too_long_to_learn_from_are_the_reason():
    assert learn(["ab" * (LONGEST // 2)], 10)
    with pytest.raises(UserError, match=r"\(no sentence has from 1 to 4,192 bytes\)"):
        learn(["ab" * (LONGEST // 2) + "a"], 10)


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
def test_a_checkpoint_is_not_tested_with_other_pieces_and_predicts_with_its_own(tmp_path):
    def words(pieces: int) -> tuple[str, ...]:
        return (
            "task=translation", f"data.dir={aligned(tmp_path / 'texts')}", f"task.data.pieces={pieces}",
            "geometry=euclidean", "task.transformer.n_layers=1", "task.module.search.max_length_constant=1",
            "trainer.accelerator=cpu", *QUIET, *places(tmp_path),
        )  # fmt: skip

    first = call(*words(60), "trainer.max_steps=1")
    assert first.code == 0, first.err
    (tmp_path / "input.txt").write_text("a dog\n", encoding="utf-8")
    checkpoint = f"checkpoint={first.record_path.parent}"
    result = call(*words(55), "mode=test", checkpoint)
    assert result.code == 1
    assert "subwords" in result.err
    assert len(result.err.strip().splitlines()) == 1, "one paragraph"
    for name, own in (("own", ()), ("named", words(55))):
        more = (f"input={tmp_path / 'input.txt'}", f"output={tmp_path / name}.jsonl")
        result = call(*own, "mode=predict", checkpoint, *places(tmp_path), *more)
        assert result.code == 0, result.err
    assert (tmp_path / "own.jsonl").read_text() == (tmp_path / "named.jsonl").read_text()
