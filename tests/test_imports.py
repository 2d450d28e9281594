"""Imports go one way: run.py -> configs -> tasks -> hyperbolic, and inside hyperbolic from the encoders in to the numerics."""

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("run.py", "configs", "hyperbolic", "tasks", "scripts")
CONFIGURATION = {"hydra", "omegaconf", "hydra_plugins"}
MAY_CONFIGURE = {"run", "configs"}  # and what is in configs/
LIBRARY_MAY_IMPORT = {"torch", "geoopt", "hyperbolic"}
TRITON = re.compile(r"hyperbolic\.kernels\.(.*\.)?triton\w*")  # modules for GPUs, where torch brings Triton along

# Rooms of hyperbolic/ from the inside out: a room may import itself and what stands before it.
INWARD = (
    "typing", "autocast", "switch", "fusion", "native", "operator", "rows", "numerics", "smooth", "nonlinearity", "manifolds", "kernels",
    "layers", "geometry", "encoders",
)  # fmt: skip
# These two stand beside the order: they may import manifolds and what is inside of it, and no one inside imports them.
BESIDE = {"optim": "kernels", "diagnostics": "manifolds"}


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file of every Python module of the project, tests left out."""
    files = [f for name in SOURCES for f in ([root / name] if name.endswith(".py") else (root / name).rglob("*.py"))]
    names = {}
    for file in sorted(f for f in files if f.is_file()):
        parts = file.relative_to(root).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return names


def imports(name: str, file: Path) -> list[tuple[str, int]]:
    """Every (dotted module, line) that a file imports, at the top or inside a function."""
    return _imports(name, file.name == "__init__.py", file.read_text(encoding="utf-8"))


@functools.cache
def _imports(name: str, is_package: bool, text: str) -> list[tuple[str, int]]:
    return [*_walk_imports(name if is_package else name.rpartition(".")[0], text)]


def _walk_imports(package: str, text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *([node.module] if node.module else [])])
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value, node.lineno


def faults(root: Path) -> list[str]:
    """Every import that goes the wrong way, as `file:line: reason`."""
    known = modules(root)
    problems = []
    for name, file in known.items():
        for target, line in imports(name, file):
            reason = fault(name, target, file.name == "__init__.py")
            if reason:
                problems.append(f"{file.relative_to(root)}:{line}: {reason}")
    return problems + cycles(known)


def fault(name: str, target: str, is_package: bool) -> str | None:
    """Why the module `name` must not import `target`, or None."""
    top, source = target.partition(".")[0], name.partition(".")[0]
    if top in CONFIGURATION and source not in MAY_CONFIGURE:
        return f"only run.py and configs/ know {top}"
    if source == "hyperbolic":
        for_gpus = top == "triton" and TRITON.fullmatch(name)
        if top not in LIBRARY_MAY_IMPORT and top not in sys.stdlib_module_names and not for_gpus:
            return f"hyperbolic/ stands on torch, geoopt and the standard library, not on {top}"
        if top == "hyperbolic":
            return _inward_fault(name, target, is_package)
    if source == "tasks":
        if top in ("run", "configs", "scripts", "tests"):
            return f"tasks/ must not know {top}"
        if top == "tasks" and (mine := _task(name)) and (other := _task(target)) and mine != other:
            return f"the task {mine} must not import the task {other}"
    if source == "scripts" and top in ("run", "tests"):
        return f"scripts/ must not know {top}"
    if source == "configs" and top in ("run", "scripts", "tests"):
        return f"configs/ must not know {top}"
    return None


def _inward_fault(name: str, target: str, is_package: bool) -> str | None:
    room, other = _room(name), _room(target)
    if room is None:  # hyperbolic/__init__.py may offer anything
        return None
    if other is None:
        return "import from a module of hyperbolic, not from hyperbolic itself"
    for each in (room, other):
        if each not in INWARD and each not in BESIDE:
            return f"{each} has no place in the order of hyperbolic/; give it one in {Path(__file__).name}"
    if room == other:
        return None
    if other in BESIDE:
        return f"{room} must not import {other}"
    limit = INWARD.index(BESIDE[room]) if room in BESIDE else INWARD.index(room) - 1
    if INWARD.index(other) > limit:
        return f"{room} stands inside of {other} and must not import it"
    return None


def _room(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else None


def _task(name: str) -> str | None:
    """The task whose folder a module is in, or None for the modules that all tasks share."""
    parts = name.split(".")
    if len(parts) < 2 or (ROOT / "tasks" / f"{parts[1]}.py").is_file():
        return None
    return parts[1] if len(parts) > 2 else None


def cycles(known: dict[str, Path]) -> list[str]:
    """Every cycle of imports found, as `a -> b -> a`."""
    edges = {
        name: sorted({owner for target, _ in imports(name, file) if (owner := _owner(target, known)) and owner != name})
        for name, file in known.items()
    }
    problems, complete = [], set()

    def walk(name: str, path: list[str]) -> None:
        if name in path:
            problems.append("cycle: " + " -> ".join([*path[path.index(name) :], name]))
        elif name not in complete:
            for target in edges[name]:
                walk(target, [*path, name])
            complete.add(name)

    for name in edges:
        walk(name, [])
    return problems


def _owner(target: str, known: dict[str, Path]) -> str | None:
    """The module of the project that `target` is or stands in."""
    while target and target not in known:
        target = target.rpartition(".")[0]
    return target or None


def test_every_import_goes_inward():
    assert faults(ROOT) == []


# Imported under another name than they are installed, or by a program that is started.
IMPORTED_AS = {"pyyaml": "yaml", "hydra-core": "hydra"}
OPTIONAL = {  # for comparisons, and what a user may choose
    "hypll", "mpmath", "optuna", "pyarrow", "setuptools", "spacy", "sklearn", "tensorboard", "triton"
}  # fmt: skip


def test_requirements_are_what_is_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [re.split(r"[^\w.-]", each)[0] for each in project["dependencies"]] == ["torch", "geoopt"], "of the library"
    needed = project["dependencies"] + project["optional-dependencies"]["train"]
    names = [re.split(r"[^\w.-]", requirement)[0].lower() for requirement in needed]
    required = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}
    own = {"run", "hyperbolic_language", *(Path(source).stem for source in SOURCES)}
    imported = {target.partition(".")[0] for name, file in modules(ROOT).items() for target, _ in imports(name, file)}
    imported -= own | set(sys.stdlib_module_names) | {""}
    assert required - imported == set(), "required, and never imported"
    assert imported - required - OPTIONAL == set(), "imported, and not required"


@pytest.mark.parametrize("name", ["run", "configs.schema", "hyperbolic", "hyperbolic.manifolds", "tasks", "scripts"])
def test_the_modules_of_the_project_are_found(name):
    assert name in modules(ROOT), f"{name} was not found, so its imports were not checked"


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("hyperbolic/numerics.py", "import numpy", "stands on torch"),
        ("hyperbolic/layers/mobius.py", "def f():\n    import omegaconf", "only run.py"),
        ("hyperbolic/layers/mobius.py", "from hyperbolic.geometry import Geometry", "must not import it"),
        ("hyperbolic/layers/mobius.py", "from ..encoders import rnn", "must not import it"),
        ("hyperbolic/manifolds/base.py", "from hyperbolic import kernels", "must not import it"),
        ("hyperbolic/kernels/gru.py", "from hyperbolic.optim import RiemannianAdam", "must not import optim"),
        ("hyperbolic/optim.py", "from hyperbolic.layers import mobius", "must not import it"),
        ("hyperbolic/helpers.py", "from hyperbolic.manifolds import base", "no place in the order"),
        ("hyperbolic/geometry.py", "import tasks.base", "stands on torch"),
        ("tasks/prefix/task.py", "from hydra.utils import instantiate", "only run.py"),
        ("tasks/prefix/task.py", "import importlib\nimportlib.import_module('omegaconf')", "only run.py"),
        ("tasks/prefix/task.py", "from tasks.nli.model import Model", "must not import the task nli"),
        ("tasks/base.py", "import run", "must not know run"),
        ("scripts/tables.py", "from omegaconf import OmegaConf", "only run.py"),
        ("scripts/tables.py", "from run import rebuild", "must not know run"),
        ("configs/schema.py", "import scripts.tables", "must not know scripts"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, file, text, reason):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert [f for f in faults(tmp_path) if reason in f and f.startswith(f"{file}:")]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("run.py", "import hydra, tasks.base"),
        ("configs/schema.py", "from omegaconf import MISSING"),
        ("hyperbolic/encoders/rnn.py", "import math, torch, geoopt\nfrom hyperbolic.geometry import Geometry"),
        ("hyperbolic/diagnostics.py", "from hyperbolic.manifolds.base import Manifold"),
        ("tasks/prefix/task.py", "import pytorch_lightning, tasks.base\nfrom tasks.prefix.model import Model"),
    ],
)
def test_a_right_import_passes(tmp_path, file, text):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert faults(tmp_path) == []


def test_a_cycle_is_found(tmp_path):
    folder = tmp_path / "hyperbolic" / "manifolds"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text("from hyperbolic.manifolds import b")
    (folder / "b.py").write_text("def f():\n    from .a import g")
    assert faults(tmp_path) == ["cycle: hyperbolic.manifolds.a -> hyperbolic.manifolds.b -> hyperbolic.manifolds.a"]
