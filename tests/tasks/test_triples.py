"""Every supported (task, encoder, geometry) trains a step on the task's toy split; the others say what is missing."""

import copy
import functools

import pytest
import torch
from geoopt import ManifoldParameter
from omegaconf import DictConfig, OmegaConf

from configs import checks, composing
from configs.build import build
from configs.errors import ConfigError
from hyperbolic.geometry import GEOMETRIES
from tasks.errors import UserError
from tests.cli import ROOT, toy


def names(group: str) -> list[str]:
    return sorted(file.stem for file in (ROOT / "configs" / group).glob("*.yaml"))


TASKS = [name for name in names("task") if name.endswith("_toy")]
# encoder and geometry: the layer that the papers of the geometry's family do not define
UNSUPPORTED = {
    ("transformer", "poincare"): "the layer family mobius has no MultiHeadAttention; geometries that have it: ",
    ("transformer", "klein"): "the layer family klein has no MultiHeadAttention; geometries that have it: ",
}
composing.register()


def kinds() -> dict[str, list[str]]:
    """The encoders by what they read."""
    by_kind: dict[str, list[str]] = {}
    for name in names("encoder"):
        for kind in checks.readings(OmegaConf.load(ROOT / "configs" / "encoder" / f"{name}.yaml")):
            by_kind.setdefault(kind, []).append(name)
    return by_kind


ENCODERS = kinds()
OF_ONE_ENCODER = {"hype_han": "han"}  # geometries whose parts are components of one encoder alone
PAIRS = [(e, g) for e in ENCODERS["sequences"] + ENCODERS["pairs"] for g in names("geometry")]
BALL = {name for name, (manifold, _) in GEOMETRIES.items() if manifold == "PoincareBall"}
# models of knowledge graphs: the geometries that they are defined with
RELATIONAL = {
    **{name: {"euclidean"} for name in ("transe", "rotate", "distmult", "complex", "tucker", "conve")},
    **{name: set(GEOMETRIES) for name in ("murp", "mure")},
    **{name: {"euclidean", *BALL} for name in ("roth", "rote", "refh", "refe", "atth", "atte")},
    "hybonet": {"lorentz"},
}
FLAT = {name: {"euclidean", "hatt"} for name in ("lstm", "conv_seq2seq")}  # encoders of sequences: the geometries that they are defined with
# of encoders of graphs those that are not defined with all of them; attention has several heads in flat space alone
ON_GRAPHS = {"hybonet_graph": {"lorentz"}, "gat": {"euclidean", "hatt"}}


composed_once = functools.cache(composing.composed)


def composed_of(task: str, encoder: str | None, geometry: str) -> DictConfig:
    """The configuration of a triple: that of the task, with the nodes `encoder` and `geometry` of the other two.

    The files of encoders of knowledge graphs, graphs and translations alone change more than their node, or fit no other
    task, so each is composed with the task.
    """
    relational = encoder in ENCODERS["triples"] + ENCODERS["graphs"] + ENCODERS["translations"]
    cfg = copy.deepcopy(composed_once(f"task={task}", *([f"encoder={encoder}"] if relational else [])))
    if encoder is not None and not relational:
        cfg.encoder = copy.deepcopy(composed_once(f"encoder={encoder}").encoder)
    cfg.geometry = copy.deepcopy(composed_once(f"geometry={geometry}").geometry)
    return cfg


def encoders(task: str) -> list[str | None]:
    """Those that the task's model can have; None for a model that takes no encoder."""
    model = composed_once(f"task={task}").task.model
    takes_one = "encoder" in checks.parameters("task.model", model)
    return [name for kind in checks.encoder_kinds(model) for name in ENCODERS.get(kind, ())] if takes_one else [None]


def supported(encoder: str | None, geometry: str) -> bool:
    if OF_ONE_ENCODER.get(geometry, encoder) != encoder:
        return False
    fitting = (RELATIONAL | FLAT | ON_GRAPHS).get(encoder, names("geometry"))
    return geometry in fitting and (encoder, geometry) not in UNSUPPORTED


TRIPLES = [(t, e, g) for t in TASKS for e in encoders(t) for g in names("geometry") if supported(e, g)]


def marked() -> list:
    """All triples; slow are those whose encoder and task have both been with the geometry before."""
    seen, params = set(), []
    for task, encoder, geometry in TRIPLES:
        pairs = {(encoder, geometry), (task, geometry)}
        params.append(pytest.param(task, encoder, geometry, marks=[pytest.mark.slow] if pairs <= seen else []))
        seen |= pairs
    return params


def test_there_are_triples_and_every_task_has_a_toy_split():
    assert len(TRIPLES) >= 50
    assert {t for t, *_ in TRIPLES} == set(TASKS)
    assert set(UNSUPPORTED) <= set(PAIRS)
    assert set(RELATIONAL) == set(ENCODERS["triples"])
    folders = {file.parent.name for file in (ROOT / "tasks").glob("*/task.py")}
    assert {name.removesuffix("_toy").removesuffix("_nc") for name in TASKS} == folders


def test_every_geometry_of_the_library_has_its_file():
    assert set(names("geometry")) >= set(GEOMETRIES)  # a file may pair a manifold and a family under a new name
    for name, (manifold, layers) in GEOMETRIES.items():
        node = composed_once(f"geometry={name}").geometry
        assert (node.name, node.manifold, node.layers) == (name, manifold, layers)


def train_step(tmp_path, cfg: DictConfig) -> None:
    OmegaConf.update(cfg, "paths", {"data_dir": str(tmp_path), "output_dir": str(tmp_path)})
    if "sizes" in cfg.task.data:
        OmegaConf.update(cfg, "task.data.sizes.train", 64)
    cfg.optim.schedule, cfg.optim.warmup_steps, cfg.optim.d_model = "constant", 0, None
    task, data = build(checks.check(cfg))
    before = {name: p.detach().clone() for name, p in task.model.named_parameters()}
    assert before
    optimizer = task.configure_optimizers()
    for batch, _ in zip(data.train_dataloader(), range(2), strict=False):
        optimizer.zero_grad()
        task.step(batch).loss.backward()
        optimizer.step()
    # toy nodes in the ball are so far from each other that all scores lie at LGCN's bound, where they have no gradient
    has_bound = OmegaConf.select(cfg, "encoder.aggregation.lowest") and cfg.geometry.manifold == "PoincareBall"
    for name, p in task.model.named_parameters():
        assert torch.isfinite(p).all(), name
        may_stay = has_bound and ".aggregation." in name
        assert may_stay or not torch.equal(p, before[name]), f"{name} was not trained"
        if isinstance(p, ManifoldParameter):
            assert p.manifold.check_point_on_manifold(p.detach()), name


@pytest.mark.parametrize(("task", "encoder", "geometry"), marked())
def test_every_triple_trains_a_step(tmp_path, task, encoder, geometry):
    cfg = composed_of(task, encoder, geometry)
    cfg.optim.lr = 0.01
    train_step(tmp_path, cfg)


@pytest.mark.parametrize(
    ("task", "encoder", "geometry"),
    [
        ("kg_completion_toy", "hybonet", "lorentz"),
        ("prefix_toy", "dan_attention", "klein"),
        ("wordnet_subtree_toy", None, "euclidean"),
    ],
)
def test_a_triple_is_what_its_words_compose(task, encoder, geometry):
    chosen = [] if encoder is None else [f"encoder={encoder}"]
    words = (f"task={task}", *chosen, f"geometry={geometry}")
    assert checks.check(composed_of(task, encoder, geometry)) == checks.check(composing.composed(*words))


@pytest.mark.parametrize(("encoder", "geometry"), UNSUPPORTED)
def test_a_pair_that_is_not_supported_is_told_in_one_line(tmp_path, encoder, geometry):
    result = toy(tmp_path, f"encoder={encoder}", f"geometry={geometry}")
    assert result.code == 1
    fitting = [g for e, g in PAIRS if e == encoder and supported(e, g)]
    opening, _, named = result.err.strip().partition(" have it: ")
    assert f"{opening} have it: " == f"error: geometry {geometry}: {UNSUPPORTED[encoder, geometry]}"
    assert sorted(named.split(", ")) == sorted(fitting)


@pytest.mark.parametrize(
    "words",
    [
        ("geometry.parts.classifier=euclidean",),
        ("geometry.parts.ffnn=euclidean", "geometry.parts.classifier=euclidean"),
        ("geometry.parts.sentence=euclidean",),
        ("geometry.parts.ffnn=lorentz_tangent",),
        ("geometry=euclidean", "geometry.c=1", "geometry.parts.classifier=poincare"),
        ("geometry.c=0.1",),
        ("geometry.c=4",),
        ("geometry.learn_c=true",),
        ("encoder.bidirectional=true",),
        ("encoder.nonlinearity=tanh",),
        ("encoder=transformer", "geometry=lorentz_tangent", "encoder.norm=post", "encoder.dropout=0.1"),
        ("encoder=transformer", "geometry.parts.sentence=euclidean", "encoder.norm=none", "encoder.n_heads=5"),
        ("geometry.options.GRU.variant=hypera", "encoder.bidirectional=true"),
        ("encoder=dan", "encoder.linear=false"),
        ("encoder=dan", "task.model.join=plain", "task.model.distance=false"),
        ("encoder=gru_attention", "encoder.combine=mean", "encoder.reader.bidirectional=true"),
        ("encoder=dan_attention", "geometry=euclidean", "encoder.norm=none"),
        ("encoder=gru_attention", "geometry.parts.sentence=euclidean", "task.model.join=plain"),
        ("optim=hnn",),
        ("optim.rule=sgd", "optim.exact_exp=false"),
    ],
)
def test_mixtures_and_options_train_a_step(tmp_path, words):
    train_step(tmp_path, composing.composed("task=prefix_toy", *words))


def refused() -> list:
    """The relational models with the geometries that they refuse; all but one of each model are slow."""
    pairs = []
    for k, encoder in enumerate(RELATIONAL):
        others = [g for g in ("euclidean", "lorentz", "lorentz_tangent", "klein") if not supported(encoder, g)]
        for i, name in enumerate(others):
            pairs.append(pytest.param(encoder, name, marks=[] if i == k % len(others) else [pytest.mark.slow]))
    return pairs


@pytest.mark.parametrize(("encoder", "geometry"), refused())
def test_a_relational_model_that_is_not_supported_is_told_in_one_line(encoder, geometry):
    """Those that are supported train a step above."""
    values = checks.check(composed_of("kg_completion_toy", encoder, geometry))
    with pytest.raises(UserError, match=f"geometry={geometry}.*choose geometry="):
        build(values)


@pytest.mark.parametrize(
    "words",
    [
        *((f"geometry.parts.{part}=euclidean",) for part in ("encoder", "attention", "concat", "classifier")),
        ("geometry=euclidean", "geometry.c=1", "geometry.parts.encoder=lorentz"),
        ("geometry.learn_c=true",),
        ("fidelity=code",),
        ("task.module.objective=bce", "task.model.hyfi.nonlinearity=null"),
        ("encoder=transformer", "geometry=lorentz", "geometry.parts.classifier=lorentz_tangent"),
        ("encoder=transformer", "geometry=euclidean", "task.model.design=hyfi"),
        ("task/model=multitask", "geometry=euclidean"),
        ("task/model=labelgcn", "geometry=euclidean"),
    ],
)
def test_mixtures_and_options_of_entity_typing_train_a_step(tmp_path, words):
    train_step(tmp_path, composing.composed("task=entity_typing_toy", *words))


@pytest.mark.parametrize(
    "words",
    [
        ("geometry.c=0.5",),
        ("geometry.c=2", "encoder.max_norm=null"),
        ("task.model.sparse=true",),
        ("task.model.sparse=true", "task.module.pool=20"),
        ("task.model.sparse=true", "task.module.objective=cross_entropy", "task.module.regulariser=0.1"),
        ("task.module.objective=cross_entropy", "task.module.negatives=null"),
        ("task.module.objective=self_adversarial", "encoder=rotate"),
        ("task.module.objective=all_bce", "task.data.examples=queries", "encoder=tucker"),
        ("task.data.reciprocal=false", "task.module.corrupt=both"),
        ("task.data.reciprocal=false", "task.module.corrupt=both", "encoder=transe"),
        ("fidelity=code",),
    ],
)
def test_options_of_knowledge_graphs_train_a_step(tmp_path, words):
    train_step(tmp_path, composing.composed("task=kg_completion_toy", *words))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("task=prefix_toy", "encoder=murp"),
            "task=prefix_toy needs an encoder of sequences or pairs, and the one chosen is of triples; take "
            f"encoder={' or '.join(sorted(ENCODERS['sequences'] + ENCODERS['pairs']))}.",
        ),
        (
            ("task=entity_typing_toy", "encoder=gru_attention"),
            "task=entity_typing_toy needs an encoder of sequences, and the one chosen is of pairs; take "
            f"encoder={' or '.join(ENCODERS['sequences'])}.",
        ),
        (
            ("task=prefix_toy", "encoder=gru_attention", "+encoder.reader.cel=rnn"),
            "There is no key encoder.reader.cel. Did you mean cell?",
        ),
        (
            ("task=prefix_toy", "encoder=dan_attention", "encoder.reader.linear=3"),
            "encoder.reader.linear=3: true or false is needed here.",
        ),
    ],
)
def test_an_encoder_that_does_not_fit_is_told(words, said):
    with pytest.raises(ConfigError) as caught:
        checks.check(composing.composed(*words))
    assert said in str(caught.value)
