"""Types: their granularity, the ontology file, pairs of types."""

import hashlib
import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from tasks.entity_typing import types
from tasks.errors import UserError


def test_granularity_by_name_and_by_depth():
    names = ["person", "singer", "actor", "legal", "place"]
    assert types.granularity(names, "choi").tolist() == [0, 2, 1, 1, 0]
    assert types.granularity(names, "hyfi").tolist() == [0, 2, 1, 2, 0], "the authors' code lacks `legal` and `other`"
    paths = ["/person", "/person/artist", "/person/artist/actor", "/location", "/a/b/c/d"]
    assert types.granularity(paths, "depth").tolist() == [0, 1, 2, 0, 2]
    with pytest.raises(UserError, match="task.data.granularity must be one of choi, hyfi, depth"):
        types.granularity(names, "levels")


def test_the_labels_are_those_of_the_papers():
    assert (len(types.COARSE), len(types.FINE), len(types.fine_labels("hyfi"))) == (9, 121, 119)
    assert len({*types.COARSE, *types.FINE}) == 130
    assert types.first_types("choi") == [*types.COARSE, *types.FINE]
    assert types.first_types("depth") == []


@pytest.mark.data
def test_the_labels_are_the_first_lines_of_the_official_file(data_dir):
    names = types.read_ontology(data_dir / "ultrafine" / "ontology" / "types.txt")
    assert tuple(names[:9]) == types.COARSE
    assert tuple(names[9:130]) == types.FINE
    assert len(names) == 10_331


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"person\nplace\nperson\n", "line 3: the type 'person' stands on line 1 too"),
        (b"person\n\nplace\n", "line 2: is empty"),
        (b"", "line 1: is empty"),
        (b"person\n\xff\n", "line 2 is not UTF-8"),
    ],
)
def test_a_faulty_ontology_is_named_with_its_line(tmp_path, content, said):
    path = tmp_path / "types.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"types\.txt") as caught:
        types.read_ontology(path)
    assert said in str(caught.value)


def test_an_ontology_is_read_in_order(tmp_path):
    path = tmp_path / "types.txt"
    path.write_bytes("person\r\ncafé\nplace".encode())
    assert types.read_ontology(path) == ["person", "café", "place"]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert types.read_ontology(path) == ["person", "café", "place"]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_pairs_are_counted_as_by_brute_force(size):
    draw = np.random.default_rng(0)
    mentions = [draw.permutation(6)[: draw.integers(0, 5)] for _ in range(40)]
    expected = Counter(tuple(sorted(p)) for m in mentions for p in itertools.combinations(m.tolist(), 2))
    chunks = (
        (np.concatenate(part), np.array([len(m) for m in part]))
        for part in (mentions[k : k + size] for k in range(0, len(mentions), size))
    )
    found = types.count_pairs(chunks, 6)
    assert found.dtype == torch.long
    assert {(i, j): n for i, j, n in found.tolist()} == expected
    assert len(found) == len(expected)


def test_no_mentions_have_no_pairs():
    assert types.count_pairs([], 5).shape == (0, 3)


def test_an_inventory_has_a_length():
    assert len(types.TypeInventory(("a", "b"), torch.tensor([0, 2]), lambda: torch.zeros(0, 3))) == 2


def test_the_fine_labels_that_hyfis_program_lacks_are_legal_and_other():
    assert {*types.fine_labels("choi")} - {*types.fine_labels("hyfi")} == {"legal", "other"}


def test_no_label_was_changed():
    """Lines 1 to 130 of Choi's types.txt, also where the file is not there (test_the_labels_are_the_first_lines_of_the_official_file reads it)."""
    labels = "\n".join([*types.COARSE, *types.FINE]).encode()
    assert hashlib.sha256(labels).hexdigest()[:16] == "0283676830e53dbe"
