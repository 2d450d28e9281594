"""Predictions with what they rest on, to be read: as text, and as a page whose words are shaded by their weights.

A prediction is {"label", "probabilities": by class, "explanation": {"sentences": [{"weight", "words": [{"word",
"weight"}, ...]}, ...]}}, where the explanation, its sentences and words may have a "lorentz_factor", too, and the
prediction the name of its "file".
"""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tasks.errors import readable

Prediction = Mapping[str, Any]
Sentence = Mapping[str, Any]
_COLOUR = "31, 99, 180"  # red, green, blue
_PALEST = 0.005  # shades of words with less of the strongest one's weight are left out
OWN = ("file", "text", "label", "probabilities", "explanation")  # what a prediction has besides columns of the user
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Predictions and what they rest on</title>
<style>
body { font: 16px/1.7 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
section { border-top: 1px solid #ccc; padding: 1rem 0; }
h2 { font-size: 1.05rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 small, p.note { font-weight: normal; color: #555; font-size: .85rem; }
table { border-collapse: collapse; width: 100%; }
td { vertical-align: top; padding: .1rem .4rem; }
td.number { white-space: nowrap; text-align: right; font-variant-numeric: tabular-nums; width: 1%; }
td.words { overflow-wrap: anywhere; }
span { padding: .1rem .15rem; border-radius: .2rem; }
</style>
</head>
<body>
<h1>Predictions and what they rest on</h1>
<p class="note">On the left of each sentence stands its weight in the document and, where the space is hyperbolic, γ,
its Lorentz factor: 1 at the origin, and the larger, the farther from it. A word is the darker, the more weight it has:
that in its sentence times the sentence's. Its own numbers show where the pointer rests on it.</p>
"""


def as_text(predictions: Iterable[Prediction]) -> Iterator[str]:
    """For each prediction some lines: the class, and each sentence with its weight; words with more weight than the
    words of their sentence have on the average are followed by it, as in ``[.25]``. Control characters are escaped."""
    for number, prediction in enumerate(predictions, start=1):
        explanation = prediction["explanation"]
        lines = [f"{number}. {readable(_answer(prediction))}{_factor(explanation, ', γ {:.3g}')}"]
        for sentence in explanation["sentences"]:
            shown, share = [(readable(w["word"]), w["weight"]) for w in sentence["words"]], 1 / len(sentence["words"])
            marked = [f"{word}[{_short(weight)}]" if weight > share else word for word, weight in shown]
            lines.append(f"   {sentence['weight']:.2f}{_factor(sentence, '  γ {:<6.3g}')}  {' '.join(marked)}")
        yield "\n".join(lines) + "\n\n"


def as_page(predictions: Iterable[Prediction]) -> Iterator[str]:
    """The parts of an HTML page that needs nothing besides itself. Whatever a document holds is shown as text; the page
    has no scripts, and its policy allows none."""
    yield PAGE
    for number, prediction in enumerate(predictions, start=1):
        explanation = prediction["explanation"]
        others = " ".join(f"{name} {p:.3f}" for name, p in prediction["probabilities"].items())
        factor = html.escape(_factor(explanation, ", γ {:.3g}"))
        yield f"<section>\n<h2>{number}. {html.escape(_answer(prediction))}{factor}\n"
        yield f"<small>{html.escape(others)}</small></h2>\n<table>\n"
        sentences = explanation["sentences"]
        strongest = max(s["weight"] * w["weight"] for s in sentences for w in s["words"]) or 1.0
        for sentence in sentences:
            yield _row(sentence, strongest)
        yield "</table>\n</section>\n"
    yield "</body>\n</html>\n"


PAGES = (".html", ".htm")
FORMS: dict[str, Callable[[Iterable[Prediction]], Iterator[str]]] = {  # by ending
    ".txt": as_text, **dict.fromkeys(PAGES, as_page)
}  # fmt: skip


def _row(sentence: Sentence, strongest: float) -> str:
    shade = f' style="background: rgba({_COLOUR}, {0.5 * sentence["weight"]:.3f})"'
    numbers = f'<td class="number"{shade}>{sentence["weight"]:.2f}</td>'
    if "lorentz_factor" in sentence:
        numbers += f'<td class="number">{html.escape(_factor(sentence, "γ {:.3g}"))}</td>'
    words = " ".join(_word(word, sentence["weight"] * word["weight"] / strongest) for word in sentence["words"])
    return f'<tr>{numbers}<td class="words">{words}</td></tr>\n'


def _word(word: Mapping[str, Any], strength: float) -> str:
    title = html.escape(f"weight {word['weight']:.3g} in its sentence{_factor(word, ', γ {:.3g}')}")
    shade = f' style="background: rgba({_COLOUR}, {0.65 * strength:.3f})"' if strength > _PALEST else ""
    return f'<span title="{title}"{shade}>{html.escape(word["word"])}</span>'


def _answer(prediction: Prediction) -> str:
    """Its file, class and probability, and the other columns that are handed on."""
    file = f"{prediction['file']}: " if "file" in prediction else ""
    others = {key: value for key, value in prediction.items() if key not in OWN}
    handed = f" [{', '.join(f'{key}: {value}' for key, value in others.items())}]" if others else ""
    return f"{file}{prediction['label']} ({prediction['probabilities'][prediction['label']]:.3f}){handed}"


def _factor(part: Mapping[str, Any], form: str) -> str:
    return form.format(part["lorentz_factor"]) if "lorentz_factor" in part else ""


def _short(weight: float) -> str:
    return f"{weight:.2f}".removeprefix("0")
