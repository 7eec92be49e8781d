from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_data_but_the_tests_own(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keeps the machine's data folder and cache out of tests that write their own files."""
    if "real_data" in request.fixturenames:
        request.getfixturevalue("real_data")
    monkeypatch.delenv("REMUDA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
