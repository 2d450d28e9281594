"""How long the runs of a table trained against their authors' own, how many seeds they have, and who tuned them."""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from configs.cells import Place
from configs.tables import Layout
from configs.tuning import RATE, search_values
from scripts.listing import listing
from scripts.orderings import seeds
from scripts.records import Record
from tasks.schedules import FALLING
from tasks.settings import flat

STEPS = "Shares of the authors' steps count a step as one, however many examples it has: batches may differ from theirs"
RISES, FALLS = "so that more steps may give more", "as it mostly is where learning rates fall to 0 over the run"


def budget_lines(layout: Layout, cells: dict[Place, list[Record]]) -> list[str]:
    """A line for each budget, number of seeds and tuning, with the cells that have them; none where there is no run."""
    places: dict[str, dict[Place, str]] = defaultdict(dict)
    notes = {cell.place: cell.tuning.note for cell in layout.cells if cell.tuning}
    for _, place in layout.places:
        if not (runs := cells.get(place, [])):
            continue
        known = filter(None, (notes.get(place), layout.tuned.get(place[0])))
        tuned = "; ".join(known) or layout.tuned_else or "who tuned it is not recorded"
        places[f"{budget(runs[0], layout.budgets.get(place))}; {seeds(runs)}; {tuned}"][place] = ""
    lines = [f"Budget: {words}: {listing(layout, where, cells)}" for words, where in places.items()]
    return [*lines, STEPS] if any(" % of its authors'" in line for line in lines) else lines


def rising_lines(layout: Layout, cells: dict[Place, list[Record]]) -> list[str]:
    """The cells whose last validation was the best for most of their seeds: a line for those with learning rates that
    fall to 0 over the run, where that is usual, and one for the others."""
    places: dict[str, dict[Place, str]] = {RISES: {}, FALLS: {}}
    for _, place in layout.places:
        runs = cells.get(place, [])
        if 2 * (last := sum(was_rising(run) for run in runs)) > len(runs):
            falls = runs[0]["config"]["optim"].get("schedule") in FALLING
            remark = "" if last == len(runs) else f" ({last} of {len(runs)} seeds)"
            places[FALLS if falls else RISES][place] = remark
    return [
        f"The last validation was the best, {word}: {listing(layout, where, cells)}"
        for word, where in places.items()
        if where
    ]


def edge_lines(layout: Layout, cells: dict[Place, list[Record]]) -> list[str]:
    """The cells for which the trials chose the lowest or the highest learning rate of their range, that of the table or
    else of their own trials, where another one beyond it may be better."""
    range_of_all = [float(value) for value in search_values(layout.tuning).get(RATE) or ()]
    places: dict[tuple[str, float], dict[Place, str]] = defaultdict(dict)
    for cell in layout.cells:
        if not cell.tuning or not cells.get(cell.place):
            continue
        rate, tried = float(flat(cells[cell.place][0]["config"])[RATE]), range_of_all or cell.tuning.rates
        for name, edge in (("lowest", min), ("highest", max)):
            if len({*tried}) > 1 and rate == edge(tried):
                places[name, rate][cell.place] = ""
    remark = "beyond which none was tried"
    return [
        f"The {name} learning rate of the search, {rate:g}, {remark}: {listing(layout, where, cells)}"
        for (name, rate), where in sorted(places.items(), key=lambda item: item[0][1])
    ]


def was_rising(run: Record) -> bool:
    """Whether the selected state of a run is that of its last step, where one of several validations chose it. Epochs
    of L-BFGS are starts."""
    config, most = flat(run["config"]), steps(run)
    if most is None or config.get("optim.rule") == "lbfgs":
        return False
    epochs, every = (config.get(f"trainer.{key}") or 1 for key in ("max_epochs", "check_val_every_n_epoch"))
    once = 0 < epochs <= every and config.get("trainer.val_check_interval", 1.0) == 1.0
    return not once and (run["selection"] or {}).get("step", 0) >= most


def budget(run: Record, theirs: int | None) -> str:
    """The most steps of a run, and how many that is of those of the model's authors, where the table has these; of a
    minimisation of the whole loss its iterations."""
    optim = flat(run["config"].get("optim") or {})
    if optim.get("rule") == "lbfgs":
        return f"at most {optim['lbfgs.max_iter']} iterations of L-BFGS on all data from each start"
    if is_solved(flat(run["config"])):
        return "solved at once by scikit-learn, no steps"
    ours = steps(run)
    if ours is None:
        return "an unknown number of steps"
    patience = run["config"].get("trainer", {}).get("patience")
    if patience:
        known = "its authors' are not in this repository" if theirs is None else f"its authors': {theirs:,}"
        return f"at most {ours:,} steps ({known}), fewer where {patience} validations in a row were not better"
    if theirs is None:
        return f"{ours:,} steps (its authors' are not in this repository)"
    return f"{ours:,} steps, {100 * ours / theirs:.3g} % of its authors' {theirs:,}"


def is_solved(config: Mapping[str, Any]) -> bool:
    """Whether the model of a flat configuration is a linear one, whose whole problem is solved before training."""
    return str(config.get("task.model._target_")).endswith(".LinearClassifier")


def steps(run: Record) -> int | None:
    """The most steps of a run; how many an epoch has follows from the step and epoch of the selected state, or, where
    this may be of the middle of an epoch, from the numbers of pairs and of pairs in a batch."""
    config, selection = flat(run["config"]), run["selection"] or {}
    most, epochs = (int(config.get(f"trainer.{key}") or -1) for key in ("max_steps", "max_epochs"))
    if most > 0:
        return most
    if epochs > 0 and config.get("trainer.val_check_interval", 1.0) != 1.0:
        pairs, batch = flat(run["data"]).get("counts.train.pairs"), config.get("task.data.batch_size")
        batches = int(config.get("trainer.accumulate_grad_batches") or 1)  # in a step
        return math.ceil(pairs / batch / batches) * epochs if pairs and batch else None
    if epochs < 0 or not selection.get("epoch") or not selection.get("step"):
        return None
    return round(selection["step"] / selection["epoch"] * epochs)
