"""explain=true: the weights of the explanation are those of the model."""

import functools
import json

import pytest
import torch

from configs.build import build
from configs.errors import ConfigError
from hyperbolic.encoders.han import HierarchicalAttention
from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.geometry import make_geometry
from tasks.document_classification.explanation import explanations
from tasks.document_classification.task import DocumentTask
from tasks.errors import UserError
from tasks.explanation import as_page, as_text
from tasks.prediction import Files, json_lines
from tests.cli import QUIET, call, places
from tests.configurations import checked

GRU = functools.partial(RecurrentEncoder, cell="gru", nonlinearity=None, bidirectional=True)
TEXTS = [[["a", "b", "c"], ["d"]], [["e", "f"]]]


def prediction(factor: float) -> dict:
    """An answer about one word."""
    sentence = {"weight": 1.0, "words": [{"word": "sun", "weight": 1.0, "lorentz_factor": factor}]}
    return {"label": "a", "probabilities": {"a": 1.0}, "explanation": {"sentences": [sentence]}}


def trace(flat: bool):
    parts = {"words": "euclidean", "attention": "euclidean" if flat else "lorentz"}
    geometry = make_geometry("hype_han", "PoincareBall", "mobius", c=1.0, parts=parts)
    net = HierarchicalAttention(
        geometry, 3, 4, words=GRU, sentences=GRU, hidden="direction", join="plain", score=None, gate="softmax",
        beta="softplus", context_std=1.0, word_keys="tangent", word_nonlinearity="tanh", sentence_keys="mobius",
        sentence_nonlinearity=None, passage="isometry",
    )  # fmt: skip
    return net(torch.randn(3, 3, 3), torch.tensor([3, 1, 2]), torch.tensor([2, 1]))[1]


def test_numbers_are_those_of_the_trace():
    of = trace(flat=False)
    first, second = explanations(of, TEXTS)
    close = functools.partial(pytest.approx, rel=1e-5)
    assert [s["weight"] for s in first["sentences"]] == close(of.sentence_weights[0].tolist())
    assert [s["weight"] for s in second["sentences"]] == [1.0]
    assert [w["word"] for w in first["sentences"][0]["words"]] == ["a", "b", "c"]
    assert [w["weight"] for w in first["sentences"][0]["words"]] == close(of.word_weights[0].tolist())
    assert [w["weight"] for w in second["sentences"][0]["words"]] == close(of.word_weights[2, :2].tolist())
    factors = of.words[..., 0]  # x_0, as c is 1
    assert [w["lorentz_factor"] for w in second["sentences"][0]["words"]] == close(factors[2, :2].tolist())
    assert first["sentences"][1]["lorentz_factor"] == close(of.sentences[0, 1, 0].item())
    assert second["lorentz_factor"] == close(of.documents[1, 0].item())


def test_other_columns_are_handed_on():
    for form in (as_text, as_page):
        page = "".join(form([prediction(1.0) | {"nr": "<17>", "text": "the sun"}]))
        assert ("a (1.000) [nr: &lt;17&gt;]" if form is as_page else "a (1.000) [nr: <17>]") in page
        assert "the sun" not in page


def test_flat_space_has_no_lorentz_factors():
    text = json.dumps(explanations(trace(flat=True), TEXTS))
    assert "weight" in text
    assert "lorentz_factor" not in text


def test_answers_with_what_they_rest_on(tmp_path):
    toy = ("task=document_classification_toy", "encoder=han", "geometry=euclidean", "trainer.max_epochs=1")
    run = call(*toy, "task.data.sizes={train: 80, dev: 10, test: 10}", *QUIET, *places(tmp_path)).record_path.parent
    source = tmp_path / "documents.txt"
    source.write_text("The <b>sun</b> shines. The dog sleeps.\nThe bank buys <script>x</script>.\n", encoding="utf-8")
    for target in (tmp_path / "answers.jsonl", tmp_path / "answers.html"):
        words = ("mode=predict", f"checkpoint={run}", f"input={source}", f"output={target}", "explain=true")
        result = call(*words, *QUIET, *places(tmp_path))
        assert result.code == 0, result.err
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [len(answer["explanation"]["sentences"]) for answer in answers] == [2, 1]
    for answer in answers:
        assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)
        for sentence in answer["explanation"]["sentences"]:
            assert sum(w["weight"] for w in sentence["words"]) == pytest.approx(1, abs=1e-5)
    page = (tmp_path / "answers.html").read_text(encoding="utf-8")
    assert page.count("<section>") == 2
    assert "<script" not in page


def test_weights_are_the_models_and_go_to_their_words():
    sizes = "task.data.sizes={train: 40, dev: 8, test: 8}"
    task, data = build(checked("task=document_classification_toy", "encoder=han", "geometry=hype_han", sizes))
    task.eval()
    lines = [b"The sun shines. The dog sleeps near the road.\n", b"The bank buys.\n"]
    documents = list(data.read_inputs(lines, "new.txt"))
    batch = data.encode(documents)[torch.arange(2)]
    with torch.no_grad():
        answers = task.explain(batch, [data.words_of(one) for one in documents])
        trace = task.model.encode(batch["words"], batch["lengths"], batch["sentences"])[1]
        logits = task.model(batch["words"], batch["lengths"], batch["sentences"])
    close = functools.partial(pytest.approx, rel=1e-4)
    row = 0
    for b, (answer, document) in enumerate(zip(answers, documents, strict=True)):
        assert list(answer["probabilities"].values()) == close(logits.softmax(-1)[b].tolist(), abs=1e-5)
        for s, (found, words) in enumerate(zip(answer["explanation"]["sentences"], document.sentences, strict=True)):
            assert found["weight"] == close(trace.sentence_weights[b, s].item())
            assert [w["word"] for w in found["words"]] == words
            assert [w["weight"] for w in found["words"]] == close(trace.word_weights[row, : len(words)].tolist())
            row += 1


@pytest.mark.parametrize(
    ("output", "form"),
    [
        (None, as_text),
        ("-", as_text),
        ("a.txt", as_text),
        ("a.html", as_page),
        ("a.HTM", as_page),
        ("a.jsonl", json_lines),
        ("a", json_lines),
    ],
)
def test_the_form_is_that_of_the_file(output, form):
    assert Files(None, None, output, explain=True).form is form
    assert Files(None, None, output).form is json_lines


@pytest.mark.parametrize("name", ["answers.html", "answers.HTM"])
def test_a_page_needs_an_explanation(tmp_path, name):
    with pytest.raises(UserError, match=r"without explain=true .* name a file \.jsonl, or add explain=true"):
        Files("a", "-", str(tmp_path / name)).check()
    assert Files("a", "-", str(tmp_path / name), explain=True).check() == ("a", "-")


@pytest.mark.long
@pytest.mark.parametrize("name", ["answers.jsonl", "answers.txt", "answers.html"])
def test_an_answer_that_is_not_finite_is_no_answer(tmp_path, monkeypatch, name):
    toy = ("task=document_classification_toy", "encoder=han", "geometry=euclidean", "trainer.max_epochs=1")
    run = call(*toy, "task.data.sizes={train: 40, dev: 8, test: 8}", *QUIET, *places(tmp_path)).record_path.parent
    monkeypatch.setattr(DocumentTask, "explain", lambda *_: [prediction(factor=float("nan"))])
    source, target = tmp_path / "documents.txt", tmp_path / name
    source.write_text("The sun shines.\n", encoding="utf-8")
    words = ("mode=predict", f"checkpoint={run}", f"input={source}", f"output={target}", "explain=true")
    result = call(*words, *QUIET, *places(tmp_path))
    assert "is not finite: the weights of the checkpoint are too large" in result.err
    assert not target.exists()


@pytest.mark.long
def test_what_has_no_explanation_says_so():
    with pytest.raises(ConfigError, match=r"explain=true is for mode=predict, and the mode is fit"):
        checked("task=document_classification_toy", "explain=true")
    sizes = "task.data.sizes={train: 40, dev: 8, test: 8}"
    for words, said in (
        (
            ("task=document_classification_toy", "encoder=dan", sizes),
            "needs a model that attends to sentences and words",
        ),
        (("task=nli_toy", sizes), "answers have no explanations"),
    ):
        task, data = build(checked(*words))
        batch = data.splits()["test"][torch.arange(2)]
        with pytest.raises(UserError, match=f"explain=true.*{said}"):
            task.explain(batch, [])
    with pytest.raises(UserError, match=r"explain=true is for documents"):
        data.words_of(None)
