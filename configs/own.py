"""A user's own folder of configurations, whose files are choices like ours: configs/encoder/mine.yaml is encoder=mine.

It is the one that `--config-dir` or the environment variable HYPERBOLIC_CONFIGS names, or ./configs where a run is
started, unless that is a checkout's. Names are looked for in it first, so a file may not have the name of one of ours
by mistake.
"""

import functools
import hashlib
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tasks.errors import UserError
from tasks.local_paths import user_path
from tasks.reading import brief

VARIABLE = "HYPERBOLIC_CONFIGS"  # so that the other processes of a run have it, too
OURS = Path(__file__).resolve().parent
FLAGS = ("--config-dir", "-cd")
INSTALLED = {"site-packages", "dist-packages"}  # folders of modules that are no user's own
REPLACES = "# replaces"  # how a file begins that is to be taken instead of ours


def folder() -> Path | None:
    """The user's folder; None where there is none."""
    name = os.environ.get(VARIABLE)
    return Path(name) if name else None


def with_folder(command: str) -> str:
    """A command `python run.py ...` with the flag that names the user's folder, where it is not found without."""
    own = folder()
    if own is None or own == Path("configs").resolve():
        return command
    place = os.path.relpath(own) if own.is_relative_to(Path.cwd()) else own
    flag = f" --config-dir {shlex.quote(str(place))}"
    return re.sub(r"python run\.py( -m)?", lambda match: match[0] + flag, command, count=1)


def choose(words: Sequence[str], looks: bool = False) -> list[str]:
    """What `choose_folder` leaves of the words of a command line.

    Modules that lie beside the folder can be imported, for a `_target_: my_encoder.Encoder` in its files.

    Raises:
        UserError: there is no such folder, or a file in it has the name of one of ours.
    """
    rest = choose_folder(words, looks)
    if (own := folder()) is not None:
        check(own)
        if (place := str(own.parent)) not in sys.path:
            sys.path.append(place)
    return rest


def choose_folder(words: Sequence[str], looks: bool) -> list[str]:
    """The words without `--config-dir FOLDER`, which is the folder from now on; where neither they nor the environment
    name one, and `looks`, ./configs is, unless it is a checkout's. Without a value the flag means none.

    Raises:
        UserError: there is no such folder.
    """
    rest, words = [], list(words)
    while words:
        word = words.pop(0)
        flag, equals, place = word.partition("=")
        if flag not in FLAGS:
            rest.append(word)
            continue
        _name(place if equals else words.pop(0) if words else "(nothing)", f"{flag} ")
    here = Path("configs")
    if looks and VARIABLE not in os.environ and here.is_dir() and not (here / "schema.py").is_file():
        os.environ[VARIABLE] = str(here.resolve())
        line = f"configurations: ours and those in {here.resolve()} (--config-dir names another folder)"
        print(line, file=sys.stderr)
    return rest


def use(place: str | Path) -> None:
    """Make a folder the user's from now on, also of modules that lie beside it. Raises UserError as `choose` does."""
    _name(str(user_path(place)), "config_dir=")
    choose([])


def modules() -> dict[str, str]:
    """The user's modules that were imported, by file, with a hash of each: those that lie beside the folder."""
    if (own := folder()) is None:
        return {}
    root = own.resolve().parent
    # a home folder may hold these, and a checkout the user's folder
    others = [place for place in (OURS.parent, Path(sys.prefix), Path(sys.base_prefix)) if place not in root.parents]
    names = {file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    files = {Path(name).resolve() for name in names if name.endswith(".py") and not INSTALLED & {*Path(name).parts}}
    return {
        file.relative_to(root).as_posix(): _version(file)
        for file in sorted(files)
        if file.is_relative_to(root) and not any(map(file.is_relative_to, others))
    }


@functools.cache
def _version(file: Path) -> str:
    """A hash of a module, made when it was first asked for: what is edited later is not what runs in this process."""
    try:
        return f"sha256 {hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
    except OSError:
        return "not there"


def note_changes(checkpoint: Mapping[str, Any]) -> None:
    """Say on standard error, in the first process, which of the user's modules are others than those that trained a
    checkpoint."""
    from tasks.processes import is_first  # which imports PyTorch, that --help does without

    code = checkpoint.get("code")  # which those from before, and old exports, lack
    trained = (code[-1]["versions"] or {}) if code else {}
    for name, version in modules().items():
        if name in trained and trained[name] != version and is_first():
            print(
                f"note: {name} is another file ({brief(version)}) than the one this checkpoint was trained with "
                f"({brief(trained[name])}), so its numbers and answers may be others.", file=sys.stderr,
            )  # fmt: skip


def _name(place: str, key: str) -> None:
    if place and not Path(place).is_dir():
        raise UserError(f"{key}{place}: there is no such folder; name one with files such as encoder/mine.yaml.")
    os.environ[VARIABLE] = str(Path(place).resolve()) if place else ""


def _check_yaml(file: Path) -> None:
    """Raise UserError, which names the line, where a file cannot be read or is no YAML."""
    try:
        with file.open(encoding="utf-8") as text:
            yaml.compose(text)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({error}); it must be a text in UTF-8.") from error
    except yaml.YAMLError as error:
        is_key = getattr(error, "context", None) == "while scanning a simple key"  # whose problem is seen lines later
        mark = getattr(error, "context_mark" if is_key else "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(f"{file}{line}: it is no YAML ({getattr(error, 'problem', None) or error}).") from error


def check(own: Path) -> None:
    """Raise UserError unless the folder is there, and none of its files stands in the way of one of ours."""
    if not own.is_dir():
        raise UserError(f"{VARIABLE}={own}: there is no such folder; name one, or unset the variable.")
    for file in sorted(own.rglob("*.yaml")):
        name = file.relative_to(own)
        if not (OURS / name.parent).is_dir():  # of another program
            continue
        _check_yaml(file)
        twin = OURS / name
        if not twin.is_file() or (text := file.read_text(encoding="utf-8")) == twin.read_text(encoding="utf-8"):
            continue
        if not text.startswith(REPLACES):
            choice = f"{name.parent}={name.stem}" if name.parent.name else "every run"
            raise UserError(
                f"{file} has the name of one of this program's own files, so it would change what {choice} means. Give "
                f"it another name, as {name.with_stem('my_' + name.stem)}, which may begin with `defaults: "
                f"[{name.stem}]`; or write {REPLACES!r} in its first line if it is to be taken instead. If {own} is "
                f"for another program, --config-dir names another folder; with {VARIABLE} set to nothing there is none."
            )
