"""explain=true: the weights of the explanation are those of the model."""

import functools
import json

import pytest
import torch

from hyperbolic.encoders.han import HierarchicalAttention
from hyperbolic.encoders.rnn import RecurrentEncoder
from hyperbolic.geometry import make_geometry
from tasks.document_classification.explanation import explanations
from tasks.explanation import as_page, as_text
from tasks.prediction import Files, json_lines
from tests.cli import QUIET, call, places

GRU = functools.partial(RecurrentEncoder, cell="gru", nonlinearity=None, bidirectional=True)
TEXTS = [[["a", "b", "c"], ["d"]], [["e", "f"]]]


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


def test_flat_space_has_no_lorentz_factors():
    text = json.dumps(explanations(trace(flat=True), TEXTS))
    assert "weight" in text
    assert "lorentz_factor" not in text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("documents")


def trained(folder, encoder):
    result = call(
        "task=document_classification_toy", f"encoder={encoder}", "geometry=euclidean", *QUIET, *places(folder),
        "trainer.max_epochs=1", "task.data.sizes={train: 80, dev: 10, test: 10}",
    )  # fmt: skip
    assert result.code == 0, result.err
    return result.record_path.parent


def test_answers_with_what_they_rest_on(folder):
    run = trained(folder, "han")
    source = folder / "documents.txt"
    source.write_text("The <b>sun</b> shines. The dog sleeps.\nThe bank buys <script>x</script>.\n", encoding="utf-8")
    for target in (folder / "answers.jsonl", folder / "answers.html"):
        words = ("mode=predict", f"checkpoint={run}", f"input={source}", f"output={target}", "explain=true")
        result = call(*words, *QUIET, *places(folder))
        assert result.code == 0, result.err
    answers = [json.loads(line) for line in (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [len(answer["explanation"]["sentences"]) for answer in answers] == [2, 1]
    for answer in answers:
        assert answer["label"] == max(answer["probabilities"], key=answer["probabilities"].get)
        for sentence in answer["explanation"]["sentences"]:
            assert sum(w["weight"] for w in sentence["words"]) == pytest.approx(1, abs=1e-5)
    page = (folder / "answers.html").read_text(encoding="utf-8")
    assert page.count("<section>") == 2
    assert "<script" not in page


@pytest.mark.parametrize(
    ("output", "form"),
    [(None, as_text), ("-", as_text), ("a.txt", as_text), ("a.html", as_page), ("a.jsonl", json_lines), ("a", json_lines)],
)
def test_the_form_is_that_of_the_file(output, form):
    assert Files(None, None, output, explain=True).form is form
    assert Files(None, None, output).form is json_lines


def test_a_model_without_attention_says_so(folder):
    run, source = trained(folder, "dan"), folder / "one.txt"
    source.write_text("The sun shines.\n", encoding="utf-8")
    words = ("mode=predict", f"checkpoint={run}", f"input={source}", "explain=true", *QUIET, *places(folder))
    result = call(*words, f"output={folder / 'none.html'}")
    assert result.code == 1
    assert result.err.strip() == (
        "error: explain=true needs a model that attends to sentences and words, as encoder=han does."
    )
    assert not list(folder.glob("*none*"))
    result = call("task=prefix_toy", "explain=true", *QUIET, *places(folder))
    assert result.err.strip() == "error: explain=true is for mode=predict, and the mode is fit."
