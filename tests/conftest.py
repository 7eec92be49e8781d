from __future__ import annotations

import os
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from remuda.parallel.transports.fork_server import ForkServer
from tests import jobs

# Before torch is loaded. Tests run side by side, a process per core: with several threads each they
# would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says more about the machine than about the code.
settings.register_profile("all", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)


def pytest_configure(config: pytest.Config) -> None:
    """With `-m "not slow"`, try fewer examples and skip what starts a worker, command or rank."""
    quick = "not slow" in config.option.markexpr
    settings.load_profile("quick" if quick else "all")
    if quick:
        starts = ((BaseProcess, "start"), (ForkServer, "__init__"), (jobs.Job, "__init__"))
        for owner, name in starts:
            setattr(owner, name, _skip)


def _skip(*_: object, **__: object) -> None:
    pytest.skip("starts a process, which counts as slow")


@pytest.fixture(scope="session", autouse=True)
def _no_runs_in_a_quick_session(pytestconfig: pytest.Config) -> None:
    """With `-m "not slow"`, a test that trains a whole run skips itself."""
    if "not slow" not in pytestconfig.option.markexpr:
        return
    from remuda.parallel.master import Master

    def run(master: Master) -> NoReturn:
        master._comm.close()
        pytest.skip("trains a run, which counts as slow")

    setattr(Master, "run", run)  # noqa: B010 - for the whole session


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever reads the real data sets is slow."""
    for item in items:
        if item.get_closest_marker("real_data"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data sets; tests that need it are skipped if it is not set."""
    folder = os.environ.get("REMUDA_DATA")
    if not folder:
        pytest.skip("REMUDA_DATA is not set to the folder of the real data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def real_cifar10(real_data: Path) -> Path:
    """A data folder with CIFAR-10 as it is published."""
    from benchmarks.real_data import published_cifar10

    folder = published_cifar10(real_data)
    if not (folder / "cifar-10-batches-py").is_dir():
        pytest.skip("REMUDA_DATA has no CIFAR-10")
    return folder
