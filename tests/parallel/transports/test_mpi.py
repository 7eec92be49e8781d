"""The engines' contract under a real mpiexec; what its ranks run is in mpi_suite.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.jobs import Job, needs_mpi

pytestmark = [pytest.mark.slow, needs_mpi]


@pytest.mark.parametrize("ranks", [2, 5, 10])
def test_ranks_keep_the_contract_of_engines(tmp_path: Path, ranks: int) -> None:
    job = Job(tmp_path, ranks, "tests.parallel.transports.mpi_suite", str(tmp_path / "report"))
    job.wait()
    assert (tmp_path / "report").read_text() == "0", job.said
    passed = re.search(r"(\d+) passed", job.said)
    assert passed is not None
    assert int(passed[1]) >= 22, job.said


@pytest.mark.parametrize(
    "loss",
    [
        "test_workers_that_ended_are_gone_and_the_others_go_on",
        "test_what_is_no_message_is_refused_and_its_sender_written_off",
        "test_a_dismissed_worker_is_forgotten_and_another_takes_its_place",
    ],
)
def test_ranks_may_be_lost(tmp_path: Path, loss: str) -> None:
    """Each loses ranks for good, so each has a job of its own."""
    words = ("tests.parallel.transports.mpi_suite", str(tmp_path / "report"), "-k", loss)
    job = Job(tmp_path, 5, *words, environ={"REMUDA_CAN_KILL": "yes"})
    job.wait()
    assert (tmp_path / "report").read_text() == "0", job.said
    assert "1 passed" in job.said, job.said
