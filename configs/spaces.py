"""The space of a search: which settings are tried, which values each may take, and where one counts at all."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from omegaconf import DictConfig, OmegaConf

from configs import files
from configs.errors import ConfigError

Draw = Callable[[str, "Choice | Interval"], str]  # a value for a key
Compose = Callable[[Sequence[str]], DictConfig]  # the configuration of a job with these words

ONE_SEED = (
    "A search trains each of its settings with one seed, and the best one afterwards over several, by the command that "
    "it ends with."
)
KEYS, VALUES = ", ", " + "  # between keys that take their values together, and between these values
PRESENT = "present"
FIXED = {  # what no search can choose, and what to do instead
    "seed": ONE_SEED,
    "task": "A search is on one task, whose metric ranks the trials; start one for each task.",
    "experiment": "A search is of one experiment; start one for each.",
    **dict.fromkeys(("data.dir", "paths.data_dir"), "A search is on one data set; start one for each."),
    "mode": "A search trains models: leave mode out.",
    **dict.fromkeys(
        ("fidelity", "task.data.known", "task.data.without_self", "task.module.ties"),
        "It may change what is measured; start a search for each.",
    ),
    "sweep": "Name one space.",
}
ITSELF = ("skip_finished", "trainer.resume")  # what a search does without being told: it goes on


@dataclass(frozen=True)
class Choice:
    """Some values, as words of the command line have them."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class Interval:
    """The numbers from low to high, on a logarithmic scale with `log`, whole ones with `whole`; with `times` both ends
    are multiples of what the key has without a search."""

    low: float
    high: float
    log: bool
    whole: bool
    times: bool = False

    def at(self, share: float) -> str:
        """The number at a share, from 0 to 1, of the way, with four digits; of whole ones each has its own part of it,
        the first and the last as well."""
        half = 0.5 if self.whole else 0.0
        low, high = self.low - half, self.high + half
        value = low * (high / low) ** share if self.log else low + (high - low) * share
        return self.text(min(max(value, self.low), self.high))

    def text(self, value: float) -> str:
        """A number as a word of the command line has it."""
        return str(round(value)) if self.whole else f"{value:.4g}"


@dataclass(frozen=True)
class Space:
    """words: of every trial. dimensions: by key, or by several that take their values together ("encoder, geometry").
    where: when some of the keys count: "present", if the configuration has the key, or settings with the values of
    which each must have one: {"geometry.c": {"geometry.manifold": ["PoincareBall"]}}. after_first: the
    dimensions that trial 0 leaves as the task or the experiment has them."""

    words: tuple[str, ...]
    dimensions: Mapping[str, Choice | Interval]
    where: Mapping[str, str | Mapping[str, Sequence[str]]]
    after_first: frozenset[str] = frozenset()

    def of_trial(self, number: int) -> "Space":
        """What a trial is drawn from. Trial 0 lacks what is drawn from trial 1 on: so the best one is never behind the
        task or the experiment as it is."""
        if number:
            return self
        return replace(self, dimensions={k: each for k, each in self.dimensions.items() if k not in self.after_first})

    def in_numbers(self, compose: Compose) -> "Space":
        """With the multiples of what keys have in the configuration of all trials as numbers; of whole numbers as whole
        ones, from 1 on.

        Raises ConfigError where that is no number above 0.
        """
        dimensions, cfg = dict(self.dimensions), None
        for key, each in self.dimensions.items():
            if isinstance(each, Interval) and each.times:
                cfg = cfg or compose(self.words)
                value = OmegaConf.select(cfg, key)
                if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                    raise ConfigError(
                        f"The space has multiples of {key}, which is {value} here: give it an interval of its own, as "
                        f"in {key}='tag(log,interval(0.001,0.1))'."
                    )
                low, high = each.low * value, each.high * value
                if whole := isinstance(value, int):
                    low, high = max(1, round(low)), max(1, round(high))
                dimensions[key] = replace(each, low=low, high=high, whole=whole, times=False)
        return replace(self, dimensions=dimensions)

    def by_key(self) -> dict[str, set[str]]:
        """The values of each key that has a choice."""
        values: dict[str, set[str]] = {}
        for keys, each in self.dimensions.items():
            for row in each.values if isinstance(each, Choice) else ():
                for key, value in zip(keys.split(KEYS), row.split(VALUES), strict=True):
                    values.setdefault(key, set()).add(value)
        return values

    def drawn(self, draw: Draw, compose: Compose) -> dict[str, str]:
        """What one trial draws, by dimension: those without a condition first, then of the others those whose
        conditions hold in the configuration that these give."""
        values = {key: draw(key, each) for key, each in self.dimensions.items() if key not in self.where}
        conditional = [key for key in self.dimensions if key in self.where]
        if conditional:
            cfg = compose(self.job(separate(values)))
            values |= {key: draw(key, self.dimensions[key]) for key in conditional if _holds(self.where[key], key, cfg)}
        return {key: values[key] for key in self.dimensions if key in values}

    def job(self, settings: Mapping[str, str]) -> list[str]:
        """The words of a trial with these settings."""
        return [*self.words, *(f"{key}={value}" for key, value in settings.items())]


def separate(drawn: Mapping[str, str]) -> dict[str, str]:
    """The settings of what was drawn: those that take their values together by the key of each."""
    return {
        key: value
        for keys, values in drawn.items()
        for key, value in zip(keys.split(KEYS), values.split(VALUES), strict=True)
    }


def read(
    params: Mapping[str, Any], where: Mapping[str, Any], arguments: Sequence[str], loader: ConfigLoader,
    baseline: bool = False,
) -> Space:  # fmt: skip
    """The space of a file, with what the words of the command line change of it: a word with several values, or an
    interval, is a range, and any other one fixes its key. Keys that take their values together keep those rows that
    agree with the command line, which has to name all of the keys where a value of its own is in no row. With
    an experiment, which says what the model is, the file's choices between files (encoder, geometry, ...) are left out.
    Trial 0 draws the ranges of the command line alone, with `baseline` none.

    Raises ConfigError for ranges without values and for what cannot be searched.
    """
    parser = OverridesParser.create(config_loader=loader)
    named = parser.parse_overrides(list(arguments))
    by_key = {word.key_or_group: word for word in named}
    is_experiment = "experiment" in by_key
    lines = {key: value for key, value in params.items() if not (is_experiment and _chooses_files(key))}
    words: list[str] = []
    dimensions: dict[str, Choice | Interval] = {}
    own_lines = {keys for keys in lines if not by_key.keys() & set(keys.split(KEYS))}
    for keys in [keys for keys in lines if KEYS in keys]:
        _check_free(keys, keys)
        if choice := _together(keys, lines.pop(keys), by_key):
            dimensions[keys] = choice
            named = [word for word in named if word.key_or_group not in keys.split(KEYS)]
    own = parser.parse_overrides([_word(key, value) for key, value in lines.items() if key not in by_key])
    for word in [*own, *named]:
        if word.is_sweep_override():
            _check_free(word.key_or_group, word.input_line or "")
            dimensions[word.get_key_element()] = _dimension(word)
        elif word.key_or_group not in ITSELF:
            words.append(word.input_line or "")
    mode = next((word.value() for word in named if word.key_or_group == "mode"), "fit")
    if mode != "fit":
        raise ConfigError(f"mode={mode} in a search: {FIXED['mode']}")
    if not dimensions:
        raise ConfigError(
            "The space of the search is empty: neither its file nor the command line has a key with several values. "
            "Add one, as in optim.lr='tag(log,interval(0.001,0.1))', or choose a space, as in sweep=kg."
        )
    after_first = dimensions.keys() if baseline else own_lines.intersection(dimensions)
    return Space(tuple(words), dimensions, _conditions(where, dimensions), frozenset(after_first))


def random_draw(seed: int, number: int) -> Draw:
    """What trial `number` takes at random. Each value of a choice comes as often as the others: a block of n trials
    has each of n values once (of two values a block of four trials each twice, or keys of two values would soon change
    together), in an order of its own. A key's values do not depend on the other keys."""

    def draw(key: str, dimension: Choice | Interval) -> str:
        if isinstance(dimension, Interval):
            return dimension.at(random.Random(f"{seed}/{key}/{number}").random())
        values = dimension.values * (2 if len(dimension.values) == 2 else 1)
        block, place = divmod(number, len(values))
        return random.Random(f"{seed}/{key}/{block}").sample(values, len(values))[place]

    return draw


def _check_free(keys: str, line: str) -> None:
    """Raises ConfigError where a range is of a key that no search can choose."""
    for key in keys.split(KEYS):
        if key in FIXED:
            raise ConfigError(f"{line} in a search: {FIXED[key]}")


def _chooses_files(keys: str) -> bool:
    return any((files.FOLDER / key).is_dir() for key in keys.split(KEYS))


def _together(keys: str, rows: Any, by_key: Mapping[str, Override]) -> Choice | None:
    """The choice of keys that take their values together, without the rows that the command line rules out; None where
    it names all keys, with values of which some are in no row: then each stands alone.

    Raises ConfigError where it names only some of the keys, with such values: the others would be left open.
    """
    names = keys.split(KEYS)
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == len(names) for row in rows):
        raise ConfigError(
            f"hydra.sweeper.params: the line {keys} needs rows of {len(names)} values, as in [[a, b], [c, d]]."
        )
    allowed = {}
    for name in names:
        if (word := by_key.get(name)) is not None:
            several = word.is_sweep_override() and word.is_discrete_sweep()
            allowed[name] = list(word.sweep_string_iterator()) if several else [word.get_value_string()]
    texts = [[Override._get_value_element_as_str(value) for value in row] for row in rows]
    left = [
        row for row in texts if all(value in allowed.get(name, [value]) for name, value in zip(names, row, strict=True))
    ]
    for name, values in allowed.items():
        if absent := [value for value in values if value not in {row[names.index(name)] for row in left}]:
            if others := [other for other in names if other not in by_key]:
                fits = (row for row in texts if all(row[names.index(k)] in v for k, v in allowed.items() if k != name))
                there = ", ".join(dict.fromkeys(row[names.index(name)] for row in fits)) or "none"
                raise ConfigError(
                    f"{by_key[name].input_line}: the space has {keys} together, and no row of it has {name}="
                    f"{' or '.join(absent)}{' with the other words' if len(allowed) > 1 else ''} (there is {there}). "
                    f"Take what there is, or name the values of {' and '.join(others)} as well, as in "
                    f"{others[0]}={texts[0][names.index(others[0])]}."
                )
            return None
    return Choice(tuple(VALUES.join(row) for row in left))


def _word(key: str, value: Any) -> str:
    """A line of a space as a word of the command line; a list is a choice."""
    if not isinstance(value, list):
        return f"{key}={value if isinstance(value, str) else Override._get_value_element_as_str(value)}"
    if not value:
        raise ConfigError(f"hydra.sweeper.params.{key}=[]: the range has no value; name some, as in [1, 2].")
    return f"{key}={','.join(map(Override._get_value_element_as_str, value))}"


def _dimension(word: Override) -> Choice | Interval:
    value = word.value()
    if not isinstance(value, IntervalSweep):
        values = tuple(dict.fromkeys(word.sweep_string_iterator()))
        if not values:
            raise ConfigError(f"{word.input_line}: the range has no value; name some, as in choice(1,2).")
        if "times" in getattr(value, "tags", ()):
            raise ConfigError(f"{word.input_line}: multiples need an interval, as tag(times,interval(0.5,2)).")
        return Choice(values)
    low, high, tags = value.start, value.end, value.tags
    if low is None or high is None or not low < high:
        raise ConfigError(f"{word.input_line}: an interval needs two numbers, the smaller one first.")
    if "log" in tags and low <= 0:
        raise ConfigError(f"{word.input_line}: on a logarithmic scale an interval begins above 0.")
    return Interval(low, high, "log" in tags, isinstance(low, int) and isinstance(high, int), "times" in tags)


def _conditions(where: Mapping[str, Any], dimensions: Mapping[str, Any]) -> dict[str, Any]:
    conditions: dict[str, Any] = {}
    for key, settings in where.items():
        if settings == PRESENT:
            if key in dimensions:
                conditions[key] = PRESENT
            continue
        if not isinstance(settings, Mapping) or not all(isinstance(values, list) for values in settings.values()):
            raise ConfigError(
                f"hydra.sweeper.where.{key}={settings}: name a setting and the values with which {key} counts, as in "
                f"{{encoder: [transformer]}}, or say {PRESENT}."
            )
        if key in dimensions:
            conditions[key] = {name: [str(value) for value in values] for name, values in settings.items()}
    return conditions


def _holds(condition: str | Mapping[str, Sequence[str]], key: str, cfg: DictConfig) -> bool:
    """Whether each setting of a condition has one of its values; of a group the file that is chosen counts."""
    if isinstance(condition, str):
        node, _, name = key.rpartition(".")
        return name in (OmegaConf.select(cfg, node) or {})
    for key, values in condition.items():
        value = cfg.hydra.runtime.choices.get(key) or OmegaConf.select(cfg, key)
        if str(value) not in values:
            return False
    return True
