"""Workers as processes of this machine: pipes for control, shared memory for parcels and data.

No port is opened. Each worker has a pipe to the master; it is a fork of a server that has imported
torch (`fork_server.py`), or where that cannot be, a spawned child. Parcels lie in a folder in
shared memory. The folder belongs to the master, which removes it when the run ends; what a killed
master left is removed by its workers, or by the next run on this machine.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from remuda.gan.parcels import Parcel, Part
from remuda.parallel.exchange import FolderExchange
from remuda.parallel.messages import LARGEST, Message, MessageError, Stop, decode
from remuda.parallel.shared_memory import remove_if_stale, remove_shared_folder
from remuda.parallel.signals import ignore_signals
from remuda.parallel.transports.base import MasterComm, MasterGoneError, WorkerComm
from remuda.parallel.transports.fork_server import NoForkError, can_fork, fork_worker

_STOP_SECONDS = 10.0
_CLEAR_SECONDS = 2.0


class _Process(Protocol):
    """A worker process, forked or spawned."""

    def is_alive(self) -> bool: ...

    def kill(self) -> None: ...

    def join(self, timeout: float) -> None: ...

    def close(self) -> None: ...


class ProcessMaster(MasterComm):
    """Starts the workers, and ends them."""

    def __init__(
        self,
        target: Callable[..., None],
        arguments: Sequence[Any],
        folder: Path,
        workers: int,
        threads: int = 1,
    ) -> None:
        self._target = target
        self._arguments = tuple(arguments)
        self._folder = folder
        self._exchange = FolderExchange(folder)
        self._threads = threads
        self._forks = can_fork()
        self._pipes: dict[int, Connection[Any, Any]] = {}
        self._processes: dict[int, _Process] = {}
        self._sending = threading.Lock()
        self._count = 0
        try:
            for _ in range(workers):
                self.replace()
        except BaseException:
            self.close()
            raise

    def workers(self) -> list[int]:
        return sorted(self._processes)

    def replace(self) -> int | None:
        self._count += 1
        number = self._count
        ours, theirs = multiprocessing.Pipe()
        try:
            process = self._start(f"remuda-worker-{number}", ours, theirs)
        except BaseException:
            ours.close()  # which ends the worker, if there is one
            raise
        finally:
            theirs.close()
        self._pipes[number], self._processes[number] = ours, process
        return number

    def _start(
        self, name: str, ours: Connection[Any, Any], theirs: Connection[Any, Any]
    ) -> _Process:
        arguments = (self._target, self._arguments, self._folder)
        if self._forks:
            try:
                return fork_worker(self._threads, theirs, ours, _child, arguments, name)
            except NoForkError:
                self._forks = False
        # Read when a child's torch loads, so it must be set before.
        os.environ["OMP_NUM_THREADS"] = str(self._threads)
        process = multiprocessing.get_context("spawn").Process(
            target=_child, args=(theirs, *arguments), name=name, daemon=True
        )
        process.start()
        return process

    def send(self, worker: int, message: Message) -> None:
        pipe = self._pipes.get(worker)
        if pipe is None:
            return
        with self._sending, contextlib.suppress(OSError):
            pipe.send_bytes(message.encode())

    def receive(self, timeout: float) -> list[tuple[int, Message]]:
        numbers = {pipe: number for number, pipe in self._pipes.items() if not pipe.closed}
        if not numbers:
            time.sleep(timeout)
            return []
        found: list[tuple[int, Message]] = []
        for pipe in wait(list(numbers), timeout):
            assert isinstance(pipe, Connection)
            try:
                while pipe.poll():
                    found.append((numbers[pipe], decode(pipe.recv_bytes(LARGEST))))
            except (EOFError, OSError, MessageError):
                # The worker has ended, or sent what is not a valid message: `gone` says so.
                with self._sending:
                    pipe.close()
        return found

    def gone(self) -> set[int]:
        return {
            number
            for number, process in self._processes.items()
            if self._pipes[number].closed or not process.is_alive()
        }

    def dismiss(self, worker: int) -> None:
        process, pipe = self._processes.pop(worker), self._pipes.pop(worker)
        process.kill()  # also ends a worker that is stopped
        process.join(_STOP_SECONDS)
        with contextlib.suppress(ValueError):  # it has not ended: the system is slow to
            process.close()
        with self._sending:
            pipe.close()

    def results(
        self, wanted: Mapping[int, Sequence[int]], term: int, round: int, part: str = ""
    ) -> dict[int, Parcel]:
        return self._exchange.gather(wanted, term, round, part)

    def forget(self, term: int, round: int) -> None:
        self._exchange.forget(term, round)

    def close(self) -> None:
        for worker in self.workers():
            self.send(worker, Stop())
        deadline = time.monotonic() + _STOP_SECONDS
        for worker in self.workers():
            self._processes[worker].join(max(0.0, deadline - time.monotonic()))
            self.dismiss(worker)
        remove_shared_folder(self._folder)


def _child(
    pipe: Connection[Any, Any],
    target: Callable[..., None],
    arguments: tuple[Any, ...],
    folder: Path,
) -> None:
    """What a worker process runs.

    Signals to the terminal or the job reach workers too, but the master decides what they mean:
    workers ignore them, and leave when the master's pipe closes.
    """
    ignore_signals()
    comm, code = ProcessWorker(pipe, folder), 0
    try:
        target(comm, *arguments)
    except BaseException:
        code = 1
        if not comm.is_abandoned():
            traceback.print_exc()
    if comm.master_gone or comm.is_abandoned():
        _clear_after_master(folder)
    # Not sys.exit: a trainer thread in the middle of a long step must not keep an orphan alive.
    sys.stderr.flush()
    os._exit(code)


def _clear_after_master(folder: Path) -> None:
    """Remove what a dead master left. Its pipe closes a moment before its lock is free; a living
    master that only dismissed this worker keeps the lock, and the folder for the others."""
    deadline = time.monotonic() + _CLEAR_SECONDS
    while folder.exists() and not remove_if_stale(folder) and time.monotonic() < deadline:
        time.sleep(0.02)


class ProcessWorker(WorkerComm):
    """A worker's end of the pipe, and the shared folder."""

    def __init__(self, pipe: Connection[Any, Any], folder: Path) -> None:
        self._pipe = pipe
        self.exchange = FolderExchange(folder)
        self._sending = threading.Lock()
        self._master_gone = False

    @property
    def master_gone(self) -> bool:
        return self._master_gone

    def is_abandoned(self) -> bool:
        """Whether the master is gone, for a worker that has no use for what else it said."""
        with contextlib.suppress(MasterGoneError, MessageError):
            while self.receive(0) is not None:
                pass
        return self._master_gone

    def send(self, message: Message) -> None:
        try:
            with self._sending:
                self._pipe.send_bytes(message.encode())
        except OSError:
            self._master_gone = True
            raise MasterGoneError from None

    def receive(self, timeout: float) -> Message | None:
        try:
            if not self._pipe.poll(timeout):
                return None
            return decode(self._pipe.recv_bytes(LARGEST))
        except (EOFError, OSError):
            self._master_gone = True
            raise MasterGoneError from None

    def publish(self, term: int, parcel: Parcel, readers: Collection[int], part: Part = "") -> None:
        self.exchange.put(term, parcel)
