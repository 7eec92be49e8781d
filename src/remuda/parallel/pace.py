"""Whether a worker's trainer gets on, by the heartbeat's answers. No I/O and no clocks.

They come from the worker's main thread, also while its trainer hangs. So they say where the trainer
is, and what is judged is whether that changes: for what it is doing, a trainer has stood still for
too long when it takes much longer than it ever did lately, and than the others usually do.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from remuda.parallel.messages import Status
from remuda.parallel.protocol import Liveness, State, Timeouts

FACTOR = 10  # times the usual is much longer
PATIENCE = 20  # times `Timeouts.still`, where there is no usual yet and in steps that seldom come
REMEMBERED = 20  # intervals of a kind
STARTING = "start"  # before its first round of a term; being told to start is no progress
TRAINING = "train"  # the routine that moves from batch to batch
WAITING = ("wait", "gather")  # the routines that wait for other workers


class Pace:
    """When the trainer of one worker moved last, and how long it stayed elsewhere before."""

    def __init__(self) -> None:
        self._place: tuple[Any, ...] | None = None  # it moves when this changes
        self._moved = 0.0  # when it was first seen there
        self._stays: dict[str, deque[float]] = {}  # seconds, by routine
        self._longest: dict[str, float] = {}
        self.doing = ""
        # Seconds between the first and the last answer from where it is; none while it waits.
        self.still = 0.0

    def longest(self, doing: str) -> float | None:
        """The longest of its last stays in a routine; None before the first one is over."""
        return self._longest.get(doing)

    def see(self, status: Status, now: float) -> None:
        """The worker answered."""
        place = _place(status)
        if place != self._place:
            # Answers that come late because the master was away do not say how long a stay was.
            if self._place is not None and now > self._moved:
                self._remember(now - self._moved)
            self._place, self.doing = place, status.doing
            self._moved = max(self._moved, now)
        waits = place is None or self.doing in WAITING
        self.still = 0.0 if waits else now - self._moved

    def excuse(self, seconds: float) -> None:
        """No answer could be heard for this long."""
        self._moved += seconds
        self.still -= seconds

    def _remember(self, seconds: float) -> None:
        stays = self._stays.setdefault(self.doing, deque(maxlen=REMEMBERED))
        stays.append(seconds)
        self._longest[self.doing] = max(stays)


def _place(status: Status) -> tuple[Any, ...] | None:
    """Where a trainer is; None for a worker that has nothing to train."""
    if status.state is not State.PROCESSING:
        return None
    return status.term, status.cell, rounds_done(status), status.batch, status.doing


def rounds_done(status: Status) -> int:
    """The rounds that its cell has done."""
    return 0 if status.cell is None else status.rounds.get(status.cell, 0)


def patience(doing: str, own: float | None, usual: float | None, timeouts: Timeouts) -> float:
    """How many seconds a trainer may stay where it is before it counts as delayed.

    `own` is the longest of its last stays of the kind, `usual` the median of all workers' longest.
    """
    known = doing == TRAINING and own is not None
    least = timeouts.still if known else PATIENCE * timeouts.still
    return max(least, FACTOR * max(own or 0.0, usual or 0.0))


def limit(doing: str, own: float | None, usual: float | None, timeouts: Timeouts) -> float:
    """How many seconds it may stay there before its cells go to another worker.

    Never less than what is usual for it takes, or a limit too short would end every run.
    """
    if timeouts.stuck is None:
        return math.inf
    if doing == TRAINING:
        return max(timeouts.stuck, FACTOR * max(own or 0.0, usual or 0.0))
    return max(timeouts.stuck, patience(doing, own, usual, timeouts))


def progress_of(pace: Pace, usual: float | None, timeouts: Timeouts) -> Liveness:
    """What its progress says of a worker that answers."""
    own = pace.longest(pace.doing)
    if pace.still > limit(pace.doing, own, usual, timeouts):
        return Liveness.DEAD
    late = pace.still > patience(pace.doing, own, usual, timeouts)
    return Liveness.DELAYED if late else Liveness.WORKING
