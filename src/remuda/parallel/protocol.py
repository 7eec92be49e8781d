"""The decisions of master and workers as pure functions of what was seen.

No I/O, no clocks, no tensors: times come in as numbers, decisions go out as values, so tests
compare values and need no processes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from remuda.config.root import Exactness
from remuda.runs.records import Machine

MOST_NAMED = 4  # hosts, and kinds of them, in a warning


class State(StrEnum):
    """What a worker is doing, as the article has it."""

    INACTIVE = "inactive"
    PROCESSING = "processing"
    FINISHED = "finished"


class Event(StrEnum):
    """What changes a worker's state."""

    RUN_TASK = "run task"
    LAST_ROUND = "last round done"


# Any other pair is a mistake of the sender and is refused.
TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.INACTIVE, Event.RUN_TASK): State.PROCESSING,
    (State.PROCESSING, Event.LAST_ROUND): State.FINISHED,
    # After a loss the survivors get a new task, whether they had finished the old one or not.
    (State.PROCESSING, Event.RUN_TASK): State.PROCESSING,
    (State.FINISHED, Event.RUN_TASK): State.PROCESSING,
}


class ProtocolError(Exception):
    """A message that does not fit the state its receiver is in."""


def next_state(state: State, event: Event) -> State:
    """The state after an event."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ProtocolError(f"a worker that is {state} cannot take '{event}'") from None


def transition_table() -> str:
    """TRANSITIONS as the Markdown table of docs/parallel.md."""
    rows = [f"| {state} | {event} | → {after} |" for (state, event), after in TRANSITIONS.items()]
    return "\n".join(["| state | event | state after |", "|---|---|---|", *rows])


class Liveness(StrEnum):
    """What the heartbeat says of a worker."""

    WORKING = "working"
    DELAYED = "delayed"
    DEAD = "dead"


@dataclass(frozen=True)
class Timeouts:
    """How long the master waits, in seconds."""

    interval: float = 1.0  # between two questions
    delayed: float = 5.0  # without an answer: something is slow
    dead: float = 60.0  # without an answer: the cells go to another worker
    still: float = 30.0  # without progress, at least: delayed (see `pace.py`)
    stuck: float | None = None  # without progress: as `dead`; None: it is waited for

    @property
    def fence(self) -> float:
        """How long a worker listens in vain before it takes itself for written off.

        Sooner than the master declares it dead, so that a cell never has two workers.
        """
        return 0.8 * self.dead


def liveness_of(silence: float, timeouts: Timeouts, *, gone: bool = False) -> Liveness:
    """The liveness of a worker after this many seconds of silence; `gone`: its process ended."""
    if gone or silence > timeouts.dead:
        return Liveness.DEAD
    return Liveness.DELAYED if silence > timeouts.delayed else Liveness.WORKING


@dataclass(frozen=True)
class WorkerStatus:
    """A worker as its master sees it; what `remuda status` and the live view show."""

    worker: int
    host: str
    pid: int
    state: State
    liveness: Liveness
    heard: float  # seconds since its last answer
    cells: tuple[int, ...]
    rounds: Mapping[int, int]  # done, by cell
    still: float | None = None  # seconds without progress, where that is why it is delayed or dead

    def to_json(self) -> dict[str, Any]:
        values = {**vars(self), "heard": round(self.heard, 3), "rounds": dict(self.rounds)}
        values["verdict"] = values.pop("liveness")  # files keep its old name
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> WorkerStatus:
        """The inverse of `to_json`; JSON's keys are text."""
        return cls(
            worker=values["worker"],
            host=values["host"],
            pid=values["pid"],
            state=State(values["state"]),
            liveness=Liveness(values["verdict"]),
            heard=values["heard"],
            cells=tuple(values["cells"]),
            rounds={int(cell): done for cell, done in values["rounds"].items()},
            still=values.get("still"),
        )


def must_fence(silence: float, timeouts: Timeouts) -> bool:
    """Whether a worker that has heard nothing for this long must assume that it was written off."""
    return silence > timeouts.fence


def may_restart(code: int, losses: int, restarts: int) -> bool:
    """Whether a job that ended with this code, and without a result, is started again.

    2 and 3 are the exit codes of a user's mistake: the same would happen again.
    """
    return code not in (2, 3) and losses < restarts


# ---------------------------------------------------------------------------- placement


@dataclass(frozen=True)
class HostInfo:
    """What a worker says of its host."""

    host: str
    cores: int
    memory: int = 0
    devices: tuple[str, ...] = ()
    machine: Machine | None = None  # None: it did not say


@dataclass(frozen=True)
class Plan:
    """What of a run decides how it is carried."""

    cells: int
    rounds: int
    checkpoint_every: int
    threads: int
    costs: Mapping[int, float]  # of every cell
    master: HostInfo | None = None
    exact: Exactness = "warn"  # what follows if machines compute other bits


@dataclass(frozen=True)
class Capacity:
    """A worker as cells are placed on it: 1.0 is one with a core for each of its threads."""

    worker: int
    speed: float = 1.0


def capacities(found: Mapping[int, HostInfo], threads: int) -> list[Capacity]:
    """How fast workers are: those of a host with fewer cores than threads share its cores."""
    workers_on = Counter(info.host for info in found.values())
    return [
        Capacity(worker, min(1.0, info.cores / (workers_on[info.host] * threads)))
        for worker, info in sorted(found.items())
    ]


def describe_hosts(found: Mapping[int, HostInfo]) -> dict[str, dict[str, Any]]:
    """The hosts of a run with what they have, for its events."""
    hosts: dict[str, dict[str, Any]] = {}
    for _, info in sorted(found.items()):
        host = hosts.setdefault(info.host, {"workers": 0})
        host["workers"] += 1
        host.update(cores=info.cores, memory=info.memory, devices=list(info.devices))
        if info.machine is not None:
            host.update(machine=info.machine.model_dump())
    return hosts


def find_difference(infos: Iterable[HostInfo]) -> str | None:
    """Which hosts compute other bits than others, on which processors; None if all are alike."""
    hosts: dict[Machine, list[str]] = {}
    for info in infos:
        if info.machine is not None:
            hosts.setdefault(info.machine, []).append(info.host)
    if len({machine.fingerprint for machine in hosts}) < 2:
        return None
    kinds = (f"{machine} ({_some(found)})" for machine, found in hosts.items())
    return f"not all machines of this run compute the same bits: {_some(kinds, '; ')}"


def _some(words: Iterable[str], comma: str = ", ") -> str:
    """The first different words; of many, how many more there are."""
    different = [*dict.fromkeys(words)]
    more = len(different) - MOST_NAMED
    return comma.join(different[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def place(costs: Mapping[int, float], capacities: Sequence[Capacity]) -> dict[int, tuple[int, ...]]:
    """Which worker trains which cells: the costliest first, each to the least loaded worker.

    Loads count by speed, so workers of a crowded host get fewer. Workers beyond the cells get none
    and stay spares. The answer depends only on the arguments' values, not on their order.
    """
    if not capacities:
        raise ValueError("no workers to place cells on")
    placed: dict[int, list[int]] = {capacity.worker: [] for capacity in capacities}
    # Among workers of equal speed the least loaded is the best for every cell, so only the first
    # of each heap of (load, worker) need be compared: ten thousand workers take no longer each.
    equals: dict[float, list[tuple[float, int]]] = {}
    for capacity in capacities:
        equals.setdefault(capacity.speed, []).append((0.0, capacity.worker))
    for heap in equals.values():
        heapq.heapify(heap)
    for cell in sorted(costs, key=lambda cell: (-costs[cell], cell)):
        cost = costs[cell]
        speed = min(
            equals, key=lambda speed: ((equals[speed][0][0] + cost) / speed, equals[speed][0][1])
        )
        load, worker = equals[speed][0]
        heapq.heapreplace(equals[speed], (load + cost, worker))
        placed[worker].append(cell)
    return {worker: tuple(sorted(cells)) for worker, cells in sorted(placed.items())}


def adopt(
    placement: Mapping[int, tuple[int, ...]],
    lost: Collection[int],
    costs: Mapping[int, float],
    capacities: Sequence[Capacity],
) -> dict[int, tuple[int, ...]]:
    """The placement after a loss: cells that have a living worker stay, the others go to spares
    first, then to the least loaded survivors."""
    alive = [capacity for capacity in capacities if capacity.worker not in lost]
    if not alive:
        raise ValueError("no worker is left to adopt the cells")
    speed = {capacity.worker: capacity.speed for capacity in alive}
    placed = {capacity.worker: list(placement.get(capacity.worker, ())) for capacity in alive}
    orphaned = sorted(
        (cell for worker in lost for cell in placement.get(worker, ())),
        key=lambda cell: (-costs[cell], cell),
    )
    loads = {worker: sum(costs[own] for own in cells) for worker, cells in placed.items()}
    heap = [(len(placed[worker]) > 0, loads[worker] / speed[worker], worker) for worker in placed]
    heapq.heapify(heap)
    for cell in orphaned:
        worker = heap[0][2]
        loads[worker] += costs[cell]
        placed[worker].append(cell)
        heapq.heapreplace(heap, (True, loads[worker] / speed[worker], worker))
    return {worker: tuple(sorted(cells)) for worker, cells in sorted(placed.items())}


def may_start(round: int, committed: int) -> bool:
    """Whether a cell may train a round while only `committed` is complete everywhere.

    One round ahead, so that no worker waits for the master's bookkeeping; no more, so that few
    parcels pile up.
    """
    return round <= committed + 2


def oldest_allowed(round: int, max_staleness: int | None) -> int:
    """The oldest round whose parcels an asynchronous cell may read in this round."""
    return 0 if max_staleness is None else max(0, round - 1 - max_staleness)
