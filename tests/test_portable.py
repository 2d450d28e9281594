"""A checkpoint alone: each task predicts without its data what it predicts with them, and reads none."""

import contextlib
import gzip
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch

from configs.build import restore
from scripts import export
from tasks import exported, prediction, resume, vocabularies
from tasks.base import TaskData
from tasks.checkpoint_parts import Origin
from tasks.errors import UserError
from tasks.settings import CONTINUED
from tests.cli import QUIET, Result, call, places
from tests.configurations import TOYS
from tests.test_fuzz_checkpoints import with_another_value

SMALLER = {
    "translation_toy": ("task.data.toy.sizes={train: 100, dev: 9, test: 9}",),
    "probing_toy": ("task.data.sizes={train: 40, dev: 9, test: 9}",),
}
STEP = ("trainer.max_steps=1", "trainer.max_epochs=1", "trainer.limit_val_batches=1", "trainer.limit_test_batches=1")
# Of each toy task lines that it can read, and what makes or reads its data.
INPUTS = {
    "document_classification_toy": 'The wind rises near the door. A lamp waits.\n{"text": "An unseen word", "id": 7}\n',
    "entity_typing_toy": 'word1 [person_a1] word2 unseen\n{"left": "", "mention": "Thing_b0", "id": [1]}\n',
    "graph_nc_toy": "0.1\n0.2.1\n",
    "graph_toy": "0\t0.1\n0.1\t0.2\n0.1.2\n",
    "kg_completion_toy": "0.1\tancestor_of\t?\n?\tancestor_of\t0.1.0.0\n",
    "nli_toy": 'the dog passes the truck.\ta cat\n{"premise": "the dog runs", "hypothesis": "a cat", "id": 3}\n',
    "poincare_embeddings_toy": "0.1\n0.1.2\t0.1\n",
    "poincare_glove_toy": "a0\na0\tcommon1\n",
    "prefix_toy": "1 2 3\t1 2\n4\t5\n",
    "probing_toy": "r.0 r r.0.1 r.end\n",
    "translation_toy": "w0 w2 unseen\nw4\n",
    "wordnet_subtree_toy": "0.1.1.2\n0.2\n",
}
SOURCES = {
    "document_classification_toy": ("document_classification.data.prepare",),
    "entity_typing_toy": ("entity_typing.toy.make_vectors",),
    "graph_nc_toy": ("graph.data.toy_graph",),
    "graph_toy": ("graph.data.toy_graph",),
    "kg_completion_toy": ("kg_completion.data.toy_graph",),
    "nli_toy": ("nli.data.prepare",),
    "poincare_embeddings_toy": ("hierarchies.complete_tree",),
    "poincare_glove_toy": ("poincare_glove.data.write_corpus", "poincare_glove.data.read_arrays"),
    "prefix_toy": ("prefix.data.generated",),
    "probing_toy": ("probing.data.toy_sentence",),
    "translation_toy": ("translation.data.prepare",),
    "wordnet_subtree_toy": ("hierarchies.complete_tree", "wordnet_subtree.data.toy_points"),
}


class Runs:
    """Runs of one step of each toy task, made when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, dict[str, Result]()

    def of(self, task: str) -> tuple[Path, Path]:
        """The place of a run's data, and its best checkpoint."""
        folder = self.folder / task
        if task not in self.made:
            self.made[task] = call(f"task={task}", *STEP, *SMALLER.get(task, ()), *QUIET, *places(folder))
            assert self.made[task].code == 0, self.made[task].err
        return folder, self.made[task].record_path.parent / "checkpoints" / "best.ckpt"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@contextlib.contextmanager
def sources_of(task: str, **options) -> Iterator[list[mock.Mock]]:
    """What makes or reads the data of a task, watched, or with side_effect= in its place."""
    with contextlib.ExitStack() as stack:
        watched = []
        for name in SOURCES[task]:
            module, _, attribute = f"tasks.{name}".rpartition(".")
            own = getattr(__import__(module, fromlist=[attribute]), attribute)
            watched.append(stack.enter_context(mock.patch(f"tasks.{name}", **({"side_effect": own} | options))))
        yield watched


def predicted(checkpoint: Path, folder: Path, source: Path, *words: str) -> list[dict]:
    target = folder / "predictions.jsonl"
    result = call("mode=predict", f"checkpoint={checkpoint}", f"input={source}", f"output={target}", *places(folder), *words)
    assert result.code == 0, result.err
    return [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]


def without_vocabulary(checkpoint: Path, target: Path) -> Path:
    """As it was written before checkpoints kept one."""
    state = torch.load(checkpoint, weights_only=True)
    del state["vocabulary"]
    torch.save(state, target)
    return target


def test_the_tables_of_these_tests_have_every_task():
    assert sorted(INPUTS) == sorted(SOURCES) == TOYS


QUICK = ("document_classification_toy", "entity_typing_toy", "kg_completion_toy", "probing_toy")  # the others are slow
TASKS = [pytest.param(task, marks=() if task in QUICK else pytest.mark.slow) for task in TOYS]


@pytest.mark.parametrize("task", TASKS)
def test_a_checkpoint_alone_predicts_what_it_predicts_with_its_data(task, runs, tmp_path, monkeypatch):
    folder, best = runs.of(task)
    source = tmp_path / "input.txt"
    source.write_text(INPUTS[task], encoding="utf-8")
    monkeypatch.setenv("HYPERBOLIC_DATA", str(folder / "data"))
    monkeypatch.setenv("HYPERBOLIC_CACHE", str(folder / "out" / ".cache"))
    with sources_of(task) as watched:
        restored = restore(without_vocabulary(best, tmp_path / "old.ckpt"), "the old checkpoint")
        expected = list(prediction.answers(*restored, INPUTS[task].splitlines()))
        # or the test proves nothing; models of prefixes and of the toy of probing need no vocabulary
        assert any(each.called for each in watched) != (task in ("prefix_toy", "probing_toy"))
    assert len(expected) == INPUTS[task].count("\n")
    for line in ("one text", {"text": "one text"}):
        with pytest.raises(TypeError, match="takes a list of lines"):
            prediction.answers(*restored, line)
    if task == "document_classification_toy":
        lines = [*map(json.dumps, objects := [{"text": "the ball", "id": 3}, {"text": "a game"}])]
        assert [*prediction.answers(*restored, objects)] == [*prediction.answers(*restored, lines)]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(best, elsewhere / "best.ckpt")
    monkeypatch.setenv("HYPERBOLIC_DATA", str(elsewhere / "data"))
    monkeypatch.setenv("HYPERBOLIC_CACHE", str(elsewhere / "cache"))
    with sources_of(task, side_effect=AssertionError("the data were read")):
        assert predicted(elsewhere / "best.ckpt", elsewhere, source) == expected
    assert not (elsewhere / "data").exists()
    assert not (elsewhere / "cache").exists()
    again = [json.dumps(line | {"number": k}) for k, line in enumerate(expected)]
    answers = list(prediction.answers(*restored, again))
    assert [answer["number"] for answer in answers] == list(range(len(expected)))
    assert [{key: answer[key] for key in line} for answer, line in zip(answers, expected, strict=True)] == expected


@pytest.mark.long
@pytest.mark.parametrize("ways", ["command", "python"])
def test_a_folder_of_the_users_is_not_asked_for(tmp_path, ways):
    """Checkpoints keep no absolute path, and predictions need none."""
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("train", "valid", "test"):
        (mine / f"{name}.txt").write_text("ann\tknows\tbob\nbob\tknows\tcid\ncid\tknows\tann\n")
    result = call("task=kg", f"data.dir={mine}", "encoder=distmult", *STEP, *QUIET, *places(tmp_path))
    assert result.code == 0, result.err
    shutil.copy(result.record_path.parent / "checkpoints" / "best.ckpt", tmp_path / "alone.ckpt")
    shutil.rmtree(tmp_path / "out")
    shutil.rmtree(mine)
    (tmp_path / "in.txt").write_text("ann\tknows\t?\n")
    if ways == "command":
        (answer,) = predicted(tmp_path / "alone.ckpt", tmp_path, tmp_path / "in.txt")
    else:
        (answer,) = prediction.answers(*restore(tmp_path / "alone.ckpt", "my model"), ["ann\tknows\t?"])
    assert {each["entity"] for each in answer["answers"]} == {"ann", "cid"}, "that she knows bob is known"


def correct(lines: list[dict], said: str) -> float:
    return sum(line["gold"] == line[said] for line in lines) / len(lines)


# Of each task what its lines must add up to: the metric of the test, and how it follows from them.
SCORES = {
    "document_classification_toy": ("accuracy", lambda lines: correct(lines, "label")),
    "graph_nc_toy": ("accuracy", lambda lines: correct(lines, "label")),
    "kg_completion_toy": ("mrr", lambda lines: sum(1 / line["rank"] for line in lines) / len(lines)),
    "nli_toy": ("accuracy", lambda lines: correct(lines, "label")),
    "prefix_toy": ("accuracy", lambda lines: correct(lines, "label")),
    "wordnet_subtree_toy": ("accuracy", lambda lines: correct(lines, "label")),
    "graph_toy": ("auc", lambda lines: auc(lines)),
    "probing_toy": ("uuas", lambda lines: uuas(lines)),
    "entity_typing_toy": ("accuracy", lambda lines: same_types(lines)),
    "translation_toy": ("bleu", lambda lines: bleu(lines)),
}


def auc(lines: list[dict]) -> float:
    right, wrong = ([line["score"] for line in lines if line["gold"] is gold] for gold in (True, False))
    return sum((a > b) + (a == b) / 2 for a in right for b in wrong) / len(right) / len(wrong)


def edges(heads: list[int | None], counted: list[bool]) -> set[frozenset[int]]:
    ends = ((k, head - 1) for k, head in enumerate(heads) if head)
    return {frozenset(pair) for pair in ends if all(counted[k] for k in pair)}


def uuas(lines: list[dict]) -> float:
    shared = total = 0
    for line in lines:
        counted = [head is not None for head in line["heads"]]
        gold = edges(line["gold"], counted)
        shared, total = shared + len(gold & edges(line["heads"], counted)), total + len(gold)
    return shared / total


def same_types(lines: list[dict]) -> float:
    return sum({each["type"] for each in line["types"]} == set(line["gold"]) for line in lines) / len(lines)


def bleu(lines: list[dict]) -> float:
    import sacrebleu

    return sacrebleu.corpus_bleu([line["translation"] for line in lines], [[line["gold"] for line in lines]]).score


@pytest.mark.long
@pytest.mark.parametrize("task", TASKS)
def test_a_test_writes_a_line_for_each_example_that_its_metric_follows_from(task, runs, tmp_path):
    folder, best = runs.of(task)
    target = tmp_path / "test.jsonl.gz"
    result = call("mode=test", f"checkpoint={best}", f"output={target}", *places(folder), *QUIET)
    assert result.code == 0, result.err
    lines = [json.loads(line) for line in gzip.decompress(target.read_bytes()).decode("utf-8").splitlines()]
    assert result.record["prediction"] == {"input": None, "output": "test.jsonl.gz", "examples": len(lines)}
    assert all("gold" in line for line in lines)
    if task in SCORES:
        name, score = SCORES[task]
        assert score(lines) == pytest.approx(result.record["metrics"][f"test/{name}"], abs=1e-4)


@pytest.mark.long
def test_predictions_of_a_test_go_to_a_file_that_can_be_written(runs, tmp_path):
    folder, best = runs.of("kg_completion_toy")
    for output, said in (("-", "name a file"), (f"{tmp_path}/none/test.jsonl", "cannot be written")):
        result = call("mode=test", f"checkpoint={best}", f"output={output}", *places(folder), *QUIET)
        assert result.code == 1
        assert said in result.err
        assert len(result.err.splitlines()) == 1


def test_an_exported_folder_predicts_without_the_data(runs, tmp_path):
    _, best = runs.of("kg_completion_toy")
    source = tmp_path / "input.txt"
    source.write_text(INPUTS["kg_completion_toy"])
    expected = predicted(best, tmp_path, source)
    exported.write(tmp_path / "model", resume.read(best, "checkpoint"), {}, "# A card\n")
    with sources_of("kg_completion_toy", side_effect=AssertionError("the data were read")):
        assert predicted(tmp_path / "model", tmp_path, source) == expected
        task, data = restore(tmp_path / "model", "the model")
        assert list(prediction.answers(task, data, source.read_text().splitlines())) == expected


@pytest.mark.long
def test_keys_that_the_task_does_not_know_are_handed_on(runs, tmp_path):
    _, best = runs.of("nli_toy")
    source = tmp_path / "input.jsonl.gz"
    pair = {"premise": "the dog runs", "hypothesis": "a cat"}
    others = {"id": "x", "label": "neutral", "more": {"a": [1, None]}}
    with gzip.open(source, "wt", encoding="utf-8") as file:
        file.write(json.dumps(pair | others) + "\n\nthe dog\ta cat\n" + json.dumps(pair) + "\n")
    first, second, third = predicted(best, tmp_path, source)
    assert first.keys() - third.keys() == {"id", "input_label", "more"}
    assert (first["id"], first["input_label"], first["more"]) == ("x", "neutral", {"a": [1, None]})
    assert first["label"] == third["label"]
    assert second.keys() == third.keys()


@pytest.mark.long
def test_top_k_types_are_so_many(runs, tmp_path):
    _, best = runs.of("entity_typing_toy")
    (tmp_path / "in.txt").write_text("word1 [person_a1] word2\n")
    (line,) = predicted(best, tmp_path, tmp_path / "in.txt", "task.module.top_k=5", "task.module.threshold=0.999")
    assert len(line["types"]) == 5
    assert [each["probability"] for each in line["types"]] == sorted(
        (each["probability"] for each in line["types"]), reverse=True
    )


def altered(best: Path, target: Path, change) -> Path:
    """The checkpoint after `change` of the values of its vocabulary."""
    state = torch.load(best, weights_only=True)
    values = vocabularies.unpack(state["vocabulary"], "here")
    change(values["data"])
    torch.save(state | {"vocabulary": vocabularies.pack_values(values)}, target)
    return target


def error_of(checkpoint: Path) -> str:
    with pytest.raises(UserError) as error:
        restore(checkpoint, "checkpoint=other.ckpt")
    assert len(str(error.value)) < 600
    return str(error.value)


def test_a_vocabulary_that_is_not_that_of_the_weights_is_refused(runs, tmp_path):
    _, best = runs.of("kg_completion_toy")
    other = altered(best, tmp_path / "other.ckpt", lambda kept: kept["entities"].__setitem__(0, "renamed"))
    said = "the vocabulary that it keeps is not the one that its weights were trained with (entities is '"
    assert said in error_of(other)
    (tmp_path / "in.txt").write_text("0.1\tancestor_of\t?\n")
    words = (f"checkpoint={other}", f"input={tmp_path / 'in.txt'}", f"output={tmp_path / 'out.jsonl'}")
    result = call("mode=predict", *words, *places(tmp_path))
    assert result.code == 1
    assert said in result.err
    assert len(result.err.splitlines()) == 1
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: kept["entities"].pop(),
        lambda kept: kept["entities"].__setitem__(1, 7),
        lambda kept: kept["entities"].__setitem__(1, kept["entities"][0]),
        lambda kept: kept.pop("relations"),
        lambda kept: kept["triples"].__setitem__("train", kept["triples"]["train"] + 1000),
        lambda kept: kept["triples"].__setitem__("train", -kept["triples"]["train"]),
        lambda kept: kept["triples"].__setitem__("test", kept["triples"]["test"].float()),
        lambda kept: kept["triples"].__setitem__("dev", kept["triples"]["dev"][:, :2]),
        lambda kept: kept.__setitem__("triples", "none"),
    ],
)
def test_a_damaged_vocabulary_is_refused_in_one_paragraph(change, runs, tmp_path):
    _, best = runs.of("kg_completion_toy")
    assert "the vocabulary that it keeps is damaged" in error_of(altered(best, tmp_path / "other.ckpt", change))


@pytest.mark.long
def test_a_vocabulary_is_no_place_for_other_things(runs, tmp_path):
    _, best = runs.of("kg_completion_toy")
    state = torch.load(best, weights_only=True)
    kept = state["vocabulary"]
    for value in (
        7, {}, kept | {"format": 99}, kept | {"text": "{"}, kept | {"text": '{"fingerprint": {}, "data": NaN}'},
        kept | {"tensors": {}}, kept | {"tensors": {"0": "text"}}, kept | {"text": "[" * 10**6},
    ):  # fmt: skip
        torch.save(state | {"vocabulary": value}, tmp_path / "other.ckpt")
        assert "the vocabulary that it keeps is damaged" in error_of(tmp_path / "other.ckpt"), value


@pytest.mark.slow
@pytest.mark.parametrize("task", TOYS)
def test_any_damage_to_a_vocabulary_is_used_or_refused_in_one_paragraph(task, runs, tmp_path):
    _, best = runs.of(task)
    state = torch.load(best, weights_only=True)
    used = 0
    for seed in range(30):
        try:
            values = with_another_value(vocabularies.unpack(state["vocabulary"], "here"), seed)
            packed = vocabularies.pack_values(values)
        except (TypeError, ValueError, RuntimeError, IndexError):  # JSON does not have it, so no file has
            continue
        if any(value.numel() > 10**6 for value in packed["tensors"].values()):
            continue
        torch.save(state | {"vocabulary": packed}, tmp_path / "other.ckpt")
        used += 1
        with contextlib.suppress(UserError):
            restored = restore(tmp_path / "other.ckpt", "checkpoint=other.ckpt")
            list(prediction.answers(*restored, INPUTS[task].splitlines()))
    assert used > 5


def test_a_task_without_test_examples_is_refused_before_the_test(runs, tmp_path, monkeypatch):
    folder, best = runs.of("kg_completion_toy")
    monkeypatch.setattr("tasks.kg_completion.data.GraphData.test_inputs", TaskData.test_inputs)
    with mock.patch("tasks.training.test", side_effect=AssertionError("it was tested")):
        result = call("mode=test", f"checkpoint={best}", f"output={tmp_path / 'out.jsonl'}", *places(folder), *QUIET)
    assert result.code == 1
    assert "gives no test examples one by one" in result.err
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.long
def test_predictions_of_a_test_are_made_where_it_was_tested(runs, tmp_path):
    """Lightning takes the weights off a GPU when a test ends."""
    task, data = restore(runs.of("nli_toy")[1], "the model")
    outcome = mock.Mock(device=torch.device("cuda"), is_main=True)
    files = prediction.Files(None, None, str(tmp_path / "out.jsonl"))
    with mock.patch.object(task, "to", side_effect=RuntimeError) as moved, pytest.raises(RuntimeError):
        prediction.write_test(task, data, files, outcome, "32-true")
    moved.assert_called_once_with(torch.device("cuda"), torch.float32)


def test_predictions_say_on_standard_error_that_kernels_are_built(runs, tmp_path):
    folder, best = runs.of("kg_completion_toy")
    (tmp_path / "in.txt").write_text(INPUTS["kg_completion_toy"])
    words = ("mode=predict", f"checkpoint={best}", f"input={tmp_path / 'in.txt'}", *places(folder))
    with mock.patch("tasks.prediction.native.build", side_effect=lambda say: say("compiling 3")) as build:
        result = call(*words)
    assert result.code == 0, result.err
    assert "compiling 3\n" in result.err
    build.assert_called_once()
    assert len(result.out.splitlines()) == 2, "the answers alone"


@pytest.mark.long
def test_a_model_of_64_bits_predicts_in_them(tmp_path):
    words = ("task=kg_completion_toy", "trainer.precision=64-true", *STEP, *QUIET, *places(tmp_path))
    result = call(*words)
    assert result.code == 0, result.err
    best = result.record_path.parent / "checkpoints" / "best.ckpt"
    (tmp_path / "in.txt").write_text(INPUTS["kg_completion_toy"])
    task, data = restore(best, "the model")
    weights = torch.load(best, weights_only=True)["state_dict"]
    assert all(torch.equal(value, weights[name]) for name, value in task.state_dict().items())
    asked = prediction.answers(task, data, INPUTS["kg_completion_toy"].splitlines())
    first = next(asked)
    assert torch.get_default_dtype() == torch.float32, "between two answers, too"
    assert {p.dtype for p in task.parameters() if p.is_floating_point()} == {torch.float64}
    assert [first, *asked] == predicted(best, tmp_path, tmp_path / "in.txt")


def test_a_number_that_is_not_finite_is_refused_when_it_is_written():
    with pytest.raises(UserError, match="cannot keep the vocabulary of these data"):
        vocabularies.pack_values({"c": float("nan")})


@pytest.mark.long
def test_an_old_checkpoint_is_exported_with_its_vocabulary(runs, tmp_path, monkeypatch):
    folder, best = runs.of("kg_completion_toy")
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    without_vocabulary(best, run / "checkpoints" / "best.ckpt")
    shutil.copy(best.parent.parent / "record.json", run)
    monkeypatch.setenv("HYPERBOLIC_DATA", str(folder / "data"))
    monkeypatch.setenv("HYPERBOLIC_CACHE", str(folder / "out" / ".cache"))
    assert export.main([str(run), "--format", "folder", "--out", str(tmp_path / "model")]) == 0
    (tmp_path / "in.txt").write_text(INPUTS["kg_completion_toy"])
    expected = predicted(best, tmp_path, tmp_path / "in.txt")
    with sources_of("kg_completion_toy", side_effect=AssertionError("the data were read")):
        assert predicted(tmp_path / "model", tmp_path, tmp_path / "in.txt") == expected


@pytest.mark.long
@pytest.mark.parametrize("task", ["poincare_embeddings_toy", "poincare_glove_toy", "graph_toy"])
def test_a_setting_that_is_newer_than_a_checkpoint_has_a_value(task, runs, tmp_path):
    _, best = runs.of(task)
    state = torch.load(best, weights_only=True)
    assert state["config"]["task"]["module"].pop("top_k") == 10
    torch.save(state, tmp_path / "old.ckpt")
    (tmp_path / "in.txt").write_text(INPUTS[task])
    assert predicted(tmp_path / "old.ckpt", tmp_path, tmp_path / "in.txt") == predicted(best, tmp_path, tmp_path / "in.txt")


@pytest.mark.long
def test_a_setting_that_has_another_name_than_in_a_checkpoint_keeps_its_value(runs, tmp_path):
    _, best = runs.of("graph_toy")
    state = torch.load(best, weights_only=True)
    assert state["config"]["task"]["data"].pop("known_in_training") == ["train"]
    state["config"]["task"]["data"]["leak"] = True
    torch.save(state, tmp_path / "old.ckpt")
    (tmp_path / "in.txt").write_text(INPUTS["graph_toy"])
    assert predicted(tmp_path / "old.ckpt", tmp_path, tmp_path / "in.txt") == predicted(best, tmp_path, tmp_path / "in.txt")
    result = call("mode=test", f"checkpoint={tmp_path / 'old.ckpt'}", *QUIET, *places(tmp_path))
    assert result.code == 0, result.err
    assert result.record["config"]["task"]["data"]["known_in_training"] == ["train"]
    old = {**state, "config": {**state["config"], "task": {**state["config"]["task"]}}}
    old["config"]["task"]["fidelity"] = {"paper": {"leak": False}, "code": {"leak": True}}
    new = torch.load(best, weights_only=True)["config"]
    new = {**new, "task": {**new["task"], "fidelity": {"paper": {}, "code": {}}, "activations": {"euclidean": "relu"}}}
    origin = Origin(None, "", new, dict(state["data"]), dict(state["sha256"]))
    assert not re.search("leak|known|activations", " ".join(resume.differences(old, origin, CONTINUED)))


def test_another_error_is_not_called_damage_of_the_vocabulary(runs):
    _, best = runs.of("nli_toy")
    broken = mock.patch("tasks.optimizers.make_optimizer", side_effect=RuntimeError("out of memory"))
    with broken, pytest.raises(RuntimeError, match=r"^out of memory$"):
        restore(best, "the model")
