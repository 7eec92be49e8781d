"""The decisions of master and workers as pure functions of what was seen.

No I/O, no clocks, no tensors: times come in as numbers, decisions go out as values, so tests
compare values and need no processes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """What a worker is doing, as the article has it."""

    INACTIVE = "inactive"
    PROCESSING = "processing"
    FINISHED = "finished"


class Event(StrEnum):
    """What changes a worker's state."""

    RUN_TASK = "run task"
    LAST_ROUND = "last round done"


# Every pair that is not here is a mistake of the sender and refused.
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


class Verdict(StrEnum):
    """What a heartbeat says of a worker."""

    WORKING = "working"
    DELAYED = "delayed"
    DEAD = "dead"


@dataclass(frozen=True)
class Patience:
    """How long the master waits, in seconds."""

    interval: float = 1.0  # between two questions
    delayed: float = 5.0  # without an answer: something is slow
    dead: float = 60.0  # without an answer: the cells go to somebody else


def judge_heartbeat(silence: float, patience: Patience, *, gone: bool = False) -> Verdict:
    """The verdict on a worker that has been silent for so long; `gone`: its process ended."""
    if gone or silence > patience.dead:
        return Verdict.DEAD
    return Verdict.DELAYED if silence > patience.delayed else Verdict.WORKING


@dataclass(frozen=True)
class Watched:
    """A worker as its master sees it; what `remuda status` and the live view show."""

    worker: int
    host: str
    pid: int
    state: State
    verdict: Verdict
    heard: float  # seconds since its last answer
    cells: tuple[int, ...]
    rounds: Mapping[int, int]  # done, by cell

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "heard": round(self.heard, 3), "rounds": dict(self.rounds)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Watched:
        """The inverse of `to_json`; JSON's keys are text."""
        return cls(
            **{
                **values,
                "state": State(values["state"]),
                "verdict": Verdict(values["verdict"]),
                "cells": tuple(values["cells"]),
                "rounds": {int(cell): done for cell, done in values["rounds"].items()},
            }
        )


def must_fence(silence: float, patience: Patience) -> bool:
    """Whether a worker that has not heard its master for so long must assume it was written off.

    Sooner than the master declares it dead, so that the two never work at the same time.
    """
    return silence > 0.8 * patience.dead


def may_restart(code: int, losses: int, restarts: int) -> bool:
    """Whether a job that ended so, without a result, is started again.

    2 and 3 are the exit codes of a user's mistake: the same would happen again.
    """
    return code not in (2, 3) and losses < restarts


# ---------------------------------------------------------------------------- placement


@dataclass(frozen=True)
class Survey:
    """What a worker says of the host it is on."""

    host: str
    cores: int
    memory: int = 0
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seat:
    """A worker as cells are placed on it: 1.0 is one with a core for each of its threads."""

    worker: int
    speed: float = 1.0


def seats(found: Mapping[int, Survey], threads: int) -> list[Seat]:
    """The workers' seats: where a host has fewer cores than its workers' threads, they share."""
    crowds = Counter(survey.host for survey in found.values())
    return [
        Seat(worker, min(1.0, survey.cores / (crowds[survey.host] * threads)))
        for worker, survey in sorted(found.items())
    ]


def survey_hosts(found: Mapping[int, Survey]) -> dict[str, dict[str, Any]]:
    """The hosts of a run with what they have, for its events."""
    hosts: dict[str, dict[str, Any]] = {}
    for _, survey in sorted(found.items()):
        host = hosts.setdefault(survey.host, {"workers": 0})
        host["workers"] += 1
        host.update(cores=survey.cores, memory=survey.memory, devices=list(survey.devices))
    return hosts


def place(costs: Mapping[int, float], seats: Sequence[Seat]) -> dict[int, tuple[int, ...]]:
    """Which worker trains which cells: the costliest first, each to the least loaded worker.

    Loads count by speed, so workers of a crowded host get fewer. Workers beyond the cells get none
    and stay spares. The answer depends only on the arguments' values, not on their order.
    """
    if not seats:
        raise ValueError("no workers to place cells on")
    placed: dict[int, list[int]] = {seat.worker: [] for seat in seats}
    # Among workers of equal speed the least loaded is the best for every cell, so only the first
    # of each heap of (load, worker) need be compared: ten thousand workers take no longer each.
    equals: dict[float, list[tuple[float, int]]] = {}
    for seat in seats:
        equals.setdefault(seat.speed, []).append((0.0, seat.worker))
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
    seats: Sequence[Seat],
) -> dict[int, tuple[int, ...]]:
    """The placement after a loss: cells that have a living worker stay, the others go to spares
    first, then to the least loaded survivors."""
    alive = [seat for seat in seats if seat.worker not in lost]
    if not alive:
        raise ValueError("no worker is left to adopt the cells")
    speed = {seat.worker: seat.speed for seat in alive}
    placed = {seat.worker: list(placement.get(seat.worker, ())) for seat in alive}
    homeless = sorted(
        (cell for worker in lost for cell in placement.get(worker, ())),
        key=lambda cell: (-costs[cell], cell),
    )
    loads = {worker: sum(costs[own] for own in cells) for worker, cells in placed.items()}
    heap = [(len(placed[worker]) > 0, loads[worker] / speed[worker], worker) for worker in placed]
    heapq.heapify(heap)
    for cell in homeless:
        worker = heap[0][2]
        loads[worker] += costs[cell]
        placed[worker].append(cell)
        heapq.heapreplace(heap, (True, loads[worker] / speed[worker], worker))
    return {worker: tuple(sorted(cells)) for worker, cells in sorted(placed.items())}


def may_start(round: int, committed: int) -> bool:
    """Whether a cell may train a round while only `committed` is complete everywhere.

    One round ahead, so that no worker waits for the master's bookkeeping; no more, so that parcels
    that others still need are few.
    """
    return round <= committed + 2


def oldest_allowed(round: int, max_staleness: int | None) -> int:
    """The oldest round whose parcels an asynchronous cell may read in this round."""
    return 0 if max_staleness is None else max(0, round - 1 - max_staleness)


# ---------------------------------------------------------------------------- what is kept


def checkpoint_due(round: int, *, every: int, rounds: int) -> bool:
    """Whether a completed round is saved: every so many, and always the last."""
    return round % every == 0 or round == rounds


def checkpoints_to_drop(
    losses: Mapping[int, float | None], *, keep_last: int, keep_best: bool
) -> list[int]:
    """Rounds whose checkpoints may go, oldest first.

    `losses` maps each saved round to its loss (lower is better), or None where nothing was scored.
    """
    rounds = sorted(losses)
    keep = set(rounds[-keep_last:])
    scored = [(loss, round) for round, loss in losses.items() if loss is not None]
    if keep_best and scored:
        keep.add(min(scored)[1])
    return [round for round in rounds if round not in keep]


def sheet_due(round: int, *, every: int, rounds: int) -> bool:
    """Whether sample sheets are drawn after this round."""
    return round == rounds or (every > 0 and round % every == 0)


def lines_to_keep(rounds: Sequence[int | None], committed: int) -> list[int]:
    """Which event lines survive a restart from a committed round.

    A line without a round (a run that started, an interruption) is history and stays; a line of a
    later round will be written again, identically.
    """
    return [number for number, round in enumerate(rounds) if round is None or round <= committed]


def acceptance_rate(events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The share of trained offspring that became their cell's centre, by role.

    Replacement may throw away a round of training; this says how often it did not.
    """
    outcomes: dict[str, list[bool]] = {}
    for event in events:
        for role, centre in event.get("centre", {}).items():
            outcomes.setdefault(role, []).append(centre["from"] == "offspring")
    return {role: sum(kept) / len(kept) for role, kept in outcomes.items()}


@dataclass(frozen=True)
class Costs:
    """What the rounds of a run took, summed over cells."""

    cell_rounds: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)  # by routine, the longest first
    bytes: Mapping[str, int] = field(default_factory=dict)  # gathered, published, saved

    def to_json(self) -> dict[str, Any]:
        return {
            "cell_rounds": self.cell_rounds,
            "routines": {name: round(seconds, 6) for name, seconds in self.seconds.items()},
            "bytes": {
                name: {"total": total, "per_cell_round": round(total / self.cell_rounds)}
                for name, total in self.bytes.items()
            },
        }


def sum_costs(events: Iterable[Mapping[str, Any]]) -> Costs:
    """The costs of all rounds in the events; those that were lost and trained again count once."""
    count = 0
    seconds: dict[str, float] = {}
    traffic: dict[str, int] = {}
    for event in events:
        if event.get("event") != "round":
            continue
        count += 1
        for routine, spent in event.get("seconds", {}).items():
            seconds[routine] = seconds.get(routine, 0.0) + spent
        for kind, size in event.get("bytes", {}).items():
            traffic[kind] = traffic.get(kind, 0) + size
    longest = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))
    return Costs(count, dict(longest), dict(sorted(traffic.items())))
