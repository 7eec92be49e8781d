"""What the user is told of workers that are delayed, on time again, or stuck for good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from remuda.parallel.commands import Command, RecordEvent, Warn
from remuda.parallel.messages import Status
from remuda.parallel.pace import TRAINING, rounds_done
from remuda.parallel.protocol import Timeouts

QUIET_SECONDS = 600.0  # from telling that a worker is delayed to telling it again
MOST_LISTED = 5  # workers in a warning


@dataclass(frozen=True)
class Delay:
    """Why a worker counts as delayed: it is silent, or its trainer stands still."""

    worker: int
    host: str
    seconds: float
    at: Status | None = None  # where its trainer stands still; None: it is silent

    @property
    def cell(self) -> int | None:
        return None if self.at is None else self.at.cell

    @property
    def round(self) -> int:
        """The round that the cell is in."""
        return 0 if self.at is None else rounds_done(self.at) + 1

    def to_json(self) -> dict[str, Any]:
        found = {"worker": self.worker, "host": self.host, "seconds": round(self.seconds, 3)}
        if self.at is None:
            return {**found, "why": "silent"}
        place = {"cell": self.cell, "round": self.round, "batch": self.at.batch}
        return {**found, "why": "no progress", "doing": self.at.doing, **place}

    def __str__(self) -> str:
        who = f"worker {self.worker} on {self.host}"
        if self.at is None:
            return f"{who} has been silent for {self.seconds:.0f} s"
        place = self.at.doing
        if self.cell is not None:
            place += f", cell {self.cell}, round {self.round}"
        if self.at.doing == TRAINING:
            place += f", batch {self.at.batch} of {self.at.batches}"
        return f"{who} has made no progress for {self.seconds:.0f} s ({place})"


@dataclass(frozen=True)
class Look:
    """What a look at all workers found: the dead, and what the user was not told yet."""

    dead: list[int] = field(default_factory=list)
    stuck: list[Delay] = field(default_factory=list)  # of the dead, those whose trainer hangs
    delayed: list[Delay] = field(default_factory=list)
    on_time: list[int] = field(default_factory=list)  # again


def may_tell(told: float, now: float) -> bool:
    """Whether to tell that a worker is delayed, if that was told last at this time.

    One that is now in time and now not, on a busy machine, must not fill the log.
    """
    return now - told >= QUIET_SECONDS


def announce(look: Look, timeouts: Timeouts) -> list[Command]:
    """An event and a warning for all that have become delayed, and for all that no longer are."""
    commands: list[Command] = []
    if look.delayed:
        workers = [delay.to_json() for delay in look.delayed]
        commands.append(RecordEvent({"event": "delayed", "workers": workers}))
        commands.append(Warn(_delayed(look.delayed, timeouts)))
    if look.on_time:
        commands.append(RecordEvent({"event": "on time", "workers": look.on_time}))
        commands.append(Warn(_on_time(look.on_time)))
    return [*commands, *(Warn(str(delay)) for delay in look.stuck)]


def _delayed(delays: Sequence[Delay], timeouts: Timeouts) -> str:
    """The first, and how many others: a switch that fails may delay a thousand at once."""
    first, others = delays[0], len(delays) - 1
    more = f", and {others} more {'is' if others == 1 else 'are'} delayed" if others else ""
    waits = timeouts.stuck is None and any(delay.at is not None for delay in delays)
    return f"{first}{more}{'; waiting without limit: none is set (--stuck)' if waits else ''}"


def _on_time(workers: Sequence[int]) -> str:
    listed = ", ".join(map(str, workers[:MOST_LISTED]))
    if len(workers) == 1:
        return f"worker {listed} is on time again"
    more = f" and {len(workers) - MOST_LISTED} more" if len(workers) > MOST_LISTED else ""
    return f"workers {listed}{more} are on time again"
