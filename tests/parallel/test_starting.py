"""What the master does before its worker processes start."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remuda.config import load_config
from remuda.data import dataset_from_array
from remuda.parallel import starting
from remuda.parallel.protocol import Timeouts
from remuda.parallel.shared_memory import remove_shared_folder
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder


class NoProcesses:
    """Stands where worker processes would be started, and notes the folder they would look in."""

    shared: Path

    def __init__(self, _target: Any, _arguments: Any, shared: Path, *_: int) -> None:
        type(self).shared = shared


def test_the_master_lets_go_of_its_own_copy_of_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "ProcessMaster", NoProcesses)
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    pixels = np.random.default_rng(0).integers(0, 256, (200, 8, 8), dtype=np.uint8)
    words = ["score.extractor=none", "training.batch_size=10", "network.condition=none"]
    run = Run.prepare(load_config("cellular-digits", words), dataset_from_array(pixels))
    before, own = run.dataset.items[:], weakref.ref(run.dataset.items.stored)
    fingerprint = run.dataset.fingerprint
    starting.start_processes(run, RunFolder(tmp_path), Timeouts(), 2)
    gc.collect()
    assert own() is None
    # What is mapped stays, also when the folder has been removed at the end of a run.
    remove_shared_folder(NoProcesses.shared)
    assert not NoProcesses.shared.exists()
    assert run.dataset.items[:].equal(before)
    assert run.dataset.fingerprint == fingerprint
