"""Draw what trained models look like, from the folders of their runs.

python scripts/figures.py FIGURE... RUN_FOLDER...     as in: figures.py boundaries norms outputs/A/... outputs/B/...
python scripts/figures.py all RUN_FOLDER...           every figure that these runs have
python scripts/figures.py --list                      what there is

Several runs are drawn side by side, or as curves of one figure; `nearest` and `lengths` make files for each of them.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

from scripts.drawing.canvas import FORMATS  # noqa: E402
from scripts.shown import FIGURES, Wishes  # noqa: E402
from scripts.trained import STATES, Run, load, read_runs  # noqa: E402
from tasks.errors import UserError, plain_warnings  # noqa: E402

EVERY = "all"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 where a figure cannot be drawn. Exits with 2 for bad usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        for name, (what, _) in FIGURES.items():
            print(f"{name:12} {what}")
        return 0
    try:
        figures, folders = split(options.words)
        runs = read_runs(folders)
        draw(figures, runs, _wishes(options))
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def split(words: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The figures and the run folders of the command line. Raises UserError where there is none of either."""
    figures = []
    for word in words:
        if word not in (*FIGURES, EVERY):
            break
        figures.append(word)
    folders = [Path(word) for word in words[len(figures) :]]
    there_are = f"Figures: {', '.join([*FIGURES, EVERY])}."
    if not figures:
        first = words[0] if words else ""
        near = difflib.get_close_matches(first, FIGURES, n=1)
        fault = f"{first!r} is no figure" if words else "No figure is named"
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UserError(f"{fault}.{hint} {there_are} Then come run folders, as in: figures.py norms outputs/A/...")
    if not folders:
        raise UserError(f"Name the folder of a run after {figures[-1]}, as in: figures.py {figures[-1]} outputs/A/...")
    for word in words[len(figures) :]:
        near = difflib.get_close_matches(word, FIGURES, n=1)
        if not Path(word).exists() and (word in FIGURES or ("/" not in word and near)):
            raise UserError(f"{word!r} is neither a figure nor a folder; figures come first. {there_are}")
    return figures, folders


def draw(figures: Sequence[str], runs: Sequence[Run], wishes: Wishes) -> None:
    """Draw the figures, print the files; each model is read once. With `all`, what a run does not have is left out.

    Raises UserError where a figure that was named cannot be drawn, or of `all` none.
    """
    models = functools.cache(lambda k: load(runs[k], wishes.state))
    places = {id(run): k for k, run in enumerate(runs)}
    optional = EVERY in figures
    failed: list[str] = []
    chosen = list(FIGURES) if optional else list(dict.fromkeys(figures))
    for name in chosen:
        try:
            made = FIGURES[name][1](runs, lambda run: models(places[id(run)]), wishes)
        except UserError as error:
            if not optional:
                raise
            failed.append(name)
            print(f"left out {name}: {error}", file=sys.stderr)
            continue
        for path in made:
            print(f"figure: {path}", flush=True)
    if len(failed) == len(chosen):
        raise UserError("No figure could be drawn; the reasons are above.")


def _wishes(options: argparse.Namespace) -> Wishes:
    labels = None
    if options.labels is not None:
        labels = tuple(dict.fromkeys(word.strip() for word in options.labels.split(",") if word.strip()))
        if not labels:
            raise UserError("--labels names nothing; write them with commas, as in --labels person,artist.")
    if options.words_drawn < 1:
        raise UserError(f"--words must be at least 1, and it is {options.words_drawn}.")
    if options.out.exists() and not options.out.is_dir():
        raise UserError(f"--out {options.out} is a file; name a folder.")
    return Wishes(options.out, options.format, labels, options.name, options.words_drawn, options.state, options.pairs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="figures.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", metavar="FIGURE... RUN_FOLDER", help=f"{', '.join(FIGURES)}, or {EVERY}")
    parser.add_argument("--list", action="store_true", help="say what the figures show")
    parser.add_argument("--labels", metavar="A,B,...", help="types of nearest, boundaries; entities; nodes of tree")
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="premise <tab> hypothesis a line, for attention")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "figures", metavar="DIR", help="results/figures")
    parser.add_argument("--format", choices=FORMATS, default="png", help="of pictures; tables are Markdown")
    parser.add_argument("--name", help="what the files are called after the figure's name, in the place of the runs")
    parser.add_argument("--state", choices=list(STATES), default="best", help="weights of the best epoch, or the last")
    parser.add_argument("--words", dest="words_drawn", type=int, default=2000, metavar="N", help="drawn in attention")
    return parser


if __name__ == "__main__":
    plain_warnings()
    sys.exit(main())
