"""Workers as the ranks of an MPI job: rank 0 is the master, all others are workers."""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import signal
import struct
import time
from collections.abc import Collection, Mapping, Sequence

from remuda.gan.parcels import Parcel, ParcelError, Part, decode_parcel
from remuda.parallel.exchange import LostResultsError, MemoryExchange
from remuda.parallel.messages import (
    Forget,
    GetResults,
    Hello,
    Message,
    MessageError,
    Stop,
    decode,
)
from remuda.parallel.signals import stop_if_asked
from remuda.parallel.transports.base import (
    MasterComm,
    MasterGoneError,
    WorkerComm,
)
from remuda.parallel.transports.mpi_thread import MpiError, Plane, Session

RESULTS_SECONDS = 60.0
_TERM = struct.Struct("<q")  # before a parcel between cells
_ANSWER = struct.Struct("<qq?")  # before a result: the question's number, the cell, is it there


class MpiMaster(MasterComm):
    """The master's end, on rank 0."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._inbox: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._workers = set(range(1, session.size))
        self._processes: dict[int, tuple[str, int]] = {}  # host and pid of each worker
        self._questions = 0
        self._thread = session.start_thread(self._deliver)

    def _deliver(self, plane: Plane, rank: int, content: bytes) -> None:
        (self._inbox if plane is Plane.WORLD else self._answers).put((rank, content))

    def workers(self) -> list[int]:
        return sorted(self._workers)

    def send(self, worker: int, message: Message) -> None:
        if worker in self._workers:
            self._thread.send(Plane.WORLD, worker, message.encode())

    def receive(self, timeout: float) -> list[tuple[int, Message]]:
        self._check_thread()
        found: list[tuple[int, Message]] = []
        with contextlib.suppress(queue.Empty):
            worker, content = self._inbox.get(timeout=timeout)
            while True:
                self._take(worker, content, found)
                worker, content = self._inbox.get_nowait()
        return found

    def _check_thread(self) -> None:
        if self._thread.error is not None:
            raise MpiError(f"MPI failed on the master's rank: {self._thread.error}")

    def _take(self, worker: int, content: bytes, found: list[tuple[int, Message]]) -> None:
        if worker not in self._workers:
            return
        try:
            message = decode(content)
        except MessageError:
            self._thread.garbled.add(worker)
            return
        if isinstance(message, Hello):
            self._processes[worker] = (message.host, message.pid)
        found.append((worker, message))

    def gone(self) -> set[int]:
        return (self._thread.failed | self._thread.garbled) & self._workers

    def dismiss(self, worker: int) -> None:
        self.send(worker, Stop())
        self._workers.discard(worker)
        host, pid = self._processes.pop(worker, ("", 0))
        # Where we can reach it; elsewhere it fences itself when it wakes.
        if host == platform.node() and worker not in self._thread.failed:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def replace(self) -> int | None:
        return None

    def results(
        self, wanted: Mapping[int, Sequence[int]], term: int, round: int, part: str = ""
    ) -> dict[int, Parcel]:
        self._questions += 1
        missing: dict[int, int] = {}
        for worker, cells in wanted.items():
            if cells:
                missing.update(dict.fromkeys(cells, worker))
                question = GetResults(
                    number=self._questions, term=term, round=round, cells=tuple(cells), part=part
                )
                self._thread.send(Plane.GLOBAL, worker, question.encode())
        found: dict[int, Parcel] = {}
        deadline = time.monotonic() + RESULTS_SECONDS
        while missing:
            stop_if_asked()
            self._check_thread()
            for worker in missing.values():
                if worker in self._thread.failed or time.monotonic() > deadline:
                    raise LostResultsError(worker)
            with contextlib.suppress(queue.Empty):
                worker, content = self._answers.get(timeout=0.05)
                if len(content) < _ANSWER.size:
                    if worker in self._workers:
                        raise LostResultsError(worker)
                    continue  # of one that was dismissed, which may still answer in order
                deadline = time.monotonic() + RESULTS_SECONDS  # of silence, not in all
                number, cell, is_there = _ANSWER.unpack_from(content)
                if number != self._questions or missing.get(cell) != worker:
                    continue
                if not is_there:
                    raise LostResultsError(worker)
                try:
                    found[cell] = decode_parcel(content[_ANSWER.size :])
                except ParcelError:
                    raise LostResultsError(worker) from None
                del missing[cell]
        return found

    def forget(self, term: int, round: int) -> None:
        for worker in self.workers():
            self._thread.send(Plane.GLOBAL, worker, Forget(term=term, round=round).encode())

    def close(self) -> None:
        for worker in self.workers():
            self.send(worker, Stop())
        self._workers.clear()
        self._thread.stop()


class MpiWorker(WorkerComm):
    """A worker's end, on any other rank."""

    def __init__(self, session: Session) -> None:
        self._rank = session.rank
        self.exchange = MemoryExchange()
        self._inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._thread = session.start_thread(self._deliver)

    @property
    def master_gone(self) -> bool:
        return 0 in self._thread.failed or not self._thread.is_alive()

    def _deliver(self, plane: Plane, rank: int, content: bytes) -> None:
        if plane is Plane.WORLD:
            self._inbox.put(content)
        elif plane is Plane.GLOBAL:
            self._answer(content)
        else:
            # What is not a parcel, or comes twice, is not what somebody is waiting for.
            with contextlib.suppress(ValueError, struct.error):
                (term,) = _TERM.unpack_from(content)
                self.exchange.put(term, decode_parcel(content[_TERM.size :]))

    def _answer(self, content: bytes) -> None:
        match decode(content):
            case Forget(term=term, round=round):
                self.exchange.forget(term, round)
            case GetResults() as question:
                for cell in question.cells:
                    self._thread.send(Plane.GLOBAL, 0, self._result(question, cell))

    def _result(self, question: GetResults, cell: int) -> bytes:
        try:
            (parcel,) = self.exchange.get(question.term, [cell], question.round)
        except LookupError:
            return _ANSWER.pack(question.number, cell, False)
        answer = _ANSWER.pack(question.number, cell, True)
        return b"".join([answer, *parcel.only(question.part).chunks])

    def send(self, message: Message) -> None:
        if self.master_gone:
            raise MasterGoneError
        self._thread.send(Plane.WORLD, 0, message.encode())

    def receive(self, timeout: float) -> Message | None:
        try:
            message = decode(self._inbox.get(timeout=timeout))
        except queue.Empty:
            if self.master_gone:
                raise MasterGoneError from None
            return None
        return message

    def begin(self) -> None:
        """Forget an earlier run's parcels; this one has none before all have said hello."""
        self.exchange = MemoryExchange()

    def publish(self, term: int, parcel: Parcel, readers: Collection[int], part: Part = "") -> None:
        self.exchange.put(term, parcel)
        others = sorted(set(readers) - {self._rank})
        if others:
            content = b"".join([_TERM.pack(term), *parcel.only(part).chunks])
            for reader in others:
                self._thread.send(Plane.LOCAL, reader, content)
