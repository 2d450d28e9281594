"""Texts that are too few for as many pieces as are asked for."""

import pytest

from tasks.errors import UserError
from tasks.translation.prepared import size_for
from tasks.translation.subwords import Subwords, learn
from tests.tasks.translation.files import TRAIN, aligned, data, german

BOTH = [*TRAIN, *map(german, TRAIN)]


def test_of_few_texts_all_pieces_that_there_are_are_learnt():
    most = Subwords("bpe", learn(BOTH, 10_000))
    assert 60 < len(most) < 200
    exactly = Subwords("bpe", learn(BOTH, len(most)))
    assert len(exactly) == len(most)
    assert exactly.split(BOTH) == most.split(BOTH)
    assert most.split(["a dog"]) == [["▁a", "▁dog"]]


def test_fewer_pieces_than_wanted_are_said_also_from_the_cache(tmp_path, capsys):
    folder = aligned(tmp_path / "texts")
    for _ in range(2):
        small = data(folder, tmp_path / "cache", subwords="bpe", pieces=8000)
        small.corpus()
        said = f"task.data.pieces=8000 is more than these texts give; {len(small.subwords)} are learnt.\n"
        assert capsys.readouterr().out.count(said) == 1
    data(folder, tmp_path / "cache", subwords="bpe", pieces=60).corpus()
    assert "are learnt" not in capsys.readouterr().out


def test_auto_takes_pieces_by_the_length_of_the_texts(tmp_path, capsys):
    assert size_for(["ab"]) == 502
    assert size_for(["abcd"] * 50_000) == 1004
    assert size_for(["abcd"] * 1_000_000) == 8004
    small = data(aligned(tmp_path / "texts"), tmp_path / "cache", subwords="bpe", pieces="auto")
    small.corpus()
    assert f"task.data.pieces=auto: {len(small.subwords)} pieces are learnt" in capsys.readouterr().out
    with pytest.raises(UserError, match="task.data.pieces"):
        data(aligned(tmp_path / "texts"), tmp_path / "cache", subwords="bpe", pieces="many")
