"""Training examples, questions of both directions and what is known, against sets of tuples; faults are reported."""

from itertools import pairwise

import pytest
import torch

from tasks.batches import SPLITS
from tasks.errors import UserError
from tasks.kg_completion.queries import Query
from tasks.kg_completion.triples import FILES
from tests.tasks.kg_completion.graphs import EVERYTHING, folder_data, graph_data, truths

KNOWN = {"dev": EVERYTHING, "test": EVERYTHING}


def rows(triples: torch.Tensor) -> list[tuple[int, ...]]:
    return [tuple(row) for row in triples.tolist()]


def whole(split) -> dict[str, torch.Tensor]:
    return split[torch.arange(len(split))]


def known_of(batch: dict[str, torch.Tensor]) -> list[list[int]]:
    return [batch["answers"][a:b].tolist() for a, b in pairwise(batch["offsets"].tolist())]


def test_training_has_every_triple_and_its_reciprocal():
    data = graph_data()
    triples, n = rows(data.graph.triples["train"]), len(data.graph.relations)
    train = data.splits()["train"]
    assert rows(torch.stack([whole(train)[k] for k in "hrt"], -1)) == triples + [(t, r + n, h) for h, r, t in triples]
    assert data.n_relations == data.model_sizes["n_relations"] == 2 * n == 8


def test_without_reciprocals_training_has_the_triples_alone():
    data = graph_data(reciprocal=False)
    train = data.splits()["train"]
    assert len(train) == len(data.graph.triples["train"])
    assert rows(torch.stack([*train.columns.values()], -1)) == rows(data.graph.triples["train"])
    index = torch.tensor([4, 0, 4])
    assert [train[index][k].tolist() for k in "hrt"] == [train.columns[k][index].tolist() for k in "hrt"]
    assert data.n_relations == 4


@pytest.mark.parametrize("reciprocal", [True, False])
@pytest.mark.parametrize("size", [None, 7])
def test_training_queries_have_all_their_answers_in_the_part_that_is_used(reciprocal, size):
    data = graph_data(examples="queries", reciprocal=reciprocal, sizes={"train": size})
    used, n = rows(data.graph.triples["train"][:size]), len(data.graph.relations)
    expected = set(used) | ({(t, r + n, h) for h, r, t in used} if reciprocal else set())
    train = data.splits()["train"]
    batch = whole(train)
    queries = list(zip(batch["h"].tolist(), batch["r"].tolist(), strict=True))
    assert len(queries) == len(set(queries)) == len(train)
    assert set(queries) == {(e, r) for e, r, _ in expected}
    for (e, r), answers in zip(queries, known_of(batch), strict=True):
        assert answers == sorted(t for h, k, t in expected if (h, k) == (e, r))
    assert max(map(len, known_of(batch))) > 1


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("reciprocal", [True, False])
def test_every_triple_is_a_query_once_in_each_direction_and_in_order_of_relations(split, reciprocal):
    data = graph_data(reciprocal=reciprocal)
    questions = data.splits()[split]
    batch = whole(questions)
    assert batch["r"].tolist() == sorted(batch["r"].tolist())
    queries = list(zip(*(batch[k].tolist() for k in ("e", "r", "target")), strict=True))
    assert sorted(queries) == sorted(truths(data, split))
    assert len(questions) == 2 * len(data.graph.triples[split])


@pytest.mark.parametrize(
    "known",
    [KNOWN, {"dev": ["train", "dev"], "test": ["test"]}, {"dev": ["dev", "test"], "test": ["train", "test"]}],
)
@pytest.mark.parametrize("without_self", [False, True])
def test_known_answers_are_those_of_the_splits_that_are_named(known, without_self):
    data = graph_data(known=known, without_self=without_self)
    for split in ("dev", "test"):
        truth = truths(data, *known[split])
        questions = data.splits()[split]
        index = torch.randperm(len(questions))
        for batch in (questions[index], questions[index[:1]]):
            candidates = known_of(batch)
            assert len(candidates) == len(batch["e"])
            for e, r, target, answers in zip(*(batch[k].tolist() for k in ("e", "r", "target")), candidates, strict=True):
                expected = [x for x in range(13) if (e, r, x) in truth] + [e] * without_self
                assert answers == expected
                assert target in answers


def test_the_known_answers_of_training_are_those_that_are_named():
    for splits in (["train"], EVERYTHING, []):
        data = graph_data(known_in_training=splits)
        assert len(data.model_sizes["known_in_training"]) == len(truths(data, *splits))
        assert len(data.model_sizes["known_triples"]) == len(truths(data, *SPLITS))
        assert len(data.model_sizes["known_in_training"]) < len(data.model_sizes["known_triples"]) or splits == EVERYTHING


def test_sizes_take_the_first_triples_and_leave_what_is_known():
    data = graph_data(sizes={"train": 9, "dev": 2, "test": None})
    full = graph_data()
    assert rows(torch.stack([*data.splits()["train"].columns.values()], -1)[:9]) == rows(full.graph.triples["train"][:9])
    assert len(data.splits()["train"]) == 18
    assert len(data.splits()["dev"]) == 4
    assert len(data.splits()["test"]) == len(full.splits()["test"])
    assert known_of(whole(data.splits()["test"])) == known_of(whole(full.splits()["test"]))
    assert {s: c["triples"] for s, c in data.fingerprint()["counts"].items()} == {
        "train": 9, "dev": 2, "test": len(full.graph.triples["test"]),
    }  # fmt: skip


UNSEEN = {"train": "a r b,b s c", "dev": "a r new,a r c,new q a,c s b", "test": "a p b,b r a,c s new"}


def test_questions_with_what_train_lacks_are_kept_or_dropped(tmp_path, capsys):
    remaining, dropped = (folder_data(tmp_path, **UNSEEN, unseen=unseen) for unseen in ("keep", "drop"))
    assert [len(remaining.splits()[s]) for s in SPLITS] == [4, 8, 6]
    assert [len(dropped.splits()[s]) for s in SPLITS] == [4, 4, 2]
    queries = whole(dropped.splits()["dev"])
    words = [remaining.graph.entities[k] for k in queries["e"].tolist()]
    assert set(words) == {"a", "b", "c"}
    assert "new" in remaining.graph.entities, "it stays a candidate"
    counts = dropped.fingerprint()["counts"]
    assert (counts["dev"], counts["test"]["unseen"]) == ({"triples": 2, "unseen": 2}, 2)
    assert (counts["train"]["entities"], counts["train"]["relations"]) == (4, 4)
    message = capsys.readouterr().out
    assert "valid.txt: 2 of 4 triples have an entity or a relation that train does not have (" in message
    assert "(entities: 1, relations: 1), first (a, r, new)." in message
    assert "test.txt: 2 of 3 triples" in message
    for how in ("are evaluated", "are left out"):
        assert f"Questions with an entity or a relation that train does not have {how} (task.data.unseen)." in message
    limited = folder_data(tmp_path, **UNSEEN, unseen="drop", sizes={"dev": 2})
    assert len(limited.splits()["dev"]) == 2, "of the first two one is dropped"


def test_a_split_of_which_nothing_is_left_is_told(tmp_path):
    data = folder_data(tmp_path, **UNSEEN | {"test": "new r a"}, unseen="drop")
    with pytest.raises(UserError, match=r"All triples of test have .*task\.data\.unseen=keep"):
        data.splits()


def test_repeated_and_shared_triples_are_told(tmp_path, capsys):
    data = folder_data(tmp_path, "a r b,b r c,a r b", "b r c,c r a", "c r a,c r b")
    assert len(data.splits()["train"]) == 4
    message = capsys.readouterr().out
    assert "train.txt: 1 of 3 rows repeat earlier ones and were dropped." in message
    assert "valid.txt: 1 of 2 triples are also in train; they are kept." in message
    assert "test.txt: 1 of 2 triples are also in dev; they are kept." in message
    assert [len(data.splits()[s]) for s in ("dev", "test")] == [4, 4], "they are kept"


def test_of_files_without_a_fault_the_sizes_are_told_once(tmp_path, capsys):
    data = folder_data(tmp_path, "a r b,b r c", "a r c", "c r b")
    assert data.graph is data.graph
    sizes = "3 entities, 1 relations, 2 triples in train, 1 triples in dev, 1 triples in test.\n"
    assert capsys.readouterr().out == f"{tmp_path.name}: {sizes}"


def test_an_entity_that_questions_cannot_name_is_told(tmp_path, capsys):
    assert "?" in folder_data(tmp_path, "a r ?", "a r ?", "? r a").graph.entities
    assert "an entity is called '?', which mode=predict takes for what is sought." in capsys.readouterr().out


def test_names_with_blanks_at_their_ends_are_told(tmp_path, capsys):
    for name in FILES.values():
        (tmp_path / name).write_text("a\tr\tb\nb \tr\ta\n")
    assert graph_data(folder=str(tmp_path), toy=None).graph.entities == ("a", "b", "b ")
    out = capsys.readouterr().out
    assert "1 names begin or end with a blank, first 'b '." in out
    assert f"{tmp_path.name}: 2 entities have names that differ from another's in capitals, blanks," in out


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").mkdir()
    folder_data(tmp_path / "mine", "a r b", "b r a", "a r a")
    assert graph_data(folder="~/mine").graph.name == "mine"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"toy": None}, r"data\.dir="),
        ({"examples": "pairs"}, r"task\.data\.examples must be one of triples, queries"),
        ({"unseen": "ignore"}, r"task\.data\.unseen must be one of keep, drop"),
        ({"sizes": {"valid": 3}}, r"task\.data\.sizes\.valid: the splits are train, dev, test"),
        ({"sizes": {"dev": 0}}, r"task\.data\.sizes\.dev must be a whole number of at least 1"),
        ({"sizes": {"train": 0.5}}, r"task\.data\.sizes\.train must be"),
        ({"known": {"dev": ["dev"], "test": ["train", "dev"]}}, r"task\.data\.known\.test needs test itself"),
        ({"known": {"dev": ["train"], "test": ["test"]}}, r"task\.data\.known\.dev needs dev itself"),
        ({"known": {"test": ["test"]}}, r"task\.data\.known\.dev needs dev itself"),
        ({"known": {"dev": ["dev", "valid"], "test": ["test"]}}, r"task\.data\.known\.dev must be one of"),
        ({"known_in_training": ["all"]}, r"task\.data\.known_in_training must be one of"),
        ({"batch_size": 0}, r"task\.data\.batch_size must be"),
        ({"eval_batch_size": 0}, r"task\.data\.eval_batch_size must be"),
    ],
)
def test_settings_that_cannot_be_name_their_key(changes, message):
    with pytest.raises(UserError, match=message):
        graph_data(**changes)


def test_the_order_of_names_is_part_of_the_identity(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = folder_data(tmp_path / "one", "a r b,b s c", "a r c", "c r a").identity
    assert one["entities"].startswith("3 with sha256 ")
    two = folder_data(tmp_path / "two", "b r a,b s c", "a r c", "c r a").identity
    assert one["entities"] != two["entities"]
    assert one["relations"] == two["relations"]


@pytest.mark.parametrize("without_self", [False, True])
def test_questions_become_a_split_with_all_that_is_known(without_self):
    data = graph_data(without_self=without_self, known={"dev": ["dev"], "test": ["test"]})
    n, graph = len(data.graph.relations), data.graph
    text = f"{graph.entities[3]}\t{graph.relations[2]}\t?\n\n?\t{graph.relations[1]}\t{graph.entities[0]}\n".encode()
    queries = list(data.read_inputs(text.splitlines(keepends=True), "questions.tsv"))
    assert queries == [
        Query(graph.entities[3], graph.relations[2], "?", 3, 2, False),
        Query("?", graph.relations[1], graph.entities[0], 0, 1, True),
    ]
    split = data.encode(queries)
    batch = whole(split)
    assert (batch["e"].tolist(), batch["r"].tolist()) == ([3, 0], [2, 1 + n])
    truth = truths(data, *SPLITS)
    known = [[x for x in range(13) if (e, r, x) in truth] for e, r in ((3, 2), (0, 1 + n))]
    assert known_of(batch) == ([[*known[0], 3], [*known[1], 0]] if without_self else known)
    assert data.describe(queries[1]) == {"head": "?", "relation": graph.relations[1], "tail": graph.entities[0]}
    with pytest.raises(UserError, match=r"questions\.tsv, line 1: toy-2-3 has no relation .*spellings: 'parent_of'"):
        list(data.read_inputs([b"0.2\tParent of\t?\n"], "questions.tsv"))


@pytest.mark.parametrize(
    ("question", "unseen"),
    [("a\tr\t?", None), ("?\tr\tc", ["c"]), ("b\ts\t?", ["s"]), ("?\ts\tc", ["c", "s"])],
)
def test_an_answer_says_which_names_of_its_question_train_does_not_have(tmp_path, question, unseen):
    data = folder_data(tmp_path, "a r b", "a r c", "c s a")
    (queries,) = data.read_inputs([question.encode()], "questions.tsv")
    head, relation, tail = question.split("\t")
    expected = {"head": head, "relation": relation, "tail": tail}
    assert data.describe(queries) == expected | ({"unseen": unseen} if unseen else {})


@pytest.mark.data
def test_wn18rr_has_its_published_numbers(data_dir):
    folder = data_dir / "WN18RR"
    if not folder.is_dir():
        pytest.skip(f"{data_dir} has no WN18RR")
    data = graph_data(toy=None, folder=str(folder))
    assert (len(data.graph.entities), len(data.graph.relations)) == (40943, 11)
    assert [len(data.splits()[s]) for s in SPLITS] == [2 * 86835, 2 * 3034, 6268]
    assert data.graph.notes["dev"].unseen == 210
    assert data.graph.notes["test"].unseen == 210
    batch = whole(data.splits()["test"])
    own = torch.arange(6268).repeat_interleave(batch["offsets"].diff())
    has = torch.zeros(6268, dtype=torch.bool)
    has[own[batch["answers"] == batch["target"][own]]] = True
    assert has.all(), "every right answer is known"
    dropped = graph_data(toy=None, folder=str(folder), unseen="drop")
    assert len(dropped.splits()["test"]) == 6268 - 2 * 210
