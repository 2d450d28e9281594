"""The loss is the formula of the paper in every geometry; data, splits and the file at the end are what they should be."""

import functools
import math

import pytest
import torch

from hyperbolic.geometry import GEOMETRIES, make_geometry
from hyperbolic.manifolds import PoincareBall
from hyperbolic.optim import RiemannianAdam
from tasks.errors import UserError
from tasks.names import NO_NAME
from tasks.optimizers import make_optimizer
from tasks.poincare_glove.data import PoincareGloveData
from tasks.poincare_glove.model import PoincareGlove
from tasks.poincare_glove.task import PoincareGloveTask, weight
from tasks.word_vectors import read_vectors

WORDS = ("the", "cat", "sat", "on", "mats")
PLAIN = {"d": 3, "h": "cosh-dist-sq", "init_bound": 0.5, "sparse": False, "export": "words"}
MODULE = {"select": "val/loss", "select_mode": "min", "x_max": 100.0, "alpha": 0.75, "lazy": True, "top_k": 10}
RADAM = functools.partial(make_optimizer, embeddings={}, biases={}, matrices={}, rule="adam", lr=0.1)


def model(name="poincare", c=1.0, **settings) -> PoincareGlove:
    manifold, layers = GEOMETRIES[name]
    geometry = make_geometry(name, manifold, layers, c=c if manifold != "Euclidean" else None)
    glove = PoincareGlove(geometry, WORDS, **{**PLAIN, **settings})
    for bias in (glove.word_bias, glove.context_bias):
        bias.data = torch.randn_like(bias)
    return glove


BATCH = {
    "words": torch.tensor([0, 1, 4, 2]),
    "contexts": torch.tensor([1, 0, 4, 3]),
    "counts": torch.tensor([250.0, 100.0, 7.5, 0.1]),
}


@pytest.mark.parametrize("c", [0.4, 1.0, 3.0])
def test_the_loss_is_the_formula_of_the_paper(c):
    glove = model(c=c).double().requires_grad_(False)
    ball = PoincareBall(c)
    expected, each = 0.0, []
    for i, j, x in zip(*(BATCH[k].tolist() for k in ("words", "contexts", "counts")), strict=True):
        u, v = glove.word.weight[i] * math.sqrt(c), glove.context.weight[j] * math.sqrt(c)  # in the ball of radius 1
        cosh = 1 + 2 * float((u - v).square().sum()) / float((1 - u.square().sum()) * (1 - v.square().sum()))
        assert cosh == pytest.approx(math.cosh(math.sqrt(c) * float(ball.dist(u / math.sqrt(c), v / math.sqrt(c)))))
        f = min(1.0, (x / 100) ** 0.75)
        each.append(f * (-(cosh**2) + float(glove.word_bias[i]) + float(glove.context_bias[j]) - math.log(x)) ** 2)
    expected = sum(each) / 4
    task = PoincareGloveTask(glove, RADAM, **MODULE)
    step = task.step(BATCH)
    assert float(step.loss) == pytest.approx(expected, rel=1e-5)
    assert float(step.sums["loss"]) == pytest.approx(sum(each), rel=1e-5)


@pytest.mark.parametrize("name", ["poincare", "lorentz", "klein", "poincare_tangent", "euclidean"])
@pytest.mark.parametrize(("h", "of"), [
    ("dist-sq", lambda d: d**2), ("cosh-dist", math.cosh),
    ("cosh-dist-sq", lambda d: math.cosh(d) ** 2), ("log-dist-sq", lambda d: math.log(1 + d**2)),
])  # fmt: skip
def test_predictions_in_every_geometry(name, h, of):
    glove = model(name, c=2.0, h=h).double().requires_grad_(False)
    unit = 1.0 if name == "euclidean" else math.sqrt(2.0)
    result = glove(BATCH["words"], BATCH["contexts"])
    assert result.dtype == torch.float64
    for k, (i, j) in enumerate(zip(BATCH["words"], BATCH["contexts"], strict=True)):
        d = unit * float(glove.manifold.dist(glove.word(i), glove.context(j)))
        expected = float(glove.word_bias[i]) + float(glove.context_bias[j]) - of(d)
        assert float(result[k]) == pytest.approx(expected, rel=1e-6)


def test_weights_are_those_of_glove():
    assert weight(torch.tensor([1.0, 100.0, 1e4]), 100.0, 0.75).tolist() == pytest.approx([100**-0.75, 1, 1])


def test_metrics_are_the_mean_loss_and_the_explained_variance():
    task = PoincareGloveTask(model(), RADAM, **MODULE)
    sums = {k: float(v) for k, v in task.step(BATCH).sums.items()}
    logs, f = BATCH["counts"].double().log(), weight(BATCH["counts"].double(), 100.0, 0.75)
    mean = (f * logs).sum() / f.sum()
    expected = 1 - sums["loss"] / float((f * (logs - mean).square()).sum())
    assert task.summary(sums) == pytest.approx({"loss": sums["loss"] / 4, "explained": expected})
    task.model.forward = lambda words, contexts: torch.full((4,), float(mean), dtype=torch.float64)
    constant = {k: float(v) for k, v in task.step(BATCH).sums.items()}
    assert task.summary(constant)["explained"] == pytest.approx(0, abs=1e-9)


def test_lazy_sparse_steps_move_the_rows_of_the_batch_only():
    moved = {}
    for sparse in (True, False):
        torch.manual_seed(0)
        glove = model(sparse=sparse)
        task = PoincareGloveTask(glove, RADAM, **MODULE)
        before = [p.detach().clone() for p in glove.parameters()]
        optimizer = task.configure_optimizers()
        batch = {**BATCH, "words": torch.tensor([0, 0, 1, 2]), "contexts": torch.tensor([3, 3, 0, 3])}
        for _ in range(2):
            optimizer.zero_grad()
            task.step(batch).loss.backward()
            assert glove.word.weight.grad.is_sparse == sparse
            optimizer.step()
        changed = [
            (p != b).any(-1).nonzero().flatten().tolist() for p, b in zip(glove.parameters(), before, strict=True)
        ]
        names = [name for name, _ in glove.named_parameters()]
        rows = dict(zip(names, changed, strict=True))
        assert rows["word.weight"] == rows["word_bias"] == [0, 1, 2]
        assert rows["context.weight"] == rows["context_bias"] == [0, 3]
        moved[sparse] = [p.detach() for p in glove.parameters()]
    for a, b in zip(moved[True], moved[False], strict=True):
        torch.testing.assert_close(a, b)


def test_settings_that_cannot_be_are_named():
    with pytest.raises(UserError, match="task.model.h must be one of dist-sq, cosh-dist"):
        model(h="cosh")
    with pytest.raises(UserError, match="task.model.init_bound must be a positive number"):
        model(init_bound=0.0)
    with pytest.raises(UserError, match="task.model.export must be one of words, midpoints"):
        model(export="contexts")
    with pytest.raises(ValueError, match=r"geometry.parts.encoder: this model has no component 'encoder'.*vectors"):
        PoincareGlove(
            make_geometry("poincare", "PoincareBall", "mobius", 1.0, parts={"encoder": "euclidean"}), WORDS, **PLAIN
        )
    with pytest.raises(UserError, match="task.module.x_max must be a positive number"):
        PoincareGloveTask(model(), RADAM, **{**MODULE, "x_max": 0.0})


def test_points_start_in_the_box_of_init_bound():
    weights = model("euclidean", d=50, init_bound=0.001).word.weight
    assert 0.0009 < float(weights.detach().abs().max()) <= 0.001


@pytest.mark.parametrize("name", ["poincare", "lorentz", "klein", "lorentz_tangent"])
@pytest.mark.parametrize("c", [1.0, 2.5])
@pytest.mark.parametrize("export", ["words", "midpoints"])
def test_the_file_that_is_written_is_read_as_the_same_points(tmp_path, name, c, export):
    glove = model(name, c, export=export)
    task = PoincareGloveTask(glove, RADAM, **MODULE)
    path = task.export(tmp_path)["vectors"]
    assert path.name == "vectors.poincare.3d.txt"
    words = read_vectors([path.name], tmp_path, "auto", 1.0, None, "fail")
    assert words.space == "poincare"
    assert words.index == {word: k for k, word in enumerate(WORDS, start=2)}
    torch.testing.assert_close(words.points(glove.manifold)[2:], glove.points(), atol=2e-6, rtol=2e-5)
    written = words.points(PoincareBall())[2:].double()
    distance = float(PoincareBall().double().dist(written[0], written[3]))
    with torch.no_grad():
        pair, word = task.predict({"words": torch.tensor([0, 0]), "contexts": torch.tensor([3, NO_NAME])})
    assert pair["distance"] == pytest.approx(distance, rel=1e-4)
    assert [near["distance"] for near in word["nearest"] if near["word"] == WORDS[3]] == [pair["distance"]]
    if export == "midpoints":
        both = [glove.manifold.dist(glove.points(), e(torch.arange(5))) for e in (glove.word, glove.context)]
        torch.testing.assert_close(*both, atol=1e-4, rtol=1e-4)


def test_flat_vectors_are_written_as_they_are(tmp_path):
    glove = model("euclidean")
    path = PoincareGloveTask(glove, RADAM, **MODULE).export(tmp_path)["vectors"]
    assert path.name == "vectors.euclidean.3d.txt"
    words = read_vectors([path.name], tmp_path, "auto", 1.0, None, "fail")
    assert words.space == "euclidean"
    assert torch.equal(words.tangent[2:], glove.word.weight.detach())


SETTINGS = {
    "toy": None, "tokenizer": "blanks", "lower": True, "window": 2, "min_count": 1, "max_vocabulary": None,
    "sizes": {"train": None, "dev": 0.1, "test": 0.1}, "split_seed": 0, "shuffle": "examples", "batch_size": 8,
    "eval_batch_size": 100, "seed": 0,
}  # fmt: skip


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(f"A{k % 9} b{k % 7} c{k % 5} d{k % 4} rare{k}" for k in range(200)), encoding="utf-8")
    return path


def data(corpus, tmp_path, **changes) -> PoincareGloveData:
    return PoincareGloveData(file=str(corpus), cache=str(tmp_path / "cache"), **{**SETTINGS, **changes})


def test_examples_are_all_entries_of_the_matrix(corpus, tmp_path, capsys):
    examples = data(corpus, tmp_path, min_count=2)
    words = examples.model_sizes["words"]
    assert f": {len(words)} of " in capsys.readouterr().out, "what is left out is said"
    assert words[0] in ("d0", "d1", "d2", "d3"), "the most frequent first"
    assert len(words) == 9 + 7 + 5 + 4, "rare words are left out, the others lower-cased"
    assert "a0" in words
    splits = examples.splits()
    pairs = {}
    for split in splits.values():
        batch = split[torch.arange(len(split))]
        for i, j, x in zip(*(batch[k].tolist() for k in ("words", "contexts", "counts")), strict=True):
            assert (i, j) not in pairs
            pairs[i, j] = x
    assert all(pairs[j, i] == x for (i, j), x in pairs.items()), "symmetric, and both orders in one split"
    a, c = words.index("a0"), words.index("c0")
    together = sum(k % 9 == 0 and k % 5 == 0 for k in range(200))
    assert pairs[a, c] == pytest.approx(together / 2), "two words apart"
    assert sum(len(s) for s in splits.values()) == len(pairs)
    assert all(len(s) for s in splits.values())


def folders(tmp_path) -> list:
    return [place for place in (tmp_path / "cache").iterdir() if place.is_dir()]


def test_counts_are_kept_and_a_damaged_file_is_made_again(corpus, tmp_path):
    first = data(corpus, tmp_path)
    before = first.fingerprint()
    assert before["files"] == {"train": "corpus.txt", "dev": "corpus.txt", "test": "corpus.txt"}
    (folder,) = folders(tmp_path)
    stamp = (folder / "meta.json").stat().st_mtime_ns
    assert data(corpus, tmp_path).fingerprint() == before
    assert (folder / "meta.json").stat().st_mtime_ns == stamp
    (folder / "dev.pairs.bin").write_bytes(b"")
    with pytest.warns(UserWarning, match="is damaged .* made again"):
        assert data(corpus, tmp_path).fingerprint() == before
    assert (folder / "dev.pairs.bin").stat().st_size > 0
    assert data(corpus, tmp_path, window=1).fingerprint() != before
    assert len(folders(tmp_path)) == 2


def test_fewer_training_pairs_can_be_taken(corpus, tmp_path):
    some = data(corpus, tmp_path, sizes={"train": 20, "dev": 0.1, "test": 0.1})
    assert len(some.splits()["train"].counts) == 20
    assert some.fingerprint()["counts"]["train"]["pairs"] == 20
    assert len(some.splits()["train"]) <= 40


def test_a_vocabulary_can_be_cut(corpus, tmp_path):
    assert len(data(corpus, tmp_path, max_vocabulary=16).model_sizes["words"]) == 16


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (b"", {}, "is empty"),
        (b"a b\n\xfc c\n", {}, "line 2: byte 0xfc is not UTF-8"),
        (b"one two three\n", {"min_count": 5}, "of its 3 words 0 occur at least task.data.min_count=5 times"),
        (b"one one one\n", {}, "of its 1 words 1 occur"),
        (b"one two\n", {}, "has 1 pairs of words, too few for a"),
        (b"one\ntwo\n", {}, "has 0 pairs of words, too few for a train split"),
        (None, {}, "There is no text file"),
    ],
)
def test_a_text_that_cannot_be_learnt_from_is_told(tmp_path, content, changes, message):
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        _ = data(path, tmp_path, **changes).model_sizes
    assert not (tmp_path / "cache").exists() or folders(tmp_path) == [], "nothing half-made is left"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"file": None}, "task.data.file=corpus.txt"),
        ({"window": 0}, "task.data.window must be a whole number of at least 1"),
        ({"tokenizer": "moses"}, "task.data.tokenizer must be one of blanks, basic_english"),
        ({"sizes": {"dev": 0.1, "test": 100}}, "task.data.sizes.test is a share of pairs"),
        ({"sizes": {"dev": 0.1, "test": 0.1, "val": 1}}, "task.data.sizes.val: the splits are train, dev, test"),
        ({"max_vocabulary": 1}, "task.data.max_vocabulary must be a whole number of at least 2"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        PoincareGloveData(**{"file": "text.txt", "cache": str(tmp_path), **SETTINGS, **changes})


def test_the_optimiser_is_told_to_be_lazy():
    task = PoincareGloveTask(model(), functools.partial(_radam), **MODULE)
    assert all(group["lazy"] for group in task.configure_optimizers().param_groups)


def _radam(module, **options):
    return RiemannianAdam(module.parameters(), **options)


def test_a_model_that_is_worse_than_a_constant_is_noted():
    task = PoincareGloveTask(model(), RADAM, **MODULE)
    task.metrics["test/explained"] = 0.2
    assert task.remarks() == []
    task.metrics["test/explained"] = -8.2
    (line,) = task.remarks()
    assert "test/explained is -8.20, and a constant has 0" in line
