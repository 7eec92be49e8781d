"""The master's driver: hears the workers, asks the state machine, and does what it says.

All decisions are `master_state.py`'s. Here they meet the transport, the clock and the run folder,
of which the master owns everything except the cells' own checkpoint files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import Collection, Iterable

from remuda.config import NetworkSettings
from remuda.errors import DamagedError, StoreError
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel
from remuda.methods import Mixture, RoundReport
from remuda.parallel.commands import (
    AnnounceStart,
    BeginTerm,
    Command,
    CompleteRound,
    Dismiss,
    Fail,
    Finish,
    Forget,
    RecordEvent,
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
from remuda.parallel.exchange import LostResultsError
from remuda.parallel.heartbeat import Heartbeat
from remuda.parallel.hosts import this_host
from remuda.parallel.master_state import MasterState
from remuda.parallel.messages import Saved, Status
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import Plan, Timeouts, describe_hosts
from remuda.parallel.signals import stop_if_asked, stop_is_under_way
from remuda.parallel.term import Term
from remuda.parallel.transports.base import MasterComm
from remuda.runs.alarms import find_alarms
from remuda.runs.checkpoints import SavedCell
from remuda.runs.outcome import Outcome, Result
from remuda.runs.prepare import Run
from remuda.runs.retention import checkpoints_to_drop, sheet_due
from remuda.runs.store import RunFolder

# What restoring a cell from well-formed but foreign contents may raise.
_UNFIT = (LookupError, AttributeError, TypeError, ValueError, RuntimeError)


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
        self._config = config = run.config
        self._folder = folder
        self._outcome = Outcome(run, folder, self._parcels)
        self._comm = comm
        self._observer = observer
        self._heartbeat = Heartbeat(comm, timeouts.interval, folder.show_life)
        plan = Plan(
            config.cells,
            config.rounds,
            config.run.checkpoint_every,
            config.threads,
            run.costs,
            this_host(),
            config.exactness,
        )
        self._state = MasterState(plan, timeouts, time.monotonic())
        # What was really carried out, which lags behind what is decided: a rescue goes by it.
        self._term: Term | None = None
        self._completed = 0
        self._mixtures: dict[int, tuple[Mixture, float]] = {}  # of a round, with its seconds
        self._round_start = 0.0
        self._finished = False

    def run(self) -> Result:
        """Train to the last round, whatever happens to the workers, and reduce."""
        try:
            self._heartbeat.start()
            try:
                self._train()
            except BaseException as error:
                stop_is_under_way()
                if self._term is not None:
                    self._rescue(error, self._term)
                raise
            return self._outcome.finish(self._state.completed)
        finally:
            stop_is_under_way()
            try:
                self._heartbeat.stop()
            finally:
                self._comm.close()
                self._folder.clear_status()

    def _train(self) -> None:
        for worker in self._comm.workers():
            self._carry_out(self._state.worker_started(worker))
        self._carry_out(self._state.restored(self._restore(), time.monotonic()))
        while not self._finished:
            self._listen()
            now = time.monotonic()
            if self._state.is_due(now):
                self._carry_out(self._state.tick(now, self._comm.gone()))

    def _listen(self, timeout: float = 0.1) -> None:
        stop_if_asked()
        for worker, message in self._comm.receive(timeout):
            if isinstance(message, Status):
                self._heartbeat.answered(worker)
            self._carry_out(self._state.handle(worker, message, time.monotonic()))

    # -------------------------------------------------------------------------- commands

    def _carry_out(self, commands: Iterable[Command]) -> None:
        """Carry out commands in order, and then those that follow from them."""
        waiting = deque(commands)
        while waiting:
            waiting.extend(self._do(waiting.popleft()))

    def _do(self, command: Command) -> list[Command]:
        """Carry out one command; what the state machine answers to its outcome, if anything."""
        state = self._state
        match command:
            case Send(worker, message):
                self._comm.send(worker, message)
            case Dismiss(worker):
                self._comm.dismiss(worker)
            case StartWorker():
                started = self._comm.replace()
                return (
                    state.no_worker_started() if started is None else state.worker_started(started)
                )
            case AnnounceStart():
                self._announce(command)
            case BeginTerm():
                self._begin(command)
            case RecordLoss(worker, silence, cells, still):
                lost = {"event": "lost", "worker": worker, "silence": silence, "still": still}
                self._folder.append_event({**lost, "cells": list(cells)})
            case RecordEvent(event):
                self._folder.append_event(event)
            case RewindEvents(round):
                self._completed = round
                self._folder.rewind_events(round)
            case ShowProgress(cell, round, batch, batches):
                self._observer.ticked(cell, round, batch, batches)
            case Report(report):
                self._report(report)
            case CompleteRound(round):
                return self._complete(round)
            case Forget(term, round):
                self._comm.forget(term, round)
            case SaveRound(round, files):
                self._save(round, map(_saved_cell, files))
            case ShowRound(round, saved):
                self._show_round(round, saved)
            case WriteStatus():
                return self._write_status(command)
            case Warn(text):
                self._observer.warned(text)
            case Fail(error):
                raise error
            case Finish():
                self._finished = True
        return []

    def _announce(self, command: AnnounceStart) -> None:
        self._folder.append_event(
            {
                "event": "started",
                "after_round": command.round,
                "hosts": describe_hosts(command.hosts),
                "warnings": self._run.warnings,
            }
        )
        self._observer.started(self._run, self._folder.path, command.round)
        for warning in self._run.warnings:
            self._observer.warned(warning)

    def _begin(self, command: BeginTerm) -> None:
        self._term, self._completed = self._state.term, command.start
        self._round_start = time.perf_counter()
        for worker, task in command.tasks.items():
            self._comm.send(worker, task)
        self._folder.append_event(
            {
                "event": "placed",
                "epoch": command.term,
                "after_round": command.start,
                "placement": {
                    f"{worker}@{command.hosts[worker].host}": list(cells)
                    for worker, cells in command.placement.items()
                },
            }
        )

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
                "batches": report.losses.batches,
                **dataclasses.asdict(report.genes),
                "score": report.score,
                "classes": report.classes,
                "duplicates": report.duplicates,
                "diverged": report.diverged,
                **report.details,
                "seconds": dict(report.seconds),
                "cpu_seconds": report.cpu_seconds,
                "bytes": dict(report.bytes),
                **({} if report.staleness is None else {"staleness": dict(report.staleness)}),
                "alarms": [vars(alarm) for alarm in alarms],
            }
        )
        self._observer.reported(report, alarms)

    def _complete(self, round: int) -> list[Command]:
        config = self._config
        try:
            mixture = self._outcome.reduce(round)
            now = time.perf_counter()
            seconds, self._round_start = now - self._round_start, now
            self._folder.append_event(
                {
                    "event": "population",
                    "round": round,
                    "score": mixture.score.value if mixture.score else None,
                    "mixture": dict(mixture.weights),
                    "merged": mixture.merged,
                    "diversity": mixture.diversity and dataclasses.asdict(mixture.diversity),
                    "coverage": self._outcome.coverage(round, mixture),
                    "seconds": seconds,
                }
            )
            if sheet_due(round, every=config.run.sheet_every, rounds=config.rounds):
                self._outcome.draw_sheets(round, mixture)
        except LostResultsError as error:
            return self._state.results_lost(error.worker, time.monotonic())
        self._mixtures[round] = (mixture, seconds)
        self._completed = round
        # Interrupted before this line, the round counts for nothing and is trained again;
        # after it, everything that the round leaves is there.
        return self._state.round_completed(round)

    def _show_round(self, round: int, saved: bool) -> None:
        if saved:
            self._prune()  # only now, for nobody waits for it
        mixture, seconds = self._mixtures[round]
        self._mixtures = {round: (mixture, seconds)}
        self._observer.completed(round, mixture, seconds)

    def _parcels(
        self, round: int, part: str = "", cells: Collection[int] | None = None
    ) -> dict[int, Parcel]:
        """The parcels of a round, of all cells or of these, in their order."""
        assert self._term is not None
        term, wanted = self._term, dict[int, list[int]]()
        for cell in range(self._config.cells) if cells is None else cells:
            wanted.setdefault(term.owners[cell], []).append(cell)
        try:
            found = self._comm.results(wanted, term.number, round, part)
        except LostResultsError:
            if round != self._state.saved:
                raise
            return self._folder.load_cells(round, [cell for own in wanted.values() for cell in own])
        return dict(sorted(found.items()))

    # -------------------------------------------------------------------------- disk

    def _save(self, round: int, files: Iterable[SavedCell]) -> None:
        """Write the manifest of a complete round whose files are on disk."""
        score = self._mixtures[round][0].score
        self._folder.complete_checkpoint(round, list(files), score.loss if score else None)
        self._state.round_saved(round)

    def _prune(self) -> None:
        run = self._config.run
        losses = {found.round: found.loss for found in self._folder.checkpoints()}
        for old in checkpoints_to_drop(losses, keep_last=run.keep_last, keep_best=run.keep_best):
            self._folder.drop_checkpoint(old)

    def _restore(self) -> int:
        """Go back to the newest checkpoint that can be read, or to the very beginning."""
        restored = 0
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
            restored = checkpoint.round
            break
        self._prune()
        self._folder.rewind_events(restored)
        return restored

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
                    probes[network] = self._run.probe(parcel.cell)
                probes[network].restore(parcel)
                self._listen(0.0)  # workers that are never answered would take us for dead
                missing.remove(parcel.cell)
        except _UNFIT as error:
            raise DamagedError(f"it does not fit this run: {error}") from None
        if missing:
            raise DamagedError(f"it does not fit this run: it has no cell {min(missing)}")

    def _rescue(self, error: BaseException, term: Term) -> None:
        """Save the last complete round before the error goes its way."""
        if isinstance(error, StoreError):
            self._folder.check_in_place()  # it says more than that a file cannot be written
            return
        if self._completed > self._state.saved:
            with contextlib.suppress(LostResultsError):  # then the last saved round must do
                self._save_now(self._completed, term)
        self._folder.append_event(
            {"event": "stopped", "after_round": self._completed, "why": type(error).__name__}
        )

    def _save_now(self, round: int, term: Term) -> None:
        """Save the last complete round, though it was not due, whatever became of the workers."""
        files = {file.cell: _saved_cell(file) for file in term.files(round)}
        for cell, parcel in self._parcels(round).items():
            if cell not in files:
                files[cell] = self._folder.save_cell(parcel)
        self._save(round, files.values())
        self._prune()

    def _write_status(self, command: WriteStatus) -> list[Command]:
        """For `remuda status`, from this or another terminal."""
        start = time.monotonic()
        self._folder.write_status(
            {
                "time": time.time(),
                "rounds": self._config.rounds,
                "completed": self._state.completed,
                "epoch": self._state.term.number,
                "workers": [worker.to_json() for worker in command.workers],
            }
        )
        self._observer.workers_seen(command.workers)
        now = time.monotonic()
        return self._state.status_written(start, now - start)


def _saved_cell(message: Saved) -> SavedCell:
    return SavedCell(message.cell, message.bytes, message.sha256)
