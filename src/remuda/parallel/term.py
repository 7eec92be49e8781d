"""One term: who trains which cells from which saved round on, and how far everybody has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from remuda.methods import RoundReport
from remuda.parallel.messages import (
    Done,
    Failed,
    Finished,
    Message,
    RunTask,
    Saved,
    Status,
)
from remuda.parallel.protocol import Plan
from remuda.runs.retention import checkpoint_due


class Term:
    """The bookkeeping of a term; what was done in an earlier one does not count."""

    def __init__(
        self, number: int, plan: Plan, start: int, placement: Mapping[int, tuple[int, ...]]
    ) -> None:
        self.number = number
        self.start = start
        self.placement = placement
        owner = {cell: worker for worker, cells in placement.items() for cell in cells}
        self.owners = tuple(owner[cell] for cell in sorted(owner))  # of every cell, its worker
        self._plan = plan
        self._owner = owner
        self._unfinished = set(self.owners)  # workers that have not done their task
        self._reported = dict.fromkeys(owner, start)  # of every cell, its last round
        self._reports: Counter[int] = Counter()  # cells that have reported, by round
        self._files: dict[int, dict[int, Saved]] = {}  # by round and cell

    @property
    def is_finished(self) -> bool:
        """Whether every worker has done its task."""
        return not self._unfinished

    @property
    def busy(self) -> list[int]:
        """The workers that have cells."""
        return [worker for worker, cells in self.placement.items() if cells]

    def tasks(self) -> dict[int, RunTask]:
        """What every worker that has cells is to do."""
        task = RunTask(term=self.number, cells=(), start=self.start, owners=self.owners)
        # Copies, so that thousands of owners are checked once and not for every worker.
        return {
            worker: task.model_copy(update={"cells": self.placement[worker]})
            for worker in self.busy
        }

    # -------------------------------------------------------------------------- progress

    def finish(self, worker: int) -> None:
        self._unfinished.discard(worker)

    def report(self, report: RoundReport) -> None:
        self._reported[report.cell] = report.round
        self._reports[report.round] += 1

    def is_reported(self, round: int) -> bool:
        """Whether all cells have reported a round."""
        return self._reports[round] == self._plan.cells

    def complete(self, round: int) -> None:
        """Nobody will ask again whether a round is reported."""
        self._reports.pop(round, None)

    def is_saved_after(self, round: int) -> bool:
        plan = self._plan
        return checkpoint_due(round, every=plan.checkpoint_every, rounds=plan.rounds)

    def save(self, message: Saved) -> None:
        self._files.setdefault(message.round, {})[message.cell] = message

    def files(self, round: int) -> tuple[Saved, ...]:
        """The files of a round that its workers have written."""
        return tuple(self._files.get(round, {}).values())

    def forget_files(self, round: int) -> None:
        """Rounds up to this one are saved."""
        self._files = {later: files for later, files in self._files.items() if later > round}

    # -------------------------------------------------------------------------- nonsense

    def complaint(self, worker: int, message: Message) -> str | None:
        """What is wrong with a message, given what its sender was told to do."""
        if not isinstance(message, Status | Saved | Done | Finished | Failed):
            return f"a message that only a master sends: {type(message).__name__}"
        if message.term > self.number:
            return f"a {type(message).__name__} of term {message.term}, which has not begun"
        if message.term < self.number:
            return None  # it may not know yet that a new term has begun
        own = self.placement.get(worker, ())
        match message:
            case Status(cell=int(cell)) | Failed(cell=int(cell)) if not self._owns(worker, cell):
                return f"a {type(message).__name__} about cell {cell}, which is not its own"
            case Done(report=report):
                return self._wrong_report(worker, report)
            case Saved(cell=cell, round=round):
                if not self.is_saved_after(round) or cell in self._files.get(round, {}):
                    return f"a file of cell {cell} in round {round}, which nobody asked for"
                return self._wrong_round(worker, "a file", cell, round)
            case Failed() if not own:
                return "word of a failure, but it has no task"
            case Finished() if not own or not all(map(self._is_done, own)):
                return "word that it has finished, but it has not"
        return None

    def _owns(self, worker: int, cell: int) -> bool:
        # Not by looking through the worker's cells: there may be hundreds, and as many messages.
        return self._owner.get(cell) == worker

    def _is_done(self, cell: int) -> bool:
        return self._reported[cell] == self._plan.rounds

    def _wrong_report(self, worker: int, report: RoundReport) -> str | None:
        cell, round = report.cell, report.round
        found = self._wrong_round(worker, "a report", cell, round)
        if found is None and self.is_saved_after(round) and cell not in self._files.get(round, {}):
            return f"a report of round {round} of cell {cell}, whose file it has not written"
        return found

    def _wrong_round(self, worker: int, what: str, cell: int, round: int) -> str | None:
        if not self._owns(worker, cell):
            return f"{what} of cell {cell}, which is not its own"
        expected = self._reported[cell] + 1
        if round != expected or round > self._plan.rounds:
            return f"{what} of round {round} of cell {cell}, which is in round {expected}"
        return None
