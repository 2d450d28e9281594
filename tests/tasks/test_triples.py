"""Every supported (task, encoder, geometry) trains a step on the task's toy split; the others say what is missing."""

import pytest
import torch
from geoopt import ManifoldParameter

import run
from configs import schema
from hyperbolic.geometry import GEOMETRIES
from tests.cli import ROOT, toy


def names(group: str) -> list[str]:
    return sorted(file.stem for file in (ROOT / "configs" / group).glob("*.yaml"))


TASKS = [name for name in names("task") if name.endswith("_toy")]
# encoder and geometry: the layer that the papers of the geometry's family do not define
UNSUPPORTED = {
    ("transformer", "poincare"): "the layer family mobius has no MultiHeadAttention; geometries that have it: ",
    ("transformer", "klein"): "the layer family klein has no MultiHeadAttention; geometries that have it: ",
}
PAIRS = [(e, g) for e in names("encoder") for g in names("geometry")]
schema.register()


def encoders(task: str) -> list[str | None]:
    """Those that the task's model can have; None for a model that takes no encoder."""
    takes_one = "encoder" in schema.parameters("task.model", schema.composed(f"task={task}").task.model)
    return names("encoder") if takes_one else [None]


TRIPLES = [
    (t, e, g) for t in TASKS for e in encoders(t) for g in names("geometry") if (e, g) not in UNSUPPORTED
]  # fmt: skip


def test_there_are_triples_and_every_task_has_a_toy_split():
    assert len(TRIPLES) >= 50
    assert {t for t, *_ in TRIPLES} == set(TASKS)
    assert set(UNSUPPORTED) <= set(PAIRS)
    folders = {file.parent.name for file in (ROOT / "tasks").glob("*/task.py")}
    assert {name.removesuffix("_toy") for name in TASKS} == folders


def test_every_geometry_of_the_library_has_its_file():
    assert set(names("geometry")) == set(GEOMETRIES)
    for name, (manifold, layers) in GEOMETRIES.items():
        node = schema.composed(f"geometry={name}").geometry
        assert (node.name, node.manifold, node.layers) == (name, manifold, layers)


def train_step(tmp_path, *words: str) -> None:
    values = schema.check(schema.composed(*words, f"paths.data_dir={tmp_path}", f"paths.output_dir={tmp_path}", "task.data.sizes.train=64"))
    task, data = run.build(values)
    before = {name: p.detach().clone() for name, p in task.model.named_parameters()}
    assert before
    optimizer = task.configure_optimizers()
    for batch, _ in zip(data.train_dataloader(), range(2), strict=False):
        optimizer.zero_grad()
        task.step(batch).loss.backward()
        optimizer.step()
    for name, p in task.model.named_parameters():
        assert torch.isfinite(p).all(), name
        assert not torch.equal(p, before[name]), f"{name} was not trained"
        if isinstance(p, ManifoldParameter):
            assert p.manifold.check_point_on_manifold(p.detach()), name


@pytest.mark.parametrize(("task", "encoder", "geometry"), TRIPLES)
def test_every_triple_trains_a_step(tmp_path, task, encoder, geometry):
    chosen = [] if encoder is None else [f"encoder={encoder}"]
    train_step(tmp_path, f"task={task}", *chosen, f"geometry={geometry}", "optim.lr=0.01")


@pytest.mark.parametrize(("encoder", "geometry"), UNSUPPORTED)
def test_a_pair_that_is_not_supported_is_told_in_one_line(tmp_path, encoder, geometry):
    result = toy(tmp_path, f"encoder={encoder}", f"geometry={geometry}")
    assert result.code == 1
    supported = [g for e, g in PAIRS if e == encoder and (e, g) not in UNSUPPORTED]
    opening, _, named = result.err.strip().partition(" have it: ")
    assert f"{opening} have it: " == f"error: geometry {geometry}: {UNSUPPORTED[encoder, geometry]}"
    assert sorted(named.split(", ")) == sorted(supported)


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
        ("optim=hnn",),
        ("optim.rule=sgd", "optim.exact_exp=false"),
    ],
)
def test_mixtures_and_options_train_a_step(tmp_path, words):
    train_step(tmp_path, "task=prefix_toy", *words)


@pytest.mark.parametrize(
    "words",
    [
        *((f"geometry.parts.{part}=euclidean",) for part in ("encoder", "attention", "concat", "classifier")),
        ("geometry=euclidean", "geometry.c=1", "geometry.parts.encoder=lorentz"),
        ("geometry.learn_c=true",),
        ("fidelity=code",),
        ("task.module.objective=bce", "task.model.nonlinearity=null"),
        ("encoder=transformer", "geometry=lorentz", "geometry.parts.classifier=lorentz_tangent"),
        ("encoder=transformer", "geometry=euclidean", "task.model.design=hyfi"),
        ("task/model=multitask", "geometry=euclidean"),
        ("task/model=labelgcn", "geometry=euclidean"),
    ],
)
def test_mixtures_and_options_of_entity_typing_train_a_step(tmp_path, words):
    train_step(tmp_path, "task=entity_typing_toy", *words)
