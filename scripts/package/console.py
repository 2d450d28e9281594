"""The command `hyperbolic`: what run.py and the scripts do, from any folder.

hyperbolic train task=prefix_toy         is python run.py task=prefix_toy; `hyperbolic --help` lists the others
"""

import difflib
import os
import runpy
import sys
from collections.abc import Sequence

from . import check_installed, use

RUNS = {  # the command, what it is for, and what it adds to the words of run.py
    "train": ("train and test a model: task=... encoder=... geometry=... (train --help lists them)", []),
    "test": ("test a trained model: checkpoint=RUN_FOLDER", ["mode=test"]),
    "predict": ("use one: checkpoint=RUN_FOLDER input=FILE (output=FILE)", ["mode=predict"]),
    "sweep": ("search settings: sweep NAME task=... ; many runs: sweep seed=0,1,2 task=...", ["-m"]),
}
SCRIPTS = {
    "compare": "set finished runs side by side",
    "figures": "draw what trained models look like",
    "export": "write the points of a model, or all of it, for other programs",
    "errors": "compare two runs example by example",
    "download": "fetch a data set",
    "graph_statistics": "say what the shape of a graph is like",
    "random_graph": "write a large random graph",
}
TRAINED = ("figures", "export", "errors")  # scripts that build models, perhaps of the user's own configurations
HELP = {"--help", "-h"}
KERNELS = "kernels"  # of the library alone


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; returns or raises its exit code: 2 for bad usage."""
    name, *rest = (sys.argv[1:] if words is None else words) or ["--help"]
    name = name.replace("-", "_") if not name.startswith("-") else name
    if name in HELP | {"help"}:
        print(usage())
        return 0
    if name == "--version":
        import hyperbolic

        print(f"hyperbolic-language {hyperbolic.__version__}")
        return 0
    if name == KERNELS:
        sys.argv = ["hyperbolic kernels", *rest]
        runpy.run_module("hyperbolic.native", run_name="__main__")
        return 0
    if name not in RUNS and name not in SCRIPTS:
        near = difflib.get_close_matches(name, [*RUNS, *SCRIPTS, KERNELS], n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        return _fail(f"There is no command {name!r}.{hint} There are: {', '.join([*RUNS, *SCRIPTS, KERNELS])}.")
    try:
        check_installed(f"hyperbolic {name}")
        root = use()
    except ImportError as error:
        return _fail(str(error))
    os.environ["HYPERBOLIC_COMMAND"] = "hyperbolic"  # messages then name commands as this one has them
    from configs.own import choose_folder  # which `use` has made one that is found
    from tasks.errors import UserError

    try:
        if name in RUNS:  # run.py looks for the folder itself
            rest = words_of(name, rest)
        else:
            rest = choose_folder(rest, looks=name in TRAINED and not HELP.intersection(rest))
    except (ValueError, UserError) as error:
        return _fail(str(error))
    return _run(str(root / ("run.py" if name in RUNS else f"scripts/{name}.py")), rest)


def words_of(name: str, rest: Sequence[str]) -> list[str]:
    """The words of run.py for a command of RUNS. Raises ValueError for words that contradict it."""
    added = RUNS[name][1]
    if f"mode={name}" in added and any(word.startswith("mode=") for word in rest):
        if other := next((word for word in rest if word.startswith("mode=") and word not in added), None):
            raise ValueError(f"hyperbolic {name} {other}: the command says the mode. Take hyperbolic train {other}.")
        return list(rest)
    if name == "sweep" and not rest:
        raise ValueError(
            "hyperbolic sweep runs several; name a search, or values: hyperbolic sweep task=prefix_toy seed=0,1,2"
        )
    if name == "sweep" and "=" not in rest[0] and not rest[0].startswith("-"):
        return [*added, f"sweep={rest[0]}", *rest[1:]]
    return [*added, *rest]


def usage() -> str:
    """What `hyperbolic --help` prints."""
    lines = [f"  {name.replace('_', '-'):17} {about}" for name, (about, _) in RUNS.items()]
    lines += [f"  {name.replace('_', '-'):17} {about}" for name, about in SCRIPTS.items()]
    lines += [f"  {KERNELS:17} compile the C++ kernels now, and not when they are first used"]
    return "\n".join(
        [
            "usage: hyperbolic COMMAND [words]; hyperbolic COMMAND --help says more",
            "",
            *lines,
            "",
            "Data are read from the folder that HYPERBOLIC_DATA names, or ./data; runs are written to ./outputs.",
            "Your folder ./configs, or --config-dir FOLDER, adds choices: configs/encoder/mine.yaml is encoder=mine.",
        ]
    )


def _run(file: str, words: Sequence[str]) -> int:
    """A program of this project, exactly as `python FILE words` runs it; Lightning starts other processes with that."""
    sys.argv = [file, *words]
    runpy.run_path(file, run_name="__main__")
    return 0


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2
