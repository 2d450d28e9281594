"""What a search chose for a cell of a table, from results/tuning/: a line for each trial, the best first; and what the
words of a search say."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

from configs.errors import ConfigError
from tasks.errors import readable
from tasks.reading import is_number

TRIALS = "hydra.sweeper.n_trials"
RATE = "optim.lr"
BEFORE, AFTER = 4, "epoch"  # rank, trial, state and metric stand before the settings, the epoch after them
NAME = re.compile(r"[A-Za-z][\w./@]{,100}")  # of a column


@dataclass(frozen=True)
class Tuning:
    """words: settings of the best trial, as on the command line. note: how they were found, for the table. rates: the
    learning rates that the trials had, but for those with the settings of the cell."""

    words: tuple[str, ...]
    note: str
    rates: tuple[float, ...] = ()


def read_tuning(file: Path) -> Tuning | None:
    """What the table of a search (`tasks.search.rows`) says; None where there is no such file.

    Raises ConfigError where its first line is no trial with a result.
    """
    if not file.exists():
        return None
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            header, *trials = [*csv.reader(lines)] or [[]]
    except (ValueError, csv.Error):  # no UTF-8, or a column that is far too long
        header, trials = [], []
    keys = header[BEFORE : header.index(AFTER)] if AFTER in header else []
    is_table = all(map(NAME.fullmatch, header)) and all(len(trial) == len(header) for trial in trials)
    if not keys or not trials or not is_table or not trials[0][BEFORE - 1]:
        raise ConfigError(f"{file}: is no ranked table of a search; make it again with make tune and make collect.")
    best = dict(zip(header, trials[0], strict=True))
    seed = f", seed {readable(best['seed'][:20])}" if best.get("seed") else ""
    is_baseline = [not any(trial[BEFORE : header.index(AFTER)]) for trial in trials]
    first = ", the first with the settings of the cell," if any(is_baseline) else ""
    return Tuning(
        tuple(f"{key}={best[key]}" for key in keys if best[key]),
        f"tuned by us, {len(trials)} trials{first} of {', '.join(keys)} by {header[BEFORE - 1]}{seed} "
        "(results/tuning/)",
        tuple(float(rate) for trial in trials if RATE in keys and is_number(rate := trial[header.index(RATE)])),
    )


def search_values(words: Sequence[str]) -> dict[str, set[str] | None]:
    """The values of the keys of a search that have several, and of TRIALS its number; None for those of an interval."""
    settings: dict[str, set[str] | None] = {}
    for word in OverridesParser.create().parse_overrides([*words]):
        if word.is_sweep_override():
            settings[word.get_key_element()] = {*word.sweep_string_iterator()} if word.is_discrete_sweep() else None
        elif word.get_key_element() == TRIALS:
            settings[TRIALS] = {word.get_value_string()}
    return settings
