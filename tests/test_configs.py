"""Every configuration composes and fits the classes it names; a typo anywhere is an error that names the key."""

from collections.abc import Sequence

import pytest
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from configs import checks, composing, errors, files, kinds
from configs.errors import ConfigError
from hyperbolic.manifolds import Manifold
from tests.configurations import CONFIGS, EXPERIMENTS, GROUPS, OPTIONS, checked


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    composing.register()


def encoder_kind(name: str) -> str:
    return checks.encoder_kind(OmegaConf.load(CONFIGS / "encoder" / f"{name}.yaml"))


def test_the_options_are_found():
    assert {group for group, _ in OPTIONS} == set(GROUPS)
    assert len(EXPERIMENTS) >= 19


@pytest.mark.parametrize(("group", "name"), [option for option in OPTIONS if option[0] != "experiment"])
def test_every_option_composes_and_fits_its_class(group, name):
    """Experiments are composed in tests/test_experiments.py."""
    # a task that gives an encoder what it reads
    tasks = {
        "triples": ["task=wn18rr"],
        "documents": ["task=agnews"],
        "graphs": ["task=airport_lp"],
        "translations": ["task=translation_toy"],
    }
    values = checked(f"{group}={name}", *(tasks.get(encoder_kind(name), []) if group == "encoder" else []))
    if group in ("task", "geometry"):
        assert values[group]["name"] == name


def test_one_component_takes_another_geometry_without_a_plus():
    assert checked("geometry.parts.classifier=euclidean")["geometry"]["parts"] == {"classifier": "euclidean"}


def test_fidelity_picks_what_paper_and_code_do_differently():
    assert checked()["task"]["data"]["shuffle"] == "examples"
    assert checked("fidelity=code")["task"]["data"]["shuffle"] == "batches"


@pytest.mark.parametrize("task", ["wn18rr", "fb15k237"])
@pytest.mark.parametrize(("fidelity", "drop_last", "norm"), [("paper", False, 0.5), ("code", True, 1.0)])
def test_hybonets_script_clips_less_and_drops_the_last_batch(task, fidelity, drop_last, norm):
    values = checked(f"task={task}", f"fidelity={fidelity}")
    assert (values["task"]["data"]["drop_last"], values["optim"]["max_grad_norm"]) == (drop_last, norm)


@pytest.mark.parametrize(
    ("fidelity", "join", "combine", "layers"),
    [("paper", "mobius", "sum", {}), ("code", "hypera", "mean", {"mobius": {"GRU": {"variant": "hypera"}, "RNN": {"margin": 0.0}}})],
)
def test_multinli_follows_the_report_or_its_program(fidelity, join, combine, layers):
    values = checked("task=multinli", "encoder=gru_attention", f"fidelity={fidelity}")
    assert (values["task"]["model"]["join"], values["task"]["model"]["layers"]) == (join, layers)
    assert values["encoder"]["combine"] == combine
    assert checked("task=prefix10", "encoder=gru_attention", f"fidelity={fidelity}")["encoder"]["combine"] == "sum"


@pytest.mark.parametrize(
    ("fidelity", "midpoint", "last", "temperature"),
    [("paper", "encoder", "context", "head"), ("code", "attention", "characters", "learned")],
)
def test_typing_follows_the_paper_or_the_program(fidelity, midpoint, last, temperature):
    design = checked("task=ultrafine", f"fidelity={fidelity}")["task"]["model"]
    assert (design["hyfi"]["midpoint"], design["hyfi"]["order"][-1]) == (midpoint, last)
    assert design["hybonet"]["layers"]["lorentz"]["MultiHeadAttention"]["temperature"] == temperature


def test_the_paths_can_be_moved_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HYPERBOLIC_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HYPERBOLIC_CACHE", str(tmp_path / "cache"))
    assert checked("task=snli")["task"]["data"]["folder"] == f"{tmp_path}/data/snli"
    assert checked()["task"]["data"]["root"] == f"{tmp_path}/cache/prefix"
    monkeypatch.delenv("HYPERBOLIC_DATA")
    monkeypatch.delenv("HYPERBOLIC_CACHE")
    assert checked("task=snli")["task"]["data"]["folder"] == "data/snli"
    assert checked()["task"]["data"]["root"] == "outputs/.cache/prefix", "a data folder may be shared, and read only"


def test_the_environment_chooses_kernels_unless_the_command_does(monkeypatch):
    monkeypatch.delenv("HYPERBOLIC_KERNELS", raising=False)
    assert checked()["trainer"]["kernels"] == "fast"
    monkeypatch.setenv("HYPERBOLIC_KERNELS", "plain")
    assert checked()["trainer"]["kernels"] == "plain"
    assert checked("trainer.kernels=fast")["trainer"]["kernels"] == "fast"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("task=prefix11", "There is no task named prefix11. Did you mean prefix10"),
        ("geometry=poincar", "There is no geometry named poincar. Did you mean poincare"),
        ("experiment=nothing", "python run.py --help lists"),
        ("geometri=poincare", "There is no key geometri. Did you mean geometry"),
        ("otpim.lr=1", "There is no key otpim. Did you mean optim"),
        ("optim.lrr=1", "There is no key optim.lrr. Did you mean optim.lr?"),
        ("optim.lr=fast", "optim.lr=fast: a number is needed here"),
        ("optim.embeddings.lrr=1", "Did you mean optim.embeddings.lr?"),
        ("trainer.max_epoch=3", "Did you mean trainer.max_epochs"),
        ("trainer.max_epochs=many", "a whole number is needed here"),
        ("trainer.limit_train_batches=some", "trainer.limit_train_batches=some: a number is needed here"),
        ("seed=x", "seed=x: a whole number is needed here"),
        ("task.data.batchsize=3", "Did you mean task.data.batch_size"),
        ("task.model.d_words=3", "Did you mean task.model.d_word"),
        ("+task.data.batchsize=3", "There is no key task.data.batchsize. Did you mean batch_size"),
        ("task.data.batch_size=many", "task.data.batch_size='many': a whole number is needed here"),
        ("task.data.sizes.val=4", "There is no key task.data.sizes.val"),
        ("geometry.curvature=1", "There is no key geometry.curvature"),
        ("encoder.cells=gru", "Did you mean encoder.cell?"),
        ("paths.data=x", "There is no key paths.data"),
        ("+new=1", "There is no key new. There are: check_points,"),
        ("+optim.new=1", "There is no key optim.new"),
        ("+encoder.new=1", "There is no key encoder.new"),
        ("mode=train", "mode must be fit or test"),
        ("fidelity=none", "fidelity must be paper or code"),
        ("x=[1", "cannot be read"),
        ("task._target_=tasks.nothing.Here", "There is no key task._target_"),
        ("task.data._target_=tasks.nothing.Here", "task.data._target_='tasks.nothing.Here' is refused"),
        ("encoder._target_=null", "encoder names no class"),
    ],
)
def test_a_typo_on_the_command_line_is_named(word, said):
    with pytest.raises((ConfigError, HydraException, OmegaConfBaseException)) as caught:
        checked(word)
    text = errors.paragraph(caught.value)
    assert said in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("task=ultrafine", "task.size=huge"), "task.size=huge: task.size must be base or large or xlarge."),
        (("task=snli", "task.labels=4"), "task.labels=4: task.labels must be 2 or 3."),
        (("task=ultrafine", "task.sise=base"), "Did you mean task.size"),
        (("task=ultrafine", "+task.sise=base"), "There is no key task.sise. Did you mean size"),
        (("+task.size=base",), "There is no key task.size. There are: activations, data, fidelity, model, module, name."),
        (("task=ultrafine", "task.model.s=7", "task.data.batch_size=3", "task.size=x"), "task.size=x: task.size must be base"),
        (("~task.module",), "task.module is missing; the task's file in configs/task needs it."),
        (("+task.module.thresold=1",), "There is no key task.module.thresold."),
        (("task=snli", "+task.data.max_lenght=3"), "There is no key task.data.max_lenght. Did you mean max_length"),
        (("task=snli", "task.data.max_length=long"), "task.data.max_length='long': a whole number is needed here"),
        (("task=umls", "+task.module.negative=3"), "There is no key task.module.negative. Did you mean negatives"),
        (("task=ultrafine", "task.module.threshold=high"), "task.module.threshold='high': a number is needed here"),
        (("task=ultrafine", "task.model.s=big"), "task.model.s='big': a whole number is needed here"),
    ],
)
def test_a_mistake_in_the_node_of_a_task_is_named(words, said):
    with pytest.raises((ConfigError, HydraException, OmegaConfBaseException)) as caught:
        checked(*words)
    assert said in errors.paragraph(caught.value)


def test_a_task_has_settings_of_its_own_by_referring_to_them():
    large = checked("task=ultrafine", "task.size=large")["task"]
    assert (large["model"]["s"], large["data"]["batch_size"]) == (50, 350)


def test_a_model_without_an_encoder_is_given_none():
    assert checked("task=poincare_glove_toy", "encoder=rnn")["encoder"] is None
    assert checked("task=prefix_toy", "encoder=rnn")["encoder"]["cell"] == "rnn"


def test_the_folder_of_a_run_is_named_by_what_was_chosen():
    names = ("prefix10", "poincare", "gru", "tasks.sentence_pairs.SentencePairClassifier")
    assert composing.run_name(None, *names) == "prefix10-poincare-gru"
    assert composing.run_name("mine", *names) == "mine"
    assert composing.run_name(None, *names, "my/graph/") == "prefix10-graph-poincare-gru"
    assert composing.run_name(None, *names, None, "my/edges.tsv") == "prefix10-edges.tsv-poincare-gru"
    assert composing.run_name("mine", *names, mode="predict") == "predict"
    alone = "tasks.poincare_glove.model.PoincareGlove"
    assert composing.run_name(None, "poincare_glove", "poincare", "gru", alone) == "poincare_glove-poincare"
    assert composing.run_name(None, "mine", "poincare", "gru", None) == "mine-poincare-gru", "what is wrong is told later"


def test_caches_are_beside_the_results_and_never_in_the_data(monkeypatch, tmp_path):
    monkeypatch.delenv("HYPERBOLIC_CACHE", raising=False)
    monkeypatch.setenv("HYPERBOLIC_DATA", str(tmp_path))
    assert checked("paths.output_dir=here")["paths"]["cache_dir"] == "here/.cache"
    monkeypatch.setenv("HYPERBOLIC_CACHE", "there")
    assert checked()["paths"]["cache_dir"] == "there"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("task:\n  sise: large\n", "There is no key task.sise. There are: activations, data, fidelity, model, module, name."),
        ("optim:\n  lrr: 1\n", "There is no key optim.lrr (in configs/experiment/typo.yaml). Did you mean optim.lr?"),
        ("sed: 1\n", "There is no key sed (in configs/experiment/typo.yaml). Did you mean seed?"),
        ("task:\n  data:\n    batchsize: 1\n", "There is no key task.data.batchsize. Did you mean batch_size"),
        ("geometry:\n  curvature: 1\n", "There is no key geometry.curvature"),
        ("trainer:\n  max_epochs: many\n", "trainer.max_epochs=many: a whole number is needed here"),
        ("paper:\n  table: 1\n", "There is no key paper (in configs/experiment/typo.yaml)"),
        ("defaults:\n  - override /task: prefix11\n", "There is no task named prefix11"),
    ],
)
def test_a_typo_in_a_file_is_named(tmp_path, monkeypatch, text, said):
    import shutil

    shutil.copytree(CONFIGS, tmp_path / "configs", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "configs" / "experiment" / "typo.yaml").write_text("# @package _global_\n" + text)
    monkeypatch.setattr(files, "FOLDER", tmp_path / "configs")
    with pytest.raises((ConfigError, HydraException, OmegaConfBaseException)) as caught:
        checked("experiment=typo")
    assert said in errors.paragraph(caught.value)


def test_a_folder_for_a_task_that_reads_a_file_is_refused_with_the_key_of_that():
    with pytest.raises(ConfigError, match=r"task=graph_nc.*; task=poincare_embeddings reads a file of your own by task\.data\.file"):
        checked("task=poincare_embeddings", "data.dir=mine")


def test_a_missing_setting_is_named():
    cfg = composing.composed()
    OmegaConf.set_struct(cfg, False)
    del cfg.task.data["noise"]
    with pytest.raises(ConfigError, match=r"task\.data\.noise is missing: PrefixData needs it"):
        checks.check(cfg)


@pytest.mark.parametrize(
    ("value", "hint", "fit"),
    [
        (1, int, True), (True, int, False), (1.5, int, False), (1, float, True), ("a", float, False),
        (None, int | None, True), ("a", int | None, False), ({"a": 1}, dict[str, int], True),
        ({"a": "b"}, dict[str, int], False), ({"a": None}, dict[str, str | None], True), ([1], list[int], True),
        ("a.txt", list[str], False), (["a"], Sequence[int], False), ("a.txt", Manifold, False), ({}, Manifold | None, True),
    ],
)  # fmt: skip
def test_values_are_compared_with_annotations(value, hint, fit):
    assert kinds.fits(value, hint) is fit


def test_one_value_for_a_node_or_a_list_is_refused():
    with pytest.raises(ConfigError, match=r"vectors='a\.txt': a node of settings \(.*own key: root, files.*is needed here"):
        checked("task=nli", "task.data.vectors=a.txt")
    with pytest.raises(ConfigError, match=r"vectors\.files='a\.txt': a list, \[\.\.\., \.\.\.\], is needed here"):
        checked("task=nli", "task.data.vectors.files=a.txt")


@pytest.mark.parametrize("words", [("task=nli",), ("task=documents",), ("task=snli", "task/data=word_vectors")])
def test_faulty_lines_of_word_vectors_are_left_out_by_the_word_that_the_error_says(words):
    assert checked(*words, "task.data.on_error=skip")["task"]["data"]["vectors"]["on_error"] == "skip"


def test_every_line_of_a_leaf_is_explained():
    bare = []
    for group, name in OPTIONS:
        if group in ("geometry", "encoder", "optim", "trainer") or (group, name) == ("task", "prefix10"):
            for line in (CONFIGS / group / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
                key = line.partition(":")[0].strip()
                plain = key in ("_target_", "name", "manifold", "layers", "defaults", "data", "model", "module")
                if ":" in line and not line.lstrip().startswith(("#", "-")) and "#" not in line and not plain:
                    bare.append(f"{group}/{name}: {line.strip()}")
    assert bare == []


def test_a_pipe_that_ended_is_no_folder_that_cannot_be_used():
    assert "has ended, as head does" in errors.paragraph(BrokenPipeError(32, "Broken pipe"))
