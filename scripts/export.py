"""Write the points of a trained model with their names, for other programs.

python scripts/export.py outputs/RUN_FOLDER --format tsv                          what the model is mainly about
python scripts/export.py outputs/RUN_FOLDER --format word2vec --what words        or entities, relations, nodes, classes
python scripts/export.py outputs/RUN_FOLDER --format npz --model lorentz          coordinates of another model of space
python scripts/export.py outputs/RUN_FOLDER --format folder --out my_model        weights, settings, points, model card
"""

import argparse
import difflib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)
    import scripts  # noqa: F401 - Ctrl-C during the other imports

import torch  # noqa: E402

from hyperbolic.manifolds import Euclidean, Klein, Lorentz, Manifold, PoincareBall  # noqa: E402
from hyperbolic.manifolds.charts import convert  # noqa: E402
from scripts import commands  # noqa: E402
from scripts.exports.card import card  # noqa: E402
from scripts.exports.formats import FORMATS, Table, write  # noqa: E402
from scripts.trained import read_run, restore  # noqa: E402
from tasks import exported, resume, vocabularies  # noqa: E402
from tasks.base import NamedPoints  # noqa: E402
from tasks.errors import UserError, plain_warnings  # noqa: E402

FLAT, FOLDER = "euclidean", "folder"
MODELS: dict[str, type[Manifold]] = {"poincare": PoincareBall, "lorentz": Lorentz, "klein": Klein}


@commands.makes_models
def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0, or 1 where nothing can be exported. Exits with 2 for bad usage."""
    options = _parser().parse_args(arguments)
    if options.format == FOLDER and (options.what or options.model):
        raise UserError("--what and --model are for files of points; --format folder has all, as they were trained.")
    if options.format != FOLDER and options.out and options.out.is_dir():
        raise UserError(f"--out {options.out} is a folder; name a file.")
    run = read_run(options.run)
    checkpoint = resume.read(run.folder, str(run.folder))
    if not (run.folder / "record.json").is_file():
        state = checkpoint["file"].name.removesuffix(".ckpt")
        note = f"note: the run was not at its end: these are the weights of its {state} state, not tested."
        print(note, file=sys.stderr)
    trained = restore(run, checkpoint, portable=True)  # names are in the checkpoint
    with torch.no_grad():
        kinds = trained.task.named_points(trained.data)
    if options.format == FOLDER:
        if checkpoint.get(vocabularies.KEY) is None:  # an old one, whose data were read
            checkpoint[vocabularies.KEY] = vocabularies.pack(trained.data)
        folder = options.out or options.run / "exported"
        about = card(run, kinds, predicts=bool(checkpoint.get("vocabulary")))
        print(f"model: {exported.write(folder, checkpoint, kinds, about)}")
        return 0
    kind = choose_kind(options.what, list(kinds), str(options.run))
    table = in_model(kind, kinds[kind], options.model, run.title)
    file = options.out or options.run / f"{kind}.{table.model}.{FORMATS[options.format].suffix}"
    n, d = table.coordinates.shape
    space = f"{table.model}, c = {table.c:.6g}" if table.c else table.model
    print(f"{kind}: {write(table, options.format, file)} ({n:,} points of {d} coordinates; {space})")
    if others := [f"--what {other}" for other in kinds if other != kind]:
        print(f"also: {', '.join(others)}")
    return 0


def choose_kind(what: str | None, kinds: list[str], run: str) -> str:
    """The kind of points that is asked for, without a word the first. Raises UserError where there is none."""
    if not kinds:
        raise UserError(
            f"{run}: its model has no points with names, so there is nothing to export as a table. --format folder "
            "writes its weights, settings and a model card."
        )
    if what is None or what in kinds:
        return what or kinds[0]
    near = difflib.get_close_matches(what, kinds, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UserError(f"--what {what}: the model of {run} has no points of them.{hint} It has {', '.join(kinds)}.")


def in_model(kind: str, points: NamedPoints, model: str | None, run: str) -> Table:
    """The points in float64 with the coordinates of a model of their space: a key of MODELS, or "euclidean", tangent
    vectors at the origin ``l log_0(x)`` whose length is the distance from it; None: as they were trained.

    Raises UserError for a model of hyperbolic space where that of the points is another space.
    """
    manifold = points.manifold
    x = manifold.projx(points.x.detach().double())
    own = next((name for name, each in MODELS.items() if type(manifold) is each), manifold.name.lower())
    if isinstance(manifold, Euclidean):
        if model not in (None, FLAT):
            raise UserError(f"--model {model}: the {kind} of {run} lie in flat space; leave it out.")
        own = FLAT
    elif model == FLAT:
        x = manifold.origin_scale * manifold.logmap0(x)
    elif model is not None and not manifold.is_hyperbolic:
        raise UserError(f"--model {model}: the {kind} of {run} lie on {manifold.name}, which is another space.")
    elif model is not None:
        radii, twin = manifold.dist0(x), manifold.twin(MODELS[model])
        x = convert(x, manifold, twin)
        if n_far := int((radii - twin.dist0(x) > 1e-3 * radii).sum()):
            what = f"{n_far:,} of {len(x):,} {kind} lie further out than coordinates of the {model} model can hold"
            print(f"note: {what}, and are moved inward; --model lorentz holds more.", file=sys.stderr)
    c = float(manifold.c.detach()) if manifold.is_curved else 0.0
    return Table(kind, list(points.names), x.detach().cpu().numpy(), model or own, c, run)


def _parser() -> argparse.ArgumentParser:
    parser = commands.parser("export.py", __doc__, makes_models=True)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--format", choices=[*FORMATS, FOLDER], required=True, help="word2vec: texts that gensim reads")
    parser.add_argument("--what", metavar="KIND", help="entities, relations, nodes, words, classes, or what there is")
    parser.add_argument(
        "--model",
        choices=[*MODELS, FLAT],
        help="of space, whose coordinates are written: the model's own; euclidean: tangent vectors at the origin",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="else in RUN: <what>.<model>.<suffix>, or exported")
    return parser


if __name__ == "__main__":
    plain_warnings()
    sys.exit(main())
