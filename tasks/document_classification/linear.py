"""Linear baselines on the words and n-grams of documents, which scikit-learn solves."""

import importlib
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, vstack
from torch import Tensor, nn

from tasks.batches import EvaluationBatches, Split
from tasks.document_classification.ngrams import whole_documents, with_ngrams
from tasks.errors import UserError, one_of, positive, whole
from tasks.ragged import length_mask

WEIGHTINGS, SOLVERS = ("counts", "unit", "tfidf"), ("logistic", "naive_bayes")
BATCH = 1000  # documents whose features are made together


class LinearClassifier(nn.Module):
    """``W f + b`` of the features f of a document, of which there is one for each word and for each bucket of n-grams.

    weighting: "counts", how often each is there; "unit", the same divided by its length |f|; "tfidf", counts times
    ``ln((1 + N) / (1 + df)) + 1`` for N documents in train of which df have it, divided by the length (scikit-learn's
    TfidfTransformer). solver: "logistic", scikit-learn's LogisticRegression, with the penalty |W|² / (2 strength);
    "naive_bayes", its MultinomialNB, which adds 1 / strength to each count. ngrams: longest n-grams; buckets: features
    that they share by a hash. max_iterations: of the solver.

    `fit` finds W and b; a checkpoint keeps them, and predictions need no scikit-learn.
    Source: the baselines of Zhang, Zhao and LeCun 2015, section 3.1, which take the most frequent n-grams.
    """

    def __init__(
        self,
        n_words: int,
        n_classes: int,
        weighting: str,
        solver: str,
        strength: float,
        ngrams: int,
        buckets: int,
        max_iterations: int,
    ):
        super().__init__()
        self.weighting = one_of("task.model.weighting", weighting, WEIGHTINGS)
        self.solver = one_of("task.model.solver", solver, SOLVERS)
        self.strength = positive("task.model.strength", strength)
        self.max_iterations = whole("task.model.max_iterations", max_iterations, 1)
        self.ngrams, self.n_words = whole("task.model.ngrams", ngrams, 1), n_words
        self.buckets = whole("task.model.buckets", buckets, 1) if ngrams > 1 else 0
        self.weight = nn.Parameter(torch.zeros(n_words + self.buckets, n_classes))
        self.bias = nn.Parameter(torch.zeros(n_classes))
        self.register_buffer("idf", torch.ones(n_words + self.buckets))
        self.idf: Tensor

    def counts(self, words: Tensor, lengths: Tensor, sentences: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """words (M, T), lengths (M,), sentences (B,) -> of each feature that a document has: the document, the feature,
        and how often it is there; (E,) each, by document."""
        words, lengths = whole_documents(words, lengths, sentences)
        words, lengths = with_ngrams(words, lengths, self.ngrams, self.n_words, max(1, self.buckets))
        inside = length_mask(lengths, words.shape[1])
        document = torch.arange(len(words), device=words.device).unsqueeze(-1).expand_as(words)
        keys, counts = (document * len(self.weight) + words)[inside].unique(return_counts=True)
        return keys // len(self.weight), keys % len(self.weight), counts

    def forward(self, words: Tensor, lengths: Tensor, sentences: Tensor) -> Tensor:
        """words (M, T), lengths (M,), sentences (B,) -> logits (B, n_classes)."""
        document, feature, counts = self.counts(words, lengths, sentences)
        values = counts * self.idf[feature]
        if self.weighting != "counts":
            square = values.new_zeros(len(sentences)).index_add(0, document, values.square())
            values = values * square.rsqrt()[document]
        start = self.bias.expand(len(sentences), -1)
        return start.index_add(0, document, values.unsqueeze(-1) * self.weight[feature])

    @torch.no_grad()
    def fit(self, train: Split, class_weights: Tensor | None = None) -> None:
        """Find the weights on a split, where a document counts as its class does in class_weights (K,).

        Raises UserError where scikit-learn is not installed.
        """
        features, labels = self._matrix(train)
        shares = None if class_weights is None else class_weights.cpu().numpy()[labels]
        if self.weighting != "counts":
            transformer = _sklearn("feature_extraction.text").TfidfTransformer(use_idf=self.weighting == "tfidf")
            features = transformer.fit_transform(features)
            if self.weighting == "tfidf":
                self.idf.copy_(torch.from_numpy(transformer.idf_))
        if self.solver == "naive_bayes":
            solver: Any = _sklearn("naive_bayes").MultinomialNB(alpha=1 / self.strength)
            solver.fit(features, labels, shares)
            weight, bias = solver.feature_log_prob_, solver.class_log_prior_
        else:
            solver = _sklearn("linear_model").LogisticRegression(C=self.strength, max_iter=self.max_iterations)
            solver.fit(features, labels, shares)
            weight, bias = solver.coef_, solver.intercept_
            if len(bias) == 1:  # of two classes it gives the second one's
                weight, bias = np.concatenate([0 * weight, weight]), np.concatenate([0 * bias, bias])
        self.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight.T)))
        self.bias.copy_(torch.from_numpy(bias))

    def _matrix(self, split: Split) -> tuple[csr_matrix, np.ndarray]:
        """Counts (N, features) and labels (N,) of a split."""
        parts, labels = [], []
        for batch in EvaluationBatches(split, BATCH):
            document, feature, counts = self.counts(batch["words"], batch["lengths"], batch["sentences"])
            shape = (len(batch["labels"]), len(self.weight))
            parts.append(csr_matrix((counts.numpy().astype(np.float64), (document.numpy(), feature.numpy())), shape))
            labels.append(batch["labels"].numpy())
        return vstack(parts, "csr"), np.concatenate(labels)


def _sklearn(module: str) -> Any:
    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError:
        raise UserError("This model needs the package scikit-learn: `pip install '.[baselines]'`.") from None
