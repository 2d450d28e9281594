"""Every experiment is what its name says, and those of a table differ in nothing else."""

import re

import pytest
import yaml

from configs import schema
from tests.cli import ROOT
from tests.configurations import CONFIGS, EXPERIMENTS, experiment


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    schema.register()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_a_flat_file_that_says_what_it_stands_for(name):
    text = (CONFIGS / "experiment" / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# @package _global_\n")
    assert f"python run.py experiment={name}" in text
    assert "# Expected: " in text
    values = experiment(name)
    if name.startswith("hnn_") and not name.startswith("hnn_subtree_"):
        found = re.fullmatch(r"hnn_(prefix\d\d|snli)(_small)?_(rnn|gru)_(eucl|hyp_eucl_mlr|hyp)", name)
        task, small, cell, geometry = found.groups()
        assert values["paper"]["variant"] == ("snli_small" if small else None)
        assert values["task"]["name"] == task
        assert values["encoder"]["cell"] == cell
        assert values["geometry"]["name"] == ("euclidean" if geometry == "eucl" else "poincare")
        assert values["geometry"]["parts"] == ({"classifier": "euclidean"} if geometry == "hyp_eucl_mlr" else {})
        assert values["paper"]["column"] == ("SNLI" if task == "snli" else f"PREFIX-{task[-2:]}")
        assert cell.upper() in values["paper"]["row"]


def test_the_published_numbers_are_those_of_the_table():
    table = yaml.safe_load((ROOT / "results" / "published" / "hnn_table1.yaml").read_text(encoding="utf-8"))
    cells = set()
    for name in EXPERIMENTS:
        paper = experiment(name)["paper"]
        if paper and (paper["name"], paper["table"]) == ("hnn", 1):
            column = table["columns"].index(paper["column"])
            assert paper["published"] == pytest.approx(table["rows"][paper["row"]][column])
            assert paper["metric"] == table["metric"]
            cells.add((paper["row"], paper["column"]))
    assert len(cells) == 24, "every cell of the table has its experiment"


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("multinli_report_")])
def test_an_experiment_of_the_report_is_what_its_name_says(name):
    found = re.fullmatch(r"multinli_report_(small_)?(dan|gru|gru_attention)_(eucl|hyp)", name)
    small, encoder, geometry = found.groups()
    values = experiment(name)
    size = 100 if geometry == "eucl" else 5
    assert values["task"]["name"] == "multinli"
    assert values["geometry"]["name"] == ("euclidean" if geometry == "eucl" else "poincare")
    assert {values["task"]["model"][key] for key in ("d_word", "d_hidden", "d_ffnn")} == {size}
    assert values["paper"]["column"] == ("Euclidean" if geometry == "eucl" else "Hyperbolic")
    assert values["paper"]["row"] == {"dan": "DAN", "gru": "GRU", "gru_attention": "GRU+Attention"}[encoder]
    assert ("reader" in values["encoder"]) == (encoder == "gru_attention")
    assert values["encoder"].get("norm") == {"gru_attention": "none" if geometry == "eucl" else "key"}.get(encoder)
    assert values["paper"]["variant"] == ("small" if small else None)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("hnn_subtree_")])
def test_a_subtree_experiment_is_what_its_name_says(name):
    root, d, kind = re.fullmatch(r"hnn_subtree_(animal|group|worker|mammal)_d(2|3|5|10)_(hyp|eucl|log0)", name).groups()
    values = experiment(name)
    task, paper = values["task"], values["paper"]
    assert (task["name"], task["data"]["subtree"], task["data"]["dim"]) == ("wordnet_subtree", f"{root}.n.01", int(d))
    assert task["data"]["embeddings"].endswith(f"/embeddings/wordnet_nouns-poincare-{d}d.npz")
    assert values["geometry"]["name"] == ("euclidean" if kind == "eucl" else "poincare")
    assert values["geometry"]["parts"] == ({"classifier": "euclidean"} if kind == "log0" else {})
    assert (paper["row"], paper["column"]) == (f"{root}.n.01, {kind.upper()}", f"D = {d}")


def test_the_subtree_experiments_differ_in_the_learning_rate_of_a_classifier_alone():
    names = [name for name in EXPERIMENTS if name.startswith("hnn_subtree_")]
    assert len(names) == 48
    rates, others = {}, []
    for name in names:
        values = experiment(name)
        rates.setdefault(name.rpartition("_")[2], set()).add(values["optim"]["lr"])
        data = {**values["task"]["data"], "subtree": None, "dim": None, "embeddings": None}
        shared = {**values["task"], "root": None, "dim": None, "embeddings": None, "data": data}
        others.append((shared, {**values["optim"], "lr": None}, values["trainer"]))
    assert all(other == others[0] for other in others)
    assert {kind: len(found) for kind, found in rates.items()} == {"hyp": 1, "eucl": 1, "log0": 1}


GRAPHS = [name for name in EXPERIMENTS if name.startswith(("hybonet_wn18rr", "hybonet_fb15k237"))]
TYPING = [name for name in EXPERIMENTS if name.startswith(("hyfi_", "hybonet_")) and name not in GRAPHS]
PARTS = {"encoder": "encoder", "attention": "attention", "concat": "concat", "mlr": "classifier"}


@pytest.mark.parametrize("name", TYPING)
def test_a_typing_experiment_is_what_its_name_says(name):
    paper, data, what = name.split("_", 2)
    values = experiment(name)
    baseline = what if what in ("labelgcn", "multitask") else None
    task = "ultrafine" if data == "crowd" else data
    assert values["task"]["name"] == (f"{task}_{baseline}" if baseline and task == "ultrafine" else task)
    network = {None: "EntityTyper", "labelgcn": "LabelGCN", "multitask": "MultiTask"}[baseline]
    assert values["task"]["model"]["_target_"].endswith(f".{network}")
    assert values["paper"]["name"] == paper
    assert values["paper"]["variant"] == ("crowd" if data == "crowd" else None)
    parts = {}
    if paper == "hybonet":
        assert values["encoder"]["_target_"].endswith("TransformerEncoder")
        geometry = {"lorentz": "lorentz", "tangent": "lorentz_tangent"}[what]
    elif baseline:
        geometry = "euclidean"
    else:
        first, last = what.split("_")
        assert values["encoder"]["cell"] == "gru"
        size = first if first in ("base", "large", "xlarge") else "base"
        assert values["task"]["size"] == size
        assert values["task"]["model"]["s"] == {"base": 20, "large": 50, "xlarge": 100}[size]
        geometry = "euclidean" if last == "eucl" and first not in PARTS else "poincare"
        if first in PARTS:
            parts = {PARTS[first]: "euclidean"}
        if what == "xlarge_hyp":  # the paper's appendix F
            parts = {"encoder": "euclidean"}
    assert values["geometry"]["name"] == geometry
    assert values["geometry"]["parts"] == parts


@pytest.mark.parametrize("name", [name for name in TYPING if "_ultrafine_" in name])
def test_the_full_protocol_refuses_to_run_on_a_part_of_the_data(name):
    values = experiment(name)
    assert values["task"]["data"]["sources"] == ["crowd", "el", "headword"]
    (pattern,) = values["task"]["data"]["vectors"]["files"]
    plain = "_glove_" in name or name.endswith(("_labelgcn", "_multitask"))
    assert pattern.startswith("glove/" if plain else "poincare_glove/")


@pytest.mark.parametrize("size", ["base", "large", "xlarge"])
def test_the_full_protocol_has_the_values_of_table_8(size):
    values = experiment(f"hyfi_ultrafine_{size}_hyp")
    data, model, optim, trainer = values["task"]["data"], values["task"]["model"], values["optim"], values["trainer"]
    assert data["batch_size"] == {"base": 900, "large": 350, "xlarge": 160}[size]
    assert data["crowd_cycles"] == 5
    assert (model["input_dropout"], model["concat_dropout"], model["hyfi"]["nonlinearity"]) == (0.2, 0.1, "tanh")
    assert (optim["rule"], optim["lr"], optim["weight_decay"], optim["max_grad_norm"]) == ("adam", 0.0005, 0.0, 5)
    assert (trainer["max_epochs"], trainer["precision"]) == (40, "64-true")


def test_the_crowd_experiments_share_data_optimiser_and_length():
    names = [name for name in TYPING if "_crowd_" in name]
    assert len(names) == 10
    values = [experiment(name) for name in names]
    assert all(other["trainer"] == values[0]["trainer"] for other in values)
    for paper in ("hyfi", "hybonet"):
        rates = [value["optim"] for name, value in zip(names, values, strict=True) if name.startswith(paper)]
        assert len(rates) > 1
        assert all(other == rates[0] for other in rates)
    data = [{**other["task"]["data"], **other["task"]["data"]["vectors"], "vectors": None} for other in values]
    for key in sorted(set(data[0]) - {"c"}):  # chosen on the dev split
        assert all(other[key] == data[0][key] for other in data), key
    assert values[0]["task"]["data"]["sources"] == ["crowd"]
