"""Translations by a model: step by step as at once, for each source by itself, with words for unknown ones."""

import functools

import pytest
import torch

from hyperbolic.encoders.transformer import TransformerEncoder
from hyperbolic.geometry import GEOMETRIES, make_geometry
from tasks.text import PAD, UNK
from tasks.translation.data import Vocabulary
from tasks.translation.decoding import SPECIAL, Continuations, TextDecoder, alignments, hypotheses
from tasks.translation.model import Translator
from tasks.translation.prepared import BOS, FIRST
from tasks.translation.search import SearchOptions, search
from tasks.translation.subwords import Subwords
from tests.tolerances import tolerance

WORDS = [f"w{k}" for k in range(8)]
LENGTHS = torch.tensor([3, 7, 1, 5])
OPTIONS = SearchOptions(
    beam_size=3, n_best=2, length_penalty="wu", alpha=1.0, min_length=0, max_length_ratio=1.0, max_length_constant=6
)
GEOMETRY = pytest.mark.parametrize("geometry", ["euclidean", "lorentz", "hatt", "poincare_pp"])


def model(geometry: str = "euclidean") -> Translator:
    """A model in float64 as it is at the start, for 8 words of each language."""
    torch.manual_seed(0)
    manifold, layers = GEOMETRIES[geometry]
    encoder = functools.partial(
        TransformerEncoder, n_layers=2, n_heads=2, d_feed_forward=12, dropout=0.1, attention_dropout=0.1,
        n_positions=16, norm="pre",
    )  # fmt: skip
    size = FIRST + len(WORDS)
    made = make_geometry(geometry, manifold, layers, c=None if manifold == "Euclidean" else 1.0)
    return (
        Translator(made, encoder, n_source=size, n_target=size, max_length=12, d=8, layers={}, copy_embedding=False)
        .double()
        .eval()
        .requires_grad_(False)
    )


def sources() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(FIRST, FIRST + len(WORDS), (len(LENGTHS), int(LENGTHS.max())), generator=generator)
    return ids.masked_fill(torch.arange(ids.shape[1]) >= LENGTHS.unsqueeze(1), PAD)


class Recomputed:
    """The next tokens by a model that keeps nothing: every step goes over the whole prefix."""

    def __init__(self, net, source, lengths):
        self.net, self.source, self.lengths = net, source, lengths
        self.prefix = torch.empty(len(source), 0, dtype=torch.long)

    def scores(self, tokens):
        self.prefix = torch.cat([self.prefix, tokens], 1)
        return self.net(self.source, self.lengths, self.prefix)[:, -1].log_softmax(-1)

    def reorder(self, index):
        self.source, self.lengths, self.prefix = self.source[index], self.lengths[index], self.prefix[index]


def plain(results):
    return [[hypothesis.tokens for hypothesis in each] for each in results]


@pytest.mark.long
@GEOMETRY
def test_a_search_with_what_was_kept_is_the_one_without(geometry):
    net, source, limits = model(geometry), sources(), OPTIONS.limits(LENGTHS, 13)
    with torch.no_grad():
        kept = search(Continuations(net, source, LENGTHS), limits, SPECIAL, OPTIONS)
        anew = search(Recomputed(net, source, LENGTHS), limits, SPECIAL, OPTIONS)
    assert plain(kept) == plain(anew)
    assert {len(h.tokens) for each in kept for h in each} != {0}
    scores = [torch.tensor([h.score for each in results for h in each]) for results in (kept, anew)]
    torch.testing.assert_close(*scores, **tolerance(torch.float64, "model"))


def test_a_source_is_translated_alone_as_in_a_batch(monkeypatch):
    net, source = model("lorentz"), sources()
    monkeypatch.setattr("tasks.translation.decoding.ROWS", 2 * OPTIONS.beam_size)  # two groups
    together = hypotheses(net, source, LENGTHS, OPTIONS, 13)
    alone = [hypotheses(net, source[k : k + 1, :n], LENGTHS[k : k + 1], OPTIONS, 13)[0] for k, n in enumerate(LENGTHS)]
    assert plain(together) == plain(alone)


def test_the_log_probability_is_the_models():
    net, source = model(), sources()
    for k, each in enumerate(hypotheses(net, source, LENGTHS, OPTIONS, 13)):
        for hypothesis in each:
            target = torch.tensor([[BOS, *hypothesis.tokens]])
            logits = net(source[k : k + 1], LENGTHS[k : k + 1], target)[0].log_softmax(-1)
            labels = torch.tensor([*hypothesis.tokens, SPECIAL.eos])
            total = float(logits.gather(1, labels.unsqueeze(1)).sum())
            assert hypothesis.log_probability == pytest.approx(total, rel=1e-7)
            assert len(hypothesis.tokens) < int(OPTIONS.limits(LENGTHS, 13)[k])


def test_alignments_are_those_of_decoding_step_by_step():
    net, source = model("hatt"), sources()
    targets = [[FIRST, UNK, FIRST + 3], [UNK], [FIRST + 1, FIRST + 1], [UNK, UNK, UNK, UNK, UNK]]
    places = alignments(net, source, LENGTHS, targets)
    for k, (target, length) in enumerate(zip(targets, LENGTHS.tolist(), strict=True)):
        own, lengths = source[k : k + 1, :length], LENGTHS[k : k + 1]
        memory, state = net.encode(own, lengths), net.start(alignment=True)
        for token in [BOS, *target[:-1]]:
            net.states(torch.tensor([[token]]), memory, lengths, state)
        assert places[k] == state.alignment[0].argmax(-1).tolist()
        assert max(places[k]) < length


def text_decoder(replace_unknown: bool) -> TextDecoder:
    vocabulary = Vocabulary(WORDS, Subwords("none"))
    return TextDecoder(vocabulary, vocabulary, max_length=12, options=OPTIONS, replace_unknown=replace_unknown)


def test_words_of_the_source_stand_for_unknown_ones():
    net, source = model(), sources()
    normal = net.classifier.a[UNK]
    net.classifier.p[UNK] = -3 * normal / normal.square().sum()  # logits are a (x - p): 3 more for the unknown word
    texts = [" ".join(f"name{k}.{i}" for i in range(n)) for k, n in enumerate(LENGTHS.tolist())]
    marked = text_decoder(False)(net, source, LENGTHS, texts)
    replaced = text_decoder(True)(net, source, LENGTHS, texts)
    results = hypotheses(net, source, LENGTHS, OPTIONS, 13)
    assert sum(text.text.count("<unk>") for each in marked for text in each) > 4
    for k, each in enumerate(results):
        for i, hypothesis in enumerate(each):
            tokens = hypothesis.tokens
            [places] = alignments(net, source[k : k + 1], LENGTHS[k : k + 1], [tokens])
            words = [WORDS[token - FIRST] if token >= FIRST else "<unk>" for token in tokens]
            assert marked[k][i].text == " ".join(words)
            pieces = texts[k].split()
            words = [pieces[p] if t == UNK else w for w, t, p in zip(words, tokens, places, strict=True)]
            assert replaced[k][i].text == " ".join(words)
            assert replaced[k][i].score == hypothesis.score
    blank = text_decoder(True)(net, source, LENGTHS, ["", *texts[1:]])
    assert [text.text for text in blank[0]] == [text.text for text in marked[0]], "there is no word of the source"
