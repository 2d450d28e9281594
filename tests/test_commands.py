"""Every command that the documents name composes, each job of those that start several."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig

from configs import composing, files, spaces
from tests.cli import ROOT
from tests.configurations import CONFIGS, EXPERIMENTS, OPTIONS, checked

COMMAND = re.compile(r"^[#\s$>*-]*`{0,2}(python run\.py(?: [^`\n]*)?)`{0,2}\s*$", re.MULTILINE)

PLUGINS = {
    "hydra/launcher=local": "hydra_joblib_launcher",
    "hydra/launcher=slurm": "hydra_submitit_launcher", "hydra/launcher=ray": "hydra_ray_launcher",
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    composing.register()


def documents() -> list[Path]:
    return [
        *sorted(CONFIGS.rglob("*.yaml")),
        *(f for f in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md") if f.exists()),
        *sorted((ROOT / "tasks").rglob("README.md")),
    ]


def commands() -> list[str]:
    """Without those that choose one file and no more, which tests/test_experiments.py and tests/test_configs.py compose."""
    matches = (c for file in documents() for c in COMMAND.findall(file.read_text(encoding="utf-8")))
    plain = {f"python run.py {group}={name}" for group, name in OPTIONS if group != "encoder"}
    return sorted({re.split(r"\s{2,}|\s#", c)[0].strip() for c in matches} - plain)


def test_the_examples_of_the_library_alone_run(capsys):
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("### The library alone")[2].partition("\n### ")[0]
    examples = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(examples) == 2
    names: dict[str, Any] = {}
    for example in examples:  # the second one goes on with the first
        exec(example, names)
    assert "torch.Size([8, 20, 17])" in capsys.readouterr().out
    assert names["loss"] < 3.0


def test_commands_are_found_in_the_documents():
    assert len(commands()) > 30
    assert any(" -m " in c for c in commands())


OTHERS = re.compile(r"encoder=(gcn|gat|sage|sgc|hgcn|lgcn|hat)\b")


@pytest.mark.long
@pytest.mark.parametrize("command", [c for c in commands() if OTHERS.search(c) and " -m " not in c])
def test_a_command_with_a_compared_encoder_of_graphs_trains_as_the_tables_do(command):
    words = shlex.split(command)[2:]
    encoder = next(match[1] for word in words if (match := OTHERS.fullmatch(word)))
    assert checked(*words)["optim"] == checked(f"experiment=hybonet_graph_{encoder}", *words)["optim"]
    assert checked(*words, "optim=graph")["optim"]["decoupled"]  # words on the command line win


@pytest.mark.long
def test_hybonet_of_graphs_trains_as_the_tables_do():
    assert checked("task=cora_nc")["optim"] == checked("experiment=hybonet_graph_hybonet", "task=cora_nc")["optim"]
    assert checked("task=cora_nc")["optim"] == checked("task=cora_nc", "optim=graph")["optim"]


@pytest.mark.parametrize("command", commands())
def test_every_documented_command_composes(command):
    words = shlex.split(command)[2:]
    if "--help" in words:
        return
    if "--cfg" in words:
        del words[words.index("--cfg") : words.index("--cfg") + 2]
    many = "-m" in words
    words = [w for w in words if w != "-m"]
    for word, plugin in PLUGINS.items():
        if word in words and not _installed(f"hydra_plugins.{plugin}"):
            words = [w for w in words if w != word and not w.startswith("hydra.launcher.")]
    if "..." in command or "<" in command:
        pytest.skip("a pattern, not a command")
    jobs = [words]
    if many:
        from hydra._internal.config_loader_impl import ConfigLoaderImpl
        from hydra._internal.utils import create_config_search_path

        loader = ConfigLoaderImpl(create_config_search_path(str(CONFIGS)))
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(words)
        if any(word.key_or_group == "sweep" for word in parsed):
            jobs = [first_trial(loader, words)]
        else:
            jobs = BasicSweeper.split_arguments(parsed, None)[0]
            assert len(jobs) > 1
    if any(w.startswith("checkpoint=") for w in words):  # settings of the task are then those of the checkpoint's
        jobs = [[w for w in job if not w.startswith("task.")] for job in jobs]
    for job in without_repetitions(jobs):
        checked(*job)


def first_trial(loader: ConfigLoader, words: list[str]) -> list[str]:
    """The words of the first trial of a search."""

    def compose(job: Sequence[str]) -> DictConfig:
        return loader.load_configuration("config", list(job), RunMode.RUN)

    own = [word for word in words if not word.startswith("hydra")]
    node = compose([word for word in words if word.startswith("sweep=")]).hydra.sweeper
    space = spaces.read(files.plain(node.params), files.plain(node.where), own, loader)
    return space.job(spaces.separate(space.drawn(spaces.random_draw(0, 0), compose)))


def without_repetitions(jobs: list[list[str]]) -> list[list[str]]:
    """Of jobs that differ in the seed alone the first; none that tests/test_experiments.py composes."""
    first: dict[tuple[str, ...], list[str]] = {}
    for job in jobs:
        first.setdefault(tuple(word for word in job if not word.startswith("seed=")), job)
    composed = {(f"experiment={name}",) for name in EXPERIMENTS}
    return [job for words, job in first.items() if words not in composed]


def test_of_jobs_that_differ_in_the_seed_one_is_composed():
    a, b = f"experiment={EXPERIMENTS[0]}", "experiment=quickstart"
    jobs = [[a, "optim.lr=1", "seed=0"], [a, "optim.lr=1", "seed=1"], [a, "optim.lr=2", "seed=0"], [b, "seed=1"]]
    assert without_repetitions(jobs) == [jobs[0], jobs[2]]


def _installed(name: str) -> bool:
    import importlib.util

    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
