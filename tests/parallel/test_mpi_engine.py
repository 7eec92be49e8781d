"""Ranks give the same weights as every other engine, and no lost rank changes them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.config import load_config
from remuda.errors import STOPPED
from remuda.methods import METHODS
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.parallel.ranks import shared_name
from remuda.parallel.transports.mpi import MpiError, Session
from remuda.runs.store import RunFolder
from tests.jobs import Job, needs_mpi, processes, until
from tests.tiny_runs import Command, remuda, tiny, tree, write_data

pytestmark = [pytest.mark.slow, needs_mpi]

ROUNDS = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "images.npz")


def words(data: Path, run: Path, *more: str) -> list[str]:
    return tiny(data, run, f"rounds={ROUNDS}", *more)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    source, *overrides = words(data, run)
    training.train(load_config(source, overrides), engine=Engine("local"))
    return run


def start(
    folder: Path, ranks: int, runs: list[list[str]], fault: str = "", victims: int = 1
) -> Job:
    spec = {"runs": runs, "fault": fault, "met": str(folder / "met"), "victims": victims}
    (folder / "spec.json").write_text(json.dumps(spec))
    return Job(folder, ranks, "tests.parallel.mpi_program", str(folder / "spec.json"))


def check_equal(job: Job, run: Path, undisturbed: Path) -> None:
    assert RunFolder(run).result() is not None, job.said
    assert tree(run) == tree(undisturbed)
    assert not processes(str(run.parent)), "orphans"
    assert not Path("/dev/shm", f"remuda-{shared_name(run)}").exists(), "shared memory"


@pytest.mark.parametrize("ranks", [2, 5])
def test_ranks_give_the_same_weights_for_every_method(
    ranks: int, tmp_path: Path, data: Path
) -> None:
    def settings(method: str, where: str) -> list[str]:
        source, *overrides = tiny(data, tmp_path / f"{method}-{where}")
        rest = [word for word in overrides if not word.startswith("method.")]
        return [source, *rest, f"method={method}"]

    job = start(tmp_path, ranks, [settings(method, "mpi") for method in METHODS])
    for method in METHODS:
        source, *overrides = settings(method, "local")
        training.train(load_config(source, overrides))
    job.wait()
    for method in METHODS:
        check_equal(job, tmp_path / f"{method}-mpi", tmp_path / f"{method}-local")


@pytest.mark.parametrize(
    "fault",
    [
        "killed while training",
        "killed while publishing",
        "killed while writing a checkpoint",
        "hung",
        "hung and woken",
        "raises",
    ],
)
def test_a_fault_of_a_rank_costs_time_but_changes_nothing(
    fault: str, tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    job = start(tmp_path, 3, [words(data, run)], fault)
    job.wait()
    assert (tmp_path / "met" / "0").exists(), job.said
    assert [event for event in RunFolder(run).events() if event["event"] == "lost"], job.said
    check_equal(job, run, undisturbed)


def test_two_ranks_lost_at_once(tmp_path: Path, data: Path, undisturbed: Path) -> None:
    run = tmp_path / "run"
    job = start(tmp_path, 4, [words(data, run)], "killed while training", victims=2)
    job.wait()
    assert len([event for event in RunFolder(run).events() if event["event"] == "lost"]) == 2
    check_equal(job, run, undisturbed)


# ---------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("ranks", "more", "reason"),
    [
        (2, ["no-such-preset"], "neither a preset nor a file"),
        (2, ["--engine", "process"], "mpiexec started 2 tasks, and each would train a run"),
        (1, ["--engine", "mpi"], "a master and at least one worker are needed"),
    ],
)
def test_what_cannot_be_carried_is_refused_once_and_by_all_ranks(
    ranks: int, more: list[str], reason: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, ranks, "remuda", "train", *more, f"run.dir={tmp_path / 'run'}")
    assert job.wait() != 0
    assert job.said.count(reason) == 1
    assert not (tmp_path / "run").exists()


def test_more_tasks_than_mpi_sees_are_refused(tmp_path: Path) -> None:
    """As under srun, when the MPI behind mpi4py does not know it."""
    environ = {**os.environ, "SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}
    command = [sys.executable, "-m", "remuda", "train", f"run.dir={tmp_path / 'run'}"]
    found = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert found.returncode == 4
    assert "srun started 4 tasks, but MPI sees 1" in found.stderr
    assert not (tmp_path / "run").exists()


def test_without_mpi4py_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(MpiError, match=r"remuda\[mpi\](.|\n)*remuda\[mpi-local\]"):
        Session()


# ---------------------------------------------------------------------------- under supervision

LONG = ("rounds=16", "training.batches_per_round=60", "run.sheet_every=0")


@pytest.fixture(scope="module")
def long_undisturbed(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    run = tmp_path_factory.mktemp("long") / "run"
    source, *overrides = words(data, run, *LONG)
    training.train(load_config(source, overrides), engine=Engine("local"))
    return run


def supervised(folder: Path, data: Path) -> tuple[Command, Path]:
    """A run of `remuda train --engine mpi`, some rounds into its training."""
    run = folder / "run"
    given = words(data, run, *LONG)
    train = Command(folder, "train", *given, "--engine", "mpi", "--workers", "2")
    until(lambda: len(RunFolder(run).checkpoints()) > 0, "a checkpoint")
    return train, run


def ranks_of(run: Path) -> dict[int, int]:
    """The processes of a job by rank."""
    found = {}
    for pid in processes(str(run)):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        for variable in variables:
            if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(variable.partition(b"=")[2])] = pid
    return found


@pytest.mark.parametrize("victim", ["the master's rank", "mpiexec"])
def test_a_lost_job_is_started_again_and_nothing_is_lost(
    victim: str, tmp_path: Path, data: Path, long_undisturbed: Path
) -> None:
    train, run = supervised(tmp_path, data)
    ranks = ranks_of(run)
    assert sorted(ranks) == [0, 1, 2]
    if victim == "mpiexec":
        (parent,) = {int(_stat(pid)[3]) for pid in ranks.values()}
        os.kill(parent, signal.SIGKILL)
    else:
        os.kill(ranks[0], signal.SIGKILL)
    assert train.wait(timeout=200) == 0, train.said
    assert "starting it again" in train.said
    assert tree(run) == tree(long_undisturbed)
    assert not processes(str(run)), "orphans"


def test_a_killed_supervisor_takes_its_job_along_and_the_run_resumes(
    tmp_path: Path, data: Path, long_undisturbed: Path
) -> None:
    train, run = supervised(tmp_path, data)
    train.send(signal.SIGKILL)
    assert train.wait() == -signal.SIGKILL
    until(lambda: not processes(str(run)), "the end of all ranks", 60)
    assert RunFolder(run).result() is None
    code, _, errors = remuda(tmp_path, "resume", str(run), "--engine", "local")
    assert code == 0, errors
    assert tree(run) == tree(long_undisturbed)


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().split()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGUSR1, STOPPED), (signal.SIGTERM, 128 + 15), (signal.SIGINT, 128 + 2)],
)
def test_a_job_told_to_stop_saves_and_resumes_elsewhere(
    number: signal.Signals, code: int, tmp_path: Path, data: Path, long_undisturbed: Path
) -> None:
    train, run = supervised(tmp_path, data)
    train.send(number)
    assert train.wait() == code, train.said
    until(lambda: not processes(str(run)), "the end of all ranks", 20)
    assert RunFolder(run).result() is None
    assert len(RunFolder(run).checkpoints()) > 0
    code, _, errors = remuda(tmp_path, "resume", str(run), "--engine", "local")
    assert code == 0, errors
    assert tree(run) == tree(long_undisturbed)
