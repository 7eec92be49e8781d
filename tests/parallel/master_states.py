"""States of the master's machine, and messages, for the tests of its decisions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

from remuda.gan.game import Losses
from remuda.methods import Genes, RoundReport
from remuda.parallel import messages
from remuda.parallel.commands import (
    Command,
    CompleteRound,
    SaveRound,
    StartWorker,
    Warn,
)
from remuda.parallel.master_state import (
    MasterState,
    Phase,
)
from remuda.parallel.messages import (
    Committed,
    Configure,
    Done,
    Failed,
    Finished,
    GetResults,
    GetStatus,
    Hello,
    Message,
    RunTask,
    Saved,
    Status,
    Stop,
)
from remuda.parallel.protocol import Plan, State, Timeouts

TIMEOUTS = Timeouts(interval=1, delayed=5, dead=60)
ROUNDS = 3
Kind = TypeVar("Kind")


def plan(cells: int = 3, every: int = 1, rounds: int = ROUNDS) -> Plan:
    return Plan(cells, rounds, every, threads=1, costs=dict.fromkeys(range(cells), 1.0))


def hello(worker: int = 0) -> Hello:
    return Hello(host=f"host-{worker}", pid=1000 + worker, cores=8, memory=1)


def done(cell: int, round: int, term: int = 1) -> Done:
    report = RoundReport(
        cell=cell,
        round=round,
        losses=Losses(0.5, 0.5, 1, 1),
        seconds={},
        genes=Genes(1e-3, 1e-3, "heuristic"),
        score=None,
        classes=None,
        duplicates=None,
    )
    return Done(term=term, report=report)


def saved(cell: int, round: int, term: int = 1) -> Saved:
    return Saved(term=term, cell=cell, round=round, bytes=1, sha256="0" * 64)


def status(term: int = 1, cell: int | None = None, done: int = 0) -> Status:
    rounds = {} if cell is None else {cell: done}
    state = State.INACTIVE if cell is None else State.PROCESSING
    return Status(number=1, state=state, term=term, rounds=rounds, cell=cell, batch=2, batches=9)


def failed(
    cell: int | None, round: int, term: int = 1, error: str = "a bug", user: bool = False
) -> Failed:
    return Failed(term=term, cell=cell, round=round, error=error, user_error=user)


def only(commands: Iterable[Command], kind: type[Kind]) -> list[Kind]:
    return [command for command in commands if isinstance(command, kind)]


def warnings(commands: Iterable[Command]) -> str:
    return "\n".join(warning.text for warning in only(commands, Warn))


def up(workers: Collection[int], the_plan: Plan, now: float = 0.0, start: int = 0) -> MasterState:
    """A run in its first term."""
    state = MasterState(the_plan, TIMEOUTS, now)
    for worker in workers:
        state.worker_started(worker)
    state.restored(start, now)
    for worker in workers:
        state.handle(worker, hello(worker), now)
    assert state.phase is Phase.TRAINING
    return state


def train(state: MasterState, cell: int, round: int) -> list[Command]:
    """A cell's round as its worker reports it, with its file where one is due."""
    worker, term = state.term.owners[cell], state.term.number
    found: list[Command] = []
    if state.term.is_saved_after(round):
        found += state.handle(worker, saved(cell, round, term), 0.0)
    return [*found, *state.handle(worker, done(cell, round, term), 0.0)]


def complete(state: MasterState, round: int) -> list[Command]:
    """All cells' round, completed and saved as a driver would; what followed from it."""
    commands = [
        command for cell in range(len(state.term.owners)) for command in train(state, cell, round)
    ]
    assert only(commands, CompleteRound) == [CompleteRound(round)]
    found = state.round_completed(round)
    for save in only(found, SaveRound):
        state.round_saved(save.round)
    return found


def starting() -> MasterState:
    """Worker 1 said hello, worker 2 has not yet."""
    state = MasterState(plan(), TIMEOUTS, 0.0)
    state.worker_started(1)
    state.worker_started(2)
    state.restored(0, 0.0)
    state.handle(1, hello(1), 0.0)
    return state


def preparing() -> MasterState:
    state = MasterState(plan(), TIMEOUTS, 0.0)
    state.worker_started(1)
    state.handle(1, hello(1), 0.0)
    return state


def training() -> MasterState:
    """Cells 0 and 2 are worker 1's."""
    return up([1, 2], plan())


def finished() -> MasterState:
    """Worker 1 has done its task, worker 2 is still in its first round."""
    state = training()
    for round in range(1, ROUNDS + 1):
        for cell in (0, 2):
            train(state, cell, round)
    assert state.handle(1, Finished(term=1), 0.0) == []
    return state


def recovering() -> MasterState:
    """Everybody was lost; of two new workers the first, here called 1, has said hello."""
    state = up([8, 9], plan())
    commands = state.tick(1.0, {8, 9})
    assert len(only(commands, StartWorker)) == 2
    state.worker_started(1)
    state.worker_started(2)
    state.handle(1, hello(1), 1.0)
    assert state.phase is Phase.RECOVERING
    return state


def over() -> MasterState:
    state = training()
    state.handle(1, failed(0, 1, user=True), 0.0)
    assert state.phase is Phase.OVER
    return state


PHASES = {
    "preparing": preparing,
    "starting": starting,
    "training": training,
    "finished": finished,
    "recovering": recovering,
    "over": over,
}
MESSAGES: dict[str, Message] = {
    "hello": hello(1),
    "status": status(cell=0),
    "saved": saved(0, 1),
    "done": done(0, 1),
    "finished": Finished(term=1),
    "failed": failed(0, 1),
    "user's error": failed(0, 1, user=True),
    "configure": Configure(config="", folder="", data="", fingerprint="", timeouts=TIMEOUTS),
    "run task": RunTask(term=1, cells=(0,), start=0, owners=(1, 1, 1)),
    "get status": GetStatus(number=1),
    "committed": Committed(term=1, round=1),
    "forget": messages.Forget(term=1, round=1),
    "get results": GetResults(number=1, term=1, round=1, cells=(0,), part=""),
    "stop": Stop(),
}
