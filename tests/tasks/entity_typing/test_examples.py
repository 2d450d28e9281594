"""Mentions as numbers: trimming, positions and characters as in the authors' code; batches against a plain reference."""

import numpy as np
import pytest
import torch

from tasks.entity_typing.examples import CHARACTERS, N_CHARACTERS, Encoder, Examples, Limits, encode, trim
from tasks.entity_typing.mentions import Mention
from tasks.errors import UserError
from tasks.reading import Fault
from tasks.text import UNK

LIMITS = Limits(mention=5, characters=10, context=25)
WORDS = [f"w{k}" for k in range(30)]
INDEX = {w: k for k, w in enumerate(WORDS, start=2)}
TYPES = {f"t{k}": k for k in range(8)}


def one_at_a_time(left: list, inside: list, right: list, limit: int) -> tuple[list, list, list]:
    """Lopez and Strube's loop: a word from the left if that side is strictly longer, otherwise from the right."""
    if len(inside) > limit:
        return [], inside[:limit], []
    left, right = list(left), list(right)
    while len(left) + len(inside) + len(right) > limit:
        if len(left) > len(right):
            left.pop(0)
        else:
            right.pop()
    return left, inside, right


@pytest.mark.parametrize("limit", [1, 2, 5, 6])
def test_trimming_is_that_of_the_authors(limit):
    for a in range(9):
        for b in range(1, 8):
            for c in range(9):
                parts = [f"l{k}" for k in range(a)], [f"m{k}" for k in range(b)], [f"r{k}" for k in range(c)]
                assert trim(*parts, limit) == one_at_a_time(*parts, limit)


def some_mentions(n: int, seed: int = 0) -> list[Mention]:
    draw = np.random.default_rng(seed)

    def words(least: int, most: int) -> list[str]:
        return [str(w) for w in draw.choice([*WORDS, "unseen", "W3"], draw.integers(least, most))]

    names = list(TYPES)
    return [
        Mention(words(0, 30), " ".join(words(1, 30 if k % 5 == 0 else 4)), words(0, 30), [str(t) for t in draw.choice(names, draw.integers(1, 5))])
        for k in range(n)
    ]  # fmt: skip


def reference(mentions: list[Mention], limits: Limits, full: bool) -> dict[str, list[list[int]]]:
    """A batch, written down word by word."""
    fields = {name: [] for name in ("mention", "characters", "context", "positions", "targets")}
    for left, mention, right, types in mentions:
        a, b, c = one_at_a_time(left, mention.split(), right, limits.context)
        fields["context"].append([INDEX.get(w.lower(), UNK) for w in a + b + c])
        places = (
            [1 + len(a) - k for k in range(len(a))] + [1] * len(b) + [limits.context + 2 + k for k in range(len(c))]
        )
        fields["positions"].append(places)
        fields["mention"].append([INDEX.get(w.lower(), UNK) for w in mention.split()[: limits.mention]])
        fields["characters"].append([CHARACTERS.find(x) + 1 for x in mention[: limits.characters]])
        fields["targets"].append(list(dict.fromkeys(TYPES[t] for t in types)))
    widths = {
        "mention": limits.mention,
        "characters": limits.characters,
        "context": limits.context,
        "positions": limits.context,
    }
    batch = {}
    for name, rows in fields.items():
        width = widths[name] if full and name in widths else max(map(len, rows))
        fill = -1 if name == "targets" else 0
        batch[name] = [row + [fill] * (width - len(row)) for row in rows]
        batch[f"{name}_length"] = [len(row) for row in rows]
    return batch


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("limits", [LIMITS, Limits(2, 3, 4), Limits(1, 1, 1)])
def test_a_batch_is_that_of_the_reference(full, limits):
    mentions = some_mentions(60)
    examples = Examples(encode(mentions, Encoder(INDEX, limits, TYPES)), [(0, 60)], limits, full)
    for index in ([0, 1, 2], [59, 5, 5], list(range(60)), [7]):
        batch = examples[torch.tensor(index)]
        expected = reference([mentions[i] for i in index], limits, full)
        assert set(batch) == set(expected) - {"positions_length", "targets_length"}
        for name, value in batch.items():
            assert value.dtype == torch.long
            assert value.tolist() == expected[name], name


def test_positions_are_those_of_the_authors_example():
    sentence = "During the year of 1921", "Pablo Picasso", "painted large cubist compositions"
    mention = Mention(sentence[0].split(), sentence[1], sentence[2].split())
    limits = Limits(5, 10, 15)
    examples = Examples(encode([mention], Encoder({}, limits, {}, keep_untyped=True)), [(0, 1)], limits, False)
    assert examples[torch.tensor([0])]["positions"].tolist() == [[6, 5, 4, 3, 2, 1, 1, 17, 18, 19, 20]]


def test_the_largest_position_fits_the_authors_table():
    mentions = [Mention([], "w1", ["w2"] * 40), Mention(["w2"] * 40, "w1", [])]
    examples = Examples(encode(mentions, Encoder(INDEX, LIMITS, {}, keep_untyped=True)), [(0, 2)], LIMITS, False)
    positions = examples[torch.tensor([0, 1])]["positions"]
    assert positions[0].tolist() == [1, *range(27, 51)]
    assert positions[1].tolist() == [*range(25, 1, -1), 1]
    assert positions.max() < 2 * 25 + 2


def test_a_split_joins_parts_in_order():
    mentions = some_mentions(20)
    columns = encode(mentions, Encoder(INDEX, LIMITS, TYPES))
    examples = Examples(columns, [(15, 20), (3, 3), (0, 4)], LIMITS, False)
    assert len(examples) == 9
    expected = reference([mentions[i] for i in (15, 19, 0, 3)], LIMITS, False)
    batch = examples[torch.tensor([0, 4, 5, 8])]
    assert all(value.tolist() == expected[name] for name, value in batch.items())
    lengths = torch.cat([torch.tensor(n) for _, n in examples.chunks(2)]).tolist()
    assert lengths == [len(set(mentions[i].types)) for i in (15, 16, 17, 18, 19, 0, 1, 2, 3)]


def test_characters():
    assert CHARACTERS.index("!") == 0
    assert len(set(CHARACTERS)) == len(CHARACTERS) == N_CHARACTERS - 1
    assert not set("() ") & set(CHARACTERS), "the authors' table has none of these"
    columns = encode([Mention([], "A (b", [])], Encoder({}, LIMITS, {}, keep_untyped=True))
    assert columns.characters.tolist() == [[CHARACTERS.index("A") + 1, 0, 0, CHARACTERS.index("b") + 1, *[0] * 6]]
    assert columns.spans[0, 2] == 4, "unknown characters count"


def test_mentions_without_types_have_empty_targets():
    columns = encode([Mention([], "w1", []), Mention([], "w2", [])], Encoder(INDEX, LIMITS, {}, keep_untyped=True))
    batch = Examples(columns, [(0, 2)], LIMITS, False)[torch.tensor([0, 1])]
    assert batch["targets"].tolist() == [[-1], [-1]]
    columns = encode(
        [Mention([], "w1", []), Mention([], "w2", ["t1"][:0])], Encoder(INDEX, LIMITS, TYPES, keep_untyped=True)
    )
    assert columns.type_starts.tolist() == [0, 0, 0]


def test_what_is_out_of_the_ordinary_is_counted():
    encoder = Encoder(INDEX, LIMITS, dict(TYPES), drop=True, keep_untyped=True)
    encode(
        [
            Mention([], "a b c d e f", [], ["t1"]),
            Mention([], "a b c d e", [], ["t1", "x", "x", "y"]),
            Mention([], "a", [], []),
        ],
        encoder,
    )
    assert (encoder.cut, encoder.outside, encoder.untyped) == (1, 2, 1)


@pytest.mark.parametrize(
    ("mention", "said"),
    [
        (Mention([], "", [], ["t1"]), "mention 2: the mention is empty"),
        (Mention([], " \t", [], ["t1"]), "mention 2: the mention is empty"),
        (Mention([], "a", [], []), "mention 2: the mention has no type"),
        (Mention([], "a", [], ["t9"]), "mention 2: the type 't9' is not in the list of types"),
        (Mention([], "a", [], [["t1"]]), "a type in y_str is not a string or empty"),
        (Mention([], "a", [], [""]), "a type in y_str is not a string or empty"),
        (Mention([3], "a", [], ["t1"]), "a word of the context is not a string"),
    ],
)
def test_a_mention_that_cannot_be_used_says_why_and_leaves_nothing(mention, said):
    encoder = Encoder(INDEX, LIMITS, TYPES)
    with pytest.raises(Fault) as caught:
        encode([Mention([], "w1", [], ["t1"]), mention], encoder)
    assert said in str(caught.value)
    columns = encoder.columns()
    assert columns.mentions == 1
    assert len(columns.words) == len(columns.types) == 1


def test_all_types_outside_of_the_ontology_are_a_fault_even_where_some_are_dropped():
    with pytest.raises(Fault, match="'x' is not in the list of types"):
        encode([Mention([], "a", [], ["x", "y"])], Encoder(INDEX, LIMITS, TYPES, drop=True))


def test_new_types_get_the_next_ids():
    types = dict(TYPES)
    columns = encode([Mention([], "a", [], ["new", "t3", "new", "newer"])], Encoder(INDEX, LIMITS, types, grow=True))
    assert columns.types.tolist() == [8, 3, 9]
    assert list(types)[8:] == ["new", "newer"]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ((0, 10, 25), "task.data.limits.mention must be a whole number of at least 1"),
        ((5, 300, 25), "task.data.limits.characters must be at most 255"),
        ((9, 10, 8), "task.data.limits.mention=9 is more than task.data.limits.context=8"),
    ],
)
def test_limits_that_cannot_be_are_named(limits, said):
    with pytest.raises(UserError) as caught:
        Limits(*limits)
    assert said in str(caught.value)
