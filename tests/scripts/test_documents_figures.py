"""Figures of documents: what is drawn is what the model makes of them, and texts are shown as they are."""

import html
import re
from pathlib import Path

import matplotlib
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from hyperbolic.manifolds import PoincareBall
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


@pytest.mark.long
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


@pytest.mark.long
def test_texts_are_those_of_the_largest_factors(hype_han):
    row = documents.levels(load(read_run(hype_han)), 10)
    part, sentences = row.parts[1], documents.choose(row)
    assert int(part.factors.argmax()) in sentences
    assert sentences[-1] == int(part.factors.argmin())
    for number in range(len(row.names)):
        mine = [k for k in sentences[:-1] if part.classes[k] == number]
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


def made(classes: int, words: int) -> documents.Levels:
    """A run with a title of three lines, its sentences all over the disk, of so many words each."""
    n = 20 * classes
    turn, xy = torch.arange(n) * 2.4, torch.linspace(0.05, 0.95, n).sqrt()
    xy = torch.stack([xy * turn.cos(), xy * turn.sin()], dim=-1)
    texts = ["garden " * words] * n
    level = documents.Level("sentences", xy, torch.arange(n) % classes, 1 + xy.norm(dim=-1), torch.ones(n), texts)
    title = "documents-hype_han-han, seed 0\nhype_han (attention: lorentz, classifier: poincare, sentences: poincare), c = 1"
    return documents.Levels(title, (level, level, level), tuple("abcdefghijklmnop"[:classes]), PoincareBall(1.0), 0.6)


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize(("classes", "words"), [(1, 5), (3, 5), (3, 40), (8, 40), (16, 5)])
def test_titles_and_texts_of_factors_have_room(runs, classes, words):
    figure = documents.plot_factors([made(classes, words)] * runs)
    with matplotlib.rc_context(canvas.STYLE):
        FigureCanvasAgg(figure).draw()
        body, foot = figure.subfigs
        axes = body.axes
        disks, besides = [axis for axis in axes if axis.get_title()], [axis for axis in axes if not axis.get_title()]
        assert len(disks) == len(besides) == runs
        above = body._suptitle.get_window_extent().y0
        assert disks[0].title.get_text().count("\n") == 2
        for disk, beside in zip(disks, besides, strict=True):
            text, (bar,) = beside.texts[0].get_window_extent(), disk.child_axes
            assert disk.title.get_window_extent().y1 + 5 < above
            assert text.y1 < above
            assert text.x1 < figure.bbox.x1
            assert disk.get_window_extent().x1 < text.x0
            above = min(text.y0, bar.get_tightbbox().y0)
            legend = disk.get_legend().get_window_extent()
            if classes > documents.BESIDE:
                assert foot.texts[0].get_window_extent().y1 < legend.y0 < legend.y1 < bar.get_tightbbox().y0
                assert 0 <= legend.x0 < legend.x1 < text.x0
        assert foot.texts[0].get_window_extent().y1 < above


def test_every_class_has_a_mark_of_its_own():
    assert len({*canvas.MARKERS}) == len(canvas.MARKERS) == 16


def test_numbers_of_sentences_in_one_place_share_a_label():
    xy = torch.tensor([[0.5, 0.5], [0.51, 0.5], [-0.5, 0.5], [0.5, 0.52], [-0.5, 0.5]])
    assert documents.neighbours(xy) == [[0, 1, 3], [2, 4]]
    assert documents.spans([1, 2, 3, 5, 7, 8]) == "1–3, 5, 7, 8"
    assert documents.spans([13]) == "13"


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
