"""Every configuration composes and fits the classes it names; a typo anywhere is an error that names the key."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from configs import errors, schema
from tests.cli import ROOT

CONFIGS = ROOT / "configs"
GROUPS = ("task", "geometry", "encoder", "optim", "trainer", "logger", "experiment")
OPTIONS = [(group, file.stem) for group in GROUPS for file in sorted((CONFIGS / group).glob("*.yaml"))]
EXPERIMENTS = [name for group, name in OPTIONS if group == "experiment"]
COMMAND = re.compile(r"^[#\s$>*-]*`{0,2}(python run\.py(?: [^`\n]*)?)`{0,2}\s*$", re.MULTILINE)


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    schema.register()


def checked(*words: str) -> dict:
    return schema.check(schema.composed(*words))


def test_the_options_are_found():
    assert {group for group, _ in OPTIONS} == set(GROUPS)
    assert len(EXPERIMENTS) >= 19


@pytest.mark.parametrize(("group", "name"), OPTIONS)
def test_every_option_composes_and_fits_its_class(group, name):
    values = checked(f"{group}={name}")
    if group in ("task", "geometry"):
        assert values[group]["name"] == name


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_a_flat_file_that_says_what_it_stands_for(name):
    text = (CONFIGS / "experiment" / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# @package _global_\n")
    assert f"python run.py experiment={name}" in text
    assert "# Expected: " in text
    values = checked(f"experiment={name}")
    if name != "quickstart":
        found = re.fullmatch(r"hnn_(prefix\d\d)_(rnn|gru)_(eucl|hyp_eucl_mlr|hyp)", name)
        task, cell, geometry = found.groups()
        assert values["task"]["name"] == task
        assert values["encoder"]["cell"] == cell
        assert values["geometry"]["name"] == ("euclidean" if geometry == "eucl" else "poincare")
        assert values["geometry"]["parts"] == ({"classifier": "euclidean"} if geometry == "hyp_eucl_mlr" else {})
        assert values["paper"]["column"] == f"PREFIX-{task[-2:]}"
        assert cell.upper() in values["paper"]["row"]


def test_the_published_numbers_are_those_of_the_table():
    table = yaml.safe_load((ROOT / "results" / "published" / "hnn_table1.yaml").read_text(encoding="utf-8"))
    cells = set()
    for name in EXPERIMENTS:
        paper = checked(f"experiment={name}")["paper"]
        if paper:
            column = table["columns"].index(paper["column"])
            assert paper["published"] == pytest.approx(table["rows"][paper["row"]][column])
            assert paper["metric"] == table["metric"]
            cells.add((paper["row"], paper["column"]))
    assert len(cells) == 18, "every PREFIX cell of the table has its experiment"


def documents() -> list[Path]:
    return [
        *sorted(CONFIGS.rglob("*.yaml")),
        *(f for f in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md") if f.exists()),
        *sorted((ROOT / "tasks").rglob("README.md")),
    ]


def commands() -> list[str]:
    found = (c for file in documents() for c in COMMAND.findall(file.read_text(encoding="utf-8")))
    return sorted({re.split(r"\s{2,}|\s#", c)[0].strip() for c in found})


def test_commands_are_found_in_the_documents():
    assert len(commands()) > 30
    assert any(" -m " in c for c in commands())


@pytest.mark.parametrize("command", commands())
def test_every_documented_command_composes(command):
    words = shlex.split(command)[2:]
    if "--help" in words:
        return
    if "--cfg" in words:
        del words[words.index("--cfg") : words.index("--cfg") + 2]
    many = "-m" in words
    words = [w for w in words if w != "-m"]
    if "sweep=lr" in words and not _installed("hydra_plugins.hydra_optuna_sweeper"):
        words.remove("sweep=lr")
    if "..." in command or "<" in command:
        pytest.skip("a pattern, not a command")
    jobs = [words]
    if many:
        from hydra._internal.config_loader_impl import ConfigLoaderImpl
        from hydra._internal.utils import create_config_search_path

        loader = ConfigLoaderImpl(create_config_search_path(str(CONFIGS)))
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(words)
        jobs = BasicSweeper.split_arguments(parsed, None)[0]
        assert len(jobs) > 1 or "sweep=lr" in command
    for job in jobs:
        checked(*job)


def _installed(name: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_one_component_takes_another_geometry_without_a_plus():
    assert checked("geometry.parts.classifier=euclidean")["geometry"]["parts"] == {"classifier": "euclidean"}


def test_fidelity_picks_what_paper_and_code_do_differently():
    assert checked()["task"]["data"]["shuffle"] == "examples"
    assert checked("fidelity=code")["task"]["data"]["shuffle"] == "batches"


def test_the_paths_can_be_moved_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("HYPERBOLIC_DATA", str(tmp_path))
    assert checked()["task"]["data"]["root"] == f"{tmp_path}/prefix"
    monkeypatch.delenv("HYPERBOLIC_DATA")
    assert checked()["task"]["data"]["root"] == "data/prefix"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("task=prefix11", "There is no task named prefix11. Did you mean prefix10"),
        ("geometry=poincar", "There is no geometry named poincar. Did you mean poincare"),
        ("experiment=nothing", "There are: hnn_prefix10_gru_eucl,"),
        ("geometri=poincare", "There is no key geometri. Did you mean geometry"),
        ("otpim.lr=1", "There is no key otpim. Did you mean optim?"),
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
        ("task.data._target_=tasks.nothing.Here", "task.data._target_=tasks.nothing.Here is not found"),
        ("encoder._target_=null", "encoder names no class"),
    ],
)
def test_a_typo_on_the_command_line_is_named(word, said):
    with pytest.raises((schema.ConfigError, HydraException, OmegaConfBaseException)) as caught:
        checked(word)
    text = errors.paragraph(caught.value)
    assert said in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("optim:\n  lrr: 1\n", "There is no key optim.lrr (in configs/experiment/typo.yaml). Did you mean optim.lr?"),
        ("sed: 1\n", "There is no key sed (in configs/experiment/typo.yaml). Did you mean seed?"),
        ("task:\n  data:\n    batchsize: 1\n", "There is no key task.data.batchsize. Did you mean batch_size"),
        ("geometry:\n  curvature: 1\n", "There is no key geometry.curvature"),
        ("trainer:\n  max_epochs: many\n", "trainer.max_epochs=many: a whole number is needed here"),
        ("paper:\n  tabel: 1\n", "tabel"),
        ("defaults:\n  - override /task: prefix11\n", "There is no task named prefix11"),
    ],
)
def test_a_typo_in_a_file_is_named(tmp_path, monkeypatch, text, said):
    import shutil

    shutil.copytree(CONFIGS, tmp_path / "configs", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "configs" / "experiment" / "typo.yaml").write_text("# @package _global_\n" + text)
    monkeypatch.setattr(schema, "FOLDER", tmp_path / "configs")
    with pytest.raises((schema.ConfigError, HydraException, OmegaConfBaseException)) as caught:
        checked("experiment=typo")
    assert said in errors.paragraph(caught.value)


def test_a_missing_setting_is_named():
    cfg = schema.composed()
    OmegaConf.set_struct(cfg, False)
    del cfg.task.data["noise"]
    with pytest.raises(schema.ConfigError, match=r"task\.data\.noise is missing: PrefixData needs it"):
        schema.check(cfg)


@pytest.mark.parametrize(
    ("value", "hint", "fit"),
    [
        (1, int, True), (True, int, False), (1.5, int, False), (1, float, True), ("a", float, False),
        (None, int | None, True), ("a", int | None, False), ({"a": 1}, dict[str, int], True),
        ({"a": "b"}, dict[str, int], False), ({"a": None}, dict[str, str | None], True), ([1], list[int], True),
    ],
)  # fmt: skip
def test_values_are_compared_with_annotations(value, hint, fit):
    assert schema.fits(value, hint) is fit


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
