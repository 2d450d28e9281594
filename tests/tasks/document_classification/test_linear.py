"""The linear baselines are scikit-learn's, and their weights alone make the predictions."""

import sys

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix, hstack
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB

from tasks.document_classification.data import DocumentSplit
from tasks.document_classification.linear import LinearClassifier
from tasks.errors import UserError
from tasks.ragged import encode_texts
from tests.cli import toy

NAMES = "abcdef"
draw = np.random.default_rng(0)
LABELS = [k % 3 for k in range(30)]
TEXTS = [[list(draw.choice(list(NAMES[k : k + 4]), 5)), list(draw.choice(list(NAMES), 3))] for k in LABELS]
FLAT = [" ".join(word for sentence in text for word in sentence) for text in TEXTS]


def classifier(**changes) -> LinearClassifier:
    settings = {"weighting": "unit", "solver": "logistic", "strength": 2.0, "ngrams": 1, "buckets": 50, "max_iterations": 500}
    return LinearClassifier(2 + len(NAMES), 3, **settings | changes).double()


def split(labels=LABELS) -> DocumentSplit:
    documents = encode_texts(TEXTS, {word: k for k, word in enumerate(NAMES, start=2)})
    return DocumentSplit(documents, torch.arange(len(TEXTS)), torch.tensor(labels))


def logits(model, part) -> torch.Tensor:
    batch = part[torch.arange(len(part))]
    return model(batch["words"], batch["lengths"], batch["sentences"])


@pytest.mark.parametrize("weighting", ["counts", "unit", "tfidf"])
@pytest.mark.parametrize("solver", ["logistic", "naive_bayes"])
def test_logits_are_those_of_scikit_learn(weighting, solver):
    model = classifier(weighting=weighting, solver=solver)
    model.fit(split())
    counts = CountVectorizer(analyzer=str.split, vocabulary=list(NAMES)).transform(FLAT).astype(float)
    features = {"counts": counts, "unit": TfidfTransformer(use_idf=False).fit_transform(counts), "tfidf": TfidfTransformer().fit_transform(counts)}
    features = features[weighting]
    solvers = {"logistic": LogisticRegression(C=2.0, max_iter=500), "naive_bayes": MultinomialNB(alpha=0.5)}
    reference = solvers[solver].fit(features, LABELS)
    with torch.no_grad():
        expected = torch.from_numpy(reference.predict_log_proba(features))
        if solver == "naive_bayes":  # which smooths over the six words, ours over their rows, two of which are never there
            assert (logits(model, split()).argmax(-1) == expected.argmax(-1)).float().mean() > 0.9
        else:
            torch.testing.assert_close(logits(model, split()).log_softmax(-1), expected, rtol=1e-3, atol=1e-3)


def test_two_classes_have_logits_of_their_own():
    labels = [k % 2 for k in LABELS]
    model = LinearClassifier(8, 2, "unit", "logistic", 2.0, 1, 1, 500).double()
    model.fit(split(labels))
    counts = TfidfTransformer(use_idf=False).fit_transform(CountVectorizer(analyzer=str.split, vocabulary=list(NAMES)).transform(FLAT))
    expected = LogisticRegression(C=2.0, max_iter=500).fit(counts, labels).predict_proba(counts)
    with torch.no_grad():
        torch.testing.assert_close(logits(model, split()).softmax(-1), torch.from_numpy(expected), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("solver", ["logistic", "naive_bayes"])
def test_documents_count_as_their_classes_do(solver):
    """A class that counts twice is a class whose documents stand there twice."""
    twice = [*range(len(TEXTS)), *(k for k, label in enumerate(LABELS) if label == 1)]
    weighted, repeated = classifier(solver=solver), classifier(solver=solver)
    weighted.fit(split(), torch.tensor([1.0, 2.0, 1.0]))
    part = split()
    repeated.fit(DocumentSplit(part.documents, part.rows[twice], part.labels[twice]))
    torch.testing.assert_close(weighted.weight, repeated.weight, rtol=1e-3, atol=1e-3)
    plain = classifier(solver=solver)
    plain.fit(split())
    assert not torch.allclose(plain.weight, weighted.weight, atol=1e-2)


@pytest.mark.parametrize("word", ["trainer.limit_train_batches=1", "task.module.label_smoothing=0.1"])
def test_settings_that_it_does_not_take_are_refused(tmp_path, word):
    result = toy(tmp_path, "task=document_classification_toy", "task/model=bag_of_words", "trainer.max_epochs=1", word)
    assert result.code == 1
    assert "A linear model is solved at once on all documents of train" in result.err


def test_ngrams_are_features_as_well():
    part = encode_texts([[["a", "b"], ["a"]]], {"a": 2, "b": 3}).pad_sentences(torch.tensor([0]))
    document, feature, counts = classifier(ngrams=2).counts(*part)
    assert document.tolist() == [0] * 4
    assert (feature[:2].tolist(), counts.tolist()) == ([2, 3], [2, 1, 1, 1])
    assert all(8 <= k < 58 for k in feature[2:].tolist())


def test_without_scikit_learn_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(UserError, match=r"needs the package scikit-learn: `pip install '\.\[baselines\]'`"):
        classifier(weighting="counts").fit(split())


@pytest.mark.parametrize(("name", "value"), [("weighting", "idf"), ("solver", "svm"), ("strength", 0), ("ngrams", 0), ("buckets", 0)])
def test_settings_that_cannot_be_are_named(name, value):
    with pytest.raises(UserError, match=rf"task\.model\.{name} must be"):
        classifier(**{"ngrams": 2, name: value})


@pytest.mark.parametrize("strength", [0.25, 4.0])
def test_naive_bayes_adds_one_over_the_strength(strength):
    model = classifier(weighting="counts", solver="naive_bayes", strength=strength)
    model.fit(split())
    counts = CountVectorizer(analyzer=str.split, vocabulary=list(NAMES)).transform(FLAT).astype(float)
    rows = hstack([csr_matrix((len(FLAT), 2)), counts])  # of padding and of unknown words, which are never there
    expected = MultinomialNB(alpha=1 / strength).fit(rows, LABELS).predict_log_proba(rows)
    with torch.no_grad():
        torch.testing.assert_close(logits(model, split()).log_softmax(-1), torch.from_numpy(expected), rtol=1e-6, atol=1e-6)
