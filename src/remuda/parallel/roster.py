"""Who is there: the workers of a run, as their master knows them. No I/O and no clocks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from remuda.parallel.delays import Delay, Look, may_tell
from remuda.parallel.messages import Hello, Status
from remuda.parallel.pace import STARTING, Pace, progress_of
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
    pace: Pace = field(default_factory=Pace)
    still: float | None = None  # seconds without progress, where that is what is wrong with it
    told: bool = False  # whether the user was told that it is delayed
    told_at: float = -math.inf


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

    def update(self, worker: int, status: Status, now: float) -> None:
        record = self._up[worker]
        record.status = status
        record.pace.see(status, now)

    def excuse(self, seconds: float) -> None:
        """Nobody could be heard for this long."""
        for record in self._up.values():
            record.heard += seconds
            record.pace.excuse(seconds)

    def remove(self, worker: int) -> None:
        """Forget a worker that never trained."""
        self.starting.discard(worker)
        self._up.pop(worker, None)

    def write_off(self, worker: int) -> None:
        record = self._up.pop(worker)
        record.liveness = Liveness.DEAD
        self._dead[worker] = record

    # -------------------------------------------------------------------------- questions

    def look(self, now: float, timeouts: Timeouts, gone: Collection[int]) -> Look:
        """Update the liveness of every worker; what is new about them."""
        look, usual = Look(), dict[str, float | None]()
        soonest = min(timeouts.still, timeouts.stuck or math.inf)
        for worker, record in self._up.items():
            silence = max(0.0, now - record.heard)
            record.still = None
            record.liveness = liveness_of(silence, timeouts, gone=worker in gone)
            if record.liveness is Liveness.WORKING and record.pace.still > soonest:
                self._judge_progress(record, timeouts, usual)
            if record.liveness is Liveness.WORKING:
                if record.told and record.pace.doing != STARTING:
                    record.told = False
                    look.on_time.append(worker)
            elif record.liveness is Liveness.DEAD:
                look.dead.append(worker)
                if record.still is not None:
                    look.stuck.append(_delay(worker, record, silence))
            elif not record.told and may_tell(record.told_at, now):
                record.told, record.told_at = True, now
                look.delayed.append(_delay(worker, record, silence))
        return look

    def _judge_progress(
        self, record: _Record, timeouts: Timeouts, usual: dict[str, float | None]
    ) -> None:
        """Whether the trainer of a worker that answers gets on.

        `usual` is filled here: it takes a look at all workers, which most have no need of.
        """
        doing = record.pace.doing
        if doing not in usual:
            stays = [other.pace.longest(doing) for other in self._up.values()]
            known = [stay for stay in stays if stay is not None]
            usual[doing] = statistics.median(known) if known else None
        record.liveness = progress_of(record.pace, usual[doing], timeouts)
        if record.liveness is not Liveness.WORKING:
            record.still = record.pace.still

    def silence(self, worker: int, now: float) -> float:
        """Seconds since a worker was heard."""
        return max(0.0, now - self._up[worker].heard)

    def still(self, worker: int) -> float | None:
        """Seconds without progress, where the last look found that this is what is wrong."""
        return self._up[worker].still

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
                record.still,
            )
            for worker, record in known
        )


def _delay(worker: int, record: _Record, silence: float) -> Delay:
    if record.still is None:
        return Delay(worker, record.info.host, silence)
    return Delay(worker, record.info.host, record.still, record.status)
