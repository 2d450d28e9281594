"""IWSLT'14 as fairseq's script leaves it, from files to translations."""

import json
import math

import pytest

from tests.cli import QUIET, call, places
from tests.tasks.translation.files import write

PAIRS = [
    ("a d@@ og r@@ uns .", "ein h@@ und l@@ äuft ."),
    ("the c@@ at &apos;s h@@ at", "der h@@ ut der k@@ atze"),
    ("here r@@ uns a c@@ at", "hier l@@ äuft eine k@@ atze"),
]
UNSEEN = ("a b@@ ird r@@ uns", "ein v@@ ogel l@@ äuft")


@pytest.mark.long
@pytest.mark.parametrize("fidelity", ["paper", "code"])
def test_two_steps_are_trained_and_tested(tmp_path, fidelity):
    splits = {"train": PAIRS * 4, "valid": PAIRS[:2], "test": [*PAIRS[1:], UNSEEN]}
    sides = {
        f"{split}.{language}.bpe": [pair[side] for pair in pairs]
        for split, pairs in splits.items()
        for side, language in enumerate(("en", "de"))
    }
    folder = write(tmp_path / "iwslt14.tokenized.de-en", sides)
    result = call(
        "task=iwslt14", f"fidelity={fidelity}", f"task.data.folder={folder}", "geometry=lorentz", "trainer.max_steps=2",
        "task.transformer.n_layers=1", "trainer.accelerator=cpu", *QUIET, *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "12 training pairs, 0.0% of the paper's 160,239." in result.out
    data, metrics = result.record["data"], result.record["metrics"]
    assert data["files"]["test"] == "test.en.bpe + test.de.bpe"
    assert data["pieces"] == {"subwords": "@@", "source": 12, "target": 12}
    counts = {split: [counts["pairs"], counts["source_pieces"]] for split, counts in data["counts"].items()}
    assert counts == {"train": [12, 72], "dev": [2, 12], "test": [3, 17]}
    unknown = {s: [data["counts"][s][f"{side}_unknown"] for side in ("source", "target")] for s in ("dev", "test")}
    assert unknown == {"dev": [0, 0], "test": [2, 2]}
    assert all(math.isfinite(metrics[f"test/{name}"]) for name in ("loss", "bleu", "bleu_tokenised"))
    translations = (result.record_path.parent / "translations.txt").read_text(encoding="utf-8")
    assert len(translations.splitlines()) == 3
    assert "@@ " not in translations
    output = tmp_path / "out.jsonl"
    tested = call("mode=test", f"checkpoint={result.record_path.parent}", f"output={output}", *QUIET, *places(tmp_path))
    assert tested.code == 0, tested.err
    gold = [json.loads(line)["gold"] for line in output.read_text(encoding="utf-8").splitlines()]
    assert gold == ["der hut der katze", "hier läuft eine katze", "ein vogel läuft"]
