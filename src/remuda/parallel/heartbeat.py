"""The master's second thread: asks every worker for its status."""

from __future__ import annotations

import threading
from collections.abc import Callable

from remuda.parallel.messages import GetStatus
from remuda.parallel.transports.base import MasterComm

STOP_SECONDS = 5.0
MOST_QUESTIONS = 100  # unanswered; a pipe holds more than twice as many


class Heartbeat(threading.Thread):
    """Asks every worker for its status in the background; the master's loop hears the answers."""

    def __init__(
        self, comm: MasterComm, interval: float, alive: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._comm = comm
        self._alive = alive  # called at every beat, to show that the master lives
        self._interval = interval
        self._stopped = threading.Event()
        self._unanswered: dict[int, int] = {}  # questions, by worker

    def run(self) -> None:
        number = 0
        while not self._stopped.wait(self._interval):
            number += 1
            self._alive()
            for worker in self._comm.workers():
                # Workers are asked even while the master is busy, so that they know it lives; the
                # pipe of a worker that has stopped must never fill up and block us.
                open_questions = self._unanswered.get(worker, 0)
                if open_questions < MOST_QUESTIONS:
                    self._unanswered[worker] = open_questions + 1
                    self._comm.send(worker, GetStatus(number=number))

    def answered(self, worker: int) -> None:
        self._unanswered[worker] = 0

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join(STOP_SECONDS)
