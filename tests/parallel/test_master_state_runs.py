"""Whole runs of the master's state machine: losses at every moment, and random events."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.parallel.commands import (
    BeginTerm,
    Command,
    CompleteRound,
    Dismiss,
    Fail,
    Finish,
    Report,
    SaveRound,
    Send,
    ShowRound,
    StartWorker,
)
from remuda.parallel.master_state import (
    WATCH_SECONDS,
    MasterState,
    Phase,
)
from remuda.parallel.messages import (
    Committed,
    Finished,
    Message,
    RunTask,
)
from remuda.parallel.protocol import Plan
from tests.parallel.master_states import (
    MESSAGES,
    ROUNDS,
    TIMEOUTS,
    done,
    failed,
    hello,
    plan,
    saved,
    status,
)


class Crew:
    """Workers that do their tasks, one message per step, and a driver that checks all it does."""

    def __init__(self, the_plan: Plan, workers: int) -> None:
        self.state = MasterState(the_plan, TIMEOUTS, 0.0)
        self.plan = the_plan
        self.now = 0.0
        self.living: set[int] = set()
        self.count = 0
        self.mail: dict[int, deque[Message]] = {}
        self.reported: dict[int, int] = {}
        self.completed = 0
        self.terms = 0
        self.over = False
        self.replaceable = True
        self.lost_results: dict[int, int] = {}  # by round, once, who does not send them
        for _ in range(workers):
            self.start()
        self.do(self.state.restored(0, 0.0))

    def start(self) -> list[Command]:
        self.count += 1
        self.living.add(self.count)
        self.mail[self.count] = deque([hello(self.count)])
        return self.state.worker_started(self.count)

    def do(self, commands: list[Command]) -> None:
        waiting = deque(commands)
        while waiting:
            command = waiting.popleft()
            assert not self.over, f"{command} after the end"
            waiting.extend(self.carry_out(command))
        self.check()

    def carry_out(self, command: Command) -> list[Command]:
        match command:
            case Send(worker, Committed()):
                assert worker in self.living
            case Dismiss(worker):
                self.living.remove(worker)
            case StartWorker():
                return self.start() if self.replaceable else self.state.no_worker_started()
            case BeginTerm():
                self.begin(command)
            case Report(report):
                assert report.round == self.reported[report.cell] + 1
                self.reported[report.cell] = report.round
            case CompleteRound(round):
                assert round == self.completed + 1 <= min(self.reported.values())
                if round in self.lost_results:
                    return self.state.results_lost(self.lost_results.pop(round), self.now)
                self.completed = round
                return self.state.round_completed(round)
            case SaveRound(round, files):
                assert sorted(file.cell for file in files) == list(range(self.plan.cells))
                assert round == self.completed
                return self.state.round_saved(round)
            case ShowRound(round):
                assert round == self.completed
            case Fail() | Finish():
                self.over = True
        return []

    def begin(self, command: BeginTerm) -> None:
        self.terms += 1
        assert command.term == self.terms
        assert command.start == self.state.saved
        assert command.tasks.keys() <= self.living
        cells = [cell for task in command.tasks.values() for cell in task.cells]
        assert sorted(cells) == list(range(self.plan.cells))
        self.reported = dict.fromkeys(range(self.plan.cells), command.start)
        self.completed = command.start
        for worker, task in command.tasks.items():
            self.mail[worker] = deque(self.work(task))

    def work(self, task: RunTask) -> Iterable[Message]:
        for round in range(task.start + 1, self.plan.rounds + 1):
            for cell in task.cells:
                yield status(task.term, cell, round - 1)
                if self.state.term.is_saved_after(round):
                    yield saved(cell, round, task.term)
                yield done(cell, round, task.term)
        yield Finished(term=task.term)

    def step(self) -> bool:
        """Each worker says its next message; whether there was one."""
        said = False
        for worker in sorted(self.living):
            if worker in self.living and self.mail[worker] and not self.over:
                said = True
                self.do(self.state.handle(worker, self.mail[worker].popleft(), self.now))
        self.tick()
        return said

    def tick(self, gone: Collection[int] = ()) -> None:
        self.now += WATCH_SECONDS
        self.do(self.state.tick(self.now, gone))

    def check(self) -> None:
        state = self.state
        assert state.saved <= state.completed <= self.plan.rounds
        if state.phase is Phase.TRAINING:
            assert state.completed <= min(self.reported.values())
            assert len(state.term.owners) == self.plan.cells
            assert set(state.term.owners) <= set(state.roster.up) == self.living
            for cell, owner in enumerate(state.term.owners):
                assert [w for w, own in state.term.placement.items() if cell in own] == [owner]

    def finish(self) -> None:
        for _ in range(1000):
            if self.over:
                break
            self.step()
        assert self.over
        assert self.completed == self.plan.rounds == self.state.saved


def test_an_undisturbed_run_takes_one_term() -> None:
    crew = Crew(plan(every=2), 2)
    crew.finish()
    assert crew.terms == 1


def steps_of_a_run(workers: int) -> int:
    crew, steps = Crew(plan(every=2), workers), 0
    while not crew.over:
        crew.step()
        steps += 1
    return steps


@pytest.mark.parametrize("lost", [{1}, {2}, {1, 2}, {1, 2, 3}], ids=str)
def test_a_loss_at_any_moment_costs_a_term_and_nothing_else(lost: set[int]) -> None:
    for moment in range(steps_of_a_run(3)):
        crew = Crew(plan(every=2), 3)
        for _ in range(moment):
            crew.step()
        crew.tick(lost)
        crew.finish()
        assert crew.terms <= 2
        assert not crew.living & lost


def test_results_lost_at_any_round_cost_a_term_and_nothing_else() -> None:
    for round in range(1, ROUNDS + 1):
        crew = Crew(plan(every=2), 3)
        crew.lost_results = {round: 2}
        crew.finish()
        assert crew.terms == 2
        assert crew.living == {1, 3}


class Chance:
    """One random event after the other; hypothesis makes them small when something is wrong."""

    cells = st.integers(-1, 4)
    rounds = st.integers(-1, 5)
    terms = st.integers(0, 4)

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw

    def message(self) -> Message:
        cell, round = self.draw(self.cells), self.draw(self.rounds)
        term = self.draw(self.terms)
        choices: list[Message] = [
            *MESSAGES.values(),
            done(cell, round, term),
            saved(cell, round, term),
            status(term, cell, round),
            failed(cell, round, term),
            Finished(term=term),
        ]
        return self.draw(st.sampled_from(choices))

    def happen(self, crew: Crew) -> None:
        worker = self.draw(st.integers(1, crew.count + 1))
        match self.draw(st.integers(0, 9)):
            case 0:
                crew.tick({worker})
            case 1:
                crew.tick(range(1, crew.count + 2))
            case 2:
                crew.now += self.draw(st.sampled_from([1.0, 30.0, 500.0]))
                crew.tick()
            case 3:
                crew.do(crew.state.handle(worker, self.message(), crew.now))
            case 4:
                crew.do(crew.state.results_lost(worker, crew.now))
            case 5:
                crew.do(crew.state.round_completed(self.draw(self.rounds)))
            case _:
                crew.step()


@given(st.data())
def test_whatever_happens_every_cell_has_one_owner_and_rounds_complete_once_in_order(
    data: st.DataObject,
) -> None:
    every = data.draw(st.integers(1, 3))
    crew = Crew(plan(every=every), data.draw(st.integers(1, 4)))
    crew.replaceable = data.draw(st.booleans())
    chance = Chance(data)
    for _ in range(data.draw(st.integers(0, 40))):
        if not crew.over:
            chance.happen(crew)
    if not crew.over and crew.replaceable:
        # Left in peace, it gets to its end.
        for _ in range(1000):
            if not crew.over:
                crew.step()
        assert crew.over
