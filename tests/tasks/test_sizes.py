"""Settings that follow from the size of the data: what rules settle, what was set, and that runs agree on it."""

import json

import pytest
from omegaconf import OmegaConf

from configs import composing, matching
from tasks import sizes
from tasks.errors import UserError
from tests.cli import QUIET, call, places

GRAPH = {
    "task.name": "kg", "task.data.batch_size": "auto", "task.model.sparse": "auto", "task.model.loop_bias": "auto",
    "task.module.objective": "auto", "task.module.negatives": "auto", "task.module.pool": "auto",
    "task.module.self_share": "auto", "task.module.regulariser": "auto", "task.module.lazy": "auto", "trainer.max_epochs": "auto",
    "trainer.check_val_every_n_epoch": "auto", "trainer.max_steps": -1, "trainer.accumulate_grad_batches": 1,
}  # fmt: skip


def settled(kind: str, counts: dict, values: dict, **words) -> dict:
    examples = counts.get("pairs") or counts.get("documents") or 2 * counts["triples"]
    return sizes.settle(kind, {"counts": {"train": counts}, "words": words}, values, examples)[0]


def graph(triples: int, entities: int, **values) -> dict:
    return settled("kg_completion", {"triples": triples, "entities": entities}, GRAPH | values)


def test_a_graph_of_few_entities_has_a_softmax_over_all_and_a_large_one_over_some():
    small, large = graph(8_000, 800), graph(20_000_000, 2_000_000)
    assert (small["task.module.objective"], small["task.module.negatives"], small["task.model.sparse"]) == (
        "cross_entropy", None, False,
    )  # fmt: skip
    assert large["task.module.pool"] == graph(40_000, 16_836)["task.module.pool"] == sizes.POOL
    assert large["task.model.sparse"]
    assert large["trainer.max_epochs"] < small["trainer.max_epochs"]
    assert graph(300, 100)["task.data.batch_size"] < small["task.data.batch_size"]


def test_what_is_set_is_not_settled_and_the_rest_follows_from_it():
    values = {"task.data.batch_size": 64, "task.module.objective": "bce"}
    settings = graph(8_000, 800, **values)
    assert not set(values) & set(settings)
    assert settings["task.module.negatives"] == 50
    assert settings["task.module.pool"] is None
    assert settings["trainer.max_epochs"] < graph(8_000, 800, **{"task.data.batch_size": 512})["trainer.max_epochs"]
    assert graph(8_000, 800, **{"task.module.pool": 100})["task.module.negatives"] == 50, "of what is drawn"
    assert graph(8_000, 800, **{"task.module.negatives": 10})["task.module.pool"] is None
    assert graph(8_000, 800, **{"trainer.max_steps": 100})["trainer.max_epochs"] == -1


def reason(entities: int, **values) -> str:
    size = {"counts": {"train": {"triples": 8_000, "entities": entities}}}
    return sizes.settle("kg_completion", size, GRAPH | values, 16_000)[1][1]


def test_the_reason_that_is_printed_is_what_it_follows_from():
    assert "a softmax over all entities, which are few enough" in reason(135)
    assert "a softmax over 3,000 entities that are drawn for each batch, as there are many" in reason(20_000)
    drawn = {"task.module.objective": "cross_entropy", "task.module.negatives": 50}
    assert "a softmax over 50 negatives that are drawn for each triple, as it is set" in reason(135, **drawn)
    assert "a softmax over all entities, as it is set" in reason(20_000, **{"task.module.negatives": None})
    assert "bce over 50 negatives" in reason(20_000, **{"task.module.objective": "bce"})
    assert "all_bce over all entities" in reason(135, **{"task.module.objective": "all_bce"})
    assert "over 135 entities that are drawn" in reason(135, **{"task.module.self_share": 0.2}), "not more than there are"


def test_epochs_follow_from_the_examples_that_batches_are_made_of():
    size = {"counts": {"train": {"triples": 8_000, "entities": 800}}}
    once, both = (sizes.settle("kg_completion", size, GRAPH, n)[0]["trainer.max_epochs"] for n in (8_000, 16_000))
    assert once == pytest.approx(2 * both, abs=2)


def test_what_follows_another_setting_may_be_auto_itself():
    assert graph(300, 100)["task.module.lazy"] is False
    assert graph(300, 100, **{"task.model.sparse": True})["task.module.lazy"] is True
    values = {"task.name": "documents", "task.d_word": "auto", "task.model.d_word": "auto", "task.data.batch_size": 64}
    values |= {"trainer.max_epochs": 1, "trainer.max_steps": -1, "trainer.accumulate_grad_batches": 1}
    settings = settled("document_classification", {"documents": 100}, values, dimension=300)
    assert settings == {"task.d_word": 300, "task.model.d_word": 300}


def test_the_batches_of_a_tree_grow_with_its_pairs_to_those_of_wordnet():
    values = {
        "task.name": "tree", "task.data.batch_size": "auto", "trainer.max_epochs": "auto", "trainer.max_steps": -1,
        "trainer.check_val_every_n_epoch": "auto", "trainer.accumulate_grad_batches": 1,
    }  # fmt: skip
    settings = [settled("poincare_embeddings", {"nodes": n, "pairs": n}, values) for n in (500, 8_000, 743_241)]
    batches = [each["task.data.batch_size"] for each in settings]
    assert batches[0] < batches[1] < batches[2] == 2000
    assert settings[2]["trainer.max_epochs"] == 30, "as the records of WordNet's nouns have"


def test_the_nodes_of_a_deep_hierarchy_start_nearer_to_one_another():
    values = {
        "task.name": "tree", "task.data.batch_size": 64, "task.model.start_step": "auto", "trainer.max_epochs": 1,
        "trainer.max_steps": -1, "trainer.check_val_every_n_epoch": 1, "trainer.accumulate_grad_batches": 1,
    }  # fmt: skip
    sizes_of = {"WordNet's nouns": (82_115, 743_241), "a path": (300, 44_850), "two nodes": (2, 1)}
    settings = {name: settled("poincare_embeddings", {"nodes": n, "pairs": m}, values) for name, (n, m) in sizes_of.items()}
    assert settings["WordNet's nouns"] == settings["two nodes"] == {"task.model.start_step": 0.6}, "as the records have"
    assert settings["a path"] == {"task.model.start_step": 0.1}
    assert settled("poincare_embeddings", {"nodes": 300, "pairs": 44_850}, values | {"task.model.start_step": 0.5}) == {}


def test_words_have_the_size_of_their_vectors():
    values = {"task.name": "nli", "task.model.d_word": "auto"}
    common = {"task.data.batch_size": 64, "trainer.max_epochs": 1, "trainer.max_steps": -1} | {
        "trainer.check_val_every_n_epoch": 1, "trainer.accumulate_grad_batches": 1,
    }  # fmt: skip
    assert settled("nli", {"pairs": 100}, values | common, dimension=300) == {"task.model.d_word": 300}
    assert settled("nli", {"pairs": 100}, values | common) == {"task.model.d_word": 50}
    auto = values | common | {"task.data.batch_size": "auto", "trainer.max_epochs": "auto"}
    batches = [settled("nli", {"pairs": n}, auto)["task.data.batch_size"] for n in (100, 1_500, 500_000)]
    assert batches == [32, 32, 64], "with 16 the Poincaré GRU diverged"


def test_a_setting_without_a_rule_is_named(tmp_path):
    with pytest.raises(UserError, match=r"task\.model\.d_word=auto: task=kg has no rule for it; set a value"):
        graph(100, 10, **{"task.model.d_word": "auto"})
    result = call("task=prefix_toy", "trainer=auto", *QUIET, *places(tmp_path))
    assert result.code != 0
    assert "trainer.max_epochs=auto: task=prefix_toy has no rule for it" in result.err


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """A folder with a graph of 60 people: who is whose parent and child."""
    folder = tmp_path_factory.mktemp("own") / "family"
    folder.mkdir()
    rows = [row for k in range(1, 60) for row in ((k, "parent", k // 3), (k // 3, "child", k))]
    parts = {"test": rows[5::9], "valid": rows[3::9]}
    parts["train"] = [row for row in rows if row not in parts["test"] + parts["valid"]]
    for name, part in parts.items():
        (folder / f"{name}.txt").write_text("".join(f"p{h}\t{r}\tp{t}\n" for h, r, t in part), encoding="utf-8")
    return folder


@pytest.mark.long
def test_a_run_prints_what_it_settled_and_test_and_skip_finished_agree_on_it(tmp_path, family):
    words = ("task=kg", f"data.dir={family}", "trainer.max_epochs=2", *QUIET, *places(tmp_path))
    result = call(*words)
    assert result.code == 0, result.err
    assert "chosen for" in result.out
    assert "task.module.objective=cross_entropy" in result.out
    assert "auto" not in json.dumps(result.record["config"]["task"])
    assert result.record["config"]["trainer"]["max_epochs"] == 2
    run = result.record_path.parent
    tested = call("mode=test", f"checkpoint={run}", f"data.dir={family}", *QUIET, *places(tmp_path))
    assert tested.code == 0, tested.err
    assert tested.record["config"]["task"] == result.record["config"]["task"]
    assert tested.record["metrics"]["test/mrr"] == result.record["metrics"]["test/mrr"]
    named = call("mode=test", "task=kg", f"checkpoint={run}", f"data.dir={family}", *QUIET, *places(tmp_path))
    assert named.record["metrics"] == tested.record["metrics"]
    again = call(*words, "skip_finished=true")
    assert "finished before, with the same settings" in again.out
    assert again.record_path == result.record_path
    other = call(*words, "skip_finished=true", "task.data.batch_size=7")
    assert other.record["config"]["task"]["data"]["batch_size"] == 7
    assert other.record_path != result.record_path


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, family):
    place = tmp_path_factory.mktemp("run")
    words = ("task=kg", f"data.dir={family}", "trainer.max_epochs=1", "task.model.sparse=true", "task.module.objective=bce")
    result = call(*words, *QUIET, *places(place))
    assert result.code == 0, result.err
    return result.record_path.parent


@pytest.mark.long
def test_a_record_fills_a_cell_that_leaves_the_same_settings_to_the_data(run_folder, family):
    record = json.loads((run_folder / "record.json").read_text())
    assert {"task.data.batch_size", "task.module.regulariser"} < set(record["auto"])
    assert not {"trainer.max_epochs", "task.model.sparse", "task.module.objective"} & set(record["auto"])
    composing.register()
    words = ("task=kg", f"data.dir={family}", "trainer.max_epochs=1", "task.model.sparse=true", "task.module.objective=bce")

    def cell(*more):
        return matching.decisive(OmegaConf.to_container(composing.composed(*words, *more), resolve=True))

    settings = matching.settings_of_record(record)
    assert matching.differences(settings, cell()) == []
    assert matching.differences(settings, cell("task.data.batch_size=7")) == ["task.data.batch_size=auto, not 7"]
    assert matching.differences(settings, cell("trainer.max_epochs=auto")) == ["trainer.max_epochs=1, not auto"]


@pytest.mark.long
def test_a_run_that_goes_on_has_what_its_data_decided_but_for_what_is_set(tmp_path, family):
    words = ("optim.schedule=constant", *QUIET)
    begun = call("task=kg", f"data.dir={family}", "trainer.max_epochs=1", *words, *places(tmp_path / "a"))
    assert begun.code == 0, begun.err
    more = ("trainer.max_epochs=2", "trainer.check_val_every_n_epoch=2", f"data.dir={family}")
    longer = call(f"trainer.resume={begun.record_path.parent}", *more, *places(tmp_path / "b"))
    assert longer.code == 0, longer.err
    assert "task.data.batch_size" in longer.record["auto"]
    assert set(longer.record["auto"]) == set(begun.record["auto"]) - {"trainer.check_val_every_n_epoch"}


@pytest.mark.long
def test_a_checkpoint_settles_what_is_open_without_the_data(tmp_path, run_folder):
    questions = tmp_path / "questions.tsv"
    questions.write_text("p1\tparent\t?\n", encoding="utf-8")
    result = call("mode=predict", "task=kg", f"checkpoint={run_folder}", f"input={questions}", *QUIET, *places(tmp_path))
    assert result.code == 0, result.err
    assert [json.loads(line)["head"] for line in result.out.splitlines()] == ["p1"]
    assert "chosen for" not in result.err
    words = ("mode=predict", "task=nli", f"checkpoint={run_folder}", f"input={questions}")
    assert "is of task=kg, not of task=nli" in call(*words, *QUIET, *places(tmp_path)).err


@pytest.mark.long
def test_a_test_takes_the_settings_of_its_checkpoint(tmp_path, run_folder, family):
    result = call("mode=test", "task=kg", f"checkpoint={run_folder}", f"data.dir={family}", *QUIET, *places(tmp_path))
    assert result.code == 0, result.err
    task = result.record["config"]["task"]
    assert (task["model"]["sparse"], task["module"]["lazy"], task["module"]["objective"]) == (True, True, "bce")


def test_answers_alone_go_to_standard_output(tmp_path, family, run_folder):
    questions = tmp_path / "questions.tsv"
    questions.write_text("p1\tparent\t?\n", encoding="utf-8")
    words = ("mode=predict", "task=kg", f"data.dir={family}", f"checkpoint={run_folder}", f"input={questions}")
    result = call(*words, *QUIET, *places(tmp_path))
    assert result.code == 0, result.err
    assert [json.loads(line)["head"] for line in result.out.splitlines()] == ["p1"]
    assert "record: " in result.err


@pytest.mark.long
def test_documents_have_words_as_large_as_their_vectors(tmp_path):
    folder, vectors = tmp_path / "weather", tmp_path / "data" / "glove"
    folder.mkdir()
    vectors.mkdir(parents=True)
    rows = [("wet", "rain falls"), ("dry", "the sun shines"), ("wet", "it rains"), ("dry", "no rain")] * 10
    (folder / "train.tsv").write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
    (vectors / "small.txt").write_text("rain 1 2 3\nsun 3 2 1\nthe 0 1 0\n", encoding="utf-8")
    words = ("task=documents", f"data.dir={folder}", "encoder=dan", "geometry=euclidean", "trainer.max_epochs=1")
    result = call(*words, *QUIET, *places(tmp_path))
    assert result.code == 0, result.err
    assert "task.d_word=3" in result.out
    assert result.record["config"]["task"]["model"]["d_word"] == 3
    texts, elsewhere = tmp_path / "texts.txt", places(tmp_path / "elsewhere")
    texts.write_text("rain falls\n", encoding="utf-8")
    words = ("mode=predict", "task=documents", *words[2:4], f"checkpoint={result.record_path.parent}", f"input={texts}")
    assert call(*words, *QUIET, *elsewhere).code == 0, "without documents and vectors"
    linear = call("task=documents", f"data.dir={folder}", "task/model=bag_of_words", "trainer.max_epochs=1", *QUIET, *places(tmp_path))
    assert linear.code == 0, linear.err
