"""The engines' contract under a real mpiexec; what its ranks run is in mpi_suite.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.jobs import Job, needs_mpi

pytestmark = [pytest.mark.slow, needs_mpi]


def test_ranks_keep_the_contract_of_engines_and_may_be_lost(tmp_path: Path) -> None:
    job = Job(tmp_path, 6, "tests.parallel.transports.mpi_suite", str(tmp_path / "report"))
    job.wait()
    assert (tmp_path / "report").read_text() == "0", job.said
    passed = re.search(r"(\d+) passed", job.said)
    assert passed is not None
    assert int(passed[1]) >= 25, job.said
    assert "skipped" not in job.said
