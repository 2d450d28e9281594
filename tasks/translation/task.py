"""Training and evaluation of translations: loss a piece, perplexity, accuracy, BLEU."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from tasks.base import LayerStates, NamedPoints, Points, Step, Task, TaskData
from tasks.errors import rate, whole
from tasks.folders import write_text
from tasks.ragged import length_mask
from tasks.translation.data import FIRST, TranslationData, Vocabulary
from tasks.translation.decoding import TextDecoder, Translation
from tasks.translation.detokenise import Writing
from tasks.translation.layer_states import layer_states
from tasks.translation.model import Translator
from tasks.translation.scores import TranslationScores
from tasks.translation.search import SearchOptions


class TranslationTask(Task):
    """The next piece of the target from the source and the target's pieces before it.

    The training loss is the mean over all pieces of a batch, with the end of each target, of
    ``-(1 - eps) log p_label - eps mean_k log p_k``, eps = label_smoothing (Szegedy et al. 2016; Vaswani et al. 2017,
    section 5.4). Metrics of evaluated splits: loss, the mean of ``-log p_label`` without smoothing; perplexity, its
    exponential; accuracy, the share of pieces that are the likeliest one. Of train: loss, as it is trained. Of test
    also bleu and bleu_tokenised (`scores.TranslationScores`) of the translations that the search finds.

    label_smoothing: from 0 to less than 1. search: how translations are searched for. replace_unknown: pieces of the
    source stand for unknown ones (`decoding.TextDecoder`). scores: mode=predict also says how likely translations are.
    validation_pairs: of so many pairs of dev, the first in its file, there is BLEU as well. source_vocabulary to
    writing: see `data.TranslationData.model_sizes`. Batches are those of `data.PairSplit`. The others are Task's.
    """

    learns_from = TranslationData
    model: Translator
    metric_names = ("loss", "perplexity", "accuracy", "bleu", "bleu_tokenised")

    def __init__(
        self,
        model: nn.Module,
        optimizer: Callable[[nn.Module], Optimizer],
        select: str,
        select_mode: str,
        label_smoothing: float,
        search: SearchOptions,
        replace_unknown: bool,
        scores: bool,
        validation_pairs: int,
        source_vocabulary: Vocabulary,
        target_vocabulary: Vocabulary,
        max_length: int,
        texts: Callable[[str, str], Sequence[str]],
        writing: Writing,
    ):
        self.validation_pairs = whole("task.module.validation_pairs", validation_pairs, 0)
        super().__init__(model, optimizer, select, select_mode)
        self.source_vocabulary = source_vocabulary
        self.label_smoothing = rate("task.module.label_smoothing", label_smoothing)
        self.decoder = TextDecoder(source_vocabulary, target_vocabulary, max_length, search, replace_unknown)
        self.bleu = TranslationScores(writing, target_vocabulary.subwords)
        self.texts, self.writing, self.says_scores = texts, writing, scores
        self.translations: dict[int, str] = {}  # of test, by their places in the file

    @property
    def validated(self) -> tuple[str, ...]:
        return self.metric_names if self.validation_pairs else self.metric_names[:3]

    def step(self, batch: dict[str, Tensor]) -> Step:
        """Its weight is the number of pieces."""
        lengths = batch["source_lengths"]
        states = self.model.states(batch["target"], self.model.encode(batch["source"], lengths), lengths)
        inside = length_mask(batch["target_lengths"], batch["target"].shape[1])
        points, labels = states[inside], batch["labels"][inside]
        n, classifier = len(labels), cast(Any, self.model.classifier)
        sums: dict[str, Any] = {"examples": len(lengths), "pieces": n}
        if self.training:
            loss = classifier.cross_entropy(points, labels, self.label_smoothing)
        else:
            logits = classifier(points)
            loss = F.cross_entropy(logits, labels)
            sums["right"] = (logits.argmax(-1) == labels).sum()
        return Step(loss, sums | {"loss": loss.detach() * n}, weight=float(n))

    def summary(self, sums: dict[str, Any]) -> dict[str, float]:
        loss = sums["loss"] / sums["pieces"]
        if "right" not in sums:
            return {"loss": loss}
        metrics = {"loss": loss, "perplexity": math.exp(min(loss, 700)), "accuracy": sums["right"] / sums["pieces"]}
        return metrics | self.bleu.summary(sums)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        step = self.step(batch)
        if self.validation_pairs:
            rows = batch["numbers"] < self.validation_pairs
            part = {name: batch[name][rows] for name in ("source", "source_lengths", "numbers")}
            step = step._replace(sums=step.sums | self._bleu_sums(part, "dev"))
        self._add("val", step)

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        step = self.step(batch)
        self._add("test", step._replace(sums=step.sums | self._bleu_sums(batch, "test")))

    def _bleu_sums(self, batch: dict[str, Tensor], split: str) -> dict[str, Tensor]:
        """Sums of BLEU over a batch with source, source_lengths and numbers; keeps the translations of test."""
        numbers = batch["numbers"].tolist()
        sources, references = ([self.texts(split, side)[k] for k in numbers] for side in ("source", "target"))
        translations = [best.text for best, *_ in self.translate(batch | {"texts": sources})] if numbers else []
        if split == "test":
            self.translations |= dict(zip(numbers, translations, strict=True))
        return self.bleu.sums(translations, references)

    def translate(self, batch: dict[str, Any]) -> list[list[Translation]]:
        """The translations of each source of a batch as `data.NewSentences` has them, the best first."""
        return self.decoder(self.model, batch["source"], batch["source_lengths"], batch["texts"])

    def predict(self, batch: dict[str, Any]) -> list[dict[str, Any]]:
        """{"translation": text}, with n_best > 1 {"translations": [text, ...]}; with `scores` also the score and the
        log-probability of each, under "score" and "log_probability", or in the plural."""
        answers = []
        for translations in self.translate(batch):
            columns: dict[str, list[Any]] = {"translation": [self.writing.plain(each.text) for each in translations]}
            if self.says_scores:
                columns["score"] = [each.score for each in translations]
                columns["log_probability"] = [each.log_probability for each in translations]
            many = self.decoder.options.n_best > 1
            plurals = {"translation": "translations", "score": "scores", "log_probability": "log_probabilities"}
            answers.append({plurals[name] if many else name: v if many else v[0] for name, v in columns.items()})
        return answers

    def on_test_epoch_start(self) -> None:
        super().on_test_epoch_start()
        self.translations = {}

    def on_test_epoch_end(self) -> None:
        super().on_test_epoch_end()
        self.translations = {k: text for own in self._gather(self.translations) for k, text in own.items()}

    @property
    def measures(self) -> dict[str, str]:
        names = {f"{split}/{name}": how for split in ("val", "test") for name, how in self.bleu.signatures.items()}
        return {name: how for name, how in names.items() if name in self.metrics}

    def write_test(self, folder: Path) -> dict[str, Path]:
        """Write translations.txt, references.txt and sources.txt, of which a line each is of a pair of test, in the
        order of its file without those that were left out: plain texts, of which bleu is, and the sources as the file
        has them."""
        if not self.translations:
            return {}
        numbers = sorted(self.translations)
        references = self.decoder.target.subwords.whole(self.texts("test", "target"))
        texts = {
            "translations": [self.writing.plain(self.translations[k]) for k in numbers],
            "references": [self.writing.plain(references[k]) for k in numbers],
            "sources": [self.texts("test", "source")[k] for k in numbers],
        }
        return {  # a CR within a line would end it for those who read it
            name: write_text(folder / f"{name}.txt", "".join(line.replace("\r", " ") + "\n" for line in lines))
            for name, lines in texts.items()
        }

    def named_points(self, data: TaskData) -> dict[str, NamedPoints]:
        """The pieces of both languages as encoder and decoder embed them. Both have embeddings of their own, also of
        shared vocabularies."""
        model = self.model
        sides = {
            "source_pieces": (self.source_vocabulary, model.encoder_geometry.manifold, model.source_embedding),
            "target_pieces": (self.decoder.target, model.decoder_manifold, model.target_embedding),
        }
        return {
            kind: NamedPoints(own.pieces, manifold, embedding(torch.arange(FIRST, len(own), device=self.device)))
            for kind, (own, manifold, embedding) in sides.items()
        }

    def layer_states(self, sentences: Sequence[Sequence[str]]) -> LayerStates:
        """Of words as people write them, which the encoder reads as its training texts have them."""
        words = [[self.writing.escaped(word) for word in sentence] for sentence in sentences]
        return layer_states(self.model, self.source_vocabulary, words)

    def points(self, batch: dict[str, Tensor]) -> dict[str, Points]:
        """What the encoder makes of the sources, without padding."""
        lengths = batch["source_lengths"]
        memory = self.model.encode(batch["source"], lengths)
        inside = length_mask(lengths, memory.shape[1])
        return {"source": Points(self.model.decoder_manifold, memory[inside])}
