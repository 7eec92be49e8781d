"""What a rank does at its start: whom it refuses to be, and where its data come from."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from remuda.config import load_config
from remuda.data import load_dataset, open_shared_dataset
from remuda.errors import StoreError
from remuda.parallel import ranks
from remuda.parallel.launch import Launcher
from remuda.parallel.messages import GetStatus, Message, Stop
from remuda.parallel.shared_memory import join_shared_folder, leave_shared_folder
from remuda.parallel.transports.base import MasterGoneError
from remuda.parallel.transports.mpi import MpiWorker
from remuda.parallel.transports.mpi_thread import MpiError, Session
from tests.tiny_runs import tiny, write_data


def test_the_second_rank_of_a_host_reads_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, *overrides = tiny(write_data(tmp_path / "images.npz"), tmp_path / "run")
    config = load_config(source, overrides)
    name = ranks.shared_name(tmp_path / "run", load_dataset(config.data).fingerprint)
    reads = []

    def counted(settings: object) -> object:
        reads.append(settings)
        return load_dataset(config.data)

    monkeypatch.setattr(ranks, "load_dataset", counted)
    folders = [ranks.host_dataset(config, name, 0) for _ in range(3)]
    try:
        assert len(set(folders)) == 1
        assert len(reads) == 1
        assert open_shared_dataset(folders[0]).fingerprint == load_dataset(config.data).fingerprint
    finally:
        leave_shared_folder(folders[0])
    assert not folders[0].exists()


def test_data_that_a_killed_job_left_are_not_those_of_the_next_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert ranks.shared_name(run, "one") != ranks.shared_name(run, "other")
    assert ranks.shared_name(run, "one") != ranks.shared_name(tmp_path / "another", "one")


@pytest.mark.parametrize(
    ("launcher", "reason"),
    [
        # As under srun, when the MPI behind mpi4py does not know it.
        (Launcher("srun", 4, 0), "srun started 4 tasks, but MPI sees 1"),
        (Launcher("mpiexec", 1, 0), "a master and at least one worker are needed"),
    ],
)
def test_jobs_that_cannot_carry_a_run_are_refused(
    launcher: Launcher, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "Session", lambda: SimpleNamespace(rank=0, size=1))
    with pytest.raises(MpiError, match=reason):
        ranks.join_job(launcher)


def test_without_mpi4py_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(MpiError, match=r"remuda\[mpi\](.|\n)*remuda\[mpi-local\]"):
        Session()


class Silent:
    """A rank's end, to which the master says these things, one every time it is asked."""

    def __init__(self, *messages: Message | None) -> None:
        self.messages = list(messages)

    def receive(self, timeout: float) -> Message | None:
        time.sleep(0.1)
        return self.messages.pop(0) if self.messages else None


def test_a_rank_waits_for_a_run_as_long_as_its_master_shows_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ranks, "SILENCE_SECONDS", 0.25)
    alive = [GetStatus(number=0)] * 5
    assert ranks._wait_for_configuration(cast(MpiWorker, Silent(*alive, Stop()))) is None
    with pytest.raises(MasterGoneError):
        ranks._wait_for_configuration(cast(MpiWorker, Silent(*alive, None, None, None, Stop())))


def test_data_that_another_process_never_finishes_sharing_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs, of an earlier job of the same run."""
    monkeypatch.setattr(ranks, "FILLING_SECONDS", 0.2)
    source, *overrides = tiny(write_data(tmp_path / "images.npz"), tmp_path / "run")
    name = f"{os.getuid()}-{os.getpid()}"
    folder = join_shared_folder(name, 0)
    try:
        with (folder / "filling").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(StoreError, match="has not finished sharing the data"):
                ranks.host_dataset(load_config(source, overrides), name, 0)
    finally:
        leave_shared_folder(folder)
