"""Hydra's messages, as one paragraph that names the culprit and the remedy."""

import difflib
import re
import shlex
import sys

from configs import files, words
from configs.kinds import nearest
from tasks.errors import UserError, readable

NEEDS_EXTRA = {"joblib": "local", "submitit_slurm": "slurm", "submitit_local": "slurm", "ray": "ray"}

MOST_NAMES = 40  # in a message
_WRONG_VALUES = (
    r"Value '(?P<value>[^']*)' of type '\w+' could not be converted to (?P<kind>\w+)",
    r"Value '(?P<value>[^']*)' of type '\w+' is incompatible with type hint '(?P<kind>[^']+)'",
    r"Value '(?P<value>[^']*)' is not a valid (?P<kind>bool)\b",
)


_NO_NAME = re.compile(r"null|true|false|nan|inf|[+-]?[\d._e+-]+", re.IGNORECASE)


class ConfigError(UserError):
    """A key or value of the configuration is wrong; the message names it and the remedy."""


def paragraph(error: BaseException) -> str:
    """What a mistake in the configuration or on the command line is, and what to do about it."""
    if isinstance(error, UserError):  # they say all themselves
        return " ".join(str(error).split())
    text = _whole_text(error)
    of_words = _several_values, _no_name, _no_such_choice, _no_such_key, _wrong_value
    for rule in (*of_words, _no_such_source, _unreadable, _no_place):
        if message := rule(text, error):
            return readable(message)
    return readable(" ".join(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip())))


def _whole_text(error: BaseException | None) -> str:
    """The messages of an error and of those it came from; the key is often only in the innermost."""
    parts = []
    while error is not None:
        parts.append(str(error))
        error = error.__cause__
    return "\n".join(parts)


def _several_values(text: str, error: BaseException) -> str | None:
    match = re.search(r"Ambiguous value for argument '([^'=]+)=([^']*)'", text)
    if match is None:
        return None
    key, value = match.groups()
    point = f" A number has a point: {key}={value.replace(',', '.')}." if re.fullmatch(r"[+-]?0,\d+", value) else ""
    return f"{key}={value} has several values. Run each with -m, or give all as one list with {key}=[{value}].{point}"


def _no_name(text: str, error: BaseException) -> str | None:
    """Hydra does not say which group has no name; of the words those are meant that are a number, null or the like."""
    if "Config group override must be a string or a list" not in text:
        return None
    pairs = (word.partition("=")[::2] for word in sys.argv[1:])
    wrong = [f"{key}={value}" for key, value in pairs if (files.FOLDER / key).is_dir() and _NO_NAME.fullmatch(value)]
    place = ", ".join(wrong) or "A choice in a group"
    return f"{place}: the name of a file is needed here; python run.py --help lists them."


def _no_such_choice(text: str, error: BaseException) -> str | None:
    match = re.search(r"Could not find '([^']+)'", text)
    if not match:
        if match := re.search(r"Could not override '([^']+)'\.\s*No match in the defaults list", text):
            return f"There is no group {match[1]} to choose in; python run.py --help lists the groups."
        if re.search(r"Primary config module|Unable to find|Cannot find primary config", text):
            return " ".join(text.split())
        if match := re.search(r"In '([^']+)': Could not load '([^']+)'", text):
            group, _, name = match[2].rpartition("/")
            near = difflib.get_close_matches(name, [file.stem for file in (files.FOLDER / group).glob("*.yaml")], n=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            return f"{match[1]}.yaml: its list of defaults has {name}, and there is no {group} of this name.{hint}"
        return None
    group, _, name = match[1].rpartition("/")
    options = re.findall(r"^\t(\S+)$", text, flags=re.MULTILINE)
    if extra := NEEDS_EXTRA.get(name):
        return f"{match[1]} is not installed; pip install '.[{extra}]' adds it."
    if not group:
        return f"There is no configuration {match[1]}; python run.py --help lists what can be chosen."
    near = difflib.get_close_matches(name, options, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    if len(options) > MOST_NAMES:
        all_names = f"There are {len(options)}; python run.py --help lists them."
    else:
        all_names = f"There are: {', '.join(sorted(options)) or 'none'}."
    if elsewhere := [file.parent.name for file in files.FOLDER.glob(f"*/{name}.yaml")]:
        hint = f" Did you mean {elsewhere[0]}={name}?"
    return f"There is no {group} named {name}.{hint} {all_names}"


def _no_such_key(text: str, error: BaseException) -> str | None:
    match = re.search(r"Key '([^']+)' (?:is not in struct|not in '[^']+')", text)
    if not match:
        return None
    key = match[1]
    path = re.search(r"full_key: (\S+)", text)
    full = path[1] if path else key
    siblings = _siblings(error)
    parent = full.rpartition(".")[0]
    names = [f"{parent}.{n}" if parent else n for n in nearest(key, siblings)]
    hint = f" Did you mean {' or '.join(names)}?" if names else ""
    where = re.match(r"In '([^']+)':", text)
    place = f" (in configs/{where[1]}.yaml)" if where and where[1] != "config" else ""
    level = f"under {parent}" if parent else "at the top"
    others = f" There are, {level}: {', '.join(sorted(siblings))}." if siblings else ""
    return f"There is no key {full}{place}.{hint}{others}"


def _siblings(error: BaseException | None) -> list[str]:
    """The keys beside the one that does not exist, from the first error of the chain that knows its node."""
    while error is not None:
        node = getattr(error, "parent_node", None)
        if node is not None and hasattr(node, "keys"):
            return [str(k) for k in node]
        error = error.__cause__ or error.__context__
    return []


def _wrong_value(text: str, error: BaseException) -> str | None:
    matches = (re.search(pattern, text) for pattern in _WRONG_VALUES)
    match = next((match for match in matches if match), None)
    if not match:
        return None
    path = re.search(r"full_key: (\S+)", text)
    kinds = {"Float": "a number", "Integer": "a whole number", "Boolean": "true or false", "bool": "true or false"}
    kind = match["kind"]
    kind = kinds.get(kind, kind.replace("Union[int, float]", "a number").replace("Optional", ""))
    return f"{path[1] if path else 'A key'}={match['value']}: {kind} is needed here."


def _no_such_source(text: str, error: BaseException) -> str | None:
    match = re.search(r"Interpolation key '([^']+)' not found", text)
    path = re.search(r"full_key: (\S+)", text)
    if not match or not path:
        return None
    group, _, key = match[1].rpartition(".")
    is_group = bool(group) and (files.FOLDER / group).is_dir()
    remedy = f"; the file of {group}=... needs a line `{key}: ...`" if is_group else ""
    return f"{path[1]} takes its value from {match[1]}, which is not there{remedy}."


def _unreadable(text: str, error: BaseException) -> str | None:
    if "See https://hydra.cc" not in text and type(error).__name__ != "OverrideParseException":
        return None
    word = getattr(error, "override", None)
    if word and (form := words.working_form(word)):
        return f"The word {word!r} on the command line cannot be read; write it as {shlex.quote(form)}."
    which = f"The word {word!r} on the command line" if word else "A word on the command line"
    reason = text.splitlines()[0]
    return f"{which} cannot be read ({reason}); settings have the form key=value, special characters in quotes."


def _no_place(text: str, error: BaseException) -> str | None:
    if not isinstance(error, OSError):
        return None
    if isinstance(error, BrokenPipeError):
        return "What read the output of this command has ended, as head does, so the rest was not printed."
    place = error.filename or "A file below paths.output_dir, paths.cache_dir or the folder for temporary files"
    return (
        f"{place} cannot be used ({error.strerror or text}). paths.output_dir=... names another folder for results, "
        "paths.cache_dir=... another one for what is kept of data, paths.data_dir=... (or the environment variable "
        "HYPERBOLIC_DATA) another one for data."
    )
