"""This process's place in an MPI job, and the one thread of it that talks MPI.

The three planes are three communicators: WORLD for control, LOCAL (workers only) for parcels
between cells, GLOBAL for results. After start-up everything is point to point, as buffers. The
thread never blocks, so a lost rank cannot hold up the others. Under `mpiexec --with-ft ulfm` it
also learns of lost ranks at once; elsewhere only heartbeats notice them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NoReturn

from remuda.errors import RemudaError
from remuda.parallel.messages import LARGEST, GetStatus, Stop

if TYPE_CHECKING:
    from mpi4py import MPI

LARGEST_PARCEL = 2**31 - 1
START_SECONDS = 300  # for a rank to find all others; remote ones may be lost unseen
_DRAIN_SECONDS = 5.0
_FINALIZE_SECONDS = 10
_LIFE_SECONDS = 1.0  # between two signs of life of a master that prepares a run
_FAILURES_EVERY = 0.02
# Between two looks: short while something moves, longer the longer nothing does.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0001, 0.002


class MpiError(RemudaError):
    """An MPI job that cannot carry a run: says what is missing or wrong."""

    exit_code = 4


class LostAtStartError(MpiError):
    """A rank was lost while the others were still finding each other."""


class Plane(StrEnum):
    """What a communicator is for."""

    WORLD = "world"
    LOCAL = "local"
    GLOBAL = "global"


Deliver = Callable[[Plane, int, bytes], None]


@dataclass
class _Incoming:
    """A message that is being received; those of one sender are delivered in order."""

    request: MPI.Request
    content: bytearray
    done: bool = False
    failed: bool = False


class Session:
    """This process's place in the MPI job."""

    def __init__(self) -> None:
        # A rank that is lost while MPI starts leaves the others inside it for good.
        with _ended_after(START_SECONDS):
            self._join()
        self._thread: MpiThread | None = None
        self._preparation: _Preparation | None = None

    def _join(self) -> None:
        try:
            import mpi4py

            mpi4py.rc.finalize = False  # it may hang after a loss, so `end` watches over it
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise MpiError(
                f"MPI cannot be used here: {' '.join(str(error).split())}; on a cluster with an "
                "MPI of its own: pip install 'remuda[mpi]'; elsewhere: pip install "
                "'remuda[mpi-local]'"
            ) from None
        self.mpi = MPI
        world = MPI.COMM_WORLD
        self.rank, self.size = world.Get_rank(), world.Get_size()
        # The only collective calls: all ranks are still there, or the job has not begun.
        try:
            self.comms: dict[Plane, MPI.Comm] = {
                Plane.WORLD: world.Dup(),
                Plane.GLOBAL: world.Dup(),
            }
            local = world.Split(MPI.UNDEFINED if self.rank == 0 else 0, self.rank)
        except MPI.Exception as error:
            raise LostAtStartError(f"a rank was lost while the job started: {error}") from None
        if self.rank > 0:
            self.comms[Plane.LOCAL] = local

    def prepare(self, show_life: Callable[[], None] = lambda: None) -> None:
        """On the master's rank: until a run starts, show the others that it lives.

        `show_life` is called as often, for those who are no ranks.
        """
        self._end_preparation()
        self._preparation = _Preparation(self, show_life)
        self._preparation.start()

    def _end_preparation(self) -> None:
        if self._preparation is not None:
            self._preparation.stop()
            self._preparation = None

    def start_thread(self, deliver: Deliver) -> MpiThread:
        """The thread that talks for this rank, started; there is only one at a time."""
        self._end_preparation()
        assert self._thread is None or not self._thread.is_alive()
        self._thread = MpiThread(self, deliver)
        self._thread.start()
        return self._thread

    def end(self) -> None:
        """Leave the job, telling waiting workers to leave too; bounded, whatever state it is in."""
        if self.mpi.Is_finalized():
            return
        self._end_preparation()
        if self.rank == 0:
            thread = (
                self._thread
                if self._thread and self._thread.is_alive()
                else self.start_thread(_ignore)
            )
            for rank in range(1, self.size):
                thread.send(Plane.WORLD, rank, Stop().encode())
        if self._thread is not None:
            self._thread.stop()
        # What there is to save is saved: a job that cannot end in order just ends.
        with _ended_after(_FINALIZE_SECONDS):
            self.mpi.Finalize()


class _Preparation(threading.Thread):
    """Shows, while the master prepares a run, that it lives: it may have data to fetch first."""

    def __init__(self, session: Session, show_life: Callable[[], None]) -> None:
        super().__init__(name="preparation", daemon=True)
        self._ranks = range(1, session.size)
        self._talker = MpiThread(session, _ignore)
        self._show_life = show_life
        self._stopped = threading.Event()

    def run(self) -> None:
        self._talker.start()
        question = GetStatus(number=0).encode()
        while True:
            self._show_life()
            for rank in self._ranks:
                self._talker.send(Plane.WORLD, rank, question)
            if self._stopped.wait(_LIFE_SECONDS):
                return

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        self._talker.stop()


@contextlib.contextmanager
def _ended_after(seconds: int) -> Iterator[None]:
    """End this process if what is inside takes longer.

    Only the system can see to that: MPI holds Python's lock, so no other thread runs.
    """
    previous = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def leave_as_lost() -> NoReturn:
    """End this rank so that the others notice and go on.

    Open MPI takes a rank that a signal kills for lost. One that exits by itself is not noticed,
    or hangs the others when they finalize, or takes the whole job with it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _ignore(_plane: Plane, _rank: int, _content: bytes) -> None:
    return


class MpiThread(threading.Thread):
    """The one thread of a rank that talks MPI; world ranks outside, each plane's inside."""

    def __init__(self, session: Session, deliver: Deliver) -> None:
        super().__init__(name="mpi", daemon=True)
        self.failed: set[int] = set()
        self.garbled: set[int] = set()  # ranks that sent what is not a valid message
        self.error: BaseException | None = None  # that ended this thread
        self._session = session
        self._deliver = deliver
        self._outbox: queue.SimpleQueue[tuple[Plane, int, bytes]] = queue.SimpleQueue()
        self._sending: list[tuple[int, MPI.Request, bytes]] = []
        self._receiving: dict[tuple[Plane, int], deque[_Incoming]] = {}
        self._wake = threading.Event()
        self._stopped = False
        self._deadline = 0.0
        self._looked = 0.0

    def send(self, plane: Plane, rank: int, content: bytes) -> None:
        """Send soon; to a rank that is gone, nothing."""
        self._outbox.put((plane, rank, content))
        self._wake.set()

    def stop(self) -> None:
        """Send what is waiting, within a bound, and end."""
        self._deadline = time.monotonic() + _DRAIN_SECONDS
        self._stopped = True
        self._wake.set()
        if self.is_alive():
            self.join(_DRAIN_SECONDS + 1.0)

    def run(self) -> None:
        try:
            self._talk()
        except BaseException as error:
            self.error = error
            print(f"remuda: rank {self._session.rank}: MPI failed: {error}", file=sys.stderr)

    def _talk(self) -> None:
        pause = _SHORTEST_PAUSE
        while True:
            moved = self._send_waiting() | self._finish_sending()
            moved |= self._match() | self._finish_receiving()
            self._find_failures()
            if self._stopped:
                drained = not self._sending and self._outbox.empty()
                if drained or time.monotonic() > self._deadline:
                    return
            pause = _SHORTEST_PAUSE if moved else min(2 * pause, _LONGEST_PAUSE)
            self._wake.wait(pause)
            self._wake.clear()

    def _send_waiting(self) -> bool:
        moved = False
        while True:
            try:
                plane, rank, content = self._outbox.get_nowait()
            except queue.Empty:
                return moved
            moved = True
            if rank in self.failed:
                continue
            comm, target = self._session.comms[plane], _inside(plane, rank)
            with self._losses(comm):
                request = comm.Isend([content, self._session.mpi.BYTE], target)
                self._sending.append((rank, request, content))

    def _finish_sending(self) -> bool:
        before = len(self._sending)
        still = []
        for rank, request, content in self._sending:
            try:
                # A request to a dead rank raises once and claims success after: drop it at once.
                if rank not in self.failed and not request.Test():
                    still.append((rank, request, content))
            except self._session.mpi.Exception:
                continue
        self._sending = still
        return len(still) < before

    def _match(self) -> bool:
        mpi, moved = self._session.mpi, False
        for plane, comm in self._session.comms.items():
            with self._losses(comm):
                status = mpi.Status()
                while (message := comm.Improbe(mpi.ANY_SOURCE, mpi.ANY_TAG, status)) is not None:
                    sender, size = _outside(plane, status.Get_source()), status.Get_count(mpi.BYTE)
                    if size > (LARGEST if plane is Plane.WORLD else LARGEST_PARCEL):
                        self.garbled.add(sender)
                        continue
                    content = bytearray(size)
                    request = message.Irecv([content, mpi.BYTE])
                    waiting = self._receiving.setdefault((plane, sender), deque())
                    waiting.append(_Incoming(request, content))
                    moved = True
        return moved

    def _finish_receiving(self) -> bool:
        moved = False
        for (plane, sender), waiting in list(self._receiving.items()):
            for incoming in waiting:
                try:
                    incoming.done = incoming.done or incoming.request.Test()
                except self._session.mpi.Exception:
                    incoming.failed = True
            while waiting and (waiting[0].done or waiting[0].failed):
                incoming = waiting.popleft()
                moved = True
                if not incoming.failed:
                    self._deliver(plane, sender, bytes(incoming.content))
            if not waiting or sender in self.failed:
                del self._receiving[plane, sender]
        return moved

    def _find_failures(self) -> None:
        now = time.monotonic()
        if now - self._looked < _FAILURES_EVERY:
            return
        self._looked = now
        comm = self._session.comms[Plane.WORLD]
        # mpi4py says "not implemented" of an MPI without ULFM: there only heartbeats tell.
        with contextlib.suppress(NotImplementedError, self._session.mpi.Exception):
            group = comm.Get_failed()
            if group.Get_size() > len(self.failed):
                theirs = list(range(group.Get_size()))
                self.failed = set(group.Translate_ranks(theirs, comm.Get_group()))
            group.Free()

    @contextlib.contextmanager
    def _losses(self, comm: MPI.Comm) -> Iterator[None]:
        """MPI reports a lost rank as an error, once, until the loss is acknowledged."""
        try:
            yield
        except self._session.mpi.Exception:
            with contextlib.suppress(NotImplementedError, self._session.mpi.Exception):
                comm.Ack_failed()


def _inside(plane: Plane, rank: int) -> int:
    """A world rank's rank in a plane's communicator; LOCAL has no master."""
    return rank - 1 if plane is Plane.LOCAL else rank


def _outside(plane: Plane, rank: int) -> int:
    return rank + 1 if plane is Plane.LOCAL else rank
