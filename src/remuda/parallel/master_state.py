"""The master's decisions as a state machine: events in, commands out.

No I/O, clocks, threads, tensors or files. The driver (`master.py`) feeds it what the workers said,
the time and which processes have ended, and carries out the commands it gets back, in order.

A round is *complete* when all cells have reported it and everything it leaves is written. When a
worker is lost, the survivors go back to the last saved round in a new *term*; because every random
draw is keyed by seed, cell and round, they arrive where the undisturbed run would have. A worker
that says what it cannot know or should not do is treated as lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import StrEnum

from remuda.errors import ConfigError, RemudaError, StoreError
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
    Report,
    RewindEvents,
    SaveRound,
    Send,
    ShowProgress,
    ShowRound,
    StartWorker,
    Warn,
    WriteStatus,
)
from remuda.parallel.delays import announce
from remuda.parallel.messages import (
    Committed,
    Done,
    Failed,
    Finished,
    Hello,
    Message,
    Saved,
    Status,
)
from remuda.parallel.protocol import Plan, Timeouts, adopt, find_difference, place
from remuda.parallel.roster import Roster
from remuda.parallel.term import Term

START_SECONDS = 120.0
STATUS_SECONDS = 2.0
STATUS_SHARE = 0.05  # of the master's time, at most, goes into writing the status
WATCH_SECONDS = 0.1  # between two looks at all workers
LONGEST_TURN = 1.0  # of the master's loop when it has nothing else to do
MOST_LOSSES = 20  # or the number of workers, if larger: a lost node may take fifty at once
MOST_STARTS = 5  # workers lost before any could be given a task
MOST_FAILURES = 3  # of one cell in one round: then it is the cell, not the worker
ONE_KIND = "processors of one kind, exact=warn, or portable=true in a new run"


class WorkerError(RemudaError):
    """Workers that could not be started, or kept failing."""

    exit_code = 4


class Phase(StrEnum):
    """Where a run stands, as the master sees it."""

    PREPARING = "preparing"  # the run folder is being read; workers may already say hello
    STARTING = "starting"  # waiting for every worker to say hello
    TRAINING = "training"
    RECOVERING = "recovering"  # no worker is left: waiting for new ones to say hello
    OVER = "over"  # finished or failed


class MasterState:
    """Takes one run from its last saved round to its end, whatever happens to the workers."""

    def __init__(self, plan: Plan, timeouts: Timeouts, now: float) -> None:
        self.phase = Phase.PREPARING
        self.completed = 0  # the last round of which everything, events included, is done
        self.saved = 0  # the last round that can be resumed from
        self.roster = Roster()
        self.term = Term(0, plan, 0, {})
        self._plan = plan
        self._timeouts = timeouts
        self._deadline = 0.0  # for workers to say hello
        self._watched = now
        self._status_due = 0.0
        self._losses = 0
        self._most_losses = MOST_LOSSES
        self._failures: Counter[tuple[int | None, int]] = Counter()  # by cell and round
        self._completing: int | None = None  # the round that the driver was asked to complete

    # -------------------------------------------------------------------------- events

    def worker_started(self, worker: int) -> list[Command]:
        """A worker was started; it is expected to say hello."""
        self.roster.add(worker)
        return []

    def no_worker_started(self) -> list[Command]:
        """The engine cannot start another worker."""
        return self._fail_to_start() if not self.roster and self.phase is not Phase.OVER else []

    def restored(self, round: int, now: float) -> list[Command]:
        """The run folder is read: training starts after this round, once all workers are up."""
        self.completed = self.saved = round
        self._await_workers(Phase.STARTING, now)
        return self._begin_if_all_are_up(now)

    def handle(self, worker: int, message: Message, now: float) -> list[Command]:
        """A worker sent a message."""
        if self.phase is Phase.OVER or worker not in self.roster:
            return []  # a late message of a worker that was dismissed
        if isinstance(message, Hello):
            return self._hello(worker, message, now)
        if worker in self.roster.starting:
            return []  # of an earlier run, in an MPI job that carries several
        self.roster.hear(worker, now)
        if self.phase is not Phase.TRAINING:
            return []
        complaint = self.term.complaint(worker, message)
        if complaint is not None:
            warning = Warn(f"worker {worker} sent {complaint}")
            return [warning, *self._recover([worker], now)]
        return self._take(worker, message, now)

    def is_due(self, now: float) -> bool:
        """Whether it is time for a tick; one message says nothing of the other workers."""
        return now - self._watched >= WATCH_SECONDS

    def tick(self, now: float, gone: Collection[int] = ()) -> list[Command]:
        """Time has passed, and the processes of these workers have certainly ended."""
        gap, self._watched = now - self._watched, now
        match self.phase:
            case Phase.STARTING:
                return self._watch_starting(now, gone)
            case Phase.RECOVERING:
                return [*self._watch_starting(now, gone), *self._status_if_due(now)]
            case Phase.TRAINING:
                return [*self._watch_training(now, gap, gone), *self._status_if_due(now)]
        return []

    def results_lost(self, worker: int, now: float) -> list[Command]:
        """A worker did not send its parcels of the round that was to be completed."""
        if self.phase is not Phase.TRAINING:
            return []
        if worker not in self.roster.up:
            return self._fail(WorkerError(f"the parcels of worker {worker} are nowhere to be had"))
        return self._recover([worker], now)

    def round_completed(self, round: int) -> list[Command]:
        """Everything that a round leaves is written, except its checkpoint."""
        if round != self._completing:
            return []
        self.completed, self._completing = round, None
        self.term.complete(round)
        due = self.term.is_saved_after(round)
        committed = Committed(term=self.term.number, round=round)
        return [
            Forget(self.term.number, round),
            *([SaveRound(round, self.term.files(round))] if due else []),
            *(Send(worker, committed) for worker in self.term.busy),
            ShowRound(round, saved=due),
            *self._complete_if_reported(),
            *self._finish_if_over(),
        ]

    def round_saved(self, round: int) -> list[Command]:
        """A checkpoint is complete on disk."""
        self.saved = round
        self.term.forget_files(round)
        return []

    def status_written(self, now: float, spent: float) -> list[Command]:
        """Writing the status took this long; the next is due so that it takes a small share."""
        self._status_due = now + max(STATUS_SECONDS, spent / STATUS_SHARE)
        return []

    # -------------------------------------------------------------------------- starting

    def _await_workers(self, phase: Phase, now: float) -> None:
        self.phase, self._deadline = phase, now + START_SECONDS

    def _hello(self, worker: int, message: Hello, now: float) -> list[Command]:
        if self.phase is Phase.TRAINING and worker in self.roster.up:
            warning = Warn(f"worker {worker} said hello again: it has forgotten its task")
            return [warning, *self._recover([worker], now)]
        self.roster.greet(worker, message, now)
        return self._begin_if_all_are_up(now)

    def _watch_starting(self, now: float, gone: Collection[int]) -> list[Command]:
        commands: list[Command] = []
        for worker in sorted(worker for worker in gone if worker in self.roster):
            self._losses += 1
            self.roster.remove(worker)
            commands += [Warn(f"worker {worker} ended while it was starting"), Dismiss(worker)]
        if not self.roster:
            if self._losses > MOST_STARTS:
                return [*commands, *self._fail_to_start()]
            return [*commands, StartWorker()]
        if now > self._deadline:
            commands += self._dismiss_silent()
        return [*commands, *self._begin_if_all_are_up(now)]

    def _dismiss_silent(self) -> list[Command]:
        """Go on without those that did not start in time."""
        late = f"within {START_SECONDS:.0f} seconds"
        if not self.roster.up:
            return self._fail(WorkerError(f"no worker started {late}"))
        commands: list[Command] = []
        for worker in sorted(self.roster.starting):
            self.roster.remove(worker)
            commands += [Warn(f"worker {worker} did not start {late}"), Dismiss(worker)]
        return commands

    def _fail_to_start(self) -> list[Command]:
        return self._fail(WorkerError("no worker could be started; their errors are above"))

    def _begin_if_all_are_up(self, now: float) -> list[Command]:
        waiting = self.phase in (Phase.STARTING, Phase.RECOVERING)
        if not waiting or self.roster.starting or not self.roster.up:
            return []
        self._watched = now
        self.roster.hear_all(now)
        self._most_losses = max(self._most_losses, len(self.roster))
        opening: Command = RewindEvents(self.saved)
        if self.phase is Phase.STARTING:
            opening = AnnounceStart(self.completed, self.roster.hosts)
        other = self._find_difference()
        if other is not None and self._plan.exact == "require":
            return self._fail(ConfigError(f"exact=require: {other}; allowed: {ONE_KIND}"))
        warnings = [Warn(f"{other}: the same seed may give other weights")] if other else []
        workers = self.roster.capacities(self._plan.threads)
        return [opening, *warnings, self._begin(place(self._plan.costs, workers))]

    def _find_difference(self) -> str | None:
        """Whether cells would get other bits on some workers, or scores on the master."""
        if self._plan.exact == "ignore":
            return None
        master = [self._plan.master] if self._plan.master else []
        return find_difference([*master, *self.roster.hosts.values()])

    # -------------------------------------------------------------------------- terms

    def _begin(self, placement: Mapping[int, tuple[int, ...]]) -> BeginTerm:
        """Start a term: every worker trains its cells from the last saved round on."""
        self.phase = Phase.TRAINING
        self.completed = self.saved
        self.term = Term(self.term.number + 1, self._plan, self.saved, placement)
        return BeginTerm(
            self.term.number, self.saved, placement, self.roster.hosts, self.term.tasks()
        )

    def _watch_training(self, now: float, gap: float, gone: Collection[int]) -> list[Command]:
        """What the heartbeat says of every worker, and what follows from it."""
        if gap > LONGEST_TURN:
            # It was the master that slept or was busy: answers may be waiting, so decide later.
            self.roster.excuse(gap)
        look = self.roster.look(now, self._timeouts, gone)
        commands = announce(look, self._timeouts)
        if not look.dead:
            return commands
        error = None
        for stuck in look.stuck:
            if stuck.cell is not None and self._fails_too_often(stuck.cell, stuck.round):
                times = f"{MOST_FAILURES} times in round {stuck.round}"
                error = WorkerError(f"cell {stuck.cell} got stuck {times}: {stuck}")
        return [*commands, *self._recover(look.dead, now, error)]

    def _recover(
        self, lost: list[int], now: float, error: RemudaError | None = None
    ) -> list[Command]:
        """Lost workers' cells go to spares and survivors, from the last saved round."""
        self._losses += len(lost)
        self._status_due = 0.0  # the loss is shown at once
        self._completing = None
        commands: list[Command] = []
        hosts = self.roster.hosts
        for worker in lost:
            cells = self.term.placement.get(worker, ())
            commands += [
                RecordLoss(
                    worker, self.roster.silence(worker, now), cells, self.roster.still(worker)
                ),
                Warn(
                    f"worker {worker} on {hosts[worker].host} was lost; "
                    f"its {len(cells)} cells go on from round {self.saved} elsewhere"
                ),
                Dismiss(worker),
            ]
            self.roster.write_off(worker)
        if error is None and self._losses > self._most_losses:
            error = WorkerError(f"{self._losses} workers were lost; something is wrong here")
        if error is not None:
            return [*commands, *self._fail(error)]
        if not self.roster:
            self._await_workers(Phase.RECOVERING, now)
            return [*commands, *(StartWorker() for _ in lost)]
        workers = self.roster.capacities(self._plan.threads)
        placement = adopt(self.term.placement, lost, self._plan.costs, workers)
        return [*commands, RewindEvents(self.saved), self._begin(placement)]

    # -------------------------------------------------------------------------- messages

    def _take(self, worker: int, message: Message, now: float) -> list[Command]:
        """What follows from a sensible message; those of an earlier term do not count."""
        current = self.term.number
        match message:
            case Status():
                self.roster.update(worker, message, now)
                return _progress(message) if message.term == current else []
            case Saved(term=term) if term == current:
                self.term.save(message)
            case Done(term=term) if term == current:
                self.term.report(message.report)
                return [Report(message.report), *self._complete_if_reported()]
            case Finished(term=term) if term == current:
                self.term.finish(worker)
                return self._finish_if_over()
            case Failed(term=term) if term == current:
                return self._failed(worker, message, now)
        return []

    def _failed(self, worker: int, message: Failed, now: float) -> list[Command]:
        """A task raised: a user's error ends the run, any other counts as a loss, for a while."""
        if message.user_error:
            return self._fail(StoreError(message.error))
        if self._fails_too_often(message.cell, message.round):
            error = WorkerError(
                f"cell {message.cell} failed {MOST_FAILURES} times in round {message.round}:",
                *message.error.splitlines(),
            )
            return self._fail(error)
        reason = (message.error.strip().splitlines() or ["no reason given"])[-1]
        warning = Warn(f"worker {worker} failed in round {message.round}: {reason}")
        return [warning, *self._recover([worker], now)]

    def _fails_too_often(self, cell: int | None, round: int) -> bool:
        self._failures[cell, round] += 1
        return self._failures[cell, round] >= MOST_FAILURES

    # -------------------------------------------------------------------------- rounds

    def _complete_if_reported(self) -> list[Command]:
        """The next round, if all cells have reported it and no other is being completed."""
        following = self.completed + 1
        if self._completing is not None or not self.term.is_reported(following):
            return []
        self._completing = following
        return [CompleteRound(following)]

    def _finish_if_over(self) -> list[Command]:
        if self.completed < self._plan.rounds or not self.term.is_finished:
            return []
        self.phase = Phase.OVER
        return [Finish()]

    def _fail(self, error: RemudaError) -> list[Command]:
        self.phase = Phase.OVER
        return [Fail(error)]

    def _status_if_due(self, now: float) -> list[Command]:
        if self.phase is Phase.OVER or now < self._status_due:
            return []
        return [WriteStatus(self.roster.statuses(now, self.term.placement))]


def _progress(message: Status) -> list[Command]:
    if message.cell is None:
        return []
    round = message.rounds.get(message.cell, 0) + 1
    return [ShowProgress(message.cell, round, message.batch, max(1, message.batches))]
