"""The master: gives cells to workers, watches them, and keeps the run folder true.

It owns every decision and all of the run folder but the cells' own checkpoint files. A round is
*complete* when all cells have reported it and everything it leaves is written. When a worker is
lost, the survivors go back to the last saved round in a new *term*; because every draw is keyed by
seed, cell and round, they arrive where the undisturbed run would have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from remuda.config import NetworkSettings
from remuda.errors import DamagedError, RemudaError, StoreError
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel
from remuda.methods import RoundReport
from remuda.parallel.heartbeat import Heartbeat
from remuda.parallel.messages import (
    Committed,
    Done,
    Failed,
    Finished,
    Hello,
    Message,
    RunTask,
    Saved,
    Status,
)
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import (
    Capacity,
    HostInfo,
    Liveness,
    State,
    Timeouts,
    WorkerStatus,
    adopt,
    capacities,
    describe_hosts,
    liveness_of,
    place,
)
from remuda.parallel.transports.base import LostResultsError, MasterComm
from remuda.runs.alarms import find_alarms
from remuda.runs.checkpoints import SavedCell
from remuda.runs.outcome import Outcome, Result
from remuda.runs.prepare import Run
from remuda.runs.retention import checkpoint_due, checkpoints_to_drop, sheet_due
from remuda.runs.store import RunFolder

START_SECONDS = 120.0
STATUS_SECONDS = 2.0
STATUS_SHARE = 0.05  # of the master's time, at most, goes into writing the status
WATCH_SECONDS = 0.1  # between two looks at all workers
LONGEST_TURN = 1.0  # of the master's loop when it has nothing else to do
MOST_LOSSES = 20  # or as many as there were workers, for a lost node may take fifty at once
MOST_STARTS = 5  # workers lost before any could be given a task
MOST_FAILURES = 3  # of one cell in one round: then it is the cell, not the worker
# What restoring a cell from well-formed but foreign contents may raise.
_UNFIT = (LookupError, AttributeError, TypeError, ValueError, RuntimeError)


class WorkerError(RemudaError):
    """Workers that could not be started, or kept failing."""

    exit_code = 4


@dataclass
class _WorkerRecord:
    """What the master knows of a worker."""

    info: HostInfo
    pid: int
    heard: float
    status: Status | None = None
    liveness: Liveness = Liveness.WORKING


class Master:
    """Takes one run from where its folder stands to its result."""

    def __init__(
        self,
        run: Run,
        folder: RunFolder,
        comm: MasterComm,
        observer: Observer,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
    ) -> None:
        self._run = run
        self._config = run.config
        self._folder = folder
        self._outcome = Outcome(run, folder, self._parcels)
        self._comm = comm
        self._observer = observer
        self._timeouts = timeouts
        self._heartbeat = Heartbeat(comm, timeouts.interval, folder.touch_status)
        self._watched = time.monotonic()
        self._records: dict[int, _WorkerRecord] = {}
        self._dead: dict[int, _WorkerRecord] = {}
        self._placement: dict[int, tuple[int, ...]] = {}
        self._owners: tuple[int, ...] = ()  # of every cell, its worker
        self._term = 0
        self._losses = 0
        self._most_losses = MOST_LOSSES
        self._failures: dict[tuple[int | None, int], int] = {}
        self._completed = 0  # the last round of which everything, events included, is done
        self._saved = 0
        self._loss: float | None = None  # of the last complete round
        self._finished: set[int] = set()  # workers that have done their task of this term
        self._reports: dict[int, dict[int, RoundReport]] = {}
        self._files: dict[int, dict[int, SavedCell]] = {}
        self._round_start = 0.0
        self._status_due = 0.0

    def run(self) -> Result:
        """Train to the last round, whatever happens to the workers, and reduce."""
        try:
            self._heartbeat.start()
            self._restore()
            self._wait_for_hello()
            hosts = describe_hosts(self._hosts())
            self._folder.append_event(
                {
                    "event": "started",
                    "after_round": self._completed,
                    "hosts": hosts,
                    "warnings": self._run.warnings,
                }
            )
            self._observer.started(self._run, self._folder.path, self._completed)
            for warning in self._run.warnings:
                self._observer.warned(warning)
            try:
                self._begin(place(self._run.costs, self._capacities()))
                while not self._is_over():
                    try:
                        self._listen()
                        self._watch()
                    except LostResultsError as error:
                        self._recover([error.worker])
            except BaseException as error:
                self._rescue(error)
                raise
            return self._outcome.finish(self._completed)
        finally:
            try:
                self._heartbeat.stop()
            finally:
                self._comm.close()
                self._folder.clear_status()

    def _is_over(self) -> bool:
        return self._completed == self._config.rounds and self._finished.issuperset(self._owners)

    # -------------------------------------------------------------------------- workers

    def _wait_for_hello(self) -> None:
        """Wait until every worker said where it is and what it has."""
        deadline = time.monotonic() + START_SECONDS
        while not self._records or set(self._records) != set(self._comm.workers()):
            self._listen()
            for worker in self._comm.gone():
                self._losses += 1
                self._observer.warned(f"worker {worker} ended while it was starting")
                self._comm.dismiss(worker)
                self._records.pop(worker, None)
            if not self._comm.workers() and (
                self._losses > MOST_STARTS or self._comm.replace() is None
            ):
                raise WorkerError("no worker could be started; their errors are above")
            if time.monotonic() > deadline:
                self._dismiss_silent()
        self._watched = time.monotonic()
        for record in self._records.values():
            record.heard = self._watched
        self._most_losses = max(self._most_losses, len(self._records))

    def _dismiss_silent(self) -> None:
        """Go on without those that did not start in time."""
        if not self._records:
            raise WorkerError(f"no worker started within {START_SECONDS:.0f} seconds")
        for worker in set(self._comm.workers()) - set(self._records):
            self._observer.warned(
                f"worker {worker} did not start within {START_SECONDS:.0f} seconds"
            )
            self._comm.dismiss(worker)

    def _hosts(self) -> dict[int, HostInfo]:
        return {worker: record.info for worker, record in self._records.items()}

    def _capacities(self) -> list[Capacity]:
        return capacities(self._hosts(), self._config.threads)

    def _begin(self, placement: dict[int, tuple[int, ...]]) -> None:
        """Start an term: every worker trains its cells from the last saved round on."""
        self._term += 1
        self._placement = placement
        self._finished.clear()
        self._reports.clear()
        self._files.clear()
        self._round_start = time.perf_counter()
        home = {cell: worker for worker, cells in placement.items() for cell in cells}
        self._owners = tuple(home[cell] for cell in range(self._config.cells))
        task = RunTask(term=self._term, cells=(), start=self._saved, owners=self._owners)
        for worker, cells in placement.items():
            if cells:
                # A copy, so that thousands of owners are checked once and not for every worker.
                self._comm.send(worker, task.model_copy(update={"cells": cells}))
        self._folder.append_event(
            {
                "event": "placed",
                "epoch": self._term,
                "after_round": self._saved,
                "placement": {
                    f"{worker}@{self._records[worker].info.host}": list(cells)
                    for worker, cells in placement.items()
                },
            }
        )

    def _watch(self) -> None:
        """The heartbeat's verdicts, and what follows from them."""
        now = time.monotonic()
        if now - self._watched < WATCH_SECONDS:
            return  # a message from one of many workers says nothing of the others
        gap, self._watched = now - self._watched, now
        if gap > LONGEST_TURN:
            # It was the master that slept or was busy: answers may be waiting, so scorer later.
            for record in self._records.values():
                record.heard += gap
        gone = self._comm.gone()
        lost = []
        for worker, record in self._records.items():
            record.liveness = liveness_of(
                max(0.0, now - record.heard), self._timeouts, gone=worker in gone
            )
            if record.liveness is Liveness.DEAD:
                lost.append(worker)
        if lost:
            self._recover(lost)
        self._write_status(now)

    def _recover(self, lost: list[int]) -> None:
        """Written-off workers' cells go to spares and survivors, from the last saved round."""
        self._losses += len(lost)
        for worker in lost:
            record = self._records[worker]
            silence = time.monotonic() - record.heard
            cells = self._placement.get(worker, ())
            self._folder.append_event(
                {"event": "lost", "worker": worker, "silence": silence, "cells": list(cells)}
            )
            self._observer.warned(
                f"worker {worker} on {record.info.host} was lost; "
                f"its {len(cells)} cells go on from round {self._saved} elsewhere"
            )
            self._comm.dismiss(worker)
        if self._losses > self._most_losses:
            raise WorkerError(f"{self._losses} workers were lost; something is wrong here")
        old, costs = self._placement, self._run.costs
        for worker in lost:
            self._dead[worker] = self._records.pop(worker)
            self._dead[worker].liveness = Liveness.DEAD
        self._status_due = 0.0  # the loss is told at once
        if not self._records:
            for _ in lost:
                self._comm.replace()
            self._wait_for_hello()
            placement = place(costs, self._capacities())
        else:
            placement = adopt(old, lost, costs, self._capacities())
        self._completed = self._saved
        self._folder.rewind_events(self._saved)
        self._begin(placement)

    # -------------------------------------------------------------------------- messages

    def _listen(self, timeout: float = 0.1) -> None:
        for worker, message in self._comm.receive(timeout):
            if worker in self._records:
                self._records[worker].heard = time.monotonic()
            self._handle(worker, message)

    def _handle(self, worker: int, message: Message) -> None:
        match message:
            case Hello():
                info = HostInfo(message.host, message.cores, message.memory, message.devices)
                self._records[worker] = _WorkerRecord(info, message.pid, time.monotonic())
            case Status() if worker in self._records:
                self._heartbeat.answered(worker)
                self._records[worker].status = message
                if message.cell is not None and message.term == self._term:
                    done = message.rounds.get(message.cell, 0)
                    self._observer.ticked(
                        message.cell, done + 1, message.batch, max(1, message.batches)
                    )
            case Saved() if message.term == self._term:
                entry = SavedCell(message.cell, message.bytes, message.sha256)
                self._files.setdefault(message.round, {})[message.cell] = entry
            case Done() if message.term == self._term:
                self._report(RoundReport.from_json(message.report))
            case Finished() if message.term == self._term:
                self._finished.add(worker)
            case Failed() if message.term == self._term:
                self._failed(worker, message)

    def _failed(self, worker: int, message: Failed) -> None:
        """A task that raised: a user's error ends the run, another is a loss, but not for ever."""
        if message.user_error:
            raise StoreError(message.error)
        where = (message.cell, message.round)
        self._failures[where] = self._failures.get(where, 0) + 1
        if self._failures[where] >= MOST_FAILURES:
            raise WorkerError(
                f"cell {message.cell} failed {MOST_FAILURES} times in round {message.round}:\n"
                f"{message.error}"
            )
        last = message.error.strip().splitlines()[-1]
        self._observer.warned(f"worker {worker} failed in round {message.round}: {last}")
        self._recover([worker])

    # -------------------------------------------------------------------------- rounds

    def _report(self, report: RoundReport) -> None:
        scorer = self._run.scorer
        alarms = find_alarms(
            batches=report.round * report.losses.batches,
            diverged=report.diverged,
            discriminator_loss=report.losses.discriminator,
            objective=self._config.training.objective,
            classes=report.classes,
            real_classes=int((scorer.real.class_shares > 0).sum()) if scorer else None,
            duplicates=report.duplicates,
        )
        self._folder.append_event(
            {
                "event": "round",
                "round": report.round,
                "cell": report.cell,
                "loss_generator": report.losses.generator,
                "loss_discriminator": report.losses.discriminator,
                "images": report.losses.images,
                **dataclasses.asdict(report.genes),
                "score": report.score,
                "classes": report.classes,
                "duplicates": report.duplicates,
                "diverged": report.diverged,
                **report.details,
                "seconds": dict(report.seconds),
                "bytes": dict(report.bytes),
                **({} if report.staleness is None else {"staleness": dict(report.staleness)}),
                "alarms": [vars(alarm) for alarm in alarms],
            }
        )
        self._observer.reported(report, alarms)
        self._reports.setdefault(report.round, {})[report.cell] = report
        while len(self._reports.get(self._completed + 1, {})) == self._config.cells:
            self._complete(self._completed + 1)

    def _complete(self, round: int) -> None:
        run, rounds = self._config.run, self._config.rounds
        mixture = self._outcome.reduce(round)
        now = time.perf_counter()
        seconds, self._round_start = now - self._round_start, now
        self._folder.append_event(
            {
                "event": "population",
                "round": round,
                "score": mixture.score.value if mixture.score else None,
                "mixture": dict(mixture.weights),
                "seconds": seconds,
            }
        )
        if sheet_due(round, every=run.sheet_every, rounds=rounds):
            self._outcome.draw_sheets(round, mixture)
        # Interrupted before this line, the round counts for nothing and is trained again;
        # after it, all that the round leaves is there.
        self._completed = round
        self._loss = mixture.score.loss if mixture.score else None
        self._comm.forget(self._term, round)
        self._reports.pop(round)
        due = checkpoint_due(round, every=run.checkpoint_every, rounds=rounds)
        if due:
            self._save()
        for worker, cells in self._placement.items():
            if cells:
                self._comm.send(worker, Committed(term=self._term, round=round))
        if due:
            self._prune()  # only now, for nobody waits for it
        self._observer.completed(round, mixture, seconds)

    def _parcels(
        self, round: int, part: str = "", cells: Collection[int] | None = None
    ) -> dict[int, Parcel]:
        """The parcels of a round, of all cells or of these, in their order."""
        wanted: dict[int, list[int]] = {}
        for cell in range(self._config.cells) if cells is None else cells:
            wanted.setdefault(self._owners[cell], []).append(cell)
        try:
            found = self._comm.results(wanted, self._term, round, part)
        except LostResultsError:
            if round != self._saved:
                raise
            return self._folder.load_cells(round, [cell for own in wanted.values() for cell in own])
        return dict(sorted(found.items()))

    # -------------------------------------------------------------------------- disk

    def _save(self) -> None:
        """The manifest of the last complete round, whose files its workers have written."""
        files = self._files.get(self._completed, {})
        self._folder.complete_checkpoint(self._completed, files.values(), self._loss)
        self._saved = self._completed
        self._files = {round: kept for round, kept in self._files.items() if round > self._saved}

    def _prune(self) -> None:
        run = self._config.run
        losses = {found.round: found.loss for found in self._folder.checkpoints()}
        for old in checkpoints_to_drop(losses, keep_last=run.keep_last, keep_best=run.keep_best):
            self._folder.drop_checkpoint(old)

    def _restore(self) -> None:
        """Go back to the newest checkpoint that can be read, or to the very beginning."""
        self._folder.drop_incomplete_checkpoints()
        for checkpoint in reversed(self._folder.checkpoints()):
            try:
                self._check_fit(self._folder.iter_checkpoint(checkpoint))
            except DamagedError as error:
                kept = self._folder.set_aside(checkpoint)
                self._observer.warned(
                    f"checkpoint of round {checkpoint.round} skipped and kept as {kept.name}: "
                    f"{' '.join(str(error).split())}"
                )
                continue
            self._completed = self._saved = checkpoint.round
            break
        self._prune()
        self._folder.rewind_events(self._completed)

    def _check_fit(self, parcels: Iterable[Parcel]) -> None:
        """Whether these parcels are this run's: tried on cells that nobody trains."""
        probes: dict[NetworkSettings, Cell] = {}
        missing = set(range(self._config.cells))
        try:
            for parcel in parcels:
                if parcel.cell not in missing:
                    continue
                network = self._config.network_of(parcel.cell)
                if network not in probes:
                    probes[network] = self._run.cell(parcel.cell, scored=False)
                probes[network].restore(parcel)
                self._listen(0.0)  # workers that are never answered would take us for dead
                missing.remove(parcel.cell)
        except _UNFIT as error:
            raise DamagedError(f"it does not fit this run: {error}") from None
        if missing:
            raise DamagedError(f"it does not fit this run: it has no cell {min(missing)}")

    def _rescue(self, error: BaseException) -> None:
        """Save the last complete round before the error goes its way."""
        if isinstance(error, StoreError):
            return
        if self._completed > self._saved:
            with contextlib.suppress(LostResultsError):  # then the last saved round must do
                self._save_now()
        self._folder.append_event(
            {"event": "stopped", "after_round": self._completed, "why": type(error).__name__}
        )

    def _save_now(self) -> None:
        """Save the last complete round, though it was not due, whatever became of the workers."""
        files = self._files.setdefault(self._completed, {})
        for cell, parcel in self._parcels(self._completed).items():
            if cell not in files:
                files[cell] = self._folder.save_cell(parcel)
        self._save()
        self._prune()

    def _write_status(self, now: float) -> None:
        """For `remuda status`, from this or another terminal."""
        if now < self._status_due:
            return
        workers = [
            WorkerStatus(
                worker,
                record.info.host,
                record.pid,
                record.status.state if record.status else State.INACTIVE,
                record.liveness,
                max(0.0, now - record.heard),
                self._placement.get(worker, ()),
                record.status.rounds if record.status else {},
            )
            for worker, record in sorted({**self._dead, **self._records}.items())
        ]
        self._folder.write_status(
            {
                "time": time.time(),
                "rounds": self._config.rounds,
                "completed": self._completed,
                "epoch": self._term,
                "workers": [watched.to_json() for watched in workers],
            }
        )
        self._observer.watched(workers)
        spent = time.monotonic() - now
        self._status_due = now + max(STATUS_SECONDS, spent / STATUS_SHARE)
