"""Ranks that are killed while their job starts: it is started again, and no bit changes."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from remuda.runs.store import RunFolder
from tests.jobs import Job, needs_mpi, processes, ranks_of, until
from tests.parallel.runs import words
from tests.tiny_runs import Command, tree

pytestmark = [pytest.mark.slow, needs_mpi]


@pytest.mark.parametrize(
    "kills", [((1, 0.0), (0, 1.0)), ((0, 0.3), (1, 2.0))], ids=["at once", "later"]
)
def test_ranks_killed_while_their_job_starts_change_nothing(
    kills: Sequence[tuple[int, float]], tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    """One rank of every job, so many seconds after its process appeared."""
    run = tmp_path / "run"
    folder = RunFolder(run)
    train = Command(tmp_path, "train", *words(data, run), "--engine", "mpi", "--workers", "1")
    killed: set[int] = set()
    for rank, delay in kills:
        until(lambda rank=rank: ranks_of(run).get(rank, 0) not in {0, *killed}, "the rank")
        victim = ranks_of(run)[rank]
        killed.update(ranks_of(run).values())
        time.sleep(delay)
        os.kill(victim, signal.SIGKILL)
    until(lambda: set(ranks_of(run).values()) - killed, "the last job")
    life = folder.sign_of_life()
    until(lambda: folder.sign_of_life() != life, "a sign of life of the master")
    assert folder.sign_of_training() is None, "it prepares the run"
    assert train.wait(timeout=150) == 0, train.said
    assert train.said.count("starting it again") == len(kills), train.said
    assert tree(run) == tree(undisturbed)
    assert not processes(str(run)), "orphans"


def test_without_a_supervisor_ranks_wait_no_longer_than_promised_for_a_lost_one(
    tmp_path: Path, data: Path
) -> None:
    run = tmp_path / "run"
    spec = {"runs": [words(data, run)], "faults": {}, "met": "", "start_seconds": 4}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    Job(tmp_path, 2, "tests.parallel.mpi_program", str(tmp_path / "spec.json")).wait(timeout=60)
    assert not run.exists()
