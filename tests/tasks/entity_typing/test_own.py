"""task=typing data.dir=...: mentions of a user's own."""

import json
from pathlib import Path

import pytest

from tests.cli import QUIET, call, places

PLACES = ("Paris", "Rome", "Oslo")
PEOPLE = ("Ada", "Alan", "Grace")


def write(folder: Path, **lines: str) -> tuple[str, ...]:
    """Files of mentions, in which `lines` are added to a split, and word vectors; the words of a run with them."""
    (folder / "mine").mkdir(exist_ok=True)
    for split in ("train", "dev", "test"):
        rows = [
            {"left": "I saw", "mention": name, "right": ["in", "May", "."], "types": types}
            for names, types in ((PLACES, ["/place", "/place/city"]), (PEOPLE, ["/person"]))
            for name in names
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows) + lines.get(split, "")
        (folder / "mine" / f"{split}.jsonl").write_text(text, encoding="utf-8")
    vectors = [f"{name.lower()} {k} {1 - k}" for k, names in enumerate((PLACES, PEOPLE)) for name in names]
    (folder / "vectors.txt").write_text("\n".join(vectors) + "\n", encoding="utf-8")
    return (
        "task=typing", f"data.dir={folder / 'mine'}", f"task.data.vectors.files=[{folder / 'vectors.txt'}]",
        "trainer.max_epochs=60", *QUIET, *places(folder),
    )  # fmt: skip


def test_types_of_ones_own_are_learnt_and_predicted(tmp_path):
    result = call(*write(tmp_path))
    assert result.code == 0, result.err
    assert "chosen for 6 mentions: task.data.batch_size=16" in result.out
    assert result.record["metrics"]["test/macro_f1"] == 1
    assert result.record["metrics"]["test/fine/macro_f1"] == 1, "by the depth of the path"
    assert not [name for name in result.record["metrics"] if "/ultrafine/" in name], "no type is so deep"
    (tmp_path / "new.txt").write_text("We went to [Rome] .\n", encoding="utf-8")
    words = ("mode=predict", f"checkpoint={result.record_path.parent}", f"input={tmp_path / 'new.txt'}", "output=-")
    answer = json.loads(call(*words, *places(tmp_path)).out.splitlines()[-1])
    assert {each["type"] for each in answer["types"]} == {"/place", "/place/city"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"left": "a", "mention": "b", "right": "c"}', "types must be a list of strings"),
        ('{"left": "a", "mention": "b", "right": "c", "types": "person"}', "types must be a list of strings"),
        ('{"left": "a", "right": "c", "types": ["person"]}', "it has no key"),
    ],
)
def test_a_faulty_line_is_named(tmp_path, line, message):
    result = call(*write(tmp_path, dev=line + "\n"))
    assert result.code == 1
    assert "dev.jsonl" in result.err
    assert "line 7" in result.err
    assert message in result.err


def test_what_is_missing_is_named(tmp_path):
    words = write(tmp_path)
    (tmp_path / "mine" / "dev.jsonl").unlink()
    assert "There is no file" in (error := call(*words).err)
    assert "valid.json (dev). Add it; tasks/entity_typing/README.md says what its lines are." in error
    assert "task=typing needs a folder" in call("task=typing", *QUIET, *places(tmp_path)).err
