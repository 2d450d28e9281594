"""Check the records that runs left and copy the good ones to results/runs/, from which the tables are made."""

import argparse
import json
import os
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

from scripts.records import ROOT, RUNS, Record, RecordError, read, validate

# An absolute path, alone or as the value of an override, as in paths.data_dir=/somewhere/data.
_ABSOLUTE = re.compile(r"(?P<key>[+~]*[\w./@-]+=)?(?P<path>(?:[A-Za-z]:\\|/|~/).*)")


def main(arguments: list[str] | None = None, root: Path = ROOT, runs: Path = RUNS) -> int:
    """Run the command; returns 0 if every record was copied, already there or rightly skipped, else 1."""
    parser = argparse.ArgumentParser(prog="make collect", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="record.json files or folders (default: outputs)")
    parser.add_argument("--allow-dirty", action="store_true", help="take runs of code that was not committed")
    parser.add_argument("--force", action="store_true", help="replace the record kept for the same experiment and seed")
    options = parser.parse_args(arguments)

    try:
        found = find(options.paths or [root / "outputs"])
    except RecordError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1

    counts: Counter[str] = Counter()
    accepted: list[tuple[Path, Record]] = []
    refusals: list[str] = []
    for path in found:
        try:
            record = read(path)
            reason = reason_to_skip(record)
            if reason:
                counts[reason] += 1
                continue
            check(record, path, allow_dirty=options.allow_dirty)
            accepted.append((path, record))
        except RecordError as error:
            refusals.append(str(error))
    refusals += twins(accepted)
    for path, record in accepted:
        if sum(key(other) == key(record) for _, other in accepted) > 1:
            continue
        try:
            counts[keep(record, path, runs=runs, root=root, force=options.force)] += 1
        except RecordError as error:
            refusals.append(str(error))

    for refusal in refusals:
        print(f"refused: {refusal}", file=sys.stderr)
    counts["refused"] = len(refusals)
    print(f"{len(found)} records: " + ", ".join(f"{n} {word}" for word, n in sorted(counts.items()) if n))
    return 1 if refusals else 0


def find(paths: list[Path]) -> list[Path]:
    """Every record.json at or below `paths`, sorted. Raises RecordError where there is none."""
    if missing := [str(p) for p in paths if not p.exists()]:
        raise RecordError(f"no {', '.join(missing)}. Run an experiment first, or name its folder.")
    found = sorted({r for p in paths for r in ([p] if p.is_file() else p.rglob("record.json"))})
    if not found:
        where = ", ".join(str(p) for p in paths)
        raise RecordError(f"no record.json under {where}. Run an experiment first, as in: make reproduce")
    return found


def reason_to_skip(record: Record) -> str | None:
    """Why a record is no result to keep, in a word for the summary, or None."""
    if not record.get("experiment"):
        return "skipped (no experiment)"
    if record["experiment"] == "quickstart":
        return "skipped (quickstart)"
    config = record.get("config")
    if isinstance(config, dict) and config.get("mode", "fit") != "fit":
        return "skipped (not a training run)"
    return None


def check(record: Record, path: Path, allow_dirty: bool = False) -> None:
    """Raise RecordError unless `record` is of a finished run of committed code."""
    validate(record, path)
    if not re.fullmatch(r"[\w.-]+", record["experiment"]):
        raise RecordError(f"{path}: the experiment's name {record['experiment']!r} cannot name a file.")
    if allow_dirty:
        return
    if not record["commit"]:
        raise RecordError(f"{path}: made outside a git clone, so nobody can say which code gave it (--allow-dirty).")
    if record["dirty"] is not False:
        raise RecordError(
            f"{path}: made by code with changes that were not committed (at {record['commit'][:8]}), so nobody can "
            "run it again. Commit and run it again, or pass --allow-dirty to keep it under a name that says so."
        )


def key(record: Record) -> tuple[str, int]:
    """What names a result: only one record is kept for each experiment and seed."""
    return record["experiment"], record["seed"]


def twins(accepted: list[tuple[Path, Record]]) -> list[str]:
    """One message for each experiment and seed that more than one of the records stands for."""
    by_key: dict[tuple[str, int], list[str]] = {}
    for path, record in accepted:
        by_key.setdefault(key(record), []).append(str(path))
    return [
        f"{name} with seed {seed} was run {len(paths)} times: {', '.join(paths)}. Name the one to keep: "
        f"make collect ARGS={paths[-1]}"
        for (name, seed), paths in sorted(by_key.items())
        if len(paths) > 1
    ]


def file_name(record: Record) -> str:
    """The name of a kept record: experiment, seed, commit, and a mark if the code was not committed."""
    commit = (record["commit"] or "unknown")[:8]
    mark = "" if record["dirty"] is False else "-dirty"
    return f"{record['experiment']}-seed{record['seed']}-{commit}{mark}.json"


def keep(record: Record, path: Path, runs: Path, root: Path, force: bool = False) -> str:
    """Write `record` into the folder `runs`, whole or not at all; returns "copied", "replaced" or "unchanged".

    Raises RecordError where another record of the same experiment and seed is there and `force` is false.
    """
    target = runs / file_name(record)
    kept = without_machine_paths(record, root)
    text = json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    if target.exists() and target.read_text(encoding="utf-8") == text:
        return "unchanged"
    pattern = re.compile(re.escape(f"{record['experiment']}-seed{record['seed']}-") + r"\w+(-dirty)?\.json")
    rivals = sorted(p for p in runs.glob("*.json") if pattern.fullmatch(p.name))
    if rivals and not force:
        raise RecordError(
            f"{path}: {', '.join(str(p) for p in rivals)} is already kept for {record['experiment']} with seed "
            f"{record['seed']}, and it differs. Use another seed, or replace it: make collect ARGS='--force {path}'"
        )
    runs.mkdir(parents=True, exist_ok=True)
    write_atomically(target, text)
    for rival in rivals:
        if rival != target:
            rival.unlink()
    return "replaced" if rivals else "copied"


def without_machine_paths(value, root: Path):
    """`value` with every absolute path in it made relative to `root` or, outside of it, cut to its last part."""
    if isinstance(value, dict):
        return {without_machine_paths(k, root): without_machine_paths(v, root) for k, v in value.items()}
    if isinstance(value, list):
        return [without_machine_paths(v, root) for v in value]
    if isinstance(value, str) and (match := _ABSOLUTE.fullmatch(value)):
        path = Path(match["path"])
        return (match["key"] or "") + (str(path.relative_to(root)) if path.is_relative_to(root) else path.name)
    return value


def write_atomically(target: Path, text: str) -> None:
    """Write `text` to `target` so that a reader sees the old file or the new one, never a part."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


if __name__ == "__main__":
    sys.exit(main())
