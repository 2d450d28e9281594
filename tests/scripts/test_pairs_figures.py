"""Figures of runs on pairs of sentences: what is counted and weighed is what is drawn."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scripts import figures as command
from scripts.drawing import attention, classes, histograms, weights
from scripts.trained import Run, Trained, load, read_run
from tasks.errors import UserError
from tasks.nli.data import NliData
from tests import cli

HEAD = "split,label,gold,predicted,true_positives\n"


@pytest.fixture(scope="module")
def attentive(tmp_path_factory) -> Path:
    """The folder of a short run whose encoder attends."""
    folder = tmp_path_factory.mktemp("attentive")
    done = cli.call(
        "task=nli_toy", "encoder=gru_attention", "task.data.sizes={train: 60, dev: 12, test: 30}",
        "trainer.max_epochs=1", f"paths.cache_dir={folder / 'cache'}", *cli.QUIET, *cli.places(folder),
    )  # fmt: skip
    assert done.code == 0, done.err
    return done.record_path.parent


def run(folder=Path("outputs"), name="hypera_dan") -> Run:
    return Run(folder, name, {"seed": 0, "task.name": "multinli", "geometry.name": "poincare", "geometry.c": 1.0}, None, [])


@pytest.mark.parametrize(
    ("lengths", "width", "first", "last"),
    [([3, 9], 1, 2.5, 9.5), ([1, 40], 1, 0.5, 40.5), ([1, 41], 2, 0.5, 42.5), ([5], 1, 4.5, 5.5)],
)
def test_steps_are_whole_and_hold_every_length(lengths, width, first, last):
    borders = histograms.edges({"train": np.array(lengths), "dev": np.array(lengths[:1])})
    assert set(np.diff(borders)) == {width}
    assert (borders[0], borders[-1]) == (first, last)


def test_lengths_by_split_are_shares(figures, options):
    lengths = {"train": torch.tensor([[2, 2, 4, 8], [1, 1, 1, 3]]), "dev": torch.tensor([[2], [5]])}
    splits = {name: SimpleNamespace(lengths=value) for name, value in lengths.items()}
    trained = Trained(run(), None, None, SimpleNamespace(splits=lambda: splits), 1)
    (path,) = histograms.draw([trained.run], lambda _: trained, options())
    assert path.name == "lengths-hypera_dan-seed0.png"
    premises, hypotheses = figures[0].subfigs[0].axes
    train, dev = premises.patches
    assert train.get_data().values.tolist() == [0.5, 0, 0.25, 0, 0, 0, 0.25]
    assert dev.get_data().values.sum() == 1
    assert [text.get_text() for text in hypotheses.get_legend().get_texts()] == [
        "train: mean 1.5, median 1, longest 3", "dev: mean 5.0, median 5, longest 5"
    ]  # fmt: skip
    other = trained._replace(data=SimpleNamespace(splits=lambda: {"train": SimpleNamespace()}))
    with pytest.raises(UserError, match=r"the task multinli has no pairs of sentences"):
        histograms.draw([trained.run], lambda _: other, options())


def test_classes_of_two_runs_stand_on_one_scale(tmp_path, figures, options):
    for name, right in (("a", 10), ("b", 300)):
        (tmp_path / name).mkdir()
        rows = f"dev,entailment,1,1,1\ntest,entailment,400,350,{right}\ntest,neutral,100,150,90\n"
        (tmp_path / name / "classes.csv").write_text(HEAD + rows)
    runs = [run(tmp_path / name, name) for name in "ab"]
    assert classes.read_counts(runs[0])[0] == classes.Count("entailment", 400, 350, 10)
    classes.draw(runs, None, options())
    axes = figures[0].subfigs[0].axes
    assert axes[0].get_ylim() == axes[1].get_ylim()
    heights = [[bar.get_height() for bar in axis.patches] for axis in axes]
    assert heights == [[400, 100, 10, 90], [400, 100, 300, 90]]
    assert axes[1].get_title().splitlines() == ["b, seed 0", "poincare, c = 1", "390 of 500 right (78.0 %)"]
    assert [text.get_text() for text in axes[0].texts] == ["400", "100", "10\n2 %", "90\n90 %"]


def test_of_many_classes_the_largest_are_drawn(tmp_path, figures, options):
    rows = "".join(f"test,c{k},{k + 1},0,{k}\n" for k in range(200))
    (tmp_path / "classes.csv").write_text(HEAD + rows)
    classes.draw([run(tmp_path, "a")], None, options())
    (axis,) = figures[0].subfigs[0].axes
    heights = [bar.get_height() for bar in axis.patches]
    assert heights[: classes.MOST] == [*range(200, 200 - classes.MOST, -1)]
    assert len(heights) == 2 * classes.MOST
    assert "19,900 of 20,100 right (99.0 %); the 30 largest of 200 classes" in " ".join(axis.get_title().split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "it has no classes.csv"),
        (HEAD + "dev,a,1,1,1\n", "has no rows of the test split"),
        (HEAD + "test,a,1,x,1\n", "classes.csv is damaged"),
        (HEAD + f"test,a,1,{'9' * 26},1\n", "classes.csv is damaged .'9+' is no number of examples"),
        (HEAD + "test,a,1,-1,1\n", "classes.csv is damaged .'-1' is no number of examples"),
        ("label,gold\na,1\n", "classes.csv is damaged"),
        (HEAD + "test,a,1\n", "classes.csv is damaged"),
    ],
)
def test_a_table_of_classes_that_cannot_be_read_is_named(tmp_path, text, message):
    if text is not None:
        (tmp_path / "classes.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        classes.read_counts(run(tmp_path))


@pytest.mark.long
def test_every_figure_of_a_run_that_attends(attentive, tmp_path, capsys):
    assert command.main(["attention", "lengths", "classes", "curves", str(attentive), "--out", str(tmp_path)]) == 0
    stem = "nli_toy-poincare-gru_attention-seed0"
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == sorted(f"{name}-{stem}.png" for name in ("attention-pairs", "lengths", "classes", "curves"))


@pytest.mark.long
def test_the_weights_are_the_models_and_belong_to_their_words(attentive):
    trained = load(read_run(attentive))
    texts = weights.choose_texts(trained)
    split, names = trained.data.splits()["test"], trained.data.labels
    assert {text.gold for text in texts} == {names[k] for k in split.labels.tolist()}
    strips = weights.strips([trained, trained], texts)
    assert len(strips) == len(texts)
    every = [trained.data.texts("test", k) for k in range(len(split))]
    for text, strip in zip(texts, strips, strict=True):
        k = every.index(text[:2])
        batch = split[torch.tensor([k])]
        with torch.inference_mode():
            expected = trained.model.attention(batch["words"], batch["lengths"])[0]
            answer = names[int(trained.model(batch["words"], batch["lengths"]).argmax())]
        assert len(strip.tokens) == int(split.lengths[0, k])
        assert "".join(strip.tokens).lower() == "".join(text.premise.split()).lower()
        assert len(strip.rows) == 2
        label, values = strip.rows[0]
        assert label.startswith(f"{trained.run.title}: {answer} 0.") or label.endswith(f"{answer} 1.00")
        assert values == pytest.approx(expected[: len(values)].numpy(), abs=1e-5)
        assert values.sum() == pytest.approx(1, abs=1e-4)


@pytest.mark.long
def test_pairs_of_a_file(attentive, tmp_path, figures, capsys):
    file = tmp_path / "mine.tsv"
    lines = ["the dog sleeps\tan animal rests", json.dumps({"premise": "the train stands", "hypothesis": "it moves"})]
    file.write_text("\n".join(lines * 7) + "\n")
    assert command.main(["attention", str(attentive), "--pairs", str(file), "--out", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "shown are the first 12 of 14 pairs" in output
    assert "attention-pairs-mine-" in output, "the picture of the test split has another name"
    axes = figures[0].subfigs[0].axes[:-1]
    assert len(axes) == 12
    assert [axis.get_title(loc="left") for axis in axes[:2]] == ["an animal rests", "it moves"]
    assert [label.get_text() for label in axes[1].get_xticklabels()] == ["the", "train", "stands"]
    file.write_text("id\tpremise\thypothesis\n7\tthe dog sleeps\tit rests\n")
    assert command.main(["attention", str(attentive), "--pairs", str(file), "--out", str(tmp_path)]) == 0
    file.write_text("the dog sleeps\n")
    assert command.main(["attention", str(attentive), "--pairs", str(file), "--out", str(tmp_path)]) == 1
    assert "line 1: it has 1 column instead of 2" in capsys.readouterr().err
    assert command.main(["attention", str(attentive), "--pairs", str(tmp_path / "no"), "--out", str(tmp_path)]) == 1


def test_runs_that_cut_a_premise_into_other_words_get_strips_of_their_own():
    def answering(*tokens):
        prediction = {"label": "yes", "probabilities": {"yes": 0.75}, "attention": [[token, 1 / len(tokens)] for token in tokens]}
        data = SimpleNamespace(read_inputs=lambda lines, name: lines, encode=lambda lines: torch.zeros(len(lines)))
        return Trained(run(name=tokens[0]), SimpleNamespace(predict=lambda batch: [prediction]), None, data, 1)

    text = weights.Text("Two words", "one", None)
    one, other, same = answering("two", "words"), answering("two words"), answering("two", "words")
    strips = weights.strips([one, other, same], [text])
    assert [(strip.tokens, len(strip.rows)) for strip in strips] == [(("two", "words"), 2), (("two words",), 1)]
    assert weights.strips([one], [text])[0].rows[0][0] == "yes 0.75"


def test_an_encoder_that_does_not_attend_is_an_error(options):
    class Pairs(NliData):
        def __init__(self):
            self.read_inputs, self.encode = (lambda lines, name: lines), (lambda lines: torch.zeros(len(lines)))
            self.texts = lambda split, k: ("a", "b")
            split = SimpleNamespace(lengths=torch.ones(2, 1), labels=torch.zeros(1, dtype=torch.long))
            self.splits = lambda: {"test": split}

        labels = ("yes",)

    task = SimpleNamespace(predict=lambda batch: [{"label": "yes", "probabilities": {"yes": 1.0}}])
    trained = Trained(run(), task, None, Pairs(), 1)
    with pytest.raises(UserError, match=r"does not attend to anything. Name a run of encoder=gru_attention"):
        attention.draw([trained.run], lambda _: trained, options())
    other = trained._replace(data=SimpleNamespace(texts=None), model=object())
    with pytest.raises(UserError, match=r"has no attention.*one of task=nli, snli or multinli with encoder=gru_attention"):
        attention.draw([trained.run], lambda _: other, options())


def test_a_long_premise_is_cut_and_the_title_has_the_weight_of_the_rest():
    values = np.full(80, 0.0125)
    figure = weights.plot([weights.Strip("Hypothesis.", "neutral", ("w",) * 80, (("yes", values),))], "Title")
    axis = figure.subfigs[0].axes[0]
    assert len(axis.get_xticks()) == weights.MOST
    assert axis.get_title(loc="left") == "Hypothesis. [neutral] (20 more words, weight 0.25 at most)"
