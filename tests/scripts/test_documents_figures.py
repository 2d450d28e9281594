"""Figures of documents: what is drawn is what the model makes of them, and texts are shown as they are."""

import html
import re
from pathlib import Path

import pytest
import torch

from scripts import figures as command
from scripts.drawing import canvas, documents
from scripts.drawing.hover import Mark, Panel, page
from scripts.trained import load, read_run
from tasks.errors import UserError
from tests import cli


def train(folder: Path, *words: str) -> Path:
    sizes = "task.data.sizes={train: 60, dev: 10, test: 20}"
    result = cli.call(
        "task=document_classification_toy", sizes, "trainer.max_epochs=1", *words, *cli.QUIET, *cli.places(folder)
    )
    assert result.code == 0, result.err
    return result.record_path.parent


@pytest.fixture(scope="module")
def hype_han(tmp_path_factory) -> Path:
    """The folder of a short run."""
    return train(tmp_path_factory.mktemp("hype_han"), "encoder=han", "geometry=hype_han", "geometry.c=0.5")


@pytest.fixture(scope="module")
def flat(tmp_path_factory) -> Path:
    return train(
        tmp_path_factory.mktemp("flat"), "encoder=han", "geometry=euclidean", "encoder.words.bidirectional=false"
    )


def test_points_are_the_models(hype_han):
    trained = load(read_run(hype_han))
    row = documents.levels(trained, 10_000)
    words, sentences, whole = row.parts
    split = trained.data.splits()["test"]
    batch = split[torch.arange(len(split))]
    with torch.no_grad():
        _, trace = trained.model.encode(batch["words"], batch["lengths"], batch["sentences"])
    assert (len(words), len(sentences), len(whole)) == (int(batch["lengths"].sum()), len(batch["lengths"]), 20)
    space = trace.space
    for part, distances in (
        (whole, space.dist0(trace.documents)),
        (sentences, space.dist0(trace.sentences)[trace.sentence_weights > 0]),
    ):
        torch.testing.assert_close(
            part.xy.norm(dim=-1).float(), torch.tanh(0.5**0.5 * distances / 2), rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(part.factors, torch.cosh(0.5**0.5 * distances), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(sentences.weights, trace.sentence_weights[trace.sentence_weights > 0])
    torch.testing.assert_close(words.weights.sum(), torch.tensor(float(len(sentences))))
    assert torch.equal(whole.classes, batch["labels"])
    assert torch.equal(sentences.classes, batch["labels"].repeat_interleave(batch["sentences"]))
    assert " ".join(words.texts) == " ".join(sentences.texts) == " ".join(whole.texts)
    fewer = documents.levels(trained, 15)
    assert len(fewer.parts[0]) == 15
    assert fewer.parts[1].texts == sentences.texts


def test_texts_are_those_of_the_largest_factors(hype_han):
    row = documents.levels(load(read_run(hype_han)), 10)
    part, chosen = row.parts[1], documents.chosen(row)
    assert int(part.factors.argmax()) in chosen
    assert chosen[-1] == int(part.factors.argmin())
    for number in range(len(row.names)):
        mine = [k for k in chosen[:-1] if part.classes[k] == number]
        of_class = part.factors[part.classes == number].sort(descending=True).values
        assert part.factors[mine].tolist() == of_class[: len(mine)].tolist()
        assert len(mine) == min(documents.CHOSEN, len(of_class))


@pytest.mark.long
def test_files(hype_han, flat, tmp_path, figures, capsys):
    out = ("--out", str(tmp_path), "--words", "40")
    assert command.main(["accumulation", "factors", str(hype_han), *out]) == 0
    stem = "document_classification_toy-hype_han-han-seed0"
    assert sorted(f.name for f in tmp_path.iterdir()) == [f"accumulation-{stem}.html", f"factors-{stem}.html"]
    accumulation, factors = figures
    titles = [axis.get_title().splitlines()[-1] for axis in accumulation.subfigs[0].axes]
    assert titles[0].startswith("40 words, mean γ ")
    assert titles[2].startswith("20 documents, mean γ ")
    assert "1  γ " in factors.subfigs[0].axes[1].texts[0].get_text()
    text = (tmp_path / f"factors-{stem}.html").read_text(encoding="utf-8")
    row = documents.levels(load(read_run(hype_han)), 10)
    assert text.count("<title>") == 1 + len(row.parts[1])
    assert html.escape(row.parts[1].texts[0]) in text

    capsys.readouterr()
    assert command.main(["accumulation", str(flat)]) == 0
    files = [Path(line.removeprefix("figure: ")) for line in capsys.readouterr().out.splitlines()]
    assert {path.parent for path in files} == {flat / "figures"}, (
        "texts of data are not written where results are committed"
    )
    assert any(path.suffix == ".html" for path in files)
    assert command.main(["factors", str(flat), *out]) == 1
    assert "its attention is in flat space" in capsys.readouterr().err


def test_other_runs_are_named(hype_han):
    trained = load(read_run(hype_han))
    trained.model.reads_sentences = False
    with pytest.raises(UserError, match=r"the task document_classification_toy has no encoder of documents"):
        documents.levels(trained, 10)


def test_a_page_shows_texts_as_they_are():
    evil = '</title><script>alert(1)</script>"&amp;'
    marks = [Mark(0.5, 0.25, canvas.RED, evil), Mark(-0.5, 0, canvas.BLUE, "plain")]
    text = page("<b>", "note & <i>", [Panel("<u>\nsecond", marks, 0.0), Panel("flat", marks, 2.0)], {"<s>": canvas.RED})
    assert "<script" not in text
    assert not re.search(r"<(u|i|s)>", text)
    assert text.count(f"<title>{html.escape(evil)}</title>") == 2
    assert 'cx="0.5000" cy="-0.2500"' in text
    assert text.count('<circle r="1"') == 1  # the rim of the disk
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|url\(", text)
