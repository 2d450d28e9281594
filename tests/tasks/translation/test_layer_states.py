"""A translation gives the states of its encoder's layers for the words of any sentences."""

from unittest import mock

import pytest
import torch

from configs import checks, composing
from configs.build import build
from tasks.errors import UserError
from tasks.translation.data import FIRST, UNK, Vocabulary
from tasks.translation.layer_states import layer_states
from tasks.translation.subwords import Subwords, learn
from tests.tolerances import tolerance

CLOSE = tolerance(torch.float32, "identity")
SMALL = ("task.data.toy.sizes={train: 20, dev: 5, test: 5}",)


def built(*words: str):
    composing.register()
    task, _ = build(checks.check(composing.composed("task=translation_toy", *SMALL, *words)))
    return task.eval()


@pytest.fixture(scope="module", params=["euclidean", "lorentz"])
def task(request):
    return built(f"geometry={request.param}")


def states(task, *words: str) -> list[torch.Tensor]:
    """Of words of one piece each, (W, D) for each layer."""
    numbers = {piece: k for k, piece in enumerate(task.source_vocabulary.pieces, start=FIRST)}
    ids = torch.tensor([[numbers.get(word, UNK) for word in words]])
    with torch.no_grad():
        points = task.model.encoder.layer_states(task.model.source_embedding(ids), torch.tensor([len(words)]))
    return [x[0] for x in points]


def test_words_have_the_states_that_the_encoder_gives_their_pieces(task):
    a, b, c = task.source_vocabulary.pieces[:3]
    result = task.layer_states([[a, "never seen"], [c, b, a]])
    assert result.mask.tolist() == [[True, True, False], [True, True, True]]
    assert result.unknown == 1, "never seen"
    assert result.geometry is task.model.encoder_geometry
    whole, pieces = states(task, c, b, a), states(task, a, "never", "seen")
    assert len(result.points) == len(whole) == 2, "one layer and its input"
    for points, expected, parts in zip(result.points, whole, pieces, strict=True):
        torch.testing.assert_close(points[1], expected, **CLOSE)
        torch.testing.assert_close(points[0, 0], parts[0], **CLOSE)
        torch.testing.assert_close(points[0, 1], result.geometry.manifold.centroid(parts[1:]), **CLOSE)


def test_sentences_that_are_too_long_have_no_states_and_disturb_nobody(task):
    a, b = task.source_vocabulary.pieces[:2]
    longest = task.model.encoder.n_positions
    result = task.layer_states([[a] * longest, [a] * (longest + 1), [b]])
    assert result.mask.sum(1).tolist() == [longest, 0, 1]
    for points, alone in zip(result.points, states(task, b), strict=True):
        torch.testing.assert_close(points[2, 0], alone[0], **CLOSE)


def test_words_are_cut_as_in_their_sentences():
    texts = ["the dogs bark at dogs", "a cat barks", "the cats sat"] * 5
    subwords = Subwords("bpe", learn(texts, 30))
    sentence = "the barking cats sat"
    pieces = subwords.split(sentence.split())
    assert max(map(len, pieces)) > 1
    assert [piece for word in pieces for piece in word] == subwords.split([sentence])[0]


def test_words_that_files_have_in_pieces_have_those_of_the_files():
    """As CoNLL-U has them, with a blank between the pieces."""
    task = built("geometry=euclidean", "task.data.subwords='@@'")
    a, b, *others = task.source_vocabulary.pieces
    marked = Vocabulary([f"{a}@@", b, *others], task.source_vocabulary.subwords)
    pieces, words = (layer_states(task.model, marked, [s]) for s in ([f"{a}@@", b], [f"{a}@@ {b}"]))
    assert words.mask.tolist() == [[True]]
    for both, one in zip(pieces.points, words.points, strict=True):
        torch.testing.assert_close(both.mean(1), one[:, 0], **CLOSE)


def test_other_encoders_say_that_they_cannot(task):
    with mock.patch.object(task.model, "encoder", torch.nn.Identity()), pytest.raises(UserError, match="Identity does not"):
        task.layer_states([["a"]])
