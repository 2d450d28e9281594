"""Metrics against a ranker that goes query by query, losses from the scores of single triples, answers in words."""

import csv
import json

import pytest
import torch

from tasks.batches import SPLITS
from tasks.errors import UserError
from tasks.kg_completion import task as module
from tasks.kg_completion.categories import categories
from tasks.kg_completion.task import AT, CATEGORIES, SCORES, TIES, LinkPredictionTask
from tests.cli import QUIET, call, places
from tests.tasks.kg_completion.graphs import evaluate, every, folder_data, graph_data, link_prediction, score, truths

RECIPROCAL = pytest.mark.parametrize("reciprocal", [True, False])
LOOPS = ("a r b,b r c,c r c,a s a,c s b,d r a,d s b", "a r a,b s b,c r a,d q a", "b r b,a s c,c s c,a q d")


# Ranks


def ranked(task, data, split: str) -> list[dict]:
    """For each question of a split its relation, side, and the rank with each way to count ties."""
    known, n, result = truths(data, *data.known[split]), task.n, []
    for e, r, target in sorted(truths(data, split)):
        bar, others = score(task, e, r, target), []
        for x in range(len(data.graph.entities)):
            if x != target and (e, r, x) not in known and not (data.without_self and x == e):
                others.append(score(task, e, r, x))
        above, equal = sum(s > bar for s in others), sum(s == bar for s in others)
        ranks = {"optimistic": 1 + above, "realistic": 1 + above + equal / 2, "pessimistic": 1 + above + equal}
        result.append({"relation": r % n, "side": "tail" if r < n else "head", "ranks": ranks})
    return result


def scored(questions: list[dict], ties: str) -> dict[str, float]:
    ranks = [q["ranks"][ties] for q in questions]
    values = [sum(ranks), sum(1 / k for k in ranks), *(sum(k <= at for k in ranks) for at in AT)]
    return {name: value / len(ranks) for name, value in zip(SCORES, values, strict=True)}


def metrics(task, data, split: str, ties: str) -> dict[str, float]:
    questions = ranked(task, data, split)
    kinds = categories(data.graph.triples["train"], task.n)
    parts = {"": questions}
    parts |= {f"{side}/": [q for q in questions if q["side"] == side] for side in ("tail", "head")}
    parts |= {f"{kind}/": [q for q in questions if kinds[q["relation"]] == kind] for kind in CATEGORIES}
    result = {at + k: v for at, part in parts.items() if part for k, v in scored(part, ties).items()}
    return result | {f"{way}/{k}": v for way in TIES for k, v in scored(questions, way).items()}


@RECIPROCAL
@pytest.mark.parametrize("without_self", [False, True])
@pytest.mark.parametrize("ties", TIES)
def test_metrics_are_those_of_a_loop_over_queries_and_candidates(reciprocal, without_self, ties):
    known = {"dev": ["train", "dev"], "test": list(SPLITS)}
    data = graph_data(reciprocal=reciprocal, without_self=without_self, known=known)
    task = link_prediction(data, ties=ties)
    for split, batches in (("dev", data.val_dataloader()), ("test", data.test_dataloader())):
        expected = metrics(task, data, split, ties)
        assert expected["optimistic/mrr"] > expected["realistic/mrr"] > expected["pessimistic/mrr"]
        assert evaluate(task, batches) == pytest.approx(expected, rel=1e-12)
        assert set(expected) <= set(LinkPredictionTask.metric_names)


@RECIPROCAL
@pytest.mark.parametrize("without_self", [False, True])
def test_triples_with_one_entity_twice_and_new_relations(tmp_path, reciprocal, without_self):
    """The entity of the question is a right answer here; `q` is in no category."""
    data = folder_data(tmp_path, *LOOPS, reciprocal=reciprocal, without_self=without_self)
    task = link_prediction(data)
    expected = metrics(task, data, "test", "realistic")
    result = evaluate(task, data.test_dataloader())
    assert result == pytest.approx(expected, rel=1e-12)
    assert result["mean_rank"] >= 1


def test_what_is_known_and_who_asks_changes_the_ranks():
    """So that the tests above would see it, were it ignored."""
    variants = [
        {},
        {"known": {"dev": ["dev"], "test": ["test"]}},
        {"without_self": True},
    ]
    result = []
    for changes in variants:
        torch.manual_seed(0)
        data = graph_data(**changes)
        result.append(evaluate(link_prediction(data), data.test_dataloader())["mrr"])
    assert len(set(result)) == len(variants)
    assert result[1] < result[0] < result[2]


def test_scores_without_a_difference_are_no_success():
    data = graph_data()
    task = link_prediction(data)
    task.model.scorer.table.data.zero_()
    result = evaluate(task, data.test_dataloader())
    assert result["optimistic/mrr"] == 1
    assert result["mean_rank"] == pytest.approx((1 + result["pessimistic/mean_rank"]) / 2)
    assert result["pessimistic/mean_rank"] > 3


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("block", [1, 50, 1 << 25])
def test_metrics_do_not_depend_on_batches_and_blocks(monkeypatch, size, block):
    whole = graph_data(eval_batch_size=1000)
    task = link_prediction(whole)
    expected = evaluate(task, whole.test_dataloader())
    monkeypatch.setattr(module, "BLOCK", block)
    assert evaluate(task, graph_data(eval_batch_size=size).test_dataloader()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("ties", TIES)
def test_the_parts_add_up_and_relations_csv_has_them(tmp_path, ties):
    data = graph_data()
    task = link_prediction(data, ties=ties)
    assert task.export(tmp_path) == {}, "nothing was evaluated yet"
    result = evaluate(task, data.test_dataloader())
    questions = ranked(task, data, "test")
    kinds = categories(data.graph.triples["train"], task.n)
    files = task.export(tmp_path)
    assert files == {"relations": tmp_path / "relations.csv"}
    assert [f.name for f in tmp_path.iterdir()] == ["relations.csv"]
    with files["relations"].open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    queries = {(q["side"], q["relation"]) for q in questions}
    assert {(row["sought"], data.graph.relations.index(row["relation"])) for row in rows} == queries
    assert len(rows) == len(queries)
    for row in rows:
        k = data.graph.relations.index(row["relation"])
        part = [q for q in questions if (q["side"], q["relation"]) == (row["sought"], k)]
        assert (row["category"], int(row["queries"])) == (kinds[k], len(part))
        assert {s: float(row[s]) for s in SCORES} == pytest.approx(scored(part, ties), rel=1e-5)
    total = sum(int(row["queries"]) for row in rows)
    assert total == len(questions) == len(data.splits()["test"])
    for name in SCORES:
        assert sum(int(row["queries"]) * float(row[name]) for row in rows) / total == pytest.approx(
            result[name], rel=1e-5
        )
        assert (result[f"tail/{name}"] + result[f"head/{name}"]) / 2 == pytest.approx(result[name])


# Settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "hinge"}, r"task\.module\.objective must be one of bce, self_adversarial"),
        ({"negatives": None}, r"task\.module\.negatives=null is for objective=cross_entropy; bce needs"),
        (
            {"negatives": None, "objective": "self_adversarial"},
            r"task\.module\.negatives=null .*self_adversarial needs",
        ),
        ({"negatives": 0}, r"task\.module\.negatives must be a whole number of at least 1"),
        ({"pool": 0}, r"task\.module\.pool must be a whole number of at least 1"),
        ({"corrupt": "heads"}, r"task\.module\.corrupt must be one of tails, both"),
        ({"corrupt": "both"}, r"task\.module\.corrupt=both .*task\.data\.reciprocal=false"),
        ({"corrupt": "both", "objective": "all_bce"}, r"corrupt=both draws wrong heads, and objective=all_bce"),
        (
            {"corrupt": "both", "objective": "cross_entropy", "negatives": None},
            r"objective=cross_entropy takes all entities",
        ),
        ({"corrupt": "both", "pool": 9}, r"task\.module\.pool .*task\.module\.corrupt=tails"),
        ({"self_share": -0.1}, r"task\.module\.self_share must be from 0 to 1"),
        ({"self_share": None}, r"task\.module\.self_share must be from 0 to 1"),
        ({"self_share": 1.0, "objective": "all_bce"}, r"self_share=1.0 .*objective=all_bce"),
        ({"pool": 9, "objective": "cross_entropy", "negatives": None}, r"task\.module\.pool=9 .*negatives=None"),
        ({"smoothing": None}, r"task\.module\.smoothing must be"),
        ({"regulariser": None}, r"task\.module\.regulariser must be"),
        ({"ties": "mean"}, r"task\.module\.ties must be one of realistic, optimistic, pessimistic"),
        ({"smoothing": 1.0}, r"task\.module\.smoothing must be"),
        ({"temperature": -1.0}, r"task\.module\.temperature must be"),
        ({"regulariser": -0.1}, r"task\.module\.regulariser"),
        ({"exponent": 0}, r"task\.module\.exponent must be"),
        ({"double_neg": True, "pool": 5}, r"task\.module\.double_neg=true draws another head and another tail"),
        ({"double_neg": True, "objective": "all_bce"}, r"task\.module\.double_neg=true goes with corrupt=tails"),
        ({"subsampling": True, "objective": "all_bce"}, r"task\.module\.subsampling weighs triples"),
        ({"top_k": 0}, r"task\.module\.top_k must be"),
        ({"select": "val/accuracy"}, r"task\.module\.select must be one of val/mean_rank"),
        ({"select": "val/mean_rank"}, r"val/mean_rank is best where it is lowest; add task\.module\.select_mode=min"),
        ({"select_mode": "min"}, r"val/mrr is best where it is highest, with select_mode=max"),
    ],
)
def test_settings_that_cannot_be_name_their_key(changes, message):
    with pytest.raises(UserError, match=message):
        link_prediction(graph_data(), **changes)


@pytest.mark.parametrize(
    ("objective", "examples"), [("bce", "queries"), ("cross_entropy", "queries"), ("all_bce", "triples")]
)
def test_an_objective_needs_its_examples(objective, examples):
    data = graph_data(examples=examples)
    task = link_prediction(data, objective=objective)
    task.train()
    needed = {"queries": "triples", "triples": "queries"}[examples]
    with pytest.raises(UserError, match=rf"task\.module\.objective={objective} needs task\.data\.examples={needed}"):
        task.step(every(data))


# Answers


def answers_to(data, task, text: str) -> list[list[dict]]:
    queries = list(data.read_inputs(text.encode().splitlines(), "questions.tsv"))
    split = data.encode(queries)
    with torch.inference_mode():
        return [result["answers"] for result in task.eval().predict(split[torch.arange(len(split))])]


@RECIPROCAL
@pytest.mark.parametrize("block", [13, 1 << 25])
@pytest.mark.parametrize("top_k", [1, 4, 100])
def test_answers_are_the_likeliest_entities_in_both_directions(monkeypatch, reciprocal, block, top_k):
    monkeypatch.setattr(module, "BLOCK", block)
    data = graph_data(reciprocal=reciprocal)
    names, relations, n = data.graph.entities, data.graph.relations, len(data.graph.relations)
    truth = truths(data, *SPLITS)
    queries = [(e, r) for e in (0, 5, 12) for r in range(2 * n)]
    text = "".join(
        f"{names[e]}\t{relations[r]}\t?\n" if r < n else f"?\t{relations[r - n]}\t{names[e]}\n" for e, r in queries
    )
    sizes = set()
    for hide in (True, False):
        task = link_prediction(data, top_k=top_k, hide_known=hide)
        task.model.scorer.table.data.normal_()
        for (e, r), answers in zip(queries, answers_to(data, task, text), strict=True):
            left = [x for x in range(13) if not (hide and (e, r, x) in truth)]
            best = sorted(left, key=lambda x, e=e, r=r: -score(task, e, r, x))[:top_k]
            assert [a["entity"] for a in answers] == [names[x] for x in best]
            assert [a["score"] for a in answers] == pytest.approx([score(task, e, r, x) for x in best], rel=1e-5)
            if hide:
                assert all(set(a) - {"unseen"} == {"entity", "score"} for a in answers)
            else:
                assert [a["known"] for a in answers] == [(e, r, x) in truth for x in best]
            json.dumps(answers, allow_nan=False)
            sizes.add(len(answers))
    assert len(sizes) > 1 or top_k < 13, "where fewer are left, fewer are given"


def test_answers_that_train_does_not_have_say_so(tmp_path):
    data = folder_data(tmp_path, "a r b", "a r c", "c r a")
    for hide in (True, False):
        answers = answers_to(data, link_prediction(data, hide_known=hide, top_k=9), "?\tr\ta")[0]
        assert {a["entity"]: a.get("unseen") for a in answers} == {"a": None, "b": None} | ({} if hide else {"c": True})
    (answers,) = answers_to(data, link_prediction(data, top_k=9), "c\tr\t?")
    assert {a["entity"]: a.get("unseen") for a in answers} == {"b": None, "c": True}


def test_a_question_whose_answers_are_all_known_has_none(tmp_path):
    data = folder_data(tmp_path, "a r a,a r b,b s a", "b r a", "b r b")
    hidden, visible = (answers_to(data, link_prediction(data, hide_known=hide), "a\tr\t?")[0] for hide in (True, False))
    assert hidden == []
    assert [a["known"] for a in visible] == [True, True]


@pytest.mark.parametrize("hide", [True, False])
def test_an_entity_that_is_no_candidate_is_no_answer(hide):
    data = graph_data(without_self=True)
    names, relations = data.graph.entities, data.graph.relations
    for answers in answers_to(data, link_prediction(data, hide_known=hide, top_k=13), f"{names[0]}\t{relations[0]}\t?"):
        assert len(answers) == 12 or hide
        assert names[0] not in [answer["entity"] for answer in answers]


@pytest.mark.parametrize("hide", [True, False])
def test_a_whole_triple_is_scored_and_ranked_beside_questions(hide):
    """Its tail, among all entities but the other right answers, as the plain scores say."""
    data = graph_data()
    task = link_prediction(data, hide_known=hide, top_k=13).eval()
    task.model.scorer.table.data.normal_()
    names, relations, truth = data.graph.entities, data.graph.relations, truths(data, *SPLITS)
    triples = [(e, r, t) for e in (0, 5) for r in range(len(relations)) for t in range(13)]
    lines = [f"{names[e]}\t{relations[r]}\t{names[t]}" for e, r, t in triples] + [f"{names[0]}\t{relations[0]}\t?"]
    queries = list(data.read_inputs("\n".join(lines).encode().splitlines(), "questions.tsv"))
    split = data.encode(queries)
    with torch.inference_mode():
        *results, question = task.predict(split[torch.arange(len(split))])
    assert question.keys() == {"answers"}
    for (e, r, t), result, query in zip(triples, results, queries, strict=False):
        own = score(task, e, r, t)
        better = sum(score(task, e, r, x) > own for x in range(13) if x != t and (e, r, x) not in truth)
        assert result["score"] == pytest.approx(own, rel=1e-5)
        assert result["rank"] == better + 1
        assert names[t] in {answer["entity"] for answer in result["answers"]}
        assert (data.describe(query)["head"], data.describe(query)["tail"]) == (names[e], names[t])


def test_points_of_a_batch():
    data = graph_data()
    task = link_prediction(data)
    for batch, names in ((every(data), "h"), (next(iter(data.test_dataloader())), "e")):
        points = task.points(batch)["entities"]
        assert points.manifold is task.model.manifold
        assert torch.equal(points.x, task.model.scorer.table[0].detach()[batch[names]])


# A run


def test_a_run_and_its_answers_on_the_command_line(tmp_path):
    training = call(
        "task=kg_completion_toy", "encoder=distmult", *QUIET, *places(tmp_path), "trainer.max_epochs=2",
        "trainer.check_val_every_n_epoch=1",
    )  # fmt: skip
    assert training.code == 0, training.err
    record, folder = training.record, training.record_path.parent
    assert record["metrics"]["test/mrr"] == pytest.approx(
        (record["metrics"]["test/tail/mrr"] + record["metrics"]["test/head/mrr"]) / 2
    )
    assert 0 < record["metrics"]["test/pessimistic/mrr"] <= record["metrics"]["test/mrr"] < 1
    with (folder / "relations.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["relation"] for row in rows} == {"ancestor_of", "sibling_of"}
    assert sum(int(row["queries"]) for row in rows) == 54
    mrr = sum(int(row["queries"]) * float(row["mrr"]) for row in rows) / 54
    assert mrr == pytest.approx(record["metrics"]["test/mrr"], rel=1e-4), "they are of the state that is tested"

    questions = tmp_path / "questions.tsv"
    questions.write_text("0.1\tsibling_of\t?\n\n?\tparent_of\t0.2.3\n", encoding="utf-8")
    words = ("mode=predict", f"checkpoint={folder}", f"input={questions}", *places(tmp_path))
    done = call(*words, f"output={tmp_path / 'answers.jsonl'}", "task.module.top_k=3")
    assert done.code == 0, done.err
    siblings, parents = (json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines())
    assert {k: v for k, v in siblings.items() if k != "answers"} == {
        "head": "0.1", "relation": "sibling_of", "tail": "?",
    }  # fmt: skip
    assert (parents["head"], parents["tail"]) == ("?", "0.2.3")
    assert len(siblings["answers"]) == len(parents["answers"]) == 3
    assert not {a["entity"] for a in siblings["answers"]} & {"0.0", "0.2", "0.3"}, "these are known"
    values = [a["score"] for a in siblings["answers"]]
    assert values == sorted(values, reverse=True)

    visible = call(*words, "task.module.hide_known=false", "task.module.top_k=85")
    assert visible.code == 0, visible.err
    siblings, parents = (json.loads(line)["answers"] for line in visible.out.splitlines())
    assert {a["entity"] for a in siblings if a["known"]} == {"0.0", "0.2", "0.3"}
    assert [a["entity"] for a in parents if a["known"]] == ["0.2"]
    assert len(siblings) == 85

    questions.write_text("0.1\tsibling_of\t?\n0.1\tsiblings_of\t?\n", encoding="utf-8")
    wrong = call(*words, f"output={tmp_path / 'wrong.jsonl'}")
    assert wrong.code == 1
    assert (
        "questions.tsv, line 2: toy-3-4 has no relation 'siblings_of'. The nearest spellings: 'sibling_of'" in wrong.err
    )
    assert wrong.err.strip().count("\n") == 0
    assert not (tmp_path / "wrong.jsonl").exists()
