"""What is kept of paths of this machine, and what only looks like one."""

from pathlib import Path

import pytest

from configs.stored import _without_folders
from tasks.errors import UserError
from tasks.local_paths import portable, portable_text, portable_word, user_path


def test_homes_are_put_in_and_one_that_is_not_known_is_named(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert [user_path(p) for p in ("~/a", "a/~", Path("~"))] == [Path("/home/me/a"), Path("a/~"), Path("/home/me")]
    with pytest.raises(UserError, match=r"^~nosuchuser/g\.tsv: the home folder ~nosuchuser is not known .* whole path\.$"):
        user_path("~nosuchuser/g.tsv")


def test_messages_keep_no_folder_of_this_machine(tmp_path):
    (tmp_path / "a b").mkdir()
    text = f"trainer.resume={tmp_path}/r: there is no '{tmp_path}/a b/c.txt', and {tmp_path}/x is not; see <folder>/y or 3/4."
    assert portable_text(text) == "trainer.resume=r: there is no 'c.txt', and x is not; see <folder>/y or 3/4."
    assert portable_text(f"{tmp_path}/a b/c.txt is damaged (~/z)") == "c.txt is damaged (z)"
    assert portable_text("https://example.org/x and /film/actor") == "https://example.org/x and /film/actor"


def test_paths_of_this_machine_are_cut_to_names_and_labels_are_not(tmp_path):
    node = {"files": {"dev": str(tmp_path / "dev.tsv"), "test": None}, "rows": ["~/x/y.txt", "relative/z"], "n": 3}
    assert portable(node) == {"files": {"dev": "dev.tsv", "test": None}, "rows": ["y.txt", "relative/z"], "n": 3}
    assert portable([f"file://{tmp_path}/x", "<outside>/y", "/film/actor"]) == ["file://x", "y", "/film/actor"]
    assert _without_folders(f"{tmp_path}/x") == "<outside>/x"
    assert _without_folders("/film/actor") == "/film/actor"
    assert portable(f"/{tmp_path}/x") == "x"
    assert portable(f"/{'a' * 5000}/x") == f"/{'a' * 5000}/x"


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("task.data.file=/home/me/c.txt", "task.data.file=c.txt"),
        ("task.data.file='/home/me/my c.txt'", "task.data.file='my c.txt'"),
        ("'task.data.file=/home/me/my c.txt'", "'task.data.file=my c.txt'"),
        ('+a=[/home/me/x, "~/y/z"]', '+a=[x, "z"]'),
        ("a={b: /home/me/z.tsv,c: ~me/q/}", "a={b: z.tsv,c: q}"),
        ("+b=file:///home/me/conf", "+b=file://conf"),
        ("data.dir=/home/me/pairs/", "data.dir=pairs"),
        ("task.data.files.dev=data/x.tsv", "task.data.files.dev=data/x.tsv"),
        ("optim.lr=3/4", "optim.lr=3/4"),
        ("~task.data.files", "~task.data.files"),
        ("data.dir=/home/o'brien/d", "data.dir=d"),
        ("a='/home/me/a, b/c.txt'", "a='c.txt'"),
        ("a='/home/me/x','/home/me/y'", "a='x','y'"),
        ("+a=range(/home/me/x)", "+a=range(x)"),
        ("b=c|/home/me/x", "b=c|x"),
        ("template='rate 3/4 or /person/artist'", "template='rate 3/4 or /person/artist'"),
        ("relation=/film/actor", "relation=/film/actor"),
    ],
)
def test_words_keep_no_folder_of_this_machine(word, kept):
    assert portable_word(word) == kept
