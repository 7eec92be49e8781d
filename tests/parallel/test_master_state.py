"""Every message in every phase of the master, late ones, and nonsense. No process, no file."""

from __future__ import annotations

import pytest

from remuda.parallel.commands import (
    BeginTerm,
    Command,
    Dismiss,
    Fail,
    RecordLoss,
    Report,
    ShowProgress,
)
from remuda.parallel.messages import (
    Finished,
    Message,
)
from tests.parallel.master_states import (
    MESSAGES,
    PHASES,
    ROUNDS,
    complete,
    done,
    failed,
    only,
    plan,
    saved,
    starting,
    status,
    train,
    training,
    up,
    warnings,
)

# What a message of worker 1 leads to while it trains, and after it has finished; in all other
# phases, to nothing.
REACTIONS = {
    "hello": ("lost", "lost"),
    "status": ("progress", "progress"),
    "saved": ("nothing", "lost"),
    "done": ("report", "lost"),
    "finished": ("lost", "nothing"),
    "failed": ("lost", "lost"),
    "user's error": ("failure", "failure"),
    "configure": ("lost", "lost"),
    "run task": ("lost", "lost"),
    "get status": ("lost", "lost"),
    "committed": ("lost", "lost"),
    "forget": ("lost", "lost"),
    "get results": ("lost", "lost"),
    "stop": ("lost", "lost"),
}


def reaction(commands: list[Command]) -> str:
    if only(commands, RecordLoss):
        assert only(commands, BeginTerm), "the other worker takes over"
        assert only(commands, Dismiss) == [Dismiss(1)]
        return "lost"
    kinds = [type(command) for command in commands]
    names: dict[tuple[type[Command], ...], str] = {
        (): "nothing",
        (ShowProgress,): "progress",
        (Report,): "report",
        (Fail,): "failure",
    }
    return names[tuple(kinds)]


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("phase", PHASES)
def test_every_message_in_every_phase(phase: str, kind: str) -> None:
    state = PHASES[phase]()
    expected = "nothing"
    if phase in ("training", "finished"):
        expected = REACTIONS[kind][phase == "finished"]
    if (phase, kind) == ("training", "done"):
        state.handle(1, saved(0, 1), 2.0)  # its file comes first
    assert reaction(state.handle(1, MESSAGES[kind], 2.0)) == expected


@pytest.mark.parametrize("kind", MESSAGES)
def test_before_its_hello_a_worker_is_not_listened_to(kind: str) -> None:
    """An MPI job may carry several runs, and an answer may come late from the one before."""
    state = starting()
    commands = state.handle(2, MESSAGES[kind], 2.0)
    assert bool(only(commands, BeginTerm)) == (kind == "hello")
    assert kind == "hello" or commands == []


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("phase", PHASES)
def test_a_dismissed_or_unknown_worker_is_not_listened_to(phase: str, kind: str) -> None:
    state = PHASES[phase]()
    for worker in (8, 77):
        before = (state.phase, state.term, state.completed, dict(state.roster.hosts))
        assert state.handle(worker, MESSAGES[kind], 2.0) == []
        assert (state.phase, state.term, state.completed, dict(state.roster.hosts)) == before


@pytest.mark.parametrize("kind", ["status", "saved", "done", "finished", "failed", "user's error"])
def test_a_message_of_an_earlier_term_only_says_that_its_sender_lives(kind: str) -> None:
    state = up([1, 2, 3], plan())
    state.tick(1.0, {3})
    assert state.term.number == 2
    for worker in (1, 2):
        assert state.handle(worker, MESSAGES[kind], 50.0) == []
    state.tick(50.5)
    commands = state.tick(51.0)
    assert state.term.number == 2
    assert not only(commands, RecordLoss)


@pytest.mark.parametrize(
    "message",
    [
        done(0, 1, term=2),
        saved(0, 1, term=2),
        status(term=2, cell=0),
        status(term=1, cell=1),
        Finished(term=2),
        failed(0, 1, term=2, user=True),
        failed(1, 1, user=True),
        done(1, 1),
        done(7, 1),
        done(-1, 1),
        done(0, 0),
        done(0, 2),
        done(0, -5),
        done(0, 10**9),
        saved(1, 1),
        saved(0, 2),
        saved(0, 0),
    ],
    ids=str,
)
def test_what_a_worker_cannot_know_or_was_not_asked_for_makes_it_a_lost_one(
    message: Message,
) -> None:
    state = training()
    commands = state.handle(1, message, 2.0)
    assert reaction(commands) == "lost"
    assert "worker 1 sent" in warnings(commands)
    assert not only(commands, Report)
    assert state.term.placement == {2: (0, 1, 2)}


def test_the_same_report_or_file_twice_makes_its_sender_a_lost_one() -> None:
    state = training()
    assert reaction(state.handle(1, saved(0, 1), 0.0)) == "nothing"
    assert reaction(state.handle(1, saved(0, 1), 0.0)) == "lost"
    state = training()
    train(state, 0, 1)
    assert reaction(state.handle(1, done(0, 1), 0.0)) == "lost"


def test_a_report_without_the_file_that_was_due_makes_its_sender_a_lost_one() -> None:
    """Its round would be saved without the cell, and could never be gone back to."""
    assert reaction(training().handle(1, done(0, 1), 0.0)) == "lost"
    assert reaction(up([1, 2], plan(every=3)).handle(1, done(0, 1), 0.0)) == "report"


def test_files_and_ends_of_an_earlier_term_do_not_count() -> None:
    state = up([1, 2, 3], plan())
    for round in range(1, ROUNDS + 1):
        complete(state, round)
    state.tick(1.0, {3})
    assert state.term.number == 2
    state.handle(1, saved(0, ROUNDS, term=1), 1.0)
    assert state.term.files(ROUNDS) == ()
    for worker in (1, 2):
        assert state.handle(worker, Finished(term=1), 1.0) == []
    assert not state.term.is_finished


def test_no_cell_is_trained_beyond_the_last_round() -> None:
    state = training()
    for round in range(1, ROUNDS + 1):
        train(state, 0, round)
    assert reaction(state.handle(1, done(0, ROUNDS + 1), 0.0)) == "lost"


def test_a_file_that_is_not_due_makes_its_sender_a_lost_one() -> None:
    state = up([1, 2], plan(every=3))
    assert reaction(state.handle(1, saved(0, 1), 0.0)) == "lost"


def test_a_spare_has_nothing_to_report() -> None:
    failures = (failed(0, 1, user=True), failed(None, 0, user=True))
    for message in (done(0, 1), saved(0, 1), Finished(term=1), *failures):
        state = up([2, 3, 4, 1], plan())
        spare = next(worker for worker, cells in state.term.placement.items() if not cells)
        commands = state.handle(spare, message, 0.0)
        assert only(commands, Dismiss) == [Dismiss(spare)]
        assert not only(commands, Fail)


def test_an_error_without_a_text_is_no_problem() -> None:
    commands = training().handle(1, failed(0, 1, error=" \n"), 0.0)
    assert "no reason given" in warnings(commands)
