"""What a search draws: values of a space, as its file and the command line have it."""

import math
from collections import Counter

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.types import RunMode

from configs import checks, choosing, composing, spaces
from configs.build import build
from configs.errors import ConfigError
from configs.spaces import Choice, Interval, random_draw, separate
from tests.configurations import CONFIGS, checked

SWEEPS = sorted(file.stem for file in (CONFIGS / "sweep").glob("*.yaml"))
TASKS = {
    "kg": "kg_completion_toy", "nli": "nli_toy", "documents": "document_classification_toy", "typing": "entity_typing_toy",
    "embeddings": "poincare_embeddings_toy", "graph": "graph_toy", "lr": "prefix_toy",
}  # fmt: skip


@pytest.fixture(scope="module")
def loader() -> ConfigLoaderImpl:
    composing.register()
    return ConfigLoaderImpl(create_config_search_path(str(CONFIGS)))


def compose(loader, words):
    return loader.load_configuration("config", list(words), RunMode.RUN)


@pytest.fixture
def as_composed(loader):
    return lambda words: compose(loader, words)


def read(loader, params: dict, *words: str, where: dict | None = None) -> spaces.Space:
    return spaces.read(params, where or {}, words, loader)


def settings(loader, space, number: int, seed: int = 0) -> dict[str, str]:
    return separate(space.drawn(random_draw(seed, number), lambda words: compose(loader, words)))


@pytest.mark.parametrize("name", SWEEPS)
def test_the_first_trial_of_every_space_fits(loader, as_composed, name):
    node = compose(loader, [f"sweep={name}", f"task={TASKS[name]}"]).hydra.sweeper
    words = [f"task={TASKS[name]}"]
    space = spaces.read(spaces.files.plain(node.params), spaces.files.plain(node.where), words, loader)
    space = space.in_numbers(as_composed)
    assert len(space.dimensions) >= 2
    checked(*space.job(settings(loader, space, 0)))


@pytest.mark.slow
@pytest.mark.parametrize("name", SWEEPS)
def test_every_value_of_every_space_fits(loader, as_composed, name, tmp_path):
    """Trials until each value of each choice has come."""
    node = compose(loader, [f"sweep={name}", f"task={TASKS[name]}"]).hydra.sweeper
    words = [f"task={TASKS[name]}"]
    space = spaces.read(spaces.files.plain(node.params), spaces.files.plain(node.where), words, loader)
    space = space.in_numbers(as_composed)
    values = {(key, value) for key, each in space.dimensions.items() if isinstance(each, Choice) for value in each.values}
    conditional = set(space.where)
    for number in range(16):
        drawn = space.drawn(random_draw(0, number), lambda words: compose(loader, words))
        if number == 0 or values.intersection(drawn.items()):
            cfg = composing.composed(*space.job(separate(drawn)), f"paths.output_dir={tmp_path}")
            _, settled, data = choosing.choose(cfg, checks.check(cfg))
            build(settled, data=data)
        values -= set(drawn.items())
        conditional -= set(drawn)
        if not values:
            break
    assert not {key for key, _ in values} - set(space.where)
    assert conditional <= {"task.model.dropout", "task.model.word_dropout", "task.module.class_weights"}, "without any"


def test_draws_follow_from_the_seed_and_the_number_alone(loader):
    space = read(loader, {"optim.lr": "interval(0, 1)", "seed_": [1, 2, 3]})
    wider = read(loader, {"encoder": ["gru", "rnn"], "optim.lr": "interval(0, 1)", "seed_": [1, 2, 3]})
    first = [settings(loader, space, k) for k in range(5)]
    assert first == [settings(loader, space, k) for k in range(5)]
    assert len({s["optim.lr"] for s in first}) == 5
    assert [settings(loader, wider, k)["optim.lr"] for k in range(5)] == [s["optim.lr"] for s in first]
    assert first != [settings(loader, space, k, seed=1) for k in range(5)]


def test_values_of_a_choice_come_equally_often():
    draw = Choice(("a", "b", "c"))
    values = [random_draw(3, k)("key", draw) for k in range(18)]
    assert Counter(values) == {"a": 6, "b": 6, "c": 6}
    assert {*values[:3]} == {"a", "b", "c"}
    assert values != values[:3] * 6, "each block has its own order"
    assert Counter(random_draw(3, k)("key", Choice(("a", "b"))) for k in range(4)) == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    ("line", "low", "high", "kind"),
    [("interval(0.1, 0.5)", 0.1, 0.5, float), ("int(interval(2, 9))", 2, 9, int), ("tag(log, interval(0.001, 10))", 1e-3, 10, float)],
)
def test_intervals(loader, line, low, high, kind):
    (dimension,) = read(loader, {"x": line}).dimensions.values()
    values = [kind(random_draw(0, k)("x", dimension)) for k in range(200)]
    assert low <= min(values) < max(values) <= high
    middle = (low * high) ** 0.5 if "log" in line else (low + high) / 2
    assert 70 < sum(value <= middle for value in values) < 130


def test_an_interval_may_be_multiples_of_what_the_key_has(loader, as_composed):
    params = {"optim.lr": "tag(log, times, interval(0.1, 10))"}
    own = as_composed(["task=translation_toy"]).optim.lr
    for words, value in ((["task=translation_toy"], own), (["task=translation_toy", "optim=hnn"], 0.001)):
        space = read(loader, params, *words).in_numbers(as_composed)
        each = space.dimensions["optim.lr"]
        assert (each.low, each.high) == pytest.approx((0.1 * value, 10 * value))
        assert each.log
    assert own != 0.001


def test_multiples_of_a_whole_number_are_whole(loader, as_composed):
    params = {"task.data.batch_size": "tag(log, times, interval(0.001, 4))"}
    each = read(loader, params, "task=prefix_toy").in_numbers(as_composed).dimensions["task.data.batch_size"]
    size = as_composed(["task=prefix_toy"]).task.data.batch_size
    assert each == Interval(1, 4 * size, log=True, whole=True)


def test_multiples_need_an_interval(loader):
    with pytest.raises(ConfigError, match=r"multiples need an interval"):
        read(loader, {"optim.lr": "tag(times, choice(0.1, 1, 10))"}, "task=prefix_toy")


def test_multiples_of_what_is_no_number_are_refused(loader, as_composed):
    space = read(loader, {"optim.max_grad_norm": "tag(times, interval(0.1, 10))"}, "task=prefix_toy")
    with pytest.raises(ConfigError, match=r"multiples of optim\.max_grad_norm, which is None here: give it an interval"):
        space.in_numbers(lambda words: as_composed([*words, "optim.max_grad_norm=null"]))


def test_the_command_line_takes_the_place_of_a_line(loader):
    params = {"encoder": ["gru", "rnn"], "optim.lr": "interval(0, 1)", "task.data.batch_size": [1, None]}
    space = read(loader, params, "encoder=rnn", "optim.lr=interval(2,3)", "task.model.d_hidden=4,5", "seed=3")
    assert space.words == ("encoder=rnn", "seed=3")
    assert space.dimensions == {
        "task.data.batch_size": Choice(("1", "null")), "optim.lr": Interval(2.0, 3.0, False, False),
        "task.model.d_hidden": Choice(("4", "5")),
    }  # fmt: skip


def test_trial_0_draws_the_ranges_of_the_command_line_but_for_a_baseline(loader):
    params, where, words = {"encoder": ["gru", "rnn"]}, {}, ["optim.lr=0.1,0.2", "seed=3"]
    space = spaces.read(params, where, words, loader)
    assert list(space.of_trial(0).dimensions) == ["optim.lr"]
    assert list(space.of_trial(1).dimensions) == ["encoder", "optim.lr"]
    baseline = spaces.read(params, where, words, loader, baseline=True)
    assert baseline.of_trial(0).dimensions == {}
    assert baseline.of_trial(0).words == ("seed=3",)
    assert baseline.of_trial(1).dimensions == space.dimensions


def test_keys_that_take_their_values_together(loader):
    params = {"encoder, geometry": [["gru", "poincare"], ["gru", "euclidean"], ["dan", "poincare"]]}
    both = read(loader, params)
    pairs = {tuple(settings(loader, both, k).items()) for k in range(12)}
    assert pairs == {(("encoder", e), ("geometry", g)) for e, g in params["encoder, geometry"]}
    assert read(loader, params, "encoder=gru").dimensions["encoder, geometry"].values == ("gru + poincare", "gru + euclidean")
    assert read(loader, params, "geometry=poincare").dimensions["encoder, geometry"].values == ("gru + poincare", "dan + poincare")
    for word in ("geometry=poincare,lorentz", "geometry=lorentz"):
        with pytest.raises(ConfigError, match=r"no row of it has geometry=lorentz \(there is .*\)\. Take what there is, or name the values of encoder as well, as in encoder=gru"):
            read(loader, params, word)
    assert both.by_key() == {"encoder": {"gru", "dan"}, "geometry": {"poincare", "euclidean"}}
    alone = read(loader, params, "geometry=lorentz", "encoder=gru,rnn")
    assert alone.words == ("geometry=lorentz",)
    assert alone.dimensions == {"encoder": Choice(("gru", "rnn"))}


def test_an_experiment_keeps_its_model(loader):
    params = {"encoder, geometry": [["gru", "poincare"]], "optim": ["radam", "hnn"], "optim.lr": "interval(0,1)"}
    assert list(read(loader, params, "experiment=quickstart").dimensions) == ["optim.lr"]
    assert list(read(loader, params, "experiment=quickstart", "optim=radam,hnn").dimensions) == ["optim.lr", "optim"]


def test_conditions(loader):
    where = {"geometry.c": {"geometry.manifold": ["PoincareBall"]}, "encoder.bidirectional": "present", "optim.lr": {"encoder": ["dan"]}}
    params = {"encoder, geometry": [["gru", "poincare"], ["dan", "euclidean"]], "geometry.c": "interval(1,2)",
              "encoder.bidirectional": [True, False], "optim.lr": [1, 2]}  # fmt: skip
    space = read(loader, params, "task=prefix_toy", where=where)
    drawn = [settings(loader, space, k) for k in range(4)]
    choices = {own["encoder"]: tuple(own) for own in drawn}
    assert choices == {
        "gru": ("encoder", "geometry", "geometry.c", "encoder.bidirectional"),
        "dan": ("encoder", "geometry", "optim.lr"),
    }


@pytest.mark.parametrize(
    ("params", "words", "message"),
    [
        ({}, (), "The space of the search is empty"),
        ({"optim.lr": []}, (), "the range has no value"),
        ({"optim.lr": "interval(2,1)"}, (), "the smaller one first"),
        ({"optim.lr": "tag(log,interval(0,1))"}, (), "begins above 0"),
        ({"optim.lr": "interval(0,1)"}, ("seed=1,2",), "trains each of its settings with one seed"),
        ({"optim.lr": "interval(0,1)"}, ("task=kg,nli",), "A search is on one task"),
        ({"optim.lr": "interval(0,1)"}, ("experiment=quickstart,hnn_subtree",), "A search is of one experiment"),
        ({"optim.lr": "interval(0,1)"}, ("paths.data_dir=a,b",), "A search is on one data set"),
        ({"seed, optim.lr": [[1, 2]]}, (), "with one seed"),
        ({"optim.lr": "interval(0,1)"}, ("mode=test",), "A search trains models"),
        ({"encoder, geometry": [["gru"]]}, (), "needs rows of 2 values"),
    ],
)  # fmt: skip
def test_what_cannot_be_searched(loader, params, words, message):
    with pytest.raises(ConfigError, match=message):
        read(loader, params, *words)


def test_a_condition_that_says_nothing(loader):
    with pytest.raises(ConfigError, match="name a setting and the values with which optim.lr counts"):
        read(loader, {"optim.lr": [1, 2]}, where={"optim.lr": "sometimes"})


@pytest.mark.parametrize("log", [False, True])
def test_whole_numbers_at_the_ends_of_an_interval_are_drawn_as_often(log):
    """On a logarithmic scale: by the logarithms of their halves."""
    interval = Interval(1, 4, log, True)
    drawn = Counter(int(interval.at(k / 10_000)) for k in range(10_001))
    total = math.log(4.5 / 0.5) if log else 4.0
    parts = [math.log((k + 0.5) / (k - 0.5)) if log else 1.0 for k in range(1, 5)]
    assert [drawn[k] / 10_000 for k in range(1, 5)] == pytest.approx([part / total for part in parts], abs=1e-3)
