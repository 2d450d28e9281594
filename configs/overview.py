"""What can be asked for without a model, `--help` and `--cfg`: nothing here imports torch, which takes seconds."""

import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from configs import own
from tasks.errors import UserError, called, ends_with_its_reader

HELP, SETTINGS = {"--help", "-h"}, {"--cfg", "-c"}
CHECKPOINT = re.compile(r"(checkpoint|trainer\.resume)=(?!null$)")  # its settings are in a file that torch reads
GROUPS = ("geometry", "encoder", "optim", "trainer", "logger", "sweep", "hydra/launcher")
MANY = {"-m", "--multirun"}
FLAGS = HELP | SETTINGS | MANY | {  # those that Hydra takes, but --experimental-rerun, which executes what a file holds
    "--resolve", "--package", "--run", "--info", "--config-path", "--config-dir", "--config-name",
    "--hydra-help", "--version", "--shell-completion",
}  # fmt: skip
WIDTH = 118
EXAMPLES = """\
Examples
  python run.py experiment=quickstart
  python run.py task=prefix30 geometry=euclidean encoder=rnn seed=3
  python run.py -m 'experiment=glob(hnn_prefix10_*)' seed=0,1,2    several runs
  python run.py task=kg data.dir=my_graph --cfg job                print the settings of a run, run nothing"""


def answer(words: Sequence[str]) -> bool:
    """Print what the words ask for, where it is `--help`, or `--cfg` of what needs no checkpoint; whether they do."""
    if HELP.intersection(words):
        with contextlib.suppress(UserError):  # of the user's own folder, which a run reports
            own.choose(words, looks=True)
        with ends_with_its_reader():
            print(called(text()))
        return True
    if SETTINGS.intersection(words) and not any(CHECKPOINT.match(word) for word in words):
        with ends_with_its_reader():
            return _print_settings()
    return False


def check_words(words: Sequence[str]) -> None:
    """Raises UserError for a setting that is written as the flags of other programs are, for a group that is given
    a list, which loggers alone may have, and for a folder without a name, as of a variable of the shell that is not
    set: before Hydra makes the run's folder, which would be at the root of the file system."""
    for word in words:
        flag, equals, value = word.partition("=")
        if equals and re.fullmatch(r"\+*paths\.(data|output|cache)_dir", flag) and value.strip("'\"") == "":
            raise UserError(f"{word}: the folder has no name; give one, or leave the setting out.")
        group = flag.lstrip("+")
        if value.startswith("[[" if group == "logger" else "[") and group and (own.OURS / group).is_dir():
            raise UserError(f"{word}: name one file of configs/{group}, as --help lists them.")
        if flag.startswith("--") and flag not in FLAGS:
            name = flag.lstrip("-")
            raise UserError(
                f"{flag}: a setting is written without dashes, with its value behind an equals sign, as "
                f"{name}={value or 'VALUE'}; --help lists them."
            )


def many_first(words: Sequence[str]) -> list[str]:
    """The words with `-m`, which stands for `hydra.mode=MULTIRUN`, too, before the settings: Hydra takes no setting
    behind a flag that stands behind one."""
    words = ["-m" if word.lstrip("+").upper() == "HYDRA.MODE=MULTIRUN" else word for word in words]
    return [*filter(MANY.__contains__, words), *(word for word in words if word not in MANY)]


def _print_settings() -> bool:
    """What Hydra prints for `--cfg`; False where that is an error, which run.py reports."""
    import hydra

    from configs import composing
    from configs.words import with_quotes

    words = sys.argv[1:]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises its errors
    try:
        sys.argv[1:] = with_quotes(own.choose(words, looks=True))
        composing.register()
        hydra.main(version_base="1.3", config_path=str(own.OURS), config_name="config")(lambda cfg: None)()
    except Exception:
        sys.argv[1:] = words
        return False
    return True


def text() -> str:
    """The help: tasks, what else can be chosen, the settings of every run, experiments by paper."""
    parts = [
        "Trains, tests and uses hyperbolic and Euclidean models: python run.py task=... [geometry=...] [key=value ...]",
        "\n".join(["Tasks (task=NAME)", *_describe("task")]),
        "\n".join(["Choices (NAME=CHOICE; each is a file with a comment in configs/)", *_choices()]),
        "\n".join(
            ["Settings (KEY=VALUE; --cfg job prints all of a run, as optim.lr and trainer.max_epochs)", *_settings()]
        ),
        "\n".join(["Experiments, the models of papers (experiment=NAME)", *_experiments()]),
        EXAMPLES,
    ]
    return "\n\n".join(parts)


def names(group: str) -> dict[str, Path]:
    """The choices of a group: ours, and those of the user's own folder."""
    folders = [folder / group for folder in (own.OURS, own.folder()) if folder is not None]
    files = {file.stem: file for folder in folders for file in sorted(folder.glob("*.yaml"))}
    return dict(sorted(files.items()))


def comment(file: Path) -> str:
    """What a file says of itself: its first comment."""
    lines = (line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("# @package"))
    first = next(lines, "")
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _describe(group: str) -> Iterator[str]:
    for name, file in names(group).items():
        yield f"  {name:27} {textwrap.shorten(comment(file), WIDTH - 30, placeholder=' ...')}"


def _choices() -> Iterator[str]:
    for group in GROUPS:
        lines = textwrap.wrap(", ".join(names(group)), WIDTH - 18)
        yield from (f"  {group if k == 0 else '':15} {line}" for k, line in enumerate(lines))


def _settings() -> Iterator[str]:
    """Those of config.yaml that have a comment, with their comments."""
    node = ""
    for line in (own.OURS / "config.yaml").read_text(encoding="utf-8").splitlines():
        match = re.match(r"( *)([a-z_]+):\s*([^#]*?)\s*(?:#\s*(.*))?$", line)
        if not match or match[2] in ("defaults", "hydra"):
            node = match[2] if match else node
            continue
        indent, key, _, about = match.groups()
        node = node if indent else key
        if about and node not in ("defaults", "hydra") and len(indent) <= 2:
            yield f"  {f'{node}.{key}' if indent else key:17} {about}"


def _experiments() -> Iterator[str]:
    """Names by what they begin with, which is the paper, and the data."""
    papers: dict[str, list[str]] = {}
    for name, file in names("experiment").items():
        papers.setdefault(re.split(r", (?:NeurIPS|20\d\d|report)|:| \(", comment(file))[0] or name, []).append(name)
    for paper in sorted(papers, key=lambda each: papers[each]):
        yield f"  {paper}"
        yield from (f"    {line}" for line in textwrap.wrap(", ".join(papers[paper]), WIDTH - 4))
