"""64 pairs of Multi30k are known by heart; two processes translate as one does."""

import itertools

import pytest

from tests.cli import QUIET, call, command, places

PAIRS = 64
SECONDS = 300  # of a run, at most


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("geometry", ["euclidean", "lorentz", "hatt", "poincare_pp"])
def test_64_pairs_are_known_by_heart(data_dir, tmp_path, geometry):
    for language in ("en", "de"):
        file = data_dir / "multi30k" / "tok" / f"train.lc.norm.tok.{language}"
        with file.open(encoding="utf-8") as lines:
            text = "".join(itertools.islice(lines, PAIRS))
        for split in ("train", "valid", "test"):
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    result = call(
        "task=translation", f"data.dir={tmp_path}", f"geometry={geometry}", "task.data.tokenised=moses",
        "task.data.pieces=700", "task.transformer.attention_dropout=0", "task.training.warmup_steps=60",
        "task.training.lr_factor=0.5", "trainer.max_steps=120", "trainer.check_val_every_n_epoch=60", "trainer.threads=1",
        "trainer.accelerator=cpu", *QUIET, *places(tmp_path),
    )  # fmt: skip
    assert result.code == 0, result.err
    assert result.record["data"]["counts"]["train"]["pairs"] == PAIRS
    assert result.record["metrics"]["test/bleu"] > 95
    assert result.record["metrics"]["test/bleu_tokenised"] > 95
    assert result.record["wall_s"] < SECONDS


@pytest.mark.slow
def test_two_processes_translate_each_sentence_once(tmp_path):
    words = ("geometry=euclidean", "trainer.accelerator=cpu", *QUIET, *places(tmp_path))
    one = call("task=translation_toy", "trainer.max_steps=60", *words)
    assert one.code == 0, one.err
    checkpoint = f"checkpoint={one.record_path.parent}"
    two = command("mode=test", checkpoint, "trainer.devices=2", "task.data.eval_batch_size=33", *words[1:])
    assert two.returncode == 0, two.stderr
    folder = two.stdout.strip().splitlines()[-1].removeprefix("record: ").removesuffix("record.json")
    text = (one.record_path.parent / "translations.txt").read_text(encoding="utf-8")
    assert len(text.splitlines()) == 200
    assert (tmp_path / folder / "translations.txt").read_text(encoding="utf-8") == text
    assert f"{one.record['metrics']['test/bleu']:.4f}" in two.stdout
