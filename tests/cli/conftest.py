from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.in_process import remuda
from tests.populations import alone, images, one_torch_thread, runs, swapped
from tests.tiny_runs import tiny, write_data

__all__ = ["alone", "images", "one_torch_thread", "runs", "swapped"]


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As wide as a terminal that nobody widened, whatever started the tests."""
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "images.npz")


@pytest.fixture(scope="session")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run, and what its training printed."""
    folder = tmp_path_factory.mktemp("trained")
    code, output, errors = remuda(folder, "train", *tiny(data, folder / "run"))
    assert (code, errors) == (0, "")
    return folder / "run", output
