"""Who is there: the workers of a run, as their master knows them. No I/O and no clocks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from remuda.parallel.messages import Hello, Status
from remuda.parallel.protocol import (
    Capacity,
    HostInfo,
    Liveness,
    State,
    Timeouts,
    WorkerStatus,
    capacities,
    liveness_of,
)


@dataclass
class _Record:
    """What is known of a worker that said hello."""

    info: HostInfo
    pid: int
    heard: float
    status: Status | None = None
    liveness: Liveness = Liveness.WORKING


class Roster:
    """Workers that are starting, those that said hello, and those that were written off."""

    def __init__(self) -> None:
        self.starting: set[int] = set()
        self._up: dict[int, _Record] = {}
        self._dead: dict[int, _Record] = {}

    def __contains__(self, worker: int) -> bool:
        return worker in self.starting or worker in self._up

    def __len__(self) -> int:
        return len(self.starting) + len(self._up)

    @property
    def up(self) -> Collection[int]:
        """Those that said hello and live."""
        return self._up.keys()

    @property
    def hosts(self) -> dict[int, HostInfo]:
        return {worker: record.info for worker, record in self._up.items()}

    def capacities(self, threads: int) -> list[Capacity]:
        return capacities(self.hosts, threads)

    # -------------------------------------------------------------------------- changes

    def add(self, worker: int) -> None:
        """A worker was started."""
        self.starting.add(worker)

    def greet(self, worker: int, message: Hello, now: float) -> None:
        """A worker said hello."""
        info = HostInfo(
            message.host, message.cores, message.memory, message.devices, message.machine
        )
        self._up[worker] = _Record(info, message.pid, now)
        self.starting.discard(worker)

    def hear(self, worker: int, now: float) -> None:
        self._up[worker].heard = now

    def hear_all(self, now: float) -> None:
        for record in self._up.values():
            record.heard = now

    def update(self, worker: int, status: Status) -> None:
        self._up[worker].status = status

    def excuse(self, seconds: float) -> None:
        """Nobody could be heard for this long."""
        for record in self._up.values():
            record.heard += seconds

    def remove(self, worker: int) -> None:
        """Forget a worker that never trained."""
        self.starting.discard(worker)
        self._up.pop(worker, None)

    def write_off(self, worker: int) -> None:
        record = self._up.pop(worker)
        record.liveness = Liveness.DEAD
        self._dead[worker] = record

    # -------------------------------------------------------------------------- questions

    def find_dead(self, now: float, timeouts: Timeouts, gone: Collection[int]) -> list[int]:
        """Update the liveness of every worker; those that are dead by now."""
        dead = []
        for worker, record in self._up.items():
            silence = self.silence(worker, now)
            record.liveness = liveness_of(silence, timeouts, gone=worker in gone)
            if record.liveness is Liveness.DEAD:
                dead.append(worker)
        return dead

    def silence(self, worker: int, now: float) -> float:
        """Seconds since a worker was heard."""
        return max(0.0, now - self._up[worker].heard)

    def statuses(
        self, now: float, placement: Mapping[int, tuple[int, ...]]
    ) -> tuple[WorkerStatus, ...]:
        """All workers that ever said hello, the dead ones too."""
        known = sorted({**self._dead, **self._up}.items())
        return tuple(
            WorkerStatus(
                worker,
                record.info.host,
                record.pid,
                record.status.state if record.status else State.INACTIVE,
                record.liveness,
                max(0.0, now - record.heard),
                placement.get(worker, ()),
                record.status.rounds if record.status else {},
            )
            for worker, record in known
        )
