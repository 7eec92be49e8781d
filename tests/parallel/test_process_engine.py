"""Same weights on processes as in one, and no fault of a worker changes them. Real processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from remuda.config import load_config
from remuda.methods import METHODS
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.runs.store import RunFolder
from tests.parallel.faulty import FAULTS, FaultyEngine
from tests.parallel.runs import (
    LONG,
    LONG_ROUNDS,
    QUICK,
    Remembering,
    check_equal,
    check_nothing_is_left,
    in_order,
    process_name,
    servers,
    settings,
    settings_of,
    words,
    worker_processes,
)
from tests.tiny_runs import Command, last_weights, tree

pytestmark = pytest.mark.slow

# With settings of their own: test_gap_runs.py, test_class_parallel_runs.py, and the faults below.
ELSEWHERE = ("gap", "class_parallel", "cellular")


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ELSEWHERE])
def test_two_processes_give_the_weights_of_one(method: str, tmp_path: Path, data: Path) -> None:
    for engine in (Engine("local"), Engine("process", 2)):
        source, *overrides = settings_of(method, data, tmp_path / engine.name)
        training.train(load_config(source, overrides), engine=engine)
    assert tree(tmp_path / "process") == tree(tmp_path / "local")
    check_nothing_is_left()


def test_workers_that_are_killed_at_bad_moments_hang_or_talk_nonsense_change_nothing(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    """More faults than workers: in the end the last one is lost, and a new one is started."""
    observer, run = Remembering(), tmp_path / "run"
    engine = FaultyEngine("process", 3, QUICK, tuple(FAULTS))
    training.train(settings(data, run), observer, engine=engine)
    for fault in FAULTS:
        assert (tmp_path / "met" / fault / "0").exists(), fault
    lost = [event for event in RunFolder(run).events() if event["event"] == "lost"]
    assert len(lost) == len(FAULTS)
    assert len([text for text in observer.warnings if "was lost" in text]) == len(FAULTS)
    assert [text for text in observer.warnings if "sent a report of round 1" in text]
    assert len(observer.dead) == len(FAULTS)
    check_equal(run, undisturbed)


# ---------------------------------------------------------------------------- the master ends


def started(folder: Path, data: Path, *more: str) -> tuple[Command, list[int]]:
    """A command in its third round, and its processes: two workers and what forked them."""
    given = words(data, folder / "run", *LONG, *more)
    train = Command(folder, "train", *given, "--engine", "process", "--workers", "2", "--plain")
    train.wait_for(f"round    2/{LONG_ROUNDS}")
    assert train.pid is not None
    workers = worker_processes(train.pid)
    assert len(workers) == 2
    return train, [*workers, *servers(train.pid)]


def check_all_is_gone(train: Command, processes: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(process_name(pid).startswith("remuda") for pid in processes):
        assert time.monotonic() < deadline, "orphans"
        time.sleep(0.05)
    assert not list(Path("/dev/shm").glob(f"remuda-{train.pid}-*"))


def test_a_killed_master_takes_its_workers_along_and_the_run_resumes(
    tmp_path: Path, data: Path, long_undisturbed: Path
) -> None:
    train, processes = started(tmp_path, data)
    train.send(signal.SIGKILL)
    assert train.wait() == -signal.SIGKILL
    check_all_is_gone(train, processes)
    assert training.resume(tmp_path / "run") is not None
    assert tree(tmp_path / "run") == tree(long_undisturbed)
    assert in_order(tmp_path / "run") == in_order(long_undisturbed)


def test_a_signal_to_the_whole_job_loses_no_complete_round(
    tmp_path: Path, data: Path, long_undisturbed: Path
) -> None:
    """As schedulers send it, to master and workers at once, when no checkpoint was due."""
    run = tmp_path / "run"
    train, processes = started(tmp_path, data, f"run.checkpoint_every={LONG_ROUNDS}")
    for pid in (*processes, train.pid):
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
    assert train.wait() == 128 + signal.SIGTERM
    check_all_is_gone(train, processes)
    (checkpoint,) = RunFolder(run).checkpoints()
    assert f"{checkpoint.round} of {LONG_ROUNDS} rounds are complete and saved" in train.said
    assert training.resume(run) is not None
    assert last_weights(run) == last_weights(long_undisturbed)


def test_the_run_survives_the_death_of_what_forks_its_workers(
    tmp_path: Path, data: Path, long_undisturbed: Path
) -> None:
    """Those that replace its workers come from a new one."""
    train, (*workers, server) = started(tmp_path, data)
    os.kill(server, signal.SIGKILL)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    assert train.wait() == 0, train.said
    check_all_is_gone(train, [*workers, server])
    lost = [event for event in RunFolder(tmp_path / "run").events() if event["event"] == "lost"]
    assert len(lost) == 2
    assert tree(tmp_path / "run") == tree(long_undisturbed)


def test_workers_go_on_when_what_forked_them_dies(
    tmp_path: Path, data: Path, long_undisturbed: Path
) -> None:
    train, (*_, server) = started(tmp_path, data)
    os.kill(server, signal.SIGKILL)
    assert train.wait() == 0, train.said
    events = RunFolder(tmp_path / "run").events()
    assert not [event for event in events if event["event"] == "lost"]
    assert tree(tmp_path / "run") == tree(long_undisturbed)
