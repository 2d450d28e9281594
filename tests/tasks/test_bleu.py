"""BLEU from sums against sacreBLEU on the whole, and against a case that is worked out by hand."""

import math

import pytest
import sacrebleu
import torch

from tasks.bleu import Bleu

TRANSLATIONS = [
    "A man in an orange hat starring at something.",
    "A Boston Terrier is running on lush green grass, in front of a white fence.",
    "A girl in karate uniform breaking a stick with a front kick.",
    "",
    "five people wearing winter jackets & helmets stand in the snow",
]
REFERENCES = [
    "A man in an orange hat is staring at something.",
    "A Boston Terrier runs on lush green grass in front of a white fence.",
    "A girl in a karate uniform breaks a board with a kick.",
    "Nothing is said.",
    "Five people wearing winter jackets and helmets stand in the snow, with snowmobiles in the background.",
]


def test_bleu_is_sacrebleus():
    bleu = Bleu()
    expected = sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES])
    assert 20 < expected.score < 80
    assert bleu.score(bleu.sums(TRANSLATIONS, REFERENCES)) == pytest.approx(expected.score, abs=1e-9)


def test_sums_of_batches_add_up():
    bleu = Bleu()
    parts = [bleu.sums(TRANSLATIONS[a:b], REFERENCES[a:b]) for a, b in ((0, 2), (2, 2), (2, 3), (3, 5))]
    torch.testing.assert_close(sum(parts), bleu.sums(TRANSLATIONS, REFERENCES), rtol=0, atol=0)


def test_a_case_by_hand():
    """the cat sat on the mat / the cat is on the mat: 5 of 6 words, 3 of 5 pairs, 1 of 4 triples, 0 of 3 fours."""
    translation, reference = ["the cat sat on the mat"], ["the cat is on the mat today"]
    bleu = Bleu()
    sums = bleu.sums(translation, reference)
    assert sums.tolist() == [5, 3, 1, 0, 6, 5, 4, 3, 6, 7]
    smoothed = math.exp(1 - 7 / 6) * (5 / 6 * 3 / 5 * 1 / 4 * 1 / (2 * 3)) ** 0.25
    assert bleu.score(sums) == pytest.approx(100 * smoothed)
    assert Bleu(smooth="none").score(sums) == 0


def test_the_same_text_has_100_and_nothing_in_common_0():
    bleu = Bleu(smooth="none")
    text = ["Ein Mann mit einem orangefarbenen Hut.", "Zwei Hunde rennen über das Gras ."]
    assert bleu.score(bleu.sums(text, text)) == pytest.approx(100)
    assert bleu.score(bleu.sums(["x y z w v"], ["a b c d e"])) == 0
    assert bleu.score(bleu.sums([""], ["a b c d e"])) == 0


def test_the_signature_says_how():
    assert Bleu().signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    assert "smooth:none" in Bleu(smooth="none").signature


def test_a_missing_reference_is_an_error():
    with pytest.raises(ValueError, match="2 translations and 1 references"):
        Bleu().sums(["a", "b"], ["a"])
