"""What every test gets: fixed seeds, one thread, reproducible property tests, no display and no network logging."""

import gc
import os
import pickle
import random
import signal
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("WANDB_MODE", "offline")

import hypothesis
import pytest
import torch
from omegaconf import OmegaConf

from hyperbolic import switch

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it starts in the background

hypothesis.settings.register_profile(
    "deterministic",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("deterministic")


@pytest.fixture(autouse=True, scope="session")
def read_configurations_once() -> Iterator[None]:
    """A file below configs/ is parsed once in a process until it changes: a composition reads 19, of which most are
    those of the last one. Hydra and the tests read them with OmegaConf.load; each reader gets a copy."""
    folder, load, cache = Path(__file__).resolve().parents[1] / "configs", OmegaConf.load, {}

    def load_once(file):
        path = Path(getattr(file, "name", file)).resolve()
        if not path.is_relative_to(folder):
            return load(file)
        stat = path.stat()
        key = (path, stat.st_mtime_ns, stat.st_size)
        if key not in cache:
            cache[key] = pickle.dumps(load(file), pickle.HIGHEST_PROTOCOL)  # read in a sixth of the time of a deepcopy
        return pickle.loads(cache[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmegaConf, "load", staticmethod(load_once))
        yield


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test with several cases the default suite runs the first and the last; the others are marked long.
    -k chooses among those; -m "" gives all."""
    cases_by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not any(map(item.get_closest_marker, ("slow", "long", "every_case"))):
            cases_by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in cases_by_test.values():
        for item in cases[1:-1]:
            item.add_marker("long")


MODE = switch.mode()


@pytest.fixture(autouse=True)
def kernels_as_at_first() -> Iterator[None]:
    """Every test starts with the kernels of the whole run, whatever a run in a test or in a fixture of a module has set
    (`trainer.kernels`)."""
    if switch.mode() != MODE:
        switch.use_kernels(MODE)
    yield
    switch.use_kernels(MODE)  # also where the mode is the same: a test may have hidden the compiler


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Every test starts from the same random state, whatever ran before it and in whichever process."""
    random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(params=["plain", "fast"])
def each_path(request: pytest.FixtureRequest, kernels_restored: None) -> str:
    """Runs a test with kernels made of PyTorch operations, and with those in C++ where there is a compiler."""
    switch.use_kernels(request.param)
    if request.param == "fast" and not switch.native():
        pytest.skip("no C++ compiler")
    return request.param


@pytest.fixture
def kernels_restored() -> Iterator[None]:
    """A test may turn the switch of the kernels and take more threads; the next one finds both as they were."""
    mode, threads = switch.mode(), torch.get_num_threads()
    yield
    switch.use_kernels(mode)
    torch.set_num_threads(threads)


@pytest.fixture
def native_kernels(kernels_restored: None) -> None:
    """Kernels in C++."""
    switch.use_kernels("fast")


@pytest.fixture
def two_threads(kernels_restored: None) -> None:
    torch.set_num_threads(2)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder that HYPERBOLIC_DATA names; the test is skipped where there is none."""
    name = os.environ.get("HYPERBOLIC_DATA")
    if not name:
        pytest.skip("HYPERBOLIC_DATA is not set, so there are no data files to test with")
    folder = Path(name).expanduser()
    if not folder.is_dir():
        pytest.skip(f"HYPERBOLIC_DATA names {name}, which is no folder")
    return folder.resolve()


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: a full collection of garbage, a second over millions of objects, leaves them out."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or libraries tell of leaks at the exit


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
