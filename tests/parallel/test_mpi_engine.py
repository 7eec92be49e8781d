"""Ranks give the same weights as every other engine, and no lost rank changes them."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path

import pytest

from remuda.config import load_config
from remuda.errors import STOPPED
from remuda.methods import METHODS
from remuda.parallel import training
from remuda.parallel.ranks import shared_name
from remuda.runs.store import RunFolder
from tests.jobs import Job, needs_mpi, processes, ranks_of, until
from tests.parallel.runs import LONG, settings_of, words
from tests.tiny_runs import Command, tree

pytestmark = [pytest.mark.slow, needs_mpi]


def start(
    folder: Path, ranks: int, runs: list[list[str]], faults: dict[str, int] | None = None
) -> Job:
    """A job that trains these runs; each fault happens to this many ranks, once to each."""
    spec = {"runs": runs, "faults": faults or {}, "met": str(folder / "met")}
    (folder / "spec.json").write_text(json.dumps(spec))
    return Job(folder, ranks, "tests.parallel.mpi_program", str(folder / "spec.json"))


def check_equal(job: Job, run: Path, undisturbed: Path) -> None:
    assert RunFolder(run).result() is not None, job.said
    assert tree(run) == tree(undisturbed)
    assert not processes(str(run.parent)), "orphans"
    fingerprint = json.loads((run / "env.json").read_text())["data"]["fingerprint"]
    assert not Path("/dev/shm", f"remuda-{shared_name(run, fingerprint)}").exists(), "shared memory"


def test_ranks_give_the_same_weights_for_every_method(tmp_path: Path, data: Path) -> None:
    job = start(
        tmp_path, 3, [settings_of(method, data, tmp_path / f"{method}-mpi") for method in METHODS]
    )
    for method in METHODS:
        source, *overrides = settings_of(method, data, tmp_path / f"{method}-local")
        training.train(load_config(source, overrides))
    job.wait()
    for method in METHODS:
        check_equal(job, tmp_path / f"{method}-mpi", tmp_path / f"{method}-local")


@pytest.mark.parametrize(
    ("ranks", "faults"),
    [
        (
            6,
            {
                "killed while training": 2,
                "killed while publishing": 1,
                "killed while writing a checkpoint": 1,
            },
        ),
        (4, {"hung": 1, "hung and woken": 1}),
    ],
    ids=["killed", "hung"],
)
def test_lost_ranks_cost_time_but_change_nothing(
    ranks: int, faults: dict[str, int], tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    job = start(tmp_path, ranks, [words(data, run)], faults)
    job.wait()
    for fault, victims in faults.items():
        assert len(list((tmp_path / "met" / fault).iterdir())) == victims, job.said
    lost = [event for event in RunFolder(run).events() if event["event"] == "lost"]
    assert len(lost) == sum(faults.values()), job.said
    check_equal(job, run, undisturbed)


# ---------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["no-such-preset"], "neither a preset nor a file"),
        (["--engine", "process"], "mpiexec started 2 tasks, and each would train a run"),
    ],
)
def test_what_cannot_be_trained_is_refused_once_and_by_all_ranks(
    more: list[str], reason: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, 2, "remuda", "train", *more, f"run.dir={tmp_path / 'run'}")
    assert job.wait() != 0
    assert job.said.count(reason) == 1
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------- under supervision


def supervised(folder: Path, data: Path) -> tuple[Command, Path]:
    """A run of `remuda train --engine mpi`, some rounds into its training."""
    run = folder / "run"
    given = words(data, run, *LONG)
    train = Command(folder, "train", *given, "--engine", "mpi", "--workers", "1")
    until(lambda: len(RunFolder(run).checkpoints()) > 0, "a checkpoint")
    return train, run


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().split()[3])


def test_a_job_that_is_lost_is_started_again_and_nothing_is_lost(
    tmp_path: Path, data: Path, long_undisturbed: Path
) -> None:
    """First its master is killed, then, in the job that follows, mpiexec."""
    train, run = supervised(tmp_path, data)
    ranks = ranks_of(run)
    assert sorted(ranks) == [0, 1]
    os.kill(ranks[0], signal.SIGKILL)
    until(lambda: train.said.count("starting it again") == 1, "the second job")
    until(lambda: RunFolder(run).status() is not None, "its training")
    mpiexec = parent(ranks_of(run)[0])
    os.kill(mpiexec, signal.SIGKILL)
    assert train.wait(timeout=200) == 0, train.said
    assert train.said.count("starting it again") == 2
    assert tree(run) == tree(long_undisturbed)
    assert not processes(str(run)), "orphans"
    temporary = Path(tempfile.gettempdir())
    assert not list(temporary.glob(f"ompi.{mpiexec}")), "what the killed mpiexec kept there"
    assert not list(temporary.glob(f"remuda-{train.pid}-*"))


def test_a_killed_supervisor_takes_its_job_along_and_the_run_resumes(
    tmp_path: Path, data: Path, long_undisturbed: Path
) -> None:
    train, run = supervised(tmp_path, data)
    train.send(signal.SIGKILL)
    assert train.wait() == -signal.SIGKILL
    until(lambda: not processes(str(run)), "the end of all ranks", 60)
    assert RunFolder(run).result() is None
    assert training.resume(run) is not None
    assert tree(run) == tree(long_undisturbed)


def test_a_job_told_to_stop_saves_and_resumes_elsewhere(
    tmp_path: Path, data: Path, long_undisturbed: Path
) -> None:
    """Whatever signal a supervisor gets, its ranks get this one."""
    train, run = supervised(tmp_path, data)
    train.send(signal.SIGUSR1)
    assert train.wait() == STOPPED, train.said
    until(lambda: not processes(str(run)), "the end of all ranks", 20)
    assert RunFolder(run).result() is None
    assert len(RunFolder(run).checkpoints()) > 0
    assert training.resume(run) is not None
    assert tree(run) == tree(long_undisturbed)
