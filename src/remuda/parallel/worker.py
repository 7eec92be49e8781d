"""A worker: its main thread talks to the master, a second thread trains the cells it was given.

The states are the article's (`protocol.State`): inactive until a *run task* comes, processing, then
finished until the master has what it needs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from remuda.clock import Clock
from remuda.errors import RemudaError
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel
from remuda.parallel.exchange import CancelledError
from remuda.parallel.hosts import this_host
from remuda.parallel.messages import (
    Committed,
    Done,
    Failed,
    Finished,
    GetStatus,
    Hello,
    Message,
    RunTask,
    Saved,
    Status,
    Stop,
)
from remuda.parallel.pace import STARTING
from remuda.parallel.protocol import (
    Event,
    State,
    Timeouts,
    may_start,
    must_fence,
    next_state,
    oldest_allowed,
)
from remuda.parallel.transports.base import MasterGoneError, WorkerComm
from remuda.runs.prepare import Run
from remuda.runs.retention import checkpoint_due
from remuda.runs.store import RunFolder

WAKING_SECONDS = 1.0
STOP_SECONDS = 60.0  # for a trainer to come to its next batches; one that hangs never does


class Worker:
    """Serves one master until it says stop, or is gone."""

    def __init__(self, run: Run, folder: Path, comm: WorkerComm, timeouts: Timeouts) -> None:
        self._run = run
        self._folder = RunFolder(folder)
        self._comm = comm
        self._timeouts = timeouts
        self._state = State.INACTIVE
        self._task: _Task | None = None
        self._heard = time.monotonic()
        self._woken: float | None = None  # when it woke from a long sleep
        self._called = False  # whether the master has said anything since

    def serve(self) -> None:
        """Answer the master until the run is over."""
        try:
            self._comm.send(Hello(pid=os.getpid(), **vars(this_host())))
            while True:
                message = self._comm.receive(timeout=0.2)
                if isinstance(message, Stop) or not self._hear(message):
                    return
                if message is not None:
                    self._handle(message)
        except MasterGoneError:
            return
        finally:
            self._drop_task()

    def _hear(self, message: Message | None) -> bool:
        """Whether the master still counts on us.

        A worker that wakes from a long sleep may find old messages, and behind them one that
        dismisses it: it goes on only if something has come within a while, and no dismissal.
        """
        now = time.monotonic()
        if not self._must_leave():
            self._woken = None
            if message is not None:
                self._heard = now
            return True
        if self._woken is None:
            self._woken, self._called = now, False
        self._called |= message is not None
        if now - self._woken <= WAKING_SECONDS:
            return True
        if self._called:
            self._heard = now
        return self._called

    def _must_leave(self) -> bool:
        """Whether it slept so long that it was written off and must not touch the run any more."""
        return must_fence(time.monotonic() - self._heard, self._timeouts)

    def _handle(self, message: Message) -> None:
        match message:
            case RunTask():
                self._state = next_state(self._state, Event.RUN_TASK)
                if self._task is not None:
                    self._task.cancel()
                self._task = _Task(
                    message, self._run, self._folder, self._comm, self._must_leave, self._task
                )
                self._task.start()
            case Committed():
                if self._task is not None and message.term == self._task.term:
                    self._task.commit(message.round)
            case GetStatus():
                self._comm.send(self._status(message.number))

    def _status(self, number: int) -> Status:
        task = self._task
        if task is None:
            return Status(number=number, state=self._state, term=0, rounds={})
        if task.finished and self._state is State.PROCESSING:
            self._state = next_state(self._state, Event.LAST_ROUND)
        cell, batch, batches = task.at
        return Status(
            number=number,
            state=self._state,
            term=task.term,
            rounds=dict(task.rounds),
            cell=cell,
            batch=batch,
            batches=batches,
            doing=task.doing,
        )

    def _drop_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task.join(STOP_SECONDS)
            self._task = None


class _Task(threading.Thread):
    """Trains some cells from a checkpoint to the last round."""

    def __init__(
        self,
        task: RunTask,
        run: Run,
        folder: RunFolder,
        comm: WorkerComm,
        is_fenced: Callable[[], bool],
        previous: _Task | None,
    ) -> None:
        super().__init__(name="trainer", daemon=True)
        self.term = task.term
        self.finished = False
        self.rounds = dict.fromkeys(task.cells, task.start)
        self._owners = task.owners
        # A cell and its batches; while it starts, no cell, and how many are ready.
        self.at: tuple[int | None, int, int] = (None, 0, 0)
        self._clock: Clock | None = None  # of the round it is in
        self._start_round = task.start
        self._run = run
        self._folder = folder
        self._comm = comm
        self._is_fenced = is_fenced
        self._previous = previous
        self._cancelled = threading.Event()
        self._committed = task.start
        self._progress = threading.Condition()
        self._readers: dict[int, dict[int, set[int]]] = {}  # by round, of each cell

    @property
    def doing(self) -> str:
        """The routine it is in, for the master to see whether it gets on."""
        return STARTING if self._clock is None else self._clock.current

    def cancel(self) -> None:
        self._cancelled.set()

    def commit(self, round: int) -> None:
        """A round is complete everywhere."""
        with self._progress:
            self._committed = round
            self._progress.notify_all()

    def run(self) -> None:
        try:
            # Waited for here, so that the main thread goes on answering.
            if self._previous is not None:
                self._previous.join()
                self._previous = None
            self._train()
            self.finished = True
            self._comm.send(Finished(term=self.term))
        except (CancelledError, MasterGoneError):
            return
        except BaseException as error:
            cell = self.at[0]
            user = isinstance(error, RemudaError)
            text = str(error) if user else traceback.format_exc()
            number = self.rounds.get(cell, 0) + 1 if cell is not None else self._start_round
            with contextlib.suppress(MasterGoneError):
                self._comm.send(
                    Failed(term=self.term, cell=cell, round=number, error=text, user_error=user)
                )

    def _train(self) -> None:
        cells: list[Cell] = []
        for index in sorted(self.rounds):
            cells.append(self._cell(index))
            self.at = (None, len(cells), len(self.rounds))
        for cell in cells:
            self._publish(cell)
        for round in range(self._start_round + 1, self._run.config.rounds + 1):
            for cell in cells:
                self._advance(cell, round)

    def _cell(self, index: int) -> Cell:
        run = self._run
        if self._start_round > 0:
            cell = run.restored(self._folder.load_cells(self._start_round, [index])[index])
        elif run.config.init_from:
            cell = run.restored(self._folder.load_initial(index))
        else:
            cell = run.cell(index)
        cell.tick = lambda batch, batches: self._tick(index, batch, batches)
        return cell

    def _tick(self, cell: int, batch: int, batches: int) -> None:
        self.at = (cell, batch, batches)
        if self._cancelled.is_set():
            raise CancelledError

    def _advance(self, cell: Cell, round: int) -> None:
        self._tick(cell.index, 0, 1)
        settings, clock = self._run.config, Clock()
        self._clock = clock
        cell.round = round
        with clock.routine("wait"):
            self._wait_for_turn(cell, round)
        with clock.routine("gather"):
            parcels = self._collect(cell, round)
        report = self._run.method.advance(cell, parcels, clock)
        with clock.routine("publish"):
            parcel = self._publish(cell)
        traffic = {
            "gathered": sum(found.nbytes for found in parcels),
            "published": parcel.nbytes,
            "saved": 0,
        }
        if checkpoint_due(round, every=settings.run.checkpoint_every, rounds=settings.rounds):
            with clock.routine("checkpoint"):
                traffic["saved"] = self._write(cell, parcel)
        staleness = None
        if not self._is_sync:
            staleness = {str(found.cell): round - 1 - found.round for found in parcels}
        self.rounds[cell.index] = round
        report = dataclasses.replace(
            report,
            seconds=clock.seconds(),
            bytes=traffic,
            staleness=staleness,
            cpu_seconds=clock.cpu_seconds(),
        )
        self._comm.send(Done(term=self.term, report=report))

    def _wait_for_turn(self, cell: Cell, round: int) -> None:
        """Until nobody is so far behind that what we publish would pile up."""
        if not self._is_sync:
            return
        with self._progress:
            while not may_start(round, self._committed):
                self._progress.wait(timeout=0.1)
                self._tick(cell.index, 0, 1)

    def _collect(self, cell: Cell, round: int) -> list[Parcel]:
        method, exchange = self._run.method, self._run.config.exchange
        peers, called_off = method.peers(cell.index, round), self._cancelled.is_set
        if self._is_sync or method.exact_peers:
            return self._comm.collect(self.term, peers, round - 1, called_off, method.reads)
        oldest = oldest_allowed(round, exchange.max_staleness)
        return self._comm.collect_newest(self.term, peers, oldest, called_off, method.reads)

    def _publish(self, cell: Cell) -> Parcel:
        self._wait_at_the_fence(cell)
        parcel = cell.parcel()
        readers = self._readers_of(cell.index, cell.round)
        self._comm.publish(self.term, parcel, readers, self._run.method.reads)
        return parcel

    def _wait_at_the_fence(self, cell: Cell) -> None:
        """A worker that slept may have been written off: until it knows, it publishes nothing.

        Nor does a trainer that hung until its worker was written off and comes to.
        """
        if self._cancelled.is_set():
            raise CancelledError
        while self._is_fenced():
            self._tick(cell.index, 0, 1)
            time.sleep(0.05)

    def _readers_of(self, cell: int, round: int) -> set[int]:
        """The workers whose cells will read what this cell publishes after this round."""
        last, later = self._run.config.rounds, round + 1
        # Asynchronous cells are in rounds of their own: all that they may ever be in count, unless
        # they read parcels of exactly the round before.
        exact = self._is_sync or self._run.method.exact_peers
        first, end = (later, later) if exact else (self._start_round + 1, last)
        if first not in self._readers:
            readers: dict[int, set[int]] = {}
            for number in range(first, min(end, last) + 1):
                for reader, owner in enumerate(self._owners):
                    for peer in self._run.method.peers(reader, number):
                        readers.setdefault(peer, set()).add(owner)
            self._readers = {first: readers}
        return self._readers[first].get(cell, set())

    @property
    def _is_sync(self) -> bool:
        return self._run.config.exchange.mode == "sync"

    def _write(self, cell: Cell, parcel: Parcel) -> int:
        self._wait_at_the_fence(cell)
        saved = self._folder.save_cell(parcel)
        self._comm.send(
            Saved(
                term=self.term,
                cell=parcel.cell,
                round=parcel.round,
                bytes=saved.bytes,
                sha256=saved.sha256,
            )
        )
        return saved.bytes
