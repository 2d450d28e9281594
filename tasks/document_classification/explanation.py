"""What an encoder of documents attended to, as values that JSON has."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hyperbolic.encoders.han import Trace
from tasks.outputs import rounded

Text = Sequence[Sequence[str]]  # the words of each sentence of a document


def explanations(trace: Trace, texts: Sequence[Text]) -> list[dict[str, Any]]:
    """Of each document {"sentences": [{"weight", "words": [{"word", "weight"}, ...]}, ...]}: the attention weights of
    its sentences, and of the words of each, which sum to 1. On a curved space also a "lorentz_factor" of each word,
    each sentence and the document, see `Trace.lorentz_factors`. Numbers have six digits.

    texts: of the documents of the trace, in their order.
    """
    curved = trace.space.is_curved

    def factors(points: Tensor) -> Any:
        return trace.lorentz_factors(points).tolist() if curved else None

    def entry(weight: float | None, of: Any, *place: int, **more: Any) -> dict[str, Any]:
        numbers: dict[str, Any] = {} if weight is None else {"weight": rounded(weight)}
        if curved:
            for k in place:
                of = of[k]
            numbers["lorentz_factor"] = rounded(of)
        return {**more, **numbers}

    words, sentences, documents = map(factors, (trace.words, trace.sentences, trace.documents))
    of_words, of_sentences = trace.word_weights.tolist(), trace.sentence_weights.tolist()
    entries, row = [], 0
    for b, text in enumerate(texts):
        parts = []
        for s, sentence in enumerate(text):
            each = [entry(of_words[row][t], words, row, t, word=word) for t, word in enumerate(sentence)]
            parts.append(entry(of_sentences[b][s], sentences, b, s) | {"words": each})
            row += 1
        entries.append(entry(None, documents, b) | {"sentences": parts})
    return entries
