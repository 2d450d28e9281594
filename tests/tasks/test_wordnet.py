"""WordNet's own files: a few synsets written by hand, and the real ones."""

import os
from pathlib import Path

import pytest

from tasks.edges import closure, nodes_on_cycles
from tasks.errors import UserError
from tasks.wordnet import read_nouns

LICENCE = "  1 This software and database is being provided to you\n"
SYNSETS = (
    "00000010 03 n 01 entity 0 001 ~ 00000020 n 0000 | all that is",
    "00000020 03 n 02 Dog 0 domestic_dog 0 002 @ 00000010 n 0000 %p 00000030 n 0000 | barks",
    "00000030 03 n 01 dog 0 002 @ 00000020 n 0000 @ 00000010 v 0000 | a fellow",
    "00000040 15 n 01 Rex 0 001 @i 00000020 n 0000 | a dog",
)
INDEX = (
    "dog n 2 2 @ ~ 2 0 00000030 00000020",
    "domestic_dog n 1 1 @ 1 0 00000020",
    "entity n 1 1 ~ 1 0 00000010",
    "rex n 1 1 @i 1 0 00000040",
)


def write(folder: Path, synsets=SYNSETS, index=INDEX) -> Path:
    for name, lines in (("data.noun", synsets), ("index.noun", index)):
        (folder / name).write_text(LICENCE + "".join(f"{line}  \n" for line in lines), encoding="utf-8")
    return folder


def test_names_and_hypernyms(tmp_path):
    """Of the pointers only hypernyms among nouns count, those of instances among them."""
    nouns = read_nouns(write(tmp_path))
    assert nouns.names == ("entity.n.01", "dog.n.02", "dog.n.01", "rex.n.01")
    edges = [(nouns.names[u], nouns.names[v]) for u, v in zip(nouns.child, nouns.parent, strict=True)]
    assert edges == [("dog.n.02", "entity.n.01"), ("dog.n.01", "dog.n.02"), ("rex.n.01", "dog.n.02")]


@pytest.mark.parametrize(
    ("synsets", "index", "message"),
    [
        ((*SYNSETS, "00000050 15 n"), INDEX, r"data.noun, line 6: no synset of WordNet's noun file"),
        (SYNSETS, INDEX[1:], r"data.noun, line 3: index.noun has no sense of 'Dog' at 00000020"),
        (SYNSETS[1:], INDEX, r"data.noun has no synset 00000010, to which another points; it is cut off"),
        (SYNSETS, (*INDEX, "x n many"), r"index.noun, line 6: no entry of WordNet's noun index"),
        (SYNSETS[:1], INDEX, r"has no synset with a hypernym"),
    ],
)
def test_faulty_files(tmp_path, synsets, index, message):
    with pytest.raises(UserError, match=message):
        read_nouns(write(tmp_path, synsets, index))


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"data.noun cannot be read.*task.data.wordnet.*download.py wordnet"):
        read_nouns(tmp_path)


@pytest.mark.data
def test_the_real_files_have_the_papers_numbers():
    folder = Path(os.environ.get("HYPERBOLIC_DATA", "data")).expanduser() / "wordnet30"
    if not (folder / "data.noun").is_file():
        pytest.skip(f"{folder} is not there: HYPERBOLIC_DATA names the folder with wordnet30")
    nouns = read_nouns(folder)
    assert len(nouns.names) == len(set(nouns.names)) == 82_115
    low, high = closure(nouns.child, nouns.parent, len(nouns.names))
    on_cycles = nodes_on_cycles(nouns.child, nouns.parent, len(nouns.names))
    assert (len(nouns.child), len(low), len(on_cycles)) == (84_427, 743_241, 0)
    dog, names = nouns.names.index("dog.n.01"), nouns.names
    assert "canine.n.02" in {names[v] for v in high[low == dog]}
