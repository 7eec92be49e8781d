"""What a rank does around its MPI calls: shows life while it prepares, and ends if they hang."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace
from typing import cast

import pytest

from remuda.parallel import ranks
from remuda.parallel.messages import GetStatus
from remuda.parallel.transports import mpi_thread
from remuda.parallel.transports.mpi_thread import Plane, Session


class Talker:
    """In place of the thread that talks MPI."""

    def __init__(self, *_: object) -> None:
        self.sent: list[tuple[Plane, int, bytes]] = []
        self.stopped = False
        talkers.append(self)

    def start(self) -> None:
        pass

    def send(self, plane: Plane, rank: int, content: bytes) -> None:
        self.sent.append((plane, rank, content))

    def stop(self) -> None:
        self.stopped = True

    def is_alive(self) -> bool:
        return not self.stopped


talkers: list[Talker] = []


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """The master's of three ranks, without MPI."""
    monkeypatch.setattr(mpi_thread, "MpiThread", Talker)
    monkeypatch.setattr(mpi_thread, "_LIFE_SECONDS", 0.05)
    monkeypatch.setattr(Session, "_join", lambda _: None)
    talkers.clear()
    found = Session()
    found.rank, found.size = 0, 3
    found.mpi = cast(object, SimpleNamespace())  # type: ignore[assignment]
    return found


def test_a_master_shows_life_from_its_first_moment_until_a_run_starts(session: Session) -> None:
    shown: list[float] = []
    session.prepare(lambda: shown.append(time.monotonic()))
    time.sleep(0.3)
    session.start_thread(lambda *_: None)
    (preparing, running), before = talkers, len(shown)
    question = GetStatus(number=0).encode()
    assert preparing.sent[:2] == [(Plane.WORLD, 1, question), (Plane.WORLD, 2, question)]
    assert len(preparing.sent) == 2 * before >= 6
    assert preparing.stopped
    time.sleep(0.1)
    assert len(shown) == before, "from now on the run does"
    assert running.sent == []


def test_between_two_runs_of_a_job_its_master_shows_life_again(session: Session) -> None:
    master = ranks._JobMaster(session)
    master.close()
    time.sleep(0.2)
    running, between = talkers
    assert running.stopped
    assert {rank for _, rank, _ in between.sent} == {1, 2}
    session.start_thread(lambda *_: None)
    assert between.stopped


def test_a_call_that_hangs_in_mpi_ends_the_rank() -> None:
    """Whatever holds Python's lock: the system ends it, as a signal that other ranks notice."""
    child = os.fork()
    if child == 0:
        with mpi_thread._ended_after(1):
            signal.pause()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGALRM


def test_a_call_that_returns_leaves_no_alarm_behind() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with mpi_thread._ended_after(100):
        assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert signal.alarm(0) == 0
    assert signal.getsignal(signal.SIGALRM) == before
