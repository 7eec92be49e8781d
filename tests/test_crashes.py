"""A run that fails, is killed or loses its power at any step on disk ends in the same bits.

`make crash` tries every step on both engines; otherwise those of worker processes are a sample.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests import crashes
from tests.crashes import Engine
from tests.tiny_runs import _CONTEXT

ALL = "REMUDA_CRASH"  # set to `all`: every step of every kind


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "kind", "share"),
    [
        ("local", "kill", 1),
        ("local", "fill", 0.1),
        ("process", "kill", 0.08),
        ("process", "fill", 0.04),
    ],
)
def test_a_run_survives_every_step_on_disk(
    engine: Engine, kind: str, share: float, tmp_path: Path
) -> None:
    """Killed, its power cut, or the disk full: the same command then ends as it would have."""
    report = tmp_path / "report.json"
    wanted = 1.0 if os.environ.get(ALL) == "all" else share
    process = _CONTEXT.Process(
        target=crashes.explore, args=(tmp_path / "base", engine, kind, wanted, report)
    )
    process.start()
    process.join()
    assert process.exitcode == 0
    found = json.loads(report.read_text())
    print(
        f"{engine}, {kind}: {found['tried']} of {len(found['steps'])} steps, {found['states']} "
        f"states on disk, {found['runs']} runs"
    )
    assert found["problems"] == []
    assert found["states"] >= found["tried"] > 0
