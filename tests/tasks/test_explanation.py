"""Predictions with what they rest on, as text and as a page: whatever words are, they are shown as text."""

import re
from html.parser import HTMLParser

from tasks.explanation import as_page, as_text

EVIL = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "&amp;", "it's", "</section></body>"]


def prediction(label="a<b>", curved=True) -> dict:
    def numbers(weight, factor):
        return {"weight": weight} | ({"lorentz_factor": factor} if curved else {})

    words = [
        numbers(w, 1.5 + k) | {"word": word}
        for k, (w, word) in enumerate(zip([0.5, 0.2, 0.2, 0.06, 0.04], EVIL, strict=True))
    ]
    plain = [numbers(0.75, 2.0) | {"word": "rain"}, numbers(0.25, 1.0) | {"word": "falls"}]
    sentences = [numbers(0.2, 1.25) | {"words": words}, numbers(0.8, 3.0) | {"words": plain}]
    document = {"lorentz_factor": 2.5} if curved else {}
    probabilities = {label: 0.9, "<i>": 0.1}
    return {"label": label, "probabilities": probabilities, "explanation": document | {"sentences": sentences}}


class Page(HTMLParser):
    """The elements of a page, its texts, and the shades and titles of its words."""

    def __init__(self, page: str):
        super().__init__()
        self.elements, self.texts, self.words = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        values = dict(attrs)
        assert not [name for name in values if name.startswith("on")]
        if tag == "span":
            shade = re.search(r"([\d.]+)\)$", values.get("style", ""))
            self.words.append((values["title"], float(shade[1]) if shade else 0.0))

    def handle_data(self, data):
        self.texts.append(data)


def test_no_element_of_a_document_reaches_the_page():
    text = "".join(as_page([prediction(), prediction("c", curved=False)]))
    page = Page(text)
    known = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "p",
        "section",
        "h2",
        "small",
        "table",
        "tr",
        "td",
        "span",
    }
    assert set(page.elements) == known
    assert page.elements.count("section") == 2
    assert all(word in page.texts for word in EVIL)
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|url\(|@import|<link", text)


def test_words_are_shaded_by_their_part_of_the_document():
    page = Page("".join(as_page([prediction()])))
    titles, shades = zip(*page.words, strict=True)
    assert titles[5] == "weight 0.75 in its sentence, γ 2"
    parts = [0.2 * w for w in (0.5, 0.2, 0.2, 0.06, 0.04)] + [0.8 * w for w in (0.75, 0.25)]
    for shade, part in zip(shades, parts, strict=True):
        assert abs(shade - 0.65 * part / max(parts)) < 1e-3
    assert "γ 3" in page.texts
    flat = "".join(as_page([prediction(curved=False)])).partition("</p>")[2]
    assert "γ" not in flat


def test_text():
    (first, second) = as_text([prediction(), prediction("c", curved=False)])
    assert first.splitlines() == [
        "1. a<b> (0.900), γ 2.5",
        f"   0.20  γ 1.25    {EVIL[0]}[.50] {' '.join(EVIL[1:])}",
        "   0.80  γ 3       rain[.75] falls",
        "",
    ]
    assert second.splitlines()[2] == "   0.80  rain[.75] falls"


def test_names_of_files_are_shown_as_text():
    evil = '<img src=x onerror="alert(1)">.txt'
    text = "".join(as_page([prediction() | {"file": evil}]))
    assert Page(text).elements.count("section") == 1
    assert "img" not in Page(text).elements
    assert f"1. {evil}: a<b>" in "".join(Page(text).texts)


def test_a_terminal_gets_no_control_characters():
    one = prediction() | {"file": "a\x1b[2Jb\x07.txt"}
    one["explanation"]["sentences"][1]["words"][0]["word"] = "rain\x1b]0;x\x07"
    (text,) = as_text([one])
    assert text.replace("\n", "").isprintable()
    assert r"1. a\x1b[2Jb\x07.txt: a<b> (0.900)" in text
    assert r"rain\x1b]0;x\x07[.75] falls" in text
