"""What an installation has: the library `hyperbolic`, and the package `hyperbolic_language` with the rest inside of it.

pyproject.toml names `Build`. In this folder `tasks`, `configs` and `scripts` stand at the top, as their imports and the
`_target_: tasks...` of configurations and checkpoints have them; at the top of site-packages such names would be in
everybody's way. So they are put into `hyperbolic_language/`, with run.py, and its `use` puts that folder on sys.path.
"""

from collections.abc import Iterator

from setuptools import Distribution, find_packages
from setuptools.command.build_py import build_py

NAME = "hyperbolic_language"
INSIDE = ("tasks", "configs", "scripts")
DATA = {
    "hyperbolic": ["**/*.cpp", "**/*.h", "py.typed"],
    f"{NAME}.configs": ["*.yaml", "**/*.yaml"],
    f"{NAME}.results": ["published/*.yaml", "tuning/*.csv"],  # which a run sets beside its own numbers
    f"{NAME}.scripts.downloads": ["*.json"],
}


class Build(build_py):
    """setuptools' build_py with the packages of this project and run.py."""

    def finalize_options(self) -> None:
        describe(self.distribution)
        super().finalize_options()

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        modules: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [*modules, (package, "run", "run.py")] if package == NAME else modules


def describe(distribution: Distribution) -> None:
    """Tell a distribution its packages, the folder of each, and the files in them that are no Python."""
    distribution.package_dir = {**(distribution.package_dir or {}), **dict(folders())}
    distribution.packages = [*find_packages(include=["hyperbolic*"]), NAME, *distribution.package_dir]
    distribution.packages = list(dict.fromkeys(name for name in distribution.packages if name))
    distribution.package_data = DATA


def folders() -> Iterator[tuple[str, str]]:
    """The packages inside of `hyperbolic_language`, and where they lie in this folder."""
    for top in INSIDE:
        for package in find_packages(include=[top, f"{top}.*"], exclude=["scripts.package"]):
            yield f"{NAME}.{package}", package.replace(".", "/")
    yield f"{NAME}.results", "results"
