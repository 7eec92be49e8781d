from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Before torch is loaded. Tests run side by side, a process per core: with several threads each they
# would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says more about the machine than about the code.
settings.register_profile("remuda", deadline=None)
settings.load_profile("remuda")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data sets; tests that need it are skipped where it is not set."""
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
