"""Runs that translate: BLEU of the test, its texts, and predictions for new sentences."""

import gzip
import json
from pathlib import Path

import pytest
import sacrebleu
import torch

from configs.build import build
from scripts import export
from tests.cli import QUIET, Result, call, places
from tests.configurations import checked
from tests.tasks.translation.files import aligned

TOY = ("task=translation_toy", "geometry=euclidean", "trainer.accelerator=cpu", "task.data.tokenised=none")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("translating")


@pytest.fixture(scope="module")
def trained(folder) -> Result:
    """A short training, not to its end, so that translations have mistakes."""
    result = call(*TOY, "trainer.max_steps=150", "task.module.validation_pairs=20", *QUIET, *places(folder))
    assert result.code == 0, result.err
    return result


def use(folder, trained: Result, *words: str) -> Result:
    result = call(
        f"checkpoint={trained.record_path.parent}", "trainer.accelerator=cpu", *QUIET, *places(folder), *words
    )
    assert result.code == 0, result.err
    return result


def predictions(folder, trained, file: Path, *words: str) -> list[dict]:
    output = folder / "predictions.jsonl"
    output.unlink(missing_ok=True)
    use(folder, trained, "mode=predict", f"input={file}", f"output={output}", *words)
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def pairs(folder) -> dict[str, list[str]]:
    """The sentences of test."""
    data = build(checked(*TOY, *places(folder)))[1]
    return {side: data.texts("test", side) for side in ("source", "target")}


def texts(result: Result) -> list[str]:
    return (result.record_path.parent / "translations.txt").read_text(encoding="utf-8").splitlines()


def test_bleu_of_the_test_is_sacrebleus_of_its_texts(trained, pairs):
    record = trained.record
    expected = sacrebleu.corpus_bleu(texts(trained), [pairs["target"]])
    assert 10 < expected.score < 100
    assert record["metrics"]["test/bleu"] == pytest.approx(expected.score, abs=1e-9)
    version = sacrebleu.__version__
    assert record["measures"]["test/bleu"] == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert record["measures"]["test/bleu"] in trained.out
    assert set(record["measures"]) == {
        f"{split}/{name}" for split in ("val", "test") for name in ("bleu", "bleu_tokenised")
    }
    assert 0 < record["metrics"]["val/bleu"] <= 100


@pytest.mark.long
def test_the_points_of_pieces_are_exported_by_name(folder, trained, capsys):
    for kind, first in (("source_pieces", "w"), ("target_pieces", "W")):
        file = folder / f"{kind}.tsv"
        words = (str(trained.record_path.parent), "--format", "tsv", "--what", kind, "--out", str(file))
        assert export.main([*words]) == 0, capsys.readouterr().err
        header, *rows = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
        assert header[:2] == ["name", "x1"]
        names = [name for name, *_ in rows]
        assert set(names) == {f"{first}{k}" for k in range(len(rows))}
        state = torch.load(trained.record_path.parent / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
        weight = state[f"model.{kind.removesuffix('_pieces')}_embedding.weight"]
        written = torch.tensor([[float(number) for number in row] for _, *row in rows])
        assert len(weight) == 4 + len(rows), "ids before the first piece have no name"
        torch.testing.assert_close(written, weight[4:])


@pytest.mark.long
def test_references_and_sources_stand_beside_the_translations(tmp_path):
    """Also where a pair of the test has an empty side, which is left out."""
    changes = {"test_en": ["a dog", "", "here runs\ra cat !", "a cat"], "test_de": ["ein hund", "x", "hier läuft", ""]}
    folder = aligned(tmp_path / "texts", **changes)
    words = ("task=translation", f"data.dir={folder}", "geometry=euclidean", "task.transformer.n_layers=1")
    result = call(*words, "task.data.subwords=none", "trainer.max_steps=2", *QUIET, *places(tmp_path))
    assert result.code == 0, result.err
    files = {n: (result.record_path.parent / f"{n}.txt").read_text().splitlines() for n in ("sources", "references")}
    assert files == {"sources": ["a dog", "here runs a cat !"], "references": ["ein hund", "hier läuft"]}
    expected = sacrebleu.corpus_bleu(texts(result), [files["references"]]).score
    assert result.record["metrics"]["test/bleu"] == pytest.approx(expected, abs=1e-9)
    assert f"references: {result.record_path.parent / 'references.txt'}\n" in result.out


@pytest.mark.long
def test_a_checkpoint_is_tested_again_and_with_another_search(folder, trained):
    again = use(folder, trained, "mode=test")
    assert again.record["metrics"]["test/bleu"] == trained.record["metrics"]["test/bleu"]
    assert texts(again) == texts(trained)
    greedy = use(folder, trained, "mode=test", "task.module.search.beam_size=1")
    assert greedy.record["config"]["task"]["module"]["search"]["beam_size"] == 1
    assert greedy.record["metrics"]["test/loss"] == trained.record["metrics"]["test/loss"]
    assert texts(greedy) != texts(trained)


def test_new_sentences_are_translated_in_their_order(folder, trained, pairs):
    file = folder / "sentences.txt.gz"
    file.write_bytes(gzip.compress("".join(f"{line}\n" for line in pairs["source"]).encode()))
    rows = predictions(folder, trained, file, "task.data.eval_batch_size=7")
    assert rows == [{"source": s, "translation": t} for s, t in zip(pairs["source"], texts(trained), strict=True)]


@pytest.mark.long
def test_several_translations_and_their_scores(folder, trained):
    file = folder / "two.txt"
    file.write_text("w1 w2 w3\nw4 something w4\n", encoding="utf-8")
    words = ("task.module.search.n_best=3", "task.module.scores=true", "task.module.search.length_penalty=average")
    for row in predictions(folder, trained, file, *words):
        assert set(row) == {"source", "translations", "scores", "log_probabilities"}
        assert len(set(row["translations"])) == 3
        assert row["scores"] == sorted(row["scores"], reverse=True)
        for text, score, total in zip(row["translations"], row["scores"], row["log_probabilities"], strict=True):
            assert score == pytest.approx(total / (len(text.split()) + 1))
    [one, _] = predictions(folder, trained, file, "task.module.scores=true")
    assert set(one) == {"source", "translation", "score", "log_probability"}


def test_settings_of_the_search_are_checked(folder, trained):
    words = (f"checkpoint={trained.record_path.parent}", "mode=test", *QUIET, *places(folder))
    result = call(*words, "task.module.search.n_best=5")
    assert result.code == 1
    assert "task.module.search.n_best=5 is more than task.module.search.beam_size=4" in result.err
    assert "task.module.search.beam" in call(*words, "task.module.search.beam=5").err
