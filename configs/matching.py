"""Which cells of the published tables a record fills: those that its experiment and its resolved settings fit.

A cell stands for the composition of its experiment with its overrides. A record fits where every setting that decides
results, and that both have, is the same; a setting that one of them lacks was added or removed since.
"""

import functools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from configs import composing, files, tables
from configs.cells import Cell, TableError
from configs.errors import paragraph
from configs.tables import Layout
from tasks.report import Published
from tasks.settings import IRRELEVANT, LATER, OPEN, current, flat, is_under
from tasks.sizes import AUTO

Record = dict[str, Any]

TRAINER = (
    "max_epochs", "max_steps", "limit_train_batches", "accumulate_grad_batches", "val_check_interval",
    "check_val_every_n_epoch", "patience", "precision", "average_last", "min_epochs", "limit_val_batches",
)  # fmt: skip
DECISIVE = ("task", "geometry", "encoder", "optim", "fidelity", *(f"trainer.{key}" for key in TRAINER))
SOURCES = ("task.network", "task.others", "task.training")  # of graphs: encoder and optimiser hold what they take


def decisive(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a resolved configuration that decide results, by dotted key; no seeds, of paths the last part."""
    settings = {key: _portable(key, value) for key, value in current(flat(config)).items() if _decides(key)}
    if settings.get("task.model._target_") == "EntityTyper" and "encoder.cell" in settings:
        settings.pop("task.model.d", None)  # the size of HyboNet's states, which HyFi's network does not have
    if settings.get("task.model.design", "") is None:
        settings["task.model.design"] = "auto"  # as it is called now
    geometry = config.get("geometry") or {}
    return settings | {key: geometry[name] for key in OPEN if (name := key.partition(".")[2]) in geometry}


def differences(record: dict[str, Any], cell: dict[str, Any]) -> list[str]:
    """Where the decisive settings of a record are not a cell's, as `optim.lr=0.5, not 0.3`."""
    record = {key: value for key, value in LATER.items() if key in cell} | record
    pairs = [(key, record[key], cell[key]) for key in cell if key in record and record[key] != cell[key]]
    pairs += [(key, record[key], None) for key in _below_null(record, cell)]
    pairs += [(key, None, cell[key]) for key in _below_null(cell, record)]
    return [f"{key}={theirs}, not {ours}" for key, theirs, ours in pairs]


def settings_of(cell: Cell) -> dict[str, Any]:
    """The decisive settings of a cell. Raises TableError where its words do not compose."""
    return _settings(files.FOLDER, cell)


def settings_of_record(record: Record) -> dict[str, Any]:
    """The decisive settings of a record, where those that its data's size decided say so, as a cell's do."""
    return decisive(record["config"]) | dict.fromkeys(record.get("auto", ()), AUTO)


def fits(record: Record, cell: Cell, settings: dict[str, Any] | None = None) -> bool:
    """Whether a record fills a cell. settings: the record's decisive ones, where they are at hand."""
    if not _is_named(record["experiment"], cell):
        return False
    return not differences(settings or settings_of_record(record), settings_of(cell))


def cells_of(record: Record, layouts: Iterable[Layout]) -> list[Cell]:
    """Every cell that a record fills. Raises TableError where it fits two cells of one table."""
    settings = settings_of_record(record)
    filled: list[Cell] = []
    for layout in layouts:
        cells = [cell for cell in layout.cells if fits(record, cell, settings)]
        if len(cells) > 1:
            names = " and ".join(f"'{cell}'" for cell in cells)
            raise TableError(
                f"{layout.file}.yaml: the record of {record['experiment']} with seed {record['seed']} fits {names}, so "
                "they are the same run. Let their overrides differ, or remove one."
            )
        filled += cells
    return filled


def misfit(record: Record, layouts: Iterable[Layout]) -> str | None:
    """Why a record that fills no cell does not: the nearest cell, and where they differ. None: no cell is near."""
    settings = settings_of_record(record)
    cells = [cell for layout in layouts for cell in layout.cells if _is_named(record["experiment"], cell)]
    if record["experiment"] not in {cell.experiment for cell in cells}:  # it is gone: what is near has the same task
        cells = [cell for cell in cells if settings_of(cell).get("task.name") == settings.get("task.name")]
    if not cells:
        return None
    wrong, nearest = min(((differences(settings, settings_of(c)), c) for c in cells), key=lambda pair: len(pair[0]))
    return f"fits no cell of a table. The nearest is '{nearest}' of {nearest.table}; the run has {'; '.join(wrong)}"


def published(record: Record) -> list[Published]:
    """The published values of the cells that a record fills, to be shown beside its own; a line on standard error says
    of a training of a cell's experiment which fills none what differs.

    A table file that cannot be used has none, and a line on standard error: no run fails for it at its end. The files
    are read only for a run of an experiment: each cell has one.
    """
    values: list[Published] = []
    try:
        every = tables.load_layouts() if record["experiment"] and tables.PUBLISHED.is_dir() else []
        layouts = {one.file: one for one in every if any(cell.experiment == record["experiment"] for cell in one.cells)}
        cells = cells_of(record, layouts.values())
        is_result = record["config"]["mode"] == "fit" and any(name.startswith("test/") for name in record["metrics"])
        if is_result and not cells and (reason := misfit(record, layouts.values())):  # trials of a search are none
            print(f"note: no published value stands below, as this run {reason}.", file=sys.stderr)
        for cell in cells:
            layout = layouts[cell.table]
            for column in layout.columns if cell.column is None else [cell.column]:
                value, label = layout.published.get((cell.row, column)), layout.of_paper
                if value is not None:
                    values.append(Published(layout.file, cell.row, column, layout.metrics[column], value, label))
    except (TableError, OSError) as error:
        print(f"note: no published values are shown: {error}", file=sys.stderr)
    return values


def _decides(key: str) -> bool:
    if key in IRRELEVANT or key.rpartition(".")[2] == "seed":
        return False
    return is_under(key, DECISIVE) and not is_under(key, (*OPEN, *SOURCES))


def _below_null(settings: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The settings below a node that is null in the other, but for `encoder`: a model without one has it null."""
    nulls = tuple(f"{key}." for key, value in other.items() if value is None and key != "encoder")
    return [key for key, value in settings.items() if value is not None and key.startswith(nulls)]


def _portable(key: str, value: Any) -> Any:
    """A value without what moves: the folders of a path, the module of a class."""
    if isinstance(value, list):
        return [_portable(key, each) for each in value]
    return value.rpartition("." if key.endswith("_target_") else "/")[2] if isinstance(value, str) else value


@functools.cache  # folder: of the configurations in use, which decides what the words mean
def _settings(folder: Path, cell: Cell) -> dict[str, Any]:
    try:
        choices, changes = composing.split(cell.words)
        return decisive(composing.changed(_compose(folder, tuple(choices)), changes))
    except composing.NOT_COMPOSED as error:
        raise TableError(f"{cell.table}.yaml: the overrides of '{cell}' do not compose: {paragraph(error)}") from error


@functools.cache
def _compose(folder: Path, words: tuple[str, ...]) -> DictConfig:
    composing.register()
    return composing.composed(*words)


def _is_named(experiment: str | None, cell: Cell) -> bool:
    """Whether a record may fill a cell by its name: that of the cell's experiment, or of one that is gone."""
    if experiment is None or experiment == cell.experiment:
        return experiment is not None
    return not (files.FOLDER / "experiment" / f"{experiment}.yaml").is_file()
