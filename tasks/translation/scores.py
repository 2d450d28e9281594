"""BLEU of translations as it is reported today, and as papers computed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from tasks.bleu import Bleu, tokenizer_of
from tasks.translation.detokenise import Writing
from tasks.translation.subwords import Subwords


class TranslationScores:
    """Two scores of the same translations and references.

    bleu: sacreBLEU of plain texts. bleu_tokenised: that of texts cut into words, which sacreBLEU's tokeniser then cuts
    further, without smoothing: what `multi-bleu-detok.perl` gives for tokenised files (Chen et al. 2022 and others).
    Both are by the tokeniser that `tokenizer_of` chooses for the language.

    writing: how the texts are written. subwords: of the references.
    """

    def __init__(self, writing: Writing, subwords: Subwords):
        self.writing, self.subwords = writing, subwords
        tokenizer = tokenizer_of(writing.language)
        self._scores = {
            "bleu": (Bleu(tokenizer=tokenizer), writing.plain),
            "bleu_tokenised": (Bleu("none", tokenizer), writing.words),
        }

    def sums(self, translations: Sequence[str], references: Sequence[str]) -> dict[str, Tensor]:
        """What the scores are made from, by their names, to be added up."""
        references = self.subwords.whole(references)
        return {
            name: bleu.sums([write(t) for t in translations], [write(r) for r in references])
            for name, (bleu, write) in self._scores.items()
        }

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The scores, from 0 to 100, from their sums; other sums are left out."""
        return {name: bleu.score(sums[name]) for name, (bleu, _) in self._scores.items() if name in sums}

    @property
    def signatures(self) -> dict[str, str]:
        """sacreBLEU's signature of each score."""
        return {name: bleu.signature for name, (bleu, _) in self._scores.items()}
