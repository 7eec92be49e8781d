"""What the master decides about starting, rounds, losses and time. No process, no file."""

from __future__ import annotations

import pytest

from remuda.errors import StoreError
from remuda.parallel.commands import (
    AnnounceStart,
    BeginTerm,
    Command,
    CompleteRound,
    Dismiss,
    Fail,
    Finish,
    Forget,
    RecordLoss,
    RewindEvents,
    SaveRound,
    Send,
    ShowProgress,
    ShowRound,
    StartWorker,
    Warn,
    WriteStatus,
)
from remuda.parallel.master_state import (
    LONGEST_TURN,
    MOST_FAILURES,
    MOST_LOSSES,
    MOST_STARTS,
    START_SECONDS,
    STATUS_SECONDS,
    STATUS_SHARE,
    WATCH_SECONDS,
    MasterState,
    Phase,
    WorkerError,
)
from remuda.parallel.messages import (
    Committed,
    Finished,
    RunTask,
)
from remuda.parallel.protocol import Liveness, State
from tests.parallel.master_states import (
    ROUNDS,
    TIMEOUTS,
    complete,
    failed,
    hello,
    only,
    plan,
    recovering,
    saved,
    starting,
    status,
    train,
    training,
    up,
    warnings,
)

# ---------------------------------------------------------------------------- starting


def test_training_begins_when_the_last_worker_said_hello_and_not_before() -> None:
    state = MasterState(plan(), TIMEOUTS, 0.0)
    for worker in (1, 2, 3):
        state.worker_started(worker)
    assert state.handle(3, hello(3), 0.0) == []
    assert state.restored(2, 1.0) == []
    assert state.handle(1, hello(1), 2.0) == []
    assert state.tick(100.0) == []  # one that starts late is waited for by all
    announced, begun = state.handle(2, hello(2), 101.0)
    assert isinstance(announced, AnnounceStart)
    assert announced.round == 2
    assert {worker: info.host for worker, info in announced.hosts.items()} == {
        worker: f"host-{worker}" for worker in (1, 2, 3)
    }
    assert isinstance(begun, BeginTerm)
    assert begun.placement == {1: (0,), 2: (1,), 3: (2,)}
    assert begun.tasks == {
        worker: RunTask(term=1, cells=(worker - 1,), start=2, owners=(1, 2, 3))
        for worker in (1, 2, 3)
    }


def test_workers_that_were_up_before_the_folder_was_read_start_at_once() -> None:
    state = MasterState(plan(), TIMEOUTS, 0.0)
    state.worker_started(1)
    assert state.handle(1, hello(1), 0.0) == []
    assert [type(command) for command in state.restored(0, 1.0)] == [AnnounceStart, BeginTerm]


def test_a_worker_that_comes_up_while_others_train_is_a_spare() -> None:
    state = training()
    state.worker_started(3)
    assert state.handle(3, hello(3), 1.0) == []
    (begun,) = only(state.tick(2.0, {1}), BeginTerm)
    assert begun.placement == {2: (1, 2), 3: (0,)}


def test_spares_get_no_task() -> None:
    state = MasterState(plan(cells=1), TIMEOUTS, 0.0)
    state.worker_started(1)
    state.worker_started(2)
    state.restored(0, 0.0)
    state.handle(1, hello(1), 0.0)
    (begun,) = only(state.handle(2, hello(2), 0.0), BeginTerm)
    assert begun.placement == {1: (0,), 2: ()}
    assert begun.tasks.keys() == {1}


def test_who_has_not_started_in_time_is_left_behind() -> None:
    state = starting()
    assert state.tick(START_SECONDS) == []
    commands = state.tick(START_SECONDS + 0.1)
    assert only(commands, Dismiss) == [Dismiss(2)]
    assert "worker 2 did not start within 120 seconds" in warnings(commands)
    (begun,) = only(commands, BeginTerm)
    assert begun.placement == {1: (0, 1, 2)}


def test_if_nobody_starts_in_time_the_run_fails() -> None:
    state = MasterState(plan(), TIMEOUTS, 0.0)
    state.worker_started(1)
    state.restored(0, 0.0)
    (failure,) = state.tick(START_SECONDS + 1)
    assert isinstance(failure, Fail)
    assert isinstance(failure.error, WorkerError)
    assert "no worker started within" in str(failure.error)


@pytest.mark.parametrize("greeted", [True, False])
def test_who_ends_while_starting_is_dismissed_and_the_others_go_on(greeted: bool) -> None:
    state = starting()
    commands = state.tick(1.0, {1 if greeted else 2})
    assert "ended while it was starting" in warnings(commands)
    assert only(commands, Dismiss) == [Dismiss(1 if greeted else 2)]
    assert bool(only(commands, BeginTerm)) == (not greeted)
    if greeted:
        assert only(state.handle(2, hello(2), 2.0), BeginTerm)


def test_if_all_end_while_starting_others_are_started_but_not_for_ever() -> None:
    state = MasterState(plan(), TIMEOUTS, 0.0)
    state.worker_started(1)
    state.restored(0, 0.0)
    for worker in range(1, MOST_STARTS + 1):
        commands = state.tick(float(worker), {worker})
        assert only(commands, StartWorker) == [StartWorker()]
        state.worker_started(worker + 1)
    (failure,) = only(state.tick(99.0, {MOST_STARTS + 1}), Fail)
    assert "no worker could be started" in str(failure.error)
    assert isinstance(failure.error, WorkerError)


def test_if_the_engine_can_start_no_other_the_run_fails() -> None:
    state = MasterState(plan(), TIMEOUTS, 0.0)
    state.worker_started(1)
    state.restored(0, 0.0)
    state.tick(1.0, {1})
    (failure,) = only(state.no_worker_started(), Fail)
    assert "no worker could be started" in str(failure.error)


# ---------------------------------------------------------------------------- rounds


def test_a_round_is_complete_when_all_cells_have_reported_it() -> None:
    state = training()
    assert not only(train(state, 0, 1) + train(state, 1, 1) + train(state, 0, 2), CompleteRound)
    assert train(state, 2, 1)[-1] == CompleteRound(1)
    assert state.completed == 0
    files = {saved(cell, 1) for cell in range(3)}
    forget, save, *rest = state.round_completed(1)
    assert forget == Forget(1, 1)
    assert isinstance(save, SaveRound)
    assert save.round == 1
    assert set(save.files) == files
    committed = [Send(worker, Committed(term=1, round=1)) for worker in (1, 2)]
    assert rest == [*committed, ShowRound(1, saved=True)]
    assert (state.completed, state.saved) == (1, 0)
    state.round_saved(1)
    assert state.saved == 1


def test_rounds_between_checkpoints_are_not_saved_but_the_last_is() -> None:
    state = up([1], plan(every=2, rounds=3))
    assert [only(complete(state, round), SaveRound) != [] for round in (1, 2, 3)] == [0, 1, 1]
    assert state.saved == 3


def test_cells_may_be_ahead_and_rounds_still_complete_one_by_one() -> None:
    """As in an asynchronous run, in which nobody waits for the slowest."""
    state = up([1, 2], plan(cells=2))
    for round in (1, 2, 3):
        assert not only(train(state, 0, round), CompleteRound)
    assert only(train(state, 1, 1), CompleteRound) == [CompleteRound(1)]
    assert only(train(state, 1, 2), CompleteRound) == []  # one at a time
    commands = state.round_completed(1)
    assert commands[-1] == CompleteRound(2)
    assert commands[-2] == ShowRound(1, saved=True)
    assert only(state.round_completed(2), CompleteRound) == []
    assert state.round_completed(2) == []


@pytest.mark.parametrize("last", ["round", "worker"])
def test_a_run_is_over_when_all_rounds_are_complete_and_all_workers_are_done(last: str) -> None:
    state = training()
    for round in (1, 2):
        assert not only(complete(state, round), Finish)
    for cell in range(3):
        train(state, cell, 3)
    assert state.handle(1, Finished(term=1), 0.0) == []
    if last == "worker":
        assert not only(state.round_completed(3), Finish)
        assert state.handle(2, Finished(term=1), 0.0) == [Finish()]
    else:
        assert state.handle(2, Finished(term=1), 0.0) == []
        assert state.round_completed(3)[-1] == Finish()
    assert state.phase is Phase.OVER
    assert state.tick(999.0, {1, 2}) == []


def test_a_run_that_was_complete_only_waits_for_its_workers() -> None:
    state = up([1, 2], plan(), start=ROUNDS)
    assert state.handle(1, Finished(term=1), 0.0) == []
    assert state.handle(2, Finished(term=1), 0.0) == [Finish()]


# ---------------------------------------------------------------------------- losses


def test_after_a_loss_a_new_term_begins_from_the_last_saved_round() -> None:
    state = up([1, 2, 3, 4], plan(every=2))
    for round in (1, 2):
        complete(state, round)
    for cell in range(3):
        train(state, cell, 3)
    state.round_completed(3)
    assert (state.completed, state.saved) == (3, 2)
    lost, warning, dismissed, rewound, begun, shown = state.tick(1.0, {2})
    assert lost == RecordLoss(2, 1.0, (1,))
    expected = "worker 2 on host-2 was lost; its 1 cells go on from round 2 elsewhere"
    assert warning == Warn(expected)
    assert dismissed == Dismiss(2)
    assert rewound == RewindEvents(2)
    assert isinstance(begun, BeginTerm)
    assert (begun.term, begun.start) == (2, 2)
    assert begun.placement == {1: (0,), 3: (2,), 4: (1,)}  # the spare adopts
    assert {task.start for task in begun.tasks.values()} == {2}
    assert isinstance(shown, WriteStatus)
    assert [(one.worker, one.liveness) for one in shown.workers] == [
        (1, Liveness.WORKING),
        (2, Liveness.DEAD),
        (3, Liveness.WORKING),
        (4, Liveness.WORKING),
    ]
    assert (state.completed, state.saved) == (2, 2)
    assert only(complete(state, 3), ShowRound) == [ShowRound(3, saved=True)]


def test_two_lost_at_once_are_one_recovery() -> None:
    state = up([1, 2, 3], plan())
    commands = state.tick(1.0, {1, 3})
    assert [loss.worker for loss in only(commands, RecordLoss)] == [1, 3]
    assert only(commands, Dismiss) == [Dismiss(1), Dismiss(3)]
    (begun,) = only(commands, BeginTerm)
    assert begun.placement == {2: (0, 1, 2)}


def test_the_only_worker_lost_is_replaced_and_the_run_goes_on_from_the_saved_round() -> None:
    state = up([1], plan(every=2))
    complete(state, 1)
    commands = state.tick(1.0, {1})
    assert only(commands, StartWorker) == [StartWorker()]
    assert not only(commands, BeginTerm)
    (shown,) = only(commands, WriteStatus)
    assert [one.liveness for one in shown.workers] == [Liveness.DEAD]
    # What is complete stays so until it is trained again: it may still be rescued.
    assert state.completed == 1
    state.worker_started(2)
    rewound, begun = state.handle(2, hello(2), 2.0)
    assert rewound == RewindEvents(0)
    assert isinstance(begun, BeginTerm)
    assert (begun.term, begun.start, begun.placement) == (2, 0, {2: (0, 1, 2)})
    assert state.completed == 0


def test_if_nobody_is_left_and_nobody_can_be_started_the_run_fails() -> None:
    state = training()
    assert len(only(state.tick(1.0, {1, 2}), StartWorker)) == 2
    (failure,) = state.no_worker_started()
    assert isinstance(failure, Fail)
    assert "no worker could be started" in str(failure.error)
    assert state.no_worker_started() == []  # said once


def test_a_worker_that_was_replaced_may_be_lost_again_while_starting() -> None:
    state = recovering()
    commands = state.tick(2.0, {1, 2})
    assert only(commands, StartWorker) == [StartWorker()]
    state.worker_started(3)
    (begun,) = only(state.handle(3, hello(3), 3.0), BeginTerm)
    assert begun.placement == {3: (0, 1, 2)}


def test_results_that_a_worker_does_not_send_make_it_a_lost_one() -> None:
    state = training()
    for cell in range(3):
        train(state, cell, 1)
    commands = state.results_lost(2, 1.0)
    assert only(commands, Dismiss) == [Dismiss(2)]
    assert state.completed == 0
    assert state.round_completed(1) == []  # that was in the old term
    assert only(complete(state, 1), ShowRound) == [ShowRound(1, saved=True)]
    assert only(state.results_lost(2, 2.0), Fail)  # of nobody we know: better loud than stuck


def test_new_workers_have_the_whole_time_to_start_also_late_in_a_run() -> None:
    state = up([8, 9], plan(), now=1000.0)
    state.tick(1001.0, {8, 9})
    state.worker_started(1)
    assert not only(state.tick(1120.0), Fail)
    assert only(state.tick(1122.0), Fail)


def test_a_loss_is_shown_at_once_and_as_dead() -> None:
    state = training()
    state.tick(1.0)
    state.status_written(1.0, 0.0)
    commands = state.handle(1, failed(0, 1), 1.1)
    assert not only(commands, WriteStatus)
    (status,) = only(state.tick(1.3), WriteStatus)
    assert [worker.liveness for worker in status.workers] == [Liveness.DEAD, Liveness.WORKING]


def test_many_losses_are_too_many() -> None:
    state = up(range(1, 5), plan())
    worker = 4
    for _ in range(MOST_LOSSES):
        commands = state.tick(1.0, set(state.roster.up))
        if only(commands, Fail):
            break
        fresh = [worker + 1 + number for number in range(len(only(commands, StartWorker)))]
        for worker in fresh:
            state.worker_started(worker)
        for worker in fresh:
            state.handle(worker, hello(worker), 1.0)
    (failure,) = only(commands, Fail)
    assert isinstance(failure.error, WorkerError)
    assert "24 workers were lost" in str(failure.error)


def test_a_node_that_takes_many_workers_at_once_is_no_reason_to_give_up() -> None:
    many = 3 * MOST_LOSSES
    state = up(range(1, many + 1), plan(cells=many))
    commands = state.tick(1.0, range(2, many + 1))
    assert not only(commands, Fail)
    assert len(only(commands, BeginTerm)) == 1


def test_a_cell_that_fails_again_and_again_ends_the_run_with_its_error() -> None:
    state = up(range(1, MOST_FAILURES + 1), plan())
    for number in range(1, MOST_FAILURES + 1):
        worker = state.term.owners[0]
        error = failed(0, 2, state.term.number, "Traceback\n a real bug")
        commands = state.handle(worker, error, 1.0)
        if number < MOST_FAILURES:
            assert f"worker {worker} failed in round 2:  a real bug" in warnings(commands)
            assert only(commands, BeginTerm)
    (failure,) = commands
    assert isinstance(failure, Fail)
    assert isinstance(failure.error, WorkerError)
    assert str(failure.error) == "cell 0 failed 3 times in round 2:\nTraceback\n a real bug"


def test_failures_of_other_cells_and_rounds_are_counted_apart() -> None:
    state = up(range(1, 8), plan())
    for cell, round in ((0, 1), (0, 1), (1, 1), (1, 1), (0, 2), (None, 1)):
        worker = state.term.owners[cell or 0]
        commands = state.handle(worker, failed(cell, round, state.term.number), 1.0)
        assert only(commands, BeginTerm)


def test_a_users_error_ends_the_run_as_it_is() -> None:
    (failure,) = training().handle(1, failed(0, 1, error="disk full", user=True), 1.0)
    assert isinstance(failure, Fail)
    assert isinstance(failure.error, StoreError)
    assert str(failure.error) == "disk full"


# ---------------------------------------------------------------------------- time


def quiet_ticks(state: MasterState, first: float, last: float) -> list[Command]:
    """As the driver's loop does, ten times a second."""
    commands, now = [], first
    while now < last:
        now += WATCH_SECONDS
        commands += state.tick(now)
    return commands


def test_silence_is_first_shown_and_then_a_loss() -> None:
    state = training()
    shown = only(quiet_ticks(state, 0.0, TIMEOUTS.delayed + 1), WriteStatus)
    assert {one.liveness for one in shown[0].workers} == {Liveness.WORKING}
    assert {one.liveness for one in shown[-1].workers} == {Liveness.DELAYED}
    state.handle(2, status(cell=1), TIMEOUTS.dead - 1)
    commands = quiet_ticks(state, TIMEOUTS.delayed + 1, TIMEOUTS.dead + 1)
    (loss,) = only(commands, RecordLoss)
    assert loss.worker == 1
    assert loss.silence == pytest.approx(TIMEOUTS.dead, abs=1)


def test_a_pause_of_the_master_itself_is_nobodys_fault() -> None:
    state = training()
    quiet_ticks(state, 0.0, 3.0)
    assert not only(state.tick(3.0 + 10 * TIMEOUTS.dead), RecordLoss)
    # A worker that has died in the meantime is noticed all the same.
    assert only(state.tick(3.2 + 10 * TIMEOUTS.dead, {1}), RecordLoss)
    # And from then on silence counts again.
    later = 3.2 + 10 * TIMEOUTS.dead
    assert only(quiet_ticks(state, later, later + TIMEOUTS.dead + 4), RecordLoss)


def test_turns_of_usual_length_excuse_nobody() -> None:
    state, now = training(), 0.0
    while now <= TIMEOUTS.dead:
        now += LONGEST_TURN
        commands = state.tick(now)
    assert len(only(commands, RecordLoss)) == 2


def test_the_time_that_starting_took_is_nobodys_silence() -> None:
    state = starting()
    state.tick(100.0)
    state.handle(2, hello(2), 110.0)
    assert not only(state.tick(110.1), RecordLoss)


def test_ticks_are_due_ten_times_a_second() -> None:
    state = training()
    state.tick(5.0)
    assert [state.is_due(now) for now in (5.0, 5.05, 5.15)] == [False, False, True]


def test_a_status_takes_a_small_share_of_the_time() -> None:
    state = training()
    assert only(state.tick(1.0), WriteStatus)
    state.status_written(1.0, spent=0.001)
    assert not only(state.tick(1.0 + STATUS_SECONDS - 0.1), WriteStatus)
    assert only(state.tick(1.0 + STATUS_SECONDS), WriteStatus)
    slow = 10.0
    state.status_written(3.0, spent=slow)
    state.handle(1, status(cell=0), 50.0)
    state.handle(2, status(cell=1), 50.0)
    assert not only(state.tick(50.0), WriteStatus)
    assert only(state.tick(3.0 + slow / STATUS_SHARE), WriteStatus)


def test_a_status_shows_what_workers_said_last() -> None:
    state = training()
    state.tick(0.9)
    assert state.handle(1, status(cell=2, done=1), 1.0) == [ShowProgress(2, 2, 2, 9)]
    assert state.handle(2, status(term=0), 1.0) == []
    (shown,) = only(state.tick(1.5), WriteStatus)
    first, second = shown.workers
    assert (first.worker, first.host, first.pid) == (1, "host-1", 1001)
    assert (first.state, first.cells, first.rounds) == (State.PROCESSING, (0, 2), {2: 1})
    assert first.heard == pytest.approx(0.5)
    assert (second.state, second.cells) == (State.INACTIVE, (1,))
