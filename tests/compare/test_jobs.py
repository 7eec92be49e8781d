"""Jobs as the processes of a comparison carry them out."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from remuda.compare.jobs import Job, carry_out
from remuda.config import load_config
from remuda.runs.machine import this_machine
from remuda.runs.store import RunFolder
from tests.tiny_runs import ROUNDS, tiny, write_data


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="portable is for x86-64")
def test_a_portable_run_is_trained_as_such_where_torch_is_loaded_already(tmp_path: Path) -> None:
    source, *words = tiny(write_data(tmp_path / "data.npz"), tmp_path / "run", "portable=true")
    job = Job("arm", 0, tmp_path / "run", load_config(source, words))
    carry_out(json.loads(job.to_line()), lambda _: None)
    folder = RunFolder(tmp_path / "run")
    result, machine = folder.result(), folder.env().machine
    assert result is not None
    assert result.rounds == ROUNDS
    assert machine is not None
    assert machine.capability == "AVX2"
    assert machine.fingerprint != this_machine().fingerprint
