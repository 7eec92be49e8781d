"""What a rank does at its start: whom it refuses to be, and where its data come from."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from remuda.config import load_config
from remuda.data import load_dataset, open_shared_dataset
from remuda.parallel import ranks
from remuda.parallel.launch import Launcher
from remuda.parallel.shared_memory import leave_shared_folder
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
