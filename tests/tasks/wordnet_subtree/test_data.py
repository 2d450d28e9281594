"""Every node but the root is an example once, labelled by where it stands; what does not fit is reported with the remedy."""

import hashlib

import numpy as np
import pytest
import torch

from tasks.errors import UserError
from tasks.points_files import write_points
from tests.tasks.wordnet_subtree.conftest import BELOW, NAMES, SETTINGS


def named(data, split: str) -> dict[str, int]:
    batch = data.splits()[split][torch.arange(len(data.splits()[split]))]
    return {NAMES[row]: label for row, label in zip(batch["rows"].tolist(), batch["labels"].tolist(), strict=True)}


def test_each_node_but_the_root_is_an_example_with_its_label(make):
    data = make()
    train, test = named(data, "train"), named(data, "test")
    assert not train.keys() & test.keys()
    both = train | test
    assert both == {name: int(name in BELOW) for name in NAMES if name != "animal"}
    assert named(data, "dev") == train, "nothing is held out"
    assert len(train) == len(data.splits()["train"])


def test_the_draw_depends_on_the_split_seed_alone(make):
    train = named(make(), "train")
    assert named(make(seed=5), "train") == train
    other = named(make(split_seed=1), "train")
    assert other.keys() != train.keys()
    assert named(make(subtree="plant", split_seed=1), "train").keys() - {"animal"} == other.keys() - {"plant"}


def test_without_a_split_seed_the_draw_depends_on_the_seed(make):
    train = named(make(split_seed=None, seed=3), "train")
    assert train == named(make(split_seed=3), "train")
    assert train.keys() != named(make(split_seed=None, seed=4), "train").keys()


def test_the_record_describes_the_data(make, points, capsys):
    data = make()
    record = data.fingerprint()
    assert capsys.readouterr().out.endswith("points.npz (9 of PoincareBall, c = 1)\n")
    assert record["files"] == dict.fromkeys(("train", "dev", "test"), "tree.tsv") | {"points": "points.npz"}
    for split in ("train", "test"):
        labels = named(data, split).values()
        assert record["counts"][split] == {"positive": sum(labels), "negative": len(labels) - sum(labels)}
    digests = record["sha256"]
    assert digests["train"] == digests["dev"] != digests["test"]
    file = data._tree[1].sha256
    assert digests["points"] == file
    assert data.identity == {"points": f"9 in 2 coordinates with sha256 {file[:12]}", "subtree": "animal"}
    counts = record["counts"]["train"]
    assert data.model_sizes["class_counts"] == (counts["negative"], counts["positive"])
    assert (data.names, data._tree[2]) == (NAMES, 0)


def test_points_of_a_table_have_its_name(make, tmp_path):
    source = make().hierarchy.source
    (tmp_path / "points.npz").rename(tmp_path / f"{source}-poincare-2d.npz")
    assert make(embeddings=str(tmp_path / "wordnet_nouns-poincare-2d.npz")).model_sizes["embedded"].points.shape == (9, 2)
    named = make(embeddings=str(tmp_path / "wordnet_nouns-poincare-2d.npz"))
    assert named.fingerprint()["files"]["points"] == f"{source}-poincare-2d.npz"
    with pytest.raises(UserError, match="There are no points .*wordnet_nouns-mine.npz"):
        make(embeddings=str(tmp_path / "wordnet_nouns-mine.npz")).splits()
    with pytest.raises(UserError, match=f"There are no points .*{source}-lorentz-2d.npz"):
        make(embeddings=str(tmp_path / "wordnet_nouns-lorentz-2d.npz")).splits()


def test_points_are_found_by_name(make, tmp_path, points):
    order = np.random.default_rng(1).permutation(len(NAMES))
    write_points(tmp_path / "points.npz", [NAMES[k] for k in order], points[order], "PoincareBall", 1.0)
    assert (make().model_sizes["embedded"].points == points).all()


def test_a_part_of_the_training_nodes(make):
    share, n = {"train_share": 0.7}, 4
    whole, data = make(**share), make(**share, sizes={"train": n})
    assert len(data.splits()["train"]) == n
    assert list(named(data, "train")) == list(named(whole, "train"))[:n]
    assert len(data.splits()["test"]) == len(whole.splits()["test"])


def test_a_part_with_nodes_of_one_kind_is_an_error(make):
    with pytest.raises(UserError, match=r"0 of the 2 training nodes are below it.*a larger task\.data\.sizes\.train"):
        make(sizes={"train": 2}).splits()


def test_lines_to_predict(make):
    data = make()
    nodes = list(data.read_inputs([b"dog\n", b"oak\n"], "nodes.txt"))
    assert data.encode(nodes)[torch.arange(2)]["rows"].tolist() == [NAMES.index("dog"), NAMES.index("oak")]
    assert data.describe(nodes[0]) == {"node": "dog", "root": "animal"}
    with pytest.raises(UserError, match=r"nodes.txt, line 2: .*has no node 'dogg'\. The nearest spellings: 'dog'"):
        list(data.read_inputs([b"dog\n", b"dogg\n"], "nodes.txt"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subtree": "animals"}, r"task.root=animals: .* has no node 'animals'\. The nearest spellings: 'animal'"),
        ({"subtree": "puppy"}, "task.root=puppy: 0 of the .* training nodes are below it, .* it has 0 nodes below it"),
        ({"subtree": "thing"}, "Take another root"),
        ({"dim": 3}, "points.npz .task.embeddings. has points of 2 dimensions, and task.dim is 3"),
        ({"dim": 0}, "task.dim must be a whole number of at least 1"),
        ({"train_share": 1.0}, "task.data.train_share must be between 0 and 1"),
        ({"sizes": {"train": 0}}, "task.data.sizes.train"),
        ({"file": None}, "set task.data.wordnet to a folder or task.data.file to a table"),
        ({"file": "nowhere.tsv"}, "There is no file nowhere.tsv; correct task.data.file"),
        ({"wordnet": "nowhere", "file": None}, "nowhere/data.noun cannot be read"),
        ({"embeddings": "nowhere.npz", "dim": 5},
         r"no points nowhere.npz .*python run.py task=poincare_embeddings task.dim=5 task.data.file=.*tree.tsv"),
        ({"embeddings": "nowhere.npz", "file": None, "wordnet": "{wordnet}", "subtree": "entity.n.01"},
         r"`python run.py task=poincare_embeddings task.dim=2` makes such a file"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_remedy(make, tmp_path, changes, message):
    if changes.get("wordnet") == "{wordnet}":
        changes = {**changes, "wordnet": str(tmp_path)}
        (tmp_path / "index.noun").write_text("entity n 1 0 1 0 00000001\nthing n 1 0 1 0 00000002\n")
        (tmp_path / "data.noun").write_text(
            "00000001 03 n 01 entity 0 000 | all\n00000002 03 n 01 thing 0 001 @ 00000001 n 0000 | some\n"
        )
    with pytest.raises(UserError, match=message):
        make(**changes).splits()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (NAMES[:-1], "has 8 points, and the tree 9 nodes: it lacks 1, first fir. Take points"),
        ((*NAMES, "elm"), "has 10 points, and the tree 9 nodes: it has 1 that the tree has not, first elm. Take points"),
        ((*NAMES[:-2], "elm", "ash"), "it lacks 2, first oak; it has 2 that the tree has not, first elm"),
    ],
)
def test_points_of_other_nodes_are_refused(make, tmp_path, names, message):
    write_points(tmp_path / "points.npz", names, np.zeros((len(names), 2)), "PoincareBall", 1.0)
    with pytest.raises(UserError, match=message):
        make().splits()


def test_a_file_that_has_no_points_is_named(make, tmp_path):
    (tmp_path / "points.npz").write_text("text")
    with pytest.raises(UserError, match=r"points.npz is no file of points .* see task.embeddings"):
        make().splits()


@pytest.mark.data
@pytest.mark.parametrize(
    ("root", "below", "paper"),
    [
        ("animal.n.01", 4016, (3218, 798)),
        ("group.n.01", 8378, (6649, 1727)),  # the paper's counts add up to 8,376
        ("worker.n.01", 1115, (861, 254)),
        ("mammal.n.01", 1181, (953, 228)),
    ],
)
def test_the_subtrees_of_the_paper(data_dir, tmp_path, root, below, paper):
    folder = data_dir / "wordnet30"
    if not folder.is_dir():
        pytest.skip(f"{data_dir} has no wordnet30")
    from tasks.wordnet import read_nouns
    from tasks.wordnet_subtree.data import SubtreeData

    names = read_nouns(folder).names
    assert len(names) == 82115
    write_points(tmp_path / "zero.npz", names, np.zeros((len(names), 2)), "PoincareBall", 1.0)
    settings = {**SETTINGS, "train_share": 0.8, "wordnet": str(folder), "subtree": root}
    counts = SubtreeData(**settings, file=None, embeddings=str(tmp_path / "zero.npz")).fingerprint()["counts"]
    assert counts["train"]["positive"] + counts["test"]["positive"] == below
    assert sum(counts["train"].values()) + sum(counts["test"].values()) == 82114, "the root is no example"
    assert abs(below - sum(paper)) <= 2
    deviation = (0.8 * 0.2 * below) ** 0.5
    assert abs(counts["test"]["positive"] - 0.2 * below) < 4 * deviation
    assert abs(paper[1] - 0.2 * below) < 4 * deviation, "the paper's too is such a draw"


def test_the_toy_is_reported_as_generated():
    from tasks.wordnet_subtree.data import SubtreeData

    toy = {"depth": 2, "branching": 3, "length": 1.0}
    data = SubtreeData(**{**SETTINGS, "toy": toy, "subtree": "0.1", "file": None, "embeddings": "", "split_seed": 1})
    assert data.fingerprint()["files"]["points"] == "generated"
    assert len(data.names) == 13
    assert hashlib.sha256(data.model_sizes["embedded"].points.tobytes()).hexdigest() == data._tree[1].sha256
