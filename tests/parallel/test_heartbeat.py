"""The heartbeat asks, but never so often that it could be blocked."""

from __future__ import annotations

import time

from remuda.parallel.heartbeat import MOST_QUESTIONS, Heartbeat
from remuda.parallel.messages import Message
from remuda.parallel.transports.local import LocalMaster


def test_a_heartbeat_stops_asking_a_silent_worker() -> None:
    """A pipe that nobody reads must not fill up and block the master."""
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
