"""A worker that slept publishes nothing before it knows whether it was written off."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from remuda.config import load_config
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel, Part
from remuda.methods.matching import matching
from remuda.parallel import worker
from remuda.parallel.exchange import MemoryExchange
from remuda.parallel.messages import GetStatus, Message, RunTask, Saved, Status, Stop
from remuda.parallel.protocol import State, Timeouts
from remuda.parallel.transports.base import WorkerComm
from remuda.parallel.worker import Worker
from remuda.runs.prepare import Run
from tests.faults import after
from tests.tiny_runs import tiny, write_data

TIMEOUTS = Timeouts(interval=0.1, delayed=0.5, dead=60.0)


class Scripted(WorkerComm):
    """A master that sends what the test gives it, and keeps what the worker sends."""

    def __init__(self) -> None:
        self.exchange = MemoryExchange()
        self.waiting: list[Message] = []
        self.said: list[Message] = []
        self.published: list[int] = []
        self.readers: list[set[int]] = []
        self.lock = threading.Lock()

    @property
    def master_gone(self) -> bool:
        return False

    def send(self, message: Message) -> None:
        with self.lock:
            self.said.append(message)

    def receive(self, timeout: float) -> Message | None:
        with self.lock:
            if self.waiting:
                return self.waiting.pop(0)
        time.sleep(min(timeout, 0.01))
        return None

    def publish(self, term: int, parcel: Parcel, readers: Collection[int], part: Part = "") -> None:
        self.readers.append(set(readers))
        self.published.append(parcel.round)
        self.exchange.put(term, parcel)


class Clock:
    """Time as the worker sees it; it can sleep for long in no time."""

    def __init__(self) -> None:
        self.slept = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.slept

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(worker, "time", found)
    return found


def start(tmp_path: Path, comm: Scripted, *settings: str) -> threading.Thread:
    words = tiny(write_data(tmp_path / "images.npz"), tmp_path / "run", "grid=1x2", *settings)
    if "method=gap" in settings:
        words = [word for word in words if not word.startswith("method.")]
    run = Run.prepare(load_config(words[0], words[1:]))
    serving = Worker(run, tmp_path / "run", comm, TIMEOUTS)
    thread = threading.Thread(target=serving.serve, daemon=True)
    thread.start()
    return thread


def until(condition: bool | object, what: str) -> None:
    assert callable(condition)
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def at_the_fence(
    tmp_path: Path, comm: Scripted, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> threading.Thread:
    """A worker that fell asleep in the middle of its first round and wakes behind the fence."""
    asleep, woken = threading.Event(), threading.Event()

    def train(*_: object) -> None:
        asleep.set()
        assert woken.wait(30)

    original = Cell.train
    after(Cell, "train", train)
    monkeypatch.setattr(Cell, "train", Cell.train)  # undone, with what it was, by the fixture
    comm.waiting.append(RunTask(term=1, cells=(0,), start=0, owners=(1, 1)))
    thread = start(tmp_path, comm)
    # The other cell is another worker's, whose first parcel is there.
    until(lambda: comm.published == [0], "the first parcel")
    own = comm.exchange.get(1, [0], 0)[0]
    comm.exchange.put(1, Parcel(1, 0, own.tensors, own.meta))
    assert asleep.wait(30)
    with comm.lock:
        clock.slept = TIMEOUTS.dead
        comm.waiting += [GetStatus(number=number) for number in range(3)]
    woken.set()
    monkeypatch.setattr(Cell, "train", original)
    return thread


def test_a_worker_that_was_written_off_in_its_sleep_neither_publishes_nor_writes(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    comm = Scripted()
    thread = at_the_fence(tmp_path, comm, clock, monkeypatch)
    time.sleep(0.3)  # old questions were answered by now, and no word has come to stop
    with comm.lock:
        comm.waiting.append(Stop())
    thread.join(30)
    assert not thread.is_alive()
    assert comm.published == [0]
    assert not [message for message in comm.said if isinstance(message, Saved)]
    assert not list((tmp_path / "run").rglob("*.safetensors"))


def test_a_worker_whose_master_slept_as_well_goes_on(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    comm = Scripted()
    thread = at_the_fence(tmp_path, comm, clock, monkeypatch)
    until(lambda: 1 in comm.published, "its round is published after all")
    with comm.lock:
        comm.waiting.append(Stop())
    thread.join(30)
    assert not thread.is_alive()


def test_a_worker_that_hears_nothing_for_too_long_leaves(tmp_path: Path, clock: Clock) -> None:
    comm = Scripted()
    thread = start(tmp_path, comm)
    until(lambda: len(comm.said) == 1, "hello")
    clock.slept = TIMEOUTS.dead
    thread.join(30)
    assert not thread.is_alive()


def test_a_worker_says_where_its_trainer_is_while_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comm, hangs, released = Scripted(), threading.Event(), threading.Event()
    real = Cell.train

    def train(cell: Cell, *args: object) -> object:
        hangs.set()
        assert released.wait(30)
        return real(cell, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Cell, "train", train)
    comm.waiting += [GetStatus(number=0), RunTask(term=1, cells=(0,), start=0, owners=(1, 1))]
    thread = start(tmp_path, comm)

    def answers() -> list[tuple[State, str, int | None]]:
        with comm.lock:
            said = [message for message in comm.said if isinstance(message, Status)]
        return [(answer.state, answer.doing, answer.cell) for answer in said]

    def ask(number: int) -> tuple[State, str, int | None]:
        with comm.lock:
            comm.waiting.append(GetStatus(number=number))
        until(lambda: len(answers()) > number, "an answer")
        return answers()[number]

    until(lambda: len(answers()) == 1, "an answer")
    assert answers() == [(State.INACTIVE, "", None)]
    until(lambda: comm.published == [0], "the first parcel")
    # The other cell is another worker's, which is late.
    until(lambda: ask(len(answers())) == (State.PROCESSING, "gather", 0), "waiting for a peer")
    own = comm.exchange.get(1, [0], 0)[0]
    comm.exchange.put(1, Parcel(1, 0, own.tensors, own.meta))
    assert hangs.wait(30)
    assert ask(len(answers())) == (State.PROCESSING, "train", 0)
    with comm.lock:
        comm.waiting.append(Stop())
    released.set()
    thread.join(30)
    assert not thread.is_alive()


def test_a_worker_whose_trainer_hangs_stops_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rank would keep an MPI job from ending."""
    comm, hangs, released = Scripted(), threading.Event(), threading.Event()

    def train(*_: object) -> None:
        hangs.set()
        assert released.wait(30)

    monkeypatch.setattr(Cell, "train", train)
    monkeypatch.setattr(worker, "STOP_SECONDS", 0.1)
    comm.waiting.append(RunTask(term=1, cells=(0,), start=0, owners=(1, 1)))
    thread = start(tmp_path, comm)
    until(lambda: comm.published == [0], "the first parcel")
    own = comm.exchange.get(1, [0], 0)[0]
    comm.exchange.put(1, Parcel(1, 0, own.tensors, own.meta))
    assert hangs.wait(30)
    with comm.lock:
        comm.waiting.append(Stop())
    thread.join(20)
    assert not thread.is_alive()
    released.set()


def test_an_asynchronous_swap_goes_only_to_the_partner_of_the_next_round(tmp_path: Path) -> None:
    comm = Scripted()
    comm.waiting.append(RunTask(term=1, cells=(0,), start=0, owners=(1, 2, 3, 4)))
    settings = ("grid=1x4", "method=gap", "exchange.mode=async", "rounds=20", "seed=5")
    thread = start(tmp_path, comm, *settings)
    until(lambda: len(comm.published) == 2, "the parcel of the first round")
    with comm.lock:
        comm.waiting.append(Stop())
    thread.join(30)
    partner = matching(5, 2, 4)[0]
    assert partner is not None
    assert comm.readers == [set(), {partner + 1}]  # nobody swaps in the first round
