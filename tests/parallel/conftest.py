"""Runs that others are compared with: each is trained once, undisturbed, in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.parallel import training
from tests.parallel.runs import LONG, settings
from tests.tiny_runs import write_data


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "images.npz")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    training.train(settings(data, run))
    return run


@pytest.fixture(scope="session")
def long_undisturbed(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Long enough to be interrupted from outside."""
    run = tmp_path_factory.mktemp("long") / "run"
    training.train(settings(data, run, *LONG))
    return run
