"""Draw what trained models look like, from the folders of their runs.

python scripts/figures.py FIGURE... RUN_FOLDER...     as in: figures.py boundaries norms outputs/A/... outputs/B/...
python scripts/figures.py all RUN_FOLDER...           every figure that these runs have
python scripts/figures.py search SEARCH_FOLDER        trials of a search: parallel coordinates, importance of settings
python scripts/figures.py --list                      what there is

Several runs are drawn side by side, or as curves of one figure; `nearest` and `lengths` make files for each of them.
"""

import argparse
import collections
import contextlib
import csv
import difflib
import functools
import inspect
import itertools
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

from scripts import commands  # noqa: E402
from scripts.drawing import (  # noqa: E402
    attention,
    boundaries,
    classes,
    curves,
    documents,
    entities,
    granularity,
    histograms,
    nearest,
    nodes,
    separation,
    tree,
    trees,
    trials,
)
from scripts.drawing.canvas import FORMATS  # noqa: E402
from scripts.drawing.options import FigureOptions, Loader  # noqa: E402
from scripts.drawing.titles import read_titles  # noqa: E402
from scripts.trained import STATES, Run, load, read_runs  # noqa: E402
from tasks.errors import UserError, called, plain_warnings, whole  # noqa: E402

EVERY, SEARCH = "all", "search"
# The first line of each docstring says what the figure shows.
FIGURES: dict[str, Callable[[Sequence[Run], Loader, FigureOptions], list[Path]]] = {
    "nearest": nearest.draw,
    "boundaries": boundaries.draw,
    "attention": attention.draw,
    "norms": curves.draw_norms,
    "granularity": granularity.draw,
    "entities": entities.draw,
    "nodes": nodes.draw,
    "lengths": histograms.draw,
    "accumulation": documents.draw_accumulation,
    "factors": documents.draw_factors,
    "classes": classes.draw,
    "separation": separation.draw,
    "tree": tree.draw,
    "trees": trees.draw,
    "curves": curves.draw,
}


@commands.makes_models
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 where a figure cannot be drawn. Exits with 2 for bad usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        for name, drawer in FIGURES.items():
            print(f"{name:12} {inspect.getdoc(drawer).splitlines()[0]}")
        print(f"{SEARCH:12} {inspect.getdoc(trials.draw).splitlines()[0]}")
        return 0
    if options.name and options.name != Path(options.name).name:
        raise UserError(f"--name {options.name}: it is a part of the files' names; --out names the folder.")
    if options.words[:1] == [SEARCH]:
        draw_searches([Path(word) for word in options.words[1:]], options)
        return 0
    figures, folders = split(options.words)
    runs = read_runs(folders)
    draw(figures, runs, _figure_options(options))
    return 0


def draw_searches(folders: Sequence[Path], options: argparse.Namespace) -> None:
    """Draw the trials of searches, by their folders, and print the files. Raises UserError where one is none."""
    if not folders:
        raise UserError("Name the folder of a search, as in: figures.py search outputs/search/NAME")
    if options.name and len(folders) > 1:
        raise UserError("--name names the files of one search; leave it out, or draw them one by one.")
    names = [options.name or (folder.resolve().name if options.out else "") for folder in folders]
    if options.out and len({*names}) < len(names):
        raise UserError("--out: two of these searches have one name, and so have their files; draw them one by one.")
    for folder, name in zip(folders, names, strict=True):
        for path in trials.draw(folder, options.out or folder, options.format, name):
            print(f"figure: {path}", flush=True)


def split(words: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The figures and the run folders of the command line. Raises UserError where there is none of either."""
    figures = list(itertools.takewhile(lambda word: word in (*FIGURES, EVERY), words))
    rest = words[len(figures) :]
    names = f"Figures: {', '.join([*FIGURES, EVERY])}."
    if not figures:
        near = difflib.get_close_matches(words[0], FIGURES, n=1) if words else []
        fault = f"{words[0]!r} is no figure" if words else "No figure is named"
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UserError(f"{fault}.{hint} {names} Then come run folders, as in: figures.py norms outputs/A/...")
    if not rest:
        raise UserError(f"Name the folder of a run after {figures[-1]}, as in: figures.py {figures[-1]} outputs/A/...")
    for word in rest:
        misspelt = "/" not in word and difflib.get_close_matches(word, FIGURES, n=1)
        if not Path(word).exists() and (word in FIGURES or misspelt):
            raise UserError(f"{word!r} is neither a figure nor a folder; figures come first. {names}")
    return figures, [Path(word) for word in rest]


def draw(figures: Sequence[str], runs: Sequence[Run], options: FigureOptions) -> None:
    """Draw the figures, print the files; each model is read once. What a run does not have is left out; with
    `all` a figure that not every run has is drawn separately for each run that has it.

    Raises UserError, after those that can be drawn, where a figure that was named cannot, or of `all` none.
    """
    models = functools.cache(lambda k: load(runs[k], options.state, options.data))
    places = {id(run): k for k, run in enumerate(runs)}
    failures: dict[str, str] = {}
    names = list(FIGURES) if EVERY in figures else list(dict.fromkeys(figures))

    def print_figures(name: str, of: Sequence[Run], own: FigureOptions) -> None:
        for path in FIGURES[name](of, lambda run: models(places[id(run)]), own):
            print(f"figure: {path}", flush=True)

    def print_alone(name: str) -> bool:
        """Returns whether at least one run has the figure."""
        n_drawn = 0
        for run in runs:
            with contextlib.suppress(UserError):
                print_figures(name, [run], options.for_run(run, runs))
                n_drawn += 1
        return n_drawn > 0

    for name in names:
        try:
            print_figures(name, runs, options)
        except UserError as error:
            if len(names) == 1:
                raise
            if EVERY in figures and len(runs) > 1 and print_alone(name):
                continue
            failures[name] = str(error)
            if EVERY not in figures:
                print(f"left out {name}: {error}", file=sys.stderr)
    if EVERY in figures and failures:
        place = shlex.join(str(run.folder) for run in runs)
        example = f"one that is named says why: python scripts/figures.py {next(iter(failures))} {place}"
        print(called(f"left out: {', '.join(failures)}; {example}"), file=sys.stderr)
        for reason, count in collections.Counter(failures.values()).items():
            if 2 * count > len(failures):  # as of a run without a checkpoint; others are of runs of another task
                named = ", ".join(name for name, other in failures.items() if other == reason)
                print(f"note: {named}: {reason}", file=sys.stderr)
    if len(failures) == len(names):
        raise UserError("No figure could be drawn; the reasons are above.")
    if failures and EVERY not in figures:
        raise UserError(f"Not drawn: {', '.join(failures)}; the reasons are above.")


def _figure_options(options: argparse.Namespace) -> FigureOptions:
    labels = None
    if options.labels is not None:
        line = " ".join(options.labels.split())
        words = next(csv.reader([line], skipinitialspace=True), [])  # in quotes one may have a comma
        labels = tuple(dict.fromkeys(word.strip() for word in words if word.strip()))
        if not labels:
            raise UserError("--labels names nothing; write them with commas, as in --labels person,artist.")
    whole("--words", options.words_drawn, 1)
    if options.out and options.out.exists() and not options.out.is_dir():
        raise UserError(f"--out {options.out} is a file; name a folder.")
    return FigureOptions(
        options.out, options.format, labels, options.name, options.words_drawn, options.state, options.pairs,
        read_titles(options.titles), options.data,
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = commands.parser("figures.py", __doc__, makes_models=True)
    parser.add_argument("words", nargs="*", metavar="FIGURE... RUN_FOLDER", help=f"{', '.join(FIGURES)}, or {EVERY}")
    parser.add_argument("--list", action="store_true", help="say what the figures show")
    labels = "types of nearest, boundaries; entities; nodes of nodes, tree; sentences of trees"
    parser.add_argument("--labels", metavar="A,B,...", help=labels)
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="premise <tab> hypothesis a line, for attention")
    titles = "for the figures entities and nodes: name <tab> title a line, or WordNet 3.0's data.noun, data.verb, ..."
    parser.add_argument("--titles", type=Path, action="append", default=[], metavar="FILE", help=titles)
    parser.add_argument("--out", type=Path, metavar="DIR", help="of the files, else figures in the first run's folder")
    parser.add_argument("--format", choices=FORMATS, default="png", help="of pictures; tables are Markdown")
    parser.add_argument("--name", help="what the files are called after the figure's name, in the place of the runs")
    parser.add_argument("--state", choices=list(STATES), default="best", help="weights that were tested, or the last")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="your own data (data.dir), where they have moved")
    parser.add_argument(
        "--words", dest="words_drawn", type=int, default=2000, metavar="N", help="drawn in attention and accumulation"
    )
    return parser


if __name__ == "__main__":
    plain_warnings()
    sys.exit(main())
