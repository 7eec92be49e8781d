"""Workers as threads of this process: the baseline engine, and the fake for tests."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from remuda.gan.parcels import Parcel, Part
from remuda.parallel.exchange import MemoryExchange
from remuda.parallel.messages import Message, MessageError, Stop, decode
from remuda.parallel.transports.base import MasterComm, MasterGoneError, WorkerComm

_JOIN_SECONDS = 60.0


class LocalMaster(MasterComm):
    """Starts workers as threads; each gets its end of two queues."""

    def __init__(self, serve: Callable[[WorkerComm], None], workers: int = 1) -> None:
        self._serve = serve
        self._exchange = MemoryExchange()
        self._inbox: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._outboxes: dict[int, queue.SimpleQueue[bytes | None]] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._garbled: set[int] = set()  # workers that sent what is not a valid message
        self._count = 0
        for _ in range(workers):
            self.replace()

    def workers(self) -> list[int]:
        return sorted(self._threads)

    def replace(self) -> int | None:
        self._count += 1
        number = self._count
        outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        end = LocalWorker(number, self._exchange, outbox, self._inbox)
        thread = threading.Thread(
            target=self._serve, args=(end,), name=f"worker-{number}", daemon=True
        )
        self._outboxes[number], self._threads[number] = outbox, thread
        thread.start()
        return number

    def send(self, worker: int, message: Message) -> None:
        # The heartbeat asks while the master may dismiss: look only once.
        outbox = self._outboxes.get(worker)
        if outbox is not None:
            outbox.put(message.encode())

    def receive(self, timeout: float) -> list[tuple[int, Message]]:
        found = []
        try:
            item = self._inbox.get(timeout=timeout)
            while True:
                try:
                    found.append((item[0], decode(item[1])))
                except MessageError:
                    self._garbled.add(item[0])
                item = self._inbox.get_nowait()
        except queue.Empty:
            return found

    def gone(self) -> set[int]:
        return {
            number
            for number, thread in self._threads.items()
            if number in self._garbled or not thread.is_alive()
        }

    def dismiss(self, worker: int) -> None:
        self._outboxes.pop(worker).put(None)
        self._threads.pop(worker)

    def results(
        self, wanted: Mapping[int, Sequence[int]], term: int, round: int, part: str = ""
    ) -> dict[int, Parcel]:
        return self._exchange.gather(wanted, term, round, part)

    def forget(self, term: int, round: int) -> None:
        self._exchange.forget(term, round)

    def close(self) -> None:
        threads = list(self._threads.values())
        for worker in self.workers():
            self.send(worker, Stop())
        for thread in threads:
            thread.join(_JOIN_SECONDS)
        self._outboxes.clear()
        self._threads.clear()


class LocalWorker(WorkerComm):
    """A worker's end in the same process. Messages are encoded here too, to be checked."""

    def __init__(
        self,
        number: int,
        exchange: MemoryExchange,
        inbox: queue.SimpleQueue[bytes | None],
        outbox: queue.SimpleQueue[tuple[int, bytes]],
    ) -> None:
        self._number = number
        self.exchange = exchange
        self._inbox = inbox
        self._outbox = outbox

    @property
    def master_gone(self) -> bool:
        return False  # a thread's master is its own process

    def send(self, message: Message) -> None:
        self._outbox.put((self._number, message.encode()))

    def receive(self, timeout: float) -> Message | None:
        try:
            content = self._inbox.get(timeout=timeout)
        except queue.Empty:
            return None
        if content is None:
            raise MasterGoneError
        return decode(content)

    def publish(self, term: int, parcel: Parcel, readers: Collection[int], part: Part = "") -> None:
        self.exchange.put(term, parcel)
