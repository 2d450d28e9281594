"""ConvSeq2Seq translates step by step as at once, and its attention aligns words."""

import functools

import torch

from hyperbolic.encoders.conv_seq2seq import ConvSeq2Seq
from hyperbolic.geometry import make_geometry
from tasks.translation.decoding import SPECIAL, Continuations, alignments
from tasks.translation.model import Translator
from tasks.translation.prepared import BOS, FIRST
from tasks.translation.search import search
from tests.tasks.translation.test_decoding import LENGTHS, OPTIONS, WORDS, Recomputed, plain, sources
from tests.tolerances import tolerance


def model() -> Translator:
    """In float64 as it is at the start."""
    torch.manual_seed(0)
    encoder = functools.partial(ConvSeq2Seq, n_layers=2, kernel_size=3, dropout=0.1, n_positions=16)
    size = FIRST + len(WORDS)
    net = Translator(
        make_geometry("euclidean", "Euclidean", "euclidean"), encoder, n_source=size, n_target=size, max_length=12, d=8,
        layers={}, copy_embedding=False,
    )  # fmt: skip
    return net.double().eval().requires_grad_(False)


def test_a_search_with_what_was_kept_is_the_one_without():
    net, source, limits = model(), sources(), OPTIONS.limits(LENGTHS, 13)
    kept = search(Continuations(net, source, LENGTHS), limits, SPECIAL, OPTIONS)
    anew = search(Recomputed(net, source, LENGTHS), limits, SPECIAL, OPTIONS)
    assert plain(kept) == plain(anew)
    assert {len(h.tokens) for each in kept for h in each} != {0}
    scores = [torch.tensor([h.score for each in results for h in each]) for results in (kept, anew)]
    torch.testing.assert_close(*scores, **tolerance(torch.float64, "model"))


def test_alignments_are_those_of_decoding_step_by_step():
    net, source = model(), sources()
    targets = [[FIRST, FIRST + 3, FIRST + 1], [FIRST + 2], [FIRST + 1, FIRST + 1], [FIRST + 4] * 5]
    places = alignments(net, source, LENGTHS, targets)
    for k, (target, length) in enumerate(zip(targets, LENGTHS.tolist(), strict=True)):
        own, lengths = source[k : k + 1, :length], LENGTHS[k : k + 1]
        memory, state = net.encode(own, lengths), net.start(alignment=True)
        for token in [BOS, *target[:-1]]:
            net.states(torch.tensor([[token]]), memory, lengths, state)
        assert places[k] == state.alignment[0].argmax(-1).tolist()
        assert max(places[k]) < length
