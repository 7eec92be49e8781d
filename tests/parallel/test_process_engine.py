"""Same weights on every engine, and no fault of a worker changes them. Real processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remuda.config import Config, load_config
from remuda.methods import METHODS, Mixture
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.parallel.heartbeat import MOST_QUESTIONS, Heartbeat
from remuda.parallel.master import WorkerError
from remuda.parallel.messages import Message
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import Liveness, Timeouts, WorkerStatus
from remuda.parallel.shared_memory import clear_stale, make_shared_folder, remove_shared_folder
from remuda.parallel.transports.local import LocalMaster
from remuda.runs.store import RunFolder
from tests.parallel.faulty import FaultyEngine
from tests.tiny_runs import Command, happenings, remuda, tiny, tree, write_data

QUICK = Timeouts(interval=0.1, delayed=0.5, dead=3.0)
ROUNDS = 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "images.npz")


def settings(data: Path, run: Path, *more: str) -> Config:
    source, *overrides = tiny(data, run, f"rounds={ROUNDS}", *more)
    return load_config(source, overrides)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    training.train(settings(data, run), engine=Engine("local"))
    return run


def check_equal(run: Path, undisturbed: Path) -> None:
    assert tree(run) == tree(undisturbed)
    assert in_order(run) == in_order(undisturbed)
    check_nothing_is_left()


def in_order(run: Path) -> list[dict[str, Any]]:
    """What happened; workers report in the order they finish."""
    return sorted(happenings(run), key=lambda event: (event["round"], event.get("cell", -1)))


def check_nothing_is_left() -> None:
    """No shared memory and no process of a run that this process carried."""
    assert not list(Path("/dev/shm").glob(f"remuda-{os.getpid()}-*"))
    assert not [pid for pid in children(os.getpid()) if "spawn_main" in command_line(pid)]


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in found for child in path.read_text().split()]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


class Remembering(Observer):
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.dead: set[int] = set()

    def watched(self, workers: Sequence[WorkerStatus]) -> None:
        self.dead |= {seen.worker for seen in workers if seen.liveness is Liveness.DEAD}

    def warned(self, message: str) -> None:
        self.warnings.append(message)


@pytest.mark.parametrize("method", METHODS)
def test_local_and_process_engines_give_the_same_weights(
    method: str, tmp_path: Path, data: Path
) -> None:
    runs = {}
    for engine in (Engine("local"), *(Engine("process", count) for count in (2, 3))):
        run = tmp_path / f"{engine.name}-{engine.workers}"
        source, *overrides = tiny(data, run)
        rest = [word for word in overrides if not word.startswith("method.")]
        training.train(load_config(source, [*rest, f"method={method}"]), engine=engine)
        runs[run] = tree(run)
    first, *others = runs.values()
    assert all(other == first for other in others)
    check_nothing_is_left()


def test_more_workers_than_cells_leave_spares(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    training.train(settings(data, run), engine=Engine("process", 4))
    check_equal(run, undisturbed)


@pytest.mark.parametrize(
    "fault",
    [
        "killed while training",
        "killed while publishing",
        "killed while writing a checkpoint",
        "killed after its last round",
        "hung",
        "raises",
    ],
)
def test_a_fault_of_a_worker_costs_time_but_changes_nothing(
    fault: str, tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    observer, run = Remembering(), tmp_path / "run"
    engine = FaultyEngine("process", 2, QUICK, fault)
    training.train(settings(data, run), observer, engine=engine)
    assert (tmp_path / "met" / "0").exists()
    assert any("was lost" in warning for warning in observer.warnings)
    assert len(observer.dead) == 1
    check_equal(run, undisturbed)


def test_two_workers_lost_at_once(tmp_path: Path, data: Path, undisturbed: Path) -> None:
    observer, run = Remembering(), tmp_path / "run"
    engine = FaultyEngine("process", 3, QUICK, "killed while training", victims=2)
    training.train(settings(data, run), observer, engine=engine)
    assert len([warning for warning in observer.warnings if "was lost" in warning]) == 2
    check_equal(run, undisturbed)


def test_the_only_worker_lost_is_replaced(tmp_path: Path, data: Path, undisturbed: Path) -> None:
    run = tmp_path / "run"
    engine = FaultyEngine("process", 1, QUICK, "killed while training")
    training.train(settings(data, run), engine=engine)
    check_equal(run, undisturbed)


def test_checkpoints_every_third_round_are_enough_to_recover(tmp_path: Path, data: Path) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    more = "run.checkpoint_every=3"
    training.train(settings(data, undisturbed, more))
    engine = FaultyEngine("process", 2, QUICK, "killed while training")
    training.train(settings(data, run, more), engine=engine)
    check_equal(run, undisturbed)


def test_a_slow_worker_is_waited_for(tmp_path: Path, data: Path, undisturbed: Path) -> None:
    observer, run = Remembering(), tmp_path / "run"
    training.train(settings(data, run), observer, engine=FaultyEngine("process", 2, QUICK, "slow"))
    assert observer.warnings == []
    check_equal(run, undisturbed)


def test_a_worker_that_starts_late_is_waited_for_by_all(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    observer, run = Remembering(), tmp_path / "run"
    training.train(settings(data, run), observer, engine=FaultyEngine("process", 2, QUICK, "late"))
    assert observer.warnings == []
    (placed,) = [event for event in RunFolder(run).events() if event["event"] == "placed"]
    assert len(placed["placement"]) == 2
    check_equal(run, undisturbed)


def test_a_pause_of_the_master_is_no_fault_of_its_workers(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    class Busy(Remembering):
        def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
            if round == 1:
                time.sleep(QUICK.dead + 1)

    observer, run = Busy(), tmp_path / "run"
    training.train(settings(data, run), observer, engine=Engine("process", 2, QUICK))
    assert observer.warnings == []
    check_equal(run, undisturbed)


def test_a_cell_that_always_fails_ends_the_run_with_its_error(tmp_path: Path, data: Path) -> None:
    engine = FaultyEngine("process", 2, QUICK, "always raises")
    with pytest.raises(WorkerError, match=r"cell 0 failed 3 times in round 2(.|\n)*a real bug"):
        training.train(settings(data, tmp_path / "run"), engine=engine)
    check_nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_master_that_is_ended_takes_its_workers_along_and_resumes(
    number: signal.Signals, tmp_path: Path, data: Path
) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    more = ("rounds=30", "training.batches_per_round=20", "run.sheet_every=0")
    words = tiny(data, run, *more)
    train = Command(tmp_path, "train", *words, "--engine", "process", "--workers", "2", "--plain")
    train.wait_for("round    3/30")
    assert train.pid is not None
    workers = children(train.pid)
    assert len([pid for pid in workers if "spawn_main" in command_line(pid)]) == 2
    train.send(number)
    code = train.wait()
    assert code == (-number if number is signal.SIGKILL else 128 + number)
    deadline = time.monotonic() + 20
    while any("spawn_main" in command_line(pid) for pid in workers):
        assert time.monotonic() < deadline, "orphans"
        time.sleep(0.05)
    assert not list(Path("/dev/shm").glob(f"remuda-{train.pid}-*"))
    code, _, errors = remuda(tmp_path, "resume", str(run), "--engine", "local")
    assert code == 0, errors
    assert remuda(tmp_path, "train", *tiny(data, undisturbed, *more))[0] == 0
    assert tree(run) == tree(undisturbed)
    assert in_order(run) == in_order(undisturbed)


def test_a_signal_to_the_whole_job_loses_no_complete_round(tmp_path: Path, data: Path) -> None:
    """As schedulers send it, to master and workers at once, when no checkpoint was due."""
    run = tmp_path / "run"
    more = ("rounds=40", "training.batches_per_round=20", "run.checkpoint_every=40")
    words = tiny(data, run, *more, "run.sheet_every=0")
    train = Command(tmp_path, "train", *words, "--engine", "process", "--workers", "2", "--plain")
    train.wait_for("round    2/40")
    assert train.pid is not None
    for pid in (*children(train.pid), train.pid):
        os.kill(pid, signal.SIGTERM)
    assert train.wait() == 128 + signal.SIGTERM
    (checkpoint,) = RunFolder(run).checkpoints()
    assert f"{checkpoint.round} of 40 rounds are complete and saved" in train.said
    assert len(RunFolder(run).load_checkpoint(checkpoint)) == 3


def test_a_closed_terminal_saves_what_is_complete(tmp_path: Path, data: Path) -> None:
    run = tmp_path / "run"
    more = ("rounds=400", "training.batches_per_round=20", "run.checkpoint_every=400")
    train = Command(tmp_path, "train", *tiny(data, run, *more, "run.sheet_every=0"), "--plain")
    train.wait_for("round    2/400")
    train.send(signal.SIGHUP)
    assert train.wait() == 128 + signal.SIGHUP
    assert len(RunFolder(run).checkpoints()) == 1


def test_a_heartbeat_asks_a_silent_worker_only_so_often() -> None:
    """A line that nobody reads must not fill up and block the master."""
    asked: list[int] = []

    class Silent(LocalMaster):
        def send(self, worker: int, message: Message) -> None:
            asked.append(worker)

    comm = Silent(lambda _comm: time.sleep(1), workers=1)
    heartbeat = Heartbeat(comm, interval=0.0005)
    heartbeat.start()
    deadline = time.monotonic() + 20
    while len(asked) < MOST_QUESTIONS and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    assert asked == [1] * MOST_QUESTIONS
    heartbeat.answered(1)
    time.sleep(0.2)
    heartbeat.stop()
    assert len(asked) > MOST_QUESTIONS


def test_folders_of_living_masters_are_not_stale_and_those_of_dead_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    alive = make_shared_folder(2**60)  # no memory has so much room: it lies on disk
    assert alive.parent == tmp_path
    dead = tmp_path / "remuda-1-dead"
    dead.mkdir()
    (dead / "alive").touch()
    clear_stale(tmp_path)
    assert alive.exists()
    assert not dead.exists()
    remove_shared_folder(alive)
    assert not alive.exists()
