"""python scripts/errors.py: which examples one run gets right and the other wrong, McNemar's test, and bad input."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from scipy.stats import binomtest

from scripts import errors
from scripts.trained import Run, Trained, load, read_run
from tasks.errors import UserError
from tests import cli

LABELS = ("entailment", "neutral")
GOLD = torch.tensor([0, 1, 0, 1, 0])
TEXTS = [("a|b", "c"), ("two\nlines", "\\d"), ("e", "f"), ("g", "h"), ("i", "j")]


class Pairs:
    """Five pairs, the only word of pair k is k."""

    lengths, labels = torch.tensor([[1, 3, 2, 1, 1], [1, 1, 1, 1, 1]]), GOLD

    def __getitem__(self, index):
        return {"words": index, "lengths": self.lengths[:, index], "labels": GOLD[index]}


def trained(name, answers, labels=LABELS, sha="x", pairs=None, texts=True, rows=range(5)) -> Trained:
    """A run that gives pair k the class answers[k] with the probability 0.6 + 0.05 k."""
    sure = torch.tensor([0.6 + 0.05 * k for k in range(5)], dtype=torch.float64)
    table = torch.where(torch.tensor(answers).unsqueeze(-1) == torch.arange(2), sure.unsqueeze(-1), 1 - sure.unsqueeze(-1))
    data = SimpleNamespace(
        labels=labels, splits=lambda: {"test": pairs or Pairs()}, eval_batch_size=2,
        fingerprint=lambda: {"sha256": {"test": sha}}, rows=lambda split: rows,
    )  # fmt: skip
    if texts:
        data.texts = lambda split, k: TEXTS[k]
    settings = {"seed": 1, "task.name": "snli", "geometry.name": "poincare", "geometry.c": 1.0}
    run = Run(Path("outputs") / name, name, settings, None, [])
    return Trained(run, None, lambda words, lengths: table[words].log(), data, 4)


@pytest.mark.parametrize(
    ("only_a", "only_b", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 2 / 32), (0, 5, 2 / 32), (3, 3, 1.0), (8, 2, 2 * (1 + 10 + 45) / 1024)],
)
def test_mcnemar_by_hand(only_a, only_b, p):
    assert errors.mcnemar(only_a, only_b) == pytest.approx(p)


def test_mcnemar_of_many_is_the_binomial_test():
    for a, b in ((1200, 1100), (40, 90), (3000, 2000)):
        assert errors.mcnemar(a, b) == pytest.approx(binomtest(a, a + b).pvalue, rel=1e-9)


def test_examples_are_counted_and_the_clearest_come_first():
    a, b = trained("a", [0, 1, 0, 0, 0]), trained("b", [1, 1, 1, 1, 1])
    answers = errors.compare(a, b, "test")
    assert torch.equal(answers.gold, GOLD)
    assert answers.counts() == {(True, True): 1, (True, False): 3, (False, True): 1, (False, False): 0}
    assert answers.only_a() == [4, 2, 0]
    assert answers.a[1, 1] == pytest.approx(0.65)  # in the order of the split, whatever the batches


def test_the_table():
    a, b = trained("a", [0, 1, 0, 0, 0]), trained("b", [1, 1, 1, 1, 1])
    text = errors.table(a, b, "test", errors.compare(a, b, "test"), 3)
    lines = text.splitlines()
    assert "A: a, seed 1; poincare, c = 1, epoch 4  " in lines
    assert "| A right | 1 | 3 | 80.00 % |" in lines
    assert "| A wrong | 1 | 0 | 20.00 % |" in lines
    assert "A is right in 80.00 % and B in 40.00 %; McNemar's exact test, two-sided: p = 0.625 (3 against 1)." in lines
    assert lines[-3:] == [
        "| i | j | entailment | entailment | neutral |",
        "| e | f | entailment | entailment | neutral |",
        "| a\\|b | c | entailment | entailment | neutral |",
    ]
    other = errors.table(b, a, "test", errors.compare(b, a, "test"), 9)
    assert "1 of the 1 pairs that only A gets right" in other
    assert "| g | h | neutral | neutral | entailment |" in other
    assert errors._cell("two\nlines \\d") == "two lines \\\\d"


def shorter():
    pairs = Pairs()
    pairs.labels = 1 - GOLD
    return pairs


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"labels": ("entailment", "other")}, "other classes: entailment, neutral .* task.labels"),
        ({"sha": "y"}, "other examples in their test split"),
        ({"pairs": shorter()}, "other examples in their test split"),
        ({"rows": [1, 0, 2, 3, 4]}, "in another order, as another tokeniser gives"),
        ({"texts": False}, "the task snli has no pairs of sentences, which are compared here; name runs of task=snli, multinli or nli"),
    ],
)
def test_runs_that_cannot_be_compared(other, message):
    with pytest.raises(UserError, match=message):
        errors.compare(trained("a", [0] * 5), trained("b", [0] * 5, **other), "test")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Two short runs on the same pairs."""
    folder = tmp_path_factory.mktemp("runs")
    short = ("task=nli_toy", "task.data.sizes={train: 60, dev: 12, test: 40}", "trainer.max_epochs=1", *cli.QUIET)
    folders = []
    for seed in (0, 1):
        done = cli.call(*short, *cli.places(folder), f"paths.cache_dir={folder / 'cache'}", f"seed={seed}", "geometry=euclidean")
        assert done.code == 0, done.err
        folders.append(done.record_path.parent)
    return folders


@pytest.mark.long
def test_two_runs_as_a_command(runs, tmp_path, capsys):
    file = tmp_path / "new" / "errors.md"
    assert errors.main([*map(str, runs), "--output", str(file), "--most", "2"]) == 0
    assert capsys.readouterr().out.endswith(f"table: {file}\n")
    text = file.read_text()
    trained = [load(read_run(folder)) for folder in runs]
    answers = errors.compare(*trained, "test")
    assert sum(answers.counts().values()) == 40
    for (right, _), each in zip([(answers.right[0], 0), (answers.right[1], 1)], trained, strict=True):
        sums = [each.task.step(batch) for batch in each.data.test_dataloader()]
        correct = sum(float(step.sums["confusion"].sum(0).diagonal().sum()) for step in sums)
        assert int(right.sum()) == correct
    assert f"A is right in {100 * float(answers.right[0].double().mean()):.2f} %" in text
    assert errors.main([*map(str, runs), "--split", "dev"]) == 0
    assert "## dev: A right, B wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--most", "0"), "--most must be a whole number of at least 1"),
        (("--output", "FOLDER"), "is a folder; name a file in it"),
        (("--state", "last", "NOWHERE"), "There is no folder"),
    ],
)
def test_a_wrong_word_is_an_error_of_one_line(runs, tmp_path, capsys, words, message):
    folders = [str(runs[0]), "no/where" if "NOWHERE" in words else str(runs[1])]
    rest = [word.replace("FOLDER", str(tmp_path)) for word in words if word != "NOWHERE"]
    assert errors.main([*folders, *rest]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
