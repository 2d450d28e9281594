"""BLEU of a corpus by sacreBLEU, from sums that batches and processes can add up."""

from collections.abc import Sequence
from typing import Any

import torch
from sacrebleu.metrics import BLEU
from torch import Tensor

ORDER = 4  # longest n-grams
# sacreBLEU's tokenisers of languages without blanks between words
UNSPACED = {"zh": "zh", **dict.fromkeys(("ja", "th", "lo", "km", "my"), "char")}


def tokenizer_of(language: str) -> str:
    """sacreBLEU's tokeniser for texts of a language, by its code of two letters, which others may follow, as zh-TW:
    "zh" for Chinese; "char" for others without blanks between words, as sacreBLEU's own for Japanese needs MeCab; else
    "13a"."""
    return UNSPACED.get(language.lower().replace("_", "-").partition("-")[0], "13a")


class Bleu:
    """Corpus BLEU from 0 to 100, with one reference for each translation.

        BP exp(1/4 sum_n log p_n),  BP = min(1, exp(1 - r / h))

    p_n is the share of the translations' n-grams that are in their references (of each at most as often as there), h
    and r are the numbers of words of translations and references (Papineni et al. 2002; Post 2018, "A Call for Clarity
    in Reporting BLEU Scores").

    tokenizer: sacreBLEU's, that cuts texts into words; "13a": as mteval-v13a does it. smooth: sacreBLEU's smoothing of
    p_n that are 0: "exp", its default; or "none", for which BLEU is then 0, as that of Moses's
    `multi-bleu-detok.perl`, which is otherwise the same.
    """

    def __init__(self, smooth: str = "exp", tokenizer: str = "13a"):
        self.smooth = smooth
        self._metric = BLEU(tokenize=tokenizer, smooth_method=smooth, max_ngram_order=ORDER, force=True)

    def sums(self, translations: Sequence[str], references: Sequence[str]) -> Tensor:
        """What the score is made from, to be added up: float64 (10,) with the n-grams that are right and all n-grams,
        both for n = 1..4, and the words of translations and of references.

        Raises:
            ValueError: not as many references as translations.
        """
        if len(translations) != len(references):
            raise ValueError(f"BLEU: {len(translations)} translations and {len(references)} references")
        if not translations:
            return torch.zeros(2 * ORDER + 2, dtype=torch.float64)
        score: Any = self._metric.corpus_score(translations, [references])
        values = [*score.counts, *score.totals, score.sys_len, score.ref_len]
        return torch.tensor(values, dtype=torch.float64)

    def score(self, sums: Tensor) -> float:
        """BLEU from the sums (10,) of all translations."""
        *grams, words, reference_words = (int(value) for value in sums.tolist())
        return BLEU.compute_bleu(grams[:ORDER], grams[ORDER:], words, reference_words, smooth_method=self.smooth).score

    @property
    def signature(self) -> str:
        """sacreBLEU's signature, which says all that decides the score."""
        self._metric.corpus_score([""], [[""]])  # it names the number of references only after a score
        return str(self._metric.get_signature())
