"""Both scores of translations against sacreBLEU, of texts in each of the ways that data are written."""

import pytest
import sacrebleu

from tasks.translation.detokenise import Writing
from tasks.translation.scores import TranslationScores
from tasks.translation.subwords import Subwords

# The same texts as people write them and as Moses's tokenizer.perl leaves them.
TRANSLATIONS = {
    "none": ["the man's red hat is here.", 'two dogs run, and "bark" loudly!', "a girl jumps into the water"],
    "moses": [
        "the man &apos;s red hat is here .", "two dogs run , and &quot; bark &quot; loudly !",
        "a girl jumps into the water",
    ],
}  # fmt: skip
REFERENCES = {
    "none": ["the man's red hat is there.", 'two dogs run, and "bark" at us!', "one girl jumps into the water"],
    "moses": [
        "the man &apos;s red hat is there .", "two dogs run , and &quot; bark &quot; at us !",
        "one girl jumps into the water",
    ],
    "@@": [
        "the man &apos;s re@@ d hat is th@@ er@@ e .", "two do@@ gs run , and &quot; bark &quot; at us !",
        "one girl jum@@ ps into the water",
    ],
}  # fmt: skip


def sacre(translations: list[str], references: list[str], **settings: str) -> float:
    return sacrebleu.corpus_bleu(translations, [references], force=True, **settings).score


def scores(written: str, subwords: str, translations: list[str], references: list[str]) -> dict[str, float]:
    """Of sums that two batches give."""
    both = TranslationScores(Writing(written, "en"), Subwords(subwords))
    parts = [both.sums(translations[part], references[part]) for part in (slice(0, 1), slice(1, None))]
    return both.summary({name: parts[0][name] + parts[1][name] for name in parts[0]})


@pytest.mark.parametrize(
    ("written", "subwords", "references"), [("none", "none", "none"), ("moses", "none", "moses"), ("moses", "@@", "@@")]
)
def test_both_scores_are_sacrebleus(written, subwords, references):
    """Of plain texts with its own settings; of tokenised ones, which it cuts again, without smoothing."""
    found = scores(written, subwords, TRANSLATIONS[written], REFERENCES[references])
    plain, words = (sacre(TRANSLATIONS[way], REFERENCES[way], smooth_method="none") for way in ("none", "moses"))
    assert 20 < plain < 90
    assert abs(plain - words) > 1, "the two scores differ for these texts"
    assert found == pytest.approx({"bleu": plain, "bleu_tokenised": words}, abs=1e-9)


@pytest.mark.parametrize(("language", "tokenizer"), [pytest.param("zh", "zh", marks=pytest.mark.long), ("zh-TW", "zh"), ("ja", "char"), ("ko", "13a")])
def test_a_language_without_blanks_is_cut_by_characters(language, tokenizer):
    texts, references = ["我喜欢吃面包和果酱。"], ["我喜欢吃面包和米饭。"]
    both = TranslationScores(Writing("none", language), Subwords("none"))
    assert f"tok:{tokenizer}" in both.signatures["bleu"]
    expected = sacre(texts, references, tokenize=tokenizer)
    assert both.summary(both.sums(texts, references))["bleu"] == pytest.approx(expected, abs=1e-9)
    assert (expected > 50) == (tokenizer != "13a")


@pytest.mark.parametrize("written", ["none", "moses"])
def test_words_are_counted_as_they_are_where_there_is_nothing_to_cut(written):
    texts = ["two dogs run , and bark loudly !", "a girl jumps into the water"]
    references = ["two dogs run , and bark at us !", "one girl jumps into the water"]
    expected = sacre(texts, references, smooth_method="none", tokenize="none")
    assert 20 < expected < 90
    assert scores(written, "none", texts, references)["bleu_tokenised"] == pytest.approx(expected, abs=1e-9)


def test_what_is_tokenised_is_not_smoothed():
    texts, references = ["a girl jumps into water", "dogs run"], ["a girl swims into water", "dogs bark"]
    found = scores("moses", "none", texts, references)
    assert found["bleu"] == pytest.approx(sacre(texts, references), abs=1e-9)
    assert found["bleu"] > 0 == found["bleu_tokenised"]
