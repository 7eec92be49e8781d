"""Trainers that hang while their workers answer, as the master sees it. No process, no file."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from remuda.parallel.commands import (
    BeginTerm,
    Command,
    Dismiss,
    Fail,
    RecordEvent,
    RecordLoss,
    StartWorker,
    WriteStatus,
)
from remuda.parallel.delays import QUIET_SECONDS
from remuda.parallel.master_state import MOST_FAILURES, MasterState, WorkerError
from remuda.parallel.messages import Status
from remuda.parallel.pace import STARTING, TRAINING
from remuda.parallel.protocol import Liveness, State, WorkerStatus
from tests.parallel.master_states import TIMEOUTS, hello, only, plan, warnings

STEP = 2.0  # seconds per move of a trainer that gets on
STUCK = 90.0


class Workers:
    """Workers with a cell each that are asked every second; some hang, the others wait for them."""

    def __init__(self, count: int, stuck: float | None = None, doing: str = TRAINING) -> None:
        timeouts = dataclasses.replace(TIMEOUTS, still=30.0, stuck=stuck)
        self.state = MasterState(plan(cells=count), timeouts, 0.0)
        self.now = 0.0
        self.doing = doing
        self.hanging: dict[int, float] = {}  # since when
        self.silent: set[int] = set()
        self.steps: dict[int, float] = {}  # seconds per move, where not the usual
        self.count = count
        for worker in range(1, count + 1):
            self.state.worker_started(worker)
        self.state.restored(0, 0.0)
        for worker in range(1, count + 1):
            self.state.handle(worker, hello(worker), 0.0)

    def replace(self) -> None:
        self.count += 1
        self.state.worker_started(self.count)
        self.state.handle(self.count, hello(self.count), self.now)

    def answer(self, worker: int) -> Status:
        cells = self.state.term.placement.get(worker, ())
        doing, moved = self.doing, self.now
        if worker in self.hanging:
            moved = self.hanging[worker]
        elif self.hanging:
            doing, moved = "gather", min(self.hanging.values())
        if not cells:
            return Status(number=1, state=State.INACTIVE, term=0, rounds={})
        return Status(
            number=1,
            state=State.PROCESSING,
            term=self.state.term.number,
            rounds=dict.fromkeys(cells, 0),
            cell=cells[0],
            batch=int(moved / self.steps.get(worker, STEP)),
            batches=10_000,
            doing=doing,
        )

    def go_on(self, seconds: float) -> list[Command]:
        """What the master does in this time."""
        found: list[Command] = []
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            for worker in sorted(self.state.roster.up):
                if worker not in self.silent:
                    found += self.state.handle(worker, self.answer(worker), self.now)
            found += (commands := self.state.tick(self.now))
            for _ in only(commands, StartWorker):
                self.replace()
        return found

    def hang(self, *workers: int) -> None:
        self.hanging |= dict.fromkeys(workers, self.now)

    def seen(self) -> dict[int, WorkerStatus]:
        return {one.worker: one for one in self.state.roster.statuses(self.now, {})}

    def delayed(self) -> set[int]:
        return {worker for worker, one in self.seen().items() if one.liveness is Liveness.DELAYED}


def events(commands: list[Command], kind: str) -> list[dict[str, Any]]:
    found = [dict(command.event) for command in only(commands, RecordEvent)]
    return [event for event in found if event["event"] == kind]


def test_only_the_worker_that_is_stuck_is_delayed_and_not_those_that_wait_for_it() -> None:
    workers = Workers(4)
    workers.go_on(60)
    assert workers.delayed() == set()
    workers.hang(2)
    commands = workers.go_on(25)
    assert (workers.delayed(), events(commands, "delayed")) == (set(), [])
    commands = workers.go_on(3600)
    assert workers.delayed() == {2}
    assert workers.seen()[2].still == pytest.approx(3625, abs=STEP + 1)
    (event,) = events(commands, "delayed")  # once in all this time
    (entry,) = event["workers"]
    assert entry == {
        "worker": 2,
        "host": "host-2",
        "seconds": pytest.approx(31, abs=STEP),
        "why": "no progress",
        "doing": "train",
        "cell": 1,
        "round": 1,
        "batch": 30,
    }
    assert "round" not in event  # or it would go when rounds are trained again
    said = warnings(commands)
    assert "worker 2 on host-2 has made no progress for" in said
    assert "(train, cell 1, round 1, batch 30 of 10000)" in said
    assert "waiting without limit" in said
    assert not only(commands, RecordLoss)
    shown = only(commands, WriteStatus)[-1].workers
    assert [one.liveness for one in shown].count(Liveness.DELAYED) == 1


def test_where_the_others_are_slower_a_worker_may_become_as_slow() -> None:
    """One alone on a host that others come to."""
    workers = Workers(5)
    workers.steps = dict.fromkeys((1, 2, 3, 4), 20.0)
    workers.go_on(200)
    workers.hang(5)
    workers.go_on(190)
    assert workers.delayed() == set()
    workers.go_on(30)
    assert workers.delayed() == {5}


def test_a_trainer_that_comes_to_is_on_time_again_which_is_told_once() -> None:
    workers = Workers(3)
    workers.go_on(20)
    workers.hang(1)
    workers.go_on(60)
    assert workers.delayed() == {1}
    workers.hanging.clear()
    commands = workers.go_on(20)
    assert workers.delayed() == set()
    assert [event["workers"] for event in events(commands, "on time")] == [[1]]
    assert warnings(commands) == "worker 1 is on time again"


def test_one_that_is_now_late_and_now_not_is_told_of_every_ten_minutes_at_most() -> None:
    workers, commands, late = Workers(2), [], 0
    workers.go_on(20)
    for _ in range(20):
        workers.silent = {1}
        commands += workers.go_on(10)
        late += workers.delayed() == {1}
        workers.silent = set()
        commands += workers.go_on(10)
    assert late == 20
    assert workers.now < QUIET_SECONDS
    assert (len(events(commands, "delayed")), len(events(commands, "on time"))) == (1, 1)
    workers.go_on(QUIET_SECONDS)
    workers.silent = {1}
    assert len(events(workers.go_on(10), "delayed")) == 1


def test_silence_is_told_as_such_and_so_is_its_end() -> None:
    workers = Workers(2)
    workers.go_on(20)
    workers.silent = {2}
    commands = workers.go_on(20)
    (event,) = events(commands, "delayed")
    assert [(one["worker"], one["why"]) for one in event["workers"]] == [(2, "silent")]
    assert warnings(commands) == "worker 2 on host-2 has been silent for 6 s"
    assert workers.seen()[2].still is None
    workers.silent = set()
    assert [event["workers"] for event in events(workers.go_on(5), "on time")] == [[2]]


def test_silence_of_a_worker_does_not_count_as_standing_still() -> None:
    """How long it may be silent has a limit of its own."""
    workers = Workers(2, stuck=20.0)
    workers.go_on(20)
    workers.silent = {2}
    commands = workers.go_on(TIMEOUTS.dead - 5)
    assert not only(commands, RecordLoss)
    workers.silent = set()
    assert not only(workers.go_on(10), RecordLoss)


def test_many_at_once_are_one_event_and_one_line() -> None:
    workers = Workers(40)
    workers.go_on(20)
    workers.hang(*range(1, 31))
    commands = workers.go_on(60)
    (event,) = events(commands, "delayed")
    assert [one["worker"] for one in event["workers"]] == list(range(1, 31))
    (line,) = warnings(commands).splitlines()
    assert "worker 1 on host-1" in line
    assert "and 29 more are delayed" in line
    workers.hanging.clear()
    assert warnings(workers.go_on(10)) == "workers 1, 2, 3, 4, 5 and 25 more are on time again"


def test_an_absence_of_the_master_delays_nobody() -> None:
    workers = Workers(3, stuck=STUCK)
    workers.go_on(20)
    workers.hang(1, 2, 3)  # as far as the master can see: nothing moves while it sleeps
    workers.now += 10_000
    commands = workers.go_on(20)
    workers.hanging.clear()
    commands += workers.go_on(60)
    assert not events(commands, "delayed")
    assert not only(commands, RecordLoss)


def test_with_a_limit_the_stuck_one_is_lost_and_its_cell_adopted() -> None:
    workers = Workers(3, stuck=STUCK)
    workers.go_on(20)
    workers.hang(2)
    assert not only(workers.go_on(STUCK - 5), RecordLoss)
    commands = workers.go_on(10)
    (loss,) = only(commands, RecordLoss)
    assert (loss.worker, loss.cells) == (2, (1,))
    assert loss.still == pytest.approx(STUCK, abs=STEP + 2)
    assert loss.silence < 2
    assert only(commands, Dismiss) == [Dismiss(2)]
    (begun,) = only(commands, BeginTerm)
    assert begun.placement == {1: (0, 1), 3: (2,)}
    assert "worker 2 on host-2 has made no progress for" in warnings(commands)
    assert workers.seen()[2].liveness is Liveness.DEAD


def test_a_limit_shorter_than_the_usual_pace_ends_nobody() -> None:
    workers = Workers(3, stuck=1.0)
    assert not only(workers.go_on(300), RecordLoss)


@pytest.mark.parametrize("doing", ["assess", "checkpoint", STARTING])
def test_scoring_writing_and_starting_may_take_minutes(doing: str) -> None:
    workers = Workers(3, stuck=20.0, doing=doing)
    workers.go_on(20)
    workers.hang(1, 2, 3)
    commands = workers.go_on(500)
    assert workers.delayed() == set()
    assert not only(commands, RecordLoss)
    assert len(only(workers.go_on(200), RecordLoss)) == 3


def test_the_only_worker_that_hangs_is_replaced() -> None:
    """As on the local engine, where the new one is another thread."""
    workers = Workers(1, stuck=STUCK)
    workers.go_on(20)
    workers.hang(1)
    commands = workers.go_on(STUCK + 5)
    assert only(commands, StartWorker) == [StartWorker()]
    assert workers.state.term.placement == {2: (0,)}


def test_a_cell_in_which_every_trainer_hangs_ends_the_run() -> None:
    workers = Workers(4, stuck=STUCK)
    for time in range(1, MOST_FAILURES + 1):
        workers.go_on(20)
        workers.hanging = {workers.state.term.owners[0]: workers.now}
        commands = workers.go_on(STUCK + 5)
        assert bool(only(commands, Fail)) == (time == MOST_FAILURES)
        assert bool(only(commands, BeginTerm)) != (time == MOST_FAILURES)
        workers.hanging.clear()
    (failure,) = only(commands, Fail)
    assert isinstance(failure.error, WorkerError)
    assert "cell 0 got stuck 3 times in round 1: worker" in str(failure.error)
    assert "\n" not in str(failure.error)


def test_one_that_starts_again_because_another_was_lost_is_not_on_time_for_that() -> None:
    workers = Workers(3)
    workers.go_on(20)
    workers.hang(1)
    workers.go_on(60)
    workers.doing = STARTING  # its new trainer waits for the one that hangs
    commands = workers.state.tick(workers.now + 0.5, {3})
    assert only(commands, BeginTerm)
    assert not events(workers.go_on(30), "on time")
