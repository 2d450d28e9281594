"""Every experiment is what its name says: a model of a paper on a data set."""

import math
import re

import pytest
import yaml

from configs import composing
from tests.configurations import CONFIGS, EXPERIMENTS, checked, experiment


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    composing.register()


def source(name: str) -> str:
    return (CONFIGS / "experiment" / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_a_flat_file_that_says_what_it_stands_for(name):
    text = source(name)
    assert text.startswith("# @package _global_\n")
    assert f"python run.py experiment={name}" in text
    assert "# Expected: " in text
    values = experiment(name)
    if name.startswith(("hnn_prefix10_", "hnn_snli_")):
        task, cell, geometry = re.fullmatch(r"hnn_(prefix10|snli)_(rnn|gru)_(eucl|hyp_eucl_mlr|hyp)", name).groups()
        assert values["task"]["name"] == task
        assert values["encoder"]["cell"] == cell
        assert values["geometry"]["name"] == ("euclidean" if geometry == "eucl" else "poincare")
        assert values["geometry"]["parts"] == ({"classifier": "euclidean"} if geometry == "hyp_eucl_mlr" else {})


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_published_values_stand_in_the_tables_alone(name):
    assert "paper" not in yaml.safe_load(source(name))
    assert not re.search(r"the (paper|report) has \d", source(name))


def test_experiments_are_rows_and_not_cells():
    assert not list((CONFIGS / "experiment").rglob("*/*.yaml")), "a glob over nested folders runs nothing"
    assert len(EXPERIMENTS) <= 120
    assert sum(len(source(name).splitlines()) for name in EXPERIMENTS) <= 15 * len(EXPERIMENTS)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name.startswith("multinli_report_")])
def test_an_experiment_of_the_report_is_what_its_name_says(name):
    encoder, geometry = re.fullmatch(r"multinli_report_(dan|gru|gru_attention)_(eucl|hyp)", name).groups()
    values = experiment(name)
    size = 100 if geometry == "eucl" else 5
    assert values["task"]["name"] == "multinli"
    assert values["geometry"]["name"] == ("euclidean" if geometry == "eucl" else "poincare")
    assert {values["task"]["model"][key] for key in ("d_word", "d_hidden", "d_ffnn")} == {size}
    assert ("reader" in values["encoder"]) == (encoder == "gru_attention")
    assert values["encoder"].get("norm") == {"gru_attention": "none" if geometry == "eucl" else "key"}.get(encoder)


@pytest.mark.parametrize("words", [("optim=hnn", "trainer=hnn"), ("optim=hnn", "trainer=hnn", "optim.lr=0.001")])
def test_the_way_of_the_paper_is_a_choice(words):
    """The second is of an experiment with a learning rate of its own, which its header says how to take back."""
    values = checked(f"experiment=hnn_prefix10_gru_{'hyp' if len(words) == 2 else 'eucl'}", *words)
    assert values["optim"] == checked("optim=hnn")["optim"]
    optim = values["optim"]
    assert (optim["clip"], optim["max_grad_norm"], optim["stabilize"]) == ("tensor", 1.0, None)
    assert [(optim[part]["rule"], optim[part]["lr"]) for part in ("embeddings", "biases")] == [("sgd", 0.1), ("sgd", 0.01)]
    assert (values["trainer"]["max_epochs"], values["trainer"]["precision"]) == (30, "64-true")


GRAPHS = [name for name in EXPERIMENTS if name.startswith(("hybonet_wn18rr", "hybonet_fb15k237", "hybonet_graph"))]
PROBING = [name for name in EXPERIMENTS if name.startswith("hybonet_probing_")]
AUTHORS = [name for name in EXPERIMENTS if "_authors_" in name]
TRANSLATION = [name for name in EXPERIMENTS if name.startswith(("hybonet_multi30k_", "hybonet_translation_"))]
TYPING = [
    name
    for name in EXPERIMENTS
    if name.startswith(("hyfi_", "hybonet_")) and name not in GRAPHS + PROBING + TRANSLATION
]


def test_ontonotes_has_its_papers_objective_and_no_crowd():
    task = checked("task=ontonotes")["task"]
    assert (task["module"]["objective"], task["data"]["crowd_cycles"], task["data"]["untyped"]) == ("bce", 0, "fault")
    assert checked("task=ultrafine")["task"]["module"]["objective"] == "multitask"


def test_the_row_of_rotate_has_the_settings_of_its_paper():
    rotate = experiment("hybonet_wn18rr_rotate")
    assert (rotate["encoder"]["d"], rotate["encoder"]["margin"], rotate["task"]["module"]["negatives"]) == (1000, 6.0, 256)
    assert rotate["task"]["data"]["known"]["test"] == ["train", "dev", "test"]


@pytest.mark.parametrize("name", TYPING)
def test_a_typing_experiment_is_what_its_name_says(name):
    paper, data, model = name.split("_", 2)
    values = experiment(name)
    baseline = model if model in ("labelgcn", "multitask") else None
    task = "ultrafine" if data == "crowd" else data
    assert values["task"]["name"] == (f"{task}_{baseline}" if baseline and task == "ultrafine" else task)
    network = {None: "EntityTyper", "labelgcn": "LabelGCN", "multitask": "MultiTask"}[baseline]
    assert values["task"]["model"]["_target_"].endswith(f".{network}")
    assert values["geometry"]["parts"] == {}
    if paper == "hybonet":
        assert values["encoder"]["_target_"].endswith("TransformerEncoder")
        assert values["geometry"]["name"] == "lorentz"
        forms = {layer.get("variant") for layer in values["geometry"]["options"].values()}
        assert forms == {"lorentz": set(), "tangent": {"tangent"}}[model]
    elif baseline:
        assert (values["encoder"], values["geometry"]["name"]) == (None, "euclidean")
    else:
        assert values["encoder"]["cell"] == "gru"
        assert values["geometry"]["name"] == {"base_hyp": "poincare", "base_eucl": "euclidean"}[model]


@pytest.mark.parametrize("name", [name for name in TYPING if "_ultrafine_" in name])
def test_the_full_protocol_refuses_to_run_on_a_part_of_the_data(name):
    values = experiment(name)
    assert values["task"]["data"]["sources"] == ["crowd", "el", "headword"]
    (pattern,) = values["task"]["data"]["vectors"]["files"]
    assert pattern.startswith("glove/" if name.endswith(("_labelgcn", "_multitask")) else "poincare_glove/")


@pytest.mark.parametrize("size", ["base", "large", "xlarge"])
def test_the_full_protocol_has_the_values_of_table_8(size):
    values = checked("experiment=hyfi_ultrafine_base_hyp", f"task.size={size}")
    data, model, optim, trainer = values["task"]["data"], values["task"]["model"], values["optim"], values["trainer"]
    assert data["batch_size"] == {"base": 900, "large": 350, "xlarge": 160}[size]
    assert data["crowd_cycles"] == 5
    assert model["s"] == {"base": 20, "large": 50, "xlarge": 100}[size]
    assert (model["input_dropout"], model["concat_dropout"], model["hyfi"]["nonlinearity"]) == (0.2, 0.1, "tanh")
    assert (optim["rule"], optim["lr"], optim["weight_decay"], optim["max_grad_norm"]) == ("adam", 0.0005, 0.0, 5)
    assert (trainer["max_epochs"], trainer["precision"]) == (40, "64-true")


def test_the_crowd_experiments_share_data_optimiser_and_length():
    names = [name for name in TYPING if "_crowd_" in name]
    assert len(names) == 6
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


@pytest.mark.parametrize("name", AUTHORS)
def test_a_model_has_the_settings_of_its_authors_program(name):
    """The scripts of KGEmb (Chami et al. 2020) for RotH and RotE, d 32, and the defaults of MuRP's program."""
    data, model = re.fullmatch(r"hybonet_(wn18rr|fb15k237)_authors_(\w+)", name).groups()
    values = experiment(name)
    task, optim, trainer = values["task"], values["optim"], values["trainer"]
    wordnet, murp = data == "wn18rr", model in ("murp", "mure")
    assert (task["name"], values["encoder"]["d"], values["encoder"]["init_std"]) == (data, 32, 1e-3)
    rules = {("sgd", True): 50, ("sgd", False): 10, ("adam", True): 0.001, ("adagrad", False): 0.05}
    rule = "sgd" if murp else "adam" if wordnet else "adagrad"
    assert (optim["rule"], optim["lr"], optim["max_grad_norm"]) == (rule, rules[rule, wordnet], None)
    assert (optim["momentum"], optim["weight_decay"], optim["schedule"]) == (0.0, 0.0, "constant")
    short = model == "rote" and wordnet
    assert task["data"]["batch_size"] == (128 if murp else 100 if short else 500)
    assert (task["data"]["known_in_training"], task["data"]["reciprocal"]) == ([], True)
    assert (task["module"]["negatives"], task["module"]["double_neg"]) == (50, wordnet and not murp)
    patience = None if murp else 15 if wordnet else 10
    epochs = 500 if murp else 200 if short else 300
    assert (trainer["max_epochs"], trainer["check_val_every_n_epoch"], trainer["patience"]) == (epochs, 5, patience)
    if values["geometry"]["name"] == "poincare":
        assert values["geometry"]["c"] == pytest.approx(1.0 if murp else math.log1p(math.e), rel=1e-15)


@pytest.mark.parametrize("name", PROBING)
def test_a_probing_experiment_is_what_its_name_says(name):
    values = experiment(name)
    assert (values["task"]["name"], values["task"]["states"]) == ("probing", name.rpartition("_")[2])
    assert values["geometry"]["name"] == "lorentz", "the paper probes all models in hyperbolic space"
    iwslt = name.startswith("hybonet_probing_iwslt_")
    assert (values["task"]["model"]["d"], values["optim"]["lr"]) == (64, 5e-5 if iwslt else 5e-4)
    assert values["task"]["data"]["folder"].endswith("/iwslt14_trees" if iwslt else "/ud_english_ewt")
    assert values["optim"]["weight_decay"] == (1e-6 if name.endswith("_hatt") else 0.0)
    if iwslt:  # Table 12
        batch = 64 if name.endswith("_euclidean") else 32
        assert (values["task"]["data"]["batch_size"], values["trainer"]["max_steps"]) == (batch, 20_000)


@pytest.mark.parametrize("name", TRANSLATION)
def test_a_translation_experiment_is_what_its_name_says(name):
    data, model = re.fullmatch(r"hybonet_(multi30k|translation)_(\w+)", name).groups()
    values = experiment(name)
    convolutional = model == "conv_seq2seq"
    assert values["task"]["name"] == {"multi30k": "multi30k", "translation": "iwslt14"}[data]
    assert values["encoder"]["_target_"].endswith(".ConvSeq2Seq" if convolutional else ".TransformerEncoder")
    assert values["geometry"]["name"] == ("euclidean" if convolutional else model)
    assert values["task"]["model"]["d"] == 64


@pytest.mark.parametrize(
    ("task", "size", "fidelity", "expected"),
    [
        ("iwslt14", "64", "paper", (8000, 5.0, 0.5, 100, 20480)),
        ("iwslt14", "64", "code", (6000, 5.0, 0.5, 256, 81920)),
        ("wmt14", "64", "paper", (6000, 5.0, 0.5, 100, 81920)),
        ("wmt14", "128", "paper", (6000, 5.0, 0.5, 100, 81920)),
        ("wmt14", "256", "paper", (6000, 5.0, 0.5, 100, 81920)),
        ("wmt14", "64", "code", (8000, 4.0, 0.5, 256, 96000)),
        ("wmt14", "128", "code", (8000, 4.0, 1.0, 256, 96000)),
        ("wmt14", "256", "code", (8000, 5.0, 1.0, 256, 96000)),
        ("wmt14", "base", "code", (8000, 5.0, 1.0, 256, 96000)),
    ],
)
def test_translations_follow_table_11_or_the_programs_scripts(task, size, fidelity, expected):
    """expected: steps of warm-up, factor of the rate, gradient norm, pieces of a sentence and of a batch's two sides."""
    values = checked(f"task={task}", f"task.size={size}", f"fidelity={fidelity}")
    optim, data, encoder = values["optim"], values["task"]["data"], values["encoder"]
    found = tuple(optim[key] for key in ("warmup_steps", "lr", "max_grad_norm"))
    assert (*found, data["max_length"], data["batch_tokens"]) == expected
    code, iwslt = fidelity == "code", task == "iwslt14"
    assert (optim["schedule"], optim["clip"]) == ("noam", "global")
    assert (encoder["dropout"], encoder["attention_dropout"]) == ((0.0, 0.0 if code else 0.1) if iwslt else (0.1, 0.0))
    attention = values["task"]["model"]["layers"]["lorentz"]["MultiHeadAttention"]
    dropped = {"variant": "mt", "input_dropout": 0.1 if iwslt else 0.0, "temperature": "learned"}
    assert attention == (dropped if code else {"temperature": "head"})
    assert values["task"]["module"]["label_smoothing"] == (0.0 if code else 0.1)
    assert values["trainer"]["max_steps"] == (40_000 if iwslt else 200_000)
    search = values["task"]["module"]["search"]
    assert (search["beam_size"], search["alpha"]) == (4, 1.0 if iwslt else 0.6)


@pytest.mark.long
def test_translations_have_a_nearly_flat_ball():
    """With c = 1 points of HNN++'s Transformer, which has no norms, run to the boundary."""
    assert experiment("hybonet_translation_poincare_pp")["geometry"]["c"] == 0.01
    assert checked("task=multi30k", "geometry=poincare_pp")["geometry"]["c"] == 0.01
    assert checked("task=iwslt14", "geometry=lorentz")["geometry"]["c"] == 1.0
    assert checked("task=prefix_toy", "geometry=poincare_pp")["geometry"]["c"] == 1.0


@pytest.mark.long
def test_the_experiments_on_multi30k_have_one_budget():
    """They differ in the geometry and in the learning rate, which is chosen on the dev split."""
    values = [experiment(name) for name in TRANSLATION if name.startswith("hybonet_multi30k_")]
    assert len({value["geometry"]["name"] for value in values}) == 3
    for other in values[1:]:
        assert (other["task"]["data"], other["encoder"]) == (values[0]["task"]["data"], values[0]["encoder"])
        assert {**other["optim"], "lr": None} == {**values[0]["optim"], "lr": None}
        assert other["trainer"] == values[0]["trainer"]


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("encoder", "expected"),
    [("hybonet_graph", (0.9, 0.02, 0.01, 1.0)), ("gcn", (0.5, 0.01, 0.0005, None))],
)
def test_cora_has_the_settings_of_table_10_and_of_kipf_and_welling(encoder, expected):
    optim = "graph" if encoder == "hybonet_graph" else "graph_others"
    values = checked("task=cora_nc", f"encoder={encoder}", f"optim={optim}")
    dropout, optim = values["encoder"]["dropout"], values["optim"]
    assert (dropout, optim["lr"], optim["weight_decay"], optim["max_grad_norm"]) == expected
    assert values["task"]["module"]["margin"] == 1.0
