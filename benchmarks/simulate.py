"""The real master with 1,000 and 10,000 simulated workers: what it costs, how soon it reacts.

Master, heartbeat, protocol, messages and run folder are the program's own; only the workers are
not: light objects in one thread that answer the encoded messages after a simulated time. On the
way one worker is killed and another falls silent. The master's CPU is the process's without that
thread's. What it leaves out is the transport: no byte leaves the process.

    python benchmarks/simulate.py [--grids 25x40 100x100] [--seconds 20] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import dataclasses
import heapq
import itertools
import multiprocessing
import pstats
import queue
import resource
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from torch import Tensor

from remuda.config import Config, validate
from remuda.data import dataset_from_array
from remuda.gan.game import Losses
from remuda.gan.parcels import Parcel
from remuda.methods import Genes, RoundReport
from remuda.parallel.master import Master
from remuda.parallel.messages import (
    Committed,
    Done,
    Finished,
    GetStatus,
    Hello,
    Message,
    RunTask,
    Saved,
    Status,
    decode,
)
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import State, Timeouts, may_start
from remuda.parallel.transports.base import MasterComm
from remuda.runs.checkpoints import cell_file
from remuda.runs.environment import environment
from remuda.runs.prepare import Run
from remuda.runs.retention import checkpoint_due
from remuda.runs.store import RunFolder

CORES_PER_HOST = 48
SPARES = 2  # adopt the cells of the two that are lost


@dataclass(frozen=True)
class Fault:
    """A worker that ends, stops answering or only stops training, so long after a term began."""

    term: int
    worker: int
    after: float
    kind: Literal["killed", "silent", "stuck"]


@dataclass(frozen=True)
class Plan:
    """How the simulated workers behave."""

    seconds: float  # of a cell's round
    spread: float = 0.2  # the slowest worker takes so much longer than the fastest
    faults: Sequence[Fault] = ()


@dataclass(frozen=True)
class Probe:
    """The state of the master at a moment."""

    time: float
    cpu: float  # of all its threads, since the process began
    loop: float  # of the thread that asks
    messages: int  # sent and taken
    reports: int  # of them, rounds of cells


@dataclass
class Notes:
    """What was seen, at the master's end unless it says otherwise."""

    sent: Counter[str] = field(default_factory=Counter)  # messages, by kind
    taken: Counter[str] = field(default_factory=Counter)
    answered: int = 0  # questions for a status, at the workers' end
    task_bytes: int = 0
    heartbeats: list[Probe] = field(default_factory=list)  # as each began
    memory: list[int] = field(default_factory=list)  # of the process: at the start and then
    placements: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=dict)  # by term
    tasks: dict[int, Probe] = field(default_factory=dict)  # the last one sent, by term
    first_report: dict[tuple[int, int], Probe] = field(default_factory=dict)  # by term, round
    last_report: dict[tuple[int, int], Probe] = field(default_factory=dict)
    committed: dict[tuple[int, int], Probe] = field(default_factory=dict)  # the last one sent
    faults: dict[int, float] = field(default_factory=dict)  # by worker, as they happened
    lost: dict[int, Probe] = field(default_factory=dict)  # by worker, as they were written off


@dataclass(slots=True)
class SimulatedWorker:
    """One worker: where it is in its task, and whether it still answers."""

    number: int
    state: State = State.INACTIVE
    term: int = 0
    cells: tuple[int, ...] = ()
    start: int = 0
    committed: int = 0
    done: int = 0  # cell-rounds of the task
    training: bool = False  # false also while it waits for a round to be committed
    silent: bool = False
    stuck: bool = False

    @property
    def round(self) -> int:
        """The round it is in."""
        return self.start + 1 + self.done // len(self.cells)

    @property
    def cell(self) -> int:
        return self.cells[self.done % len(self.cells)]


class Crew(threading.Thread):
    """All simulated workers: takes what the master sends, and answers when it is time."""

    def __init__(self, config: Config, plan: Plan, workers: int, folder: Path) -> None:
        super().__init__(name="simulation", daemon=True)
        self.outbox: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self.inbox: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self.workers = {number: SimulatedWorker(number) for number in range(1, workers + 1)}
        self.gone: set[int] = set()
        self.notes = Notes()
        self._config, self._plan, self._folder = config, plan, folder
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._entries = 0
        self._report = _report()  # stands for all

    def run(self) -> None:
        for worker in self.workers.values():
            host = f"node-{(worker.number - 1) // CORES_PER_HOST:03d}"
            self._say(worker, Hello(host=host, pid=worker.number, cores=2**16, memory=2**32))
        while True:
            # By turns, or those with much to do would keep the others from answering.
            if self._agenda and self._agenda[0][0] <= time.monotonic():
                heapq.heappop(self._agenda)[2]()
            pause = self._agenda[0][0] - time.monotonic() if self._agenda else 1.0
            try:
                item = self.outbox.get(timeout=max(0.0, pause))
            except queue.Empty:
                continue
            if item is None:
                return
            self._hear(*item)

    def _at(self, when: float, action: Callable[[], None]) -> None:
        self._entries += 1
        heapq.heappush(self._agenda, (when, self._entries, action))

    def _say(self, worker: SimulatedWorker, message: Message) -> None:
        if worker.silent or worker.number in self.gone:
            return
        self.inbox.put((worker.number, message.encode()))

    # -------------------------------------------------------------------------- messages

    def _hear(self, number: int, content: bytes) -> None:
        worker = self.workers.get(number)
        if worker is None:
            return
        match message := _read(content):
            case RunTask():
                self.notes.task_bytes = len(content)
                self._begin(worker, message)
            case Committed() if message.term == worker.term:
                worker.committed = message.round
                self._go_on(worker)
            case GetStatus():
                self.notes.answered += 1
                self._say(worker, self._status(worker, message.number))

    def _status(self, worker: SimulatedWorker, number: int) -> Status:
        if not worker.cells:
            return Status(number=number, state=worker.state, term=0, rounds={})
        return Status(
            number=number,
            state=worker.state,
            term=worker.term,
            rounds=dict.fromkeys(worker.cells, worker.round - 1),
            cell=worker.cell if worker.state is State.PROCESSING else None,
            batch=300,
            batches=600,
            doing="train" if worker.training else "wait",
        )

    def _begin(self, worker: SimulatedWorker, task: RunTask) -> None:
        if task.term not in self.notes.placements:
            for fault in self._plan.faults:
                if fault.term == task.term:
                    self._at(time.monotonic() + fault.after, lambda fault=fault: self._meet(fault))  # type: ignore[misc]
        self.notes.placements.setdefault(task.term, {})[worker.number] = task.cells
        worker.state, worker.term, worker.cells = State.PROCESSING, task.term, task.cells
        worker.start = worker.committed = task.start
        worker.done, worker.training = 0, False
        self._go_on(worker)

    def _meet(self, fault: Fault) -> None:
        self.notes.faults[fault.worker] = time.monotonic()
        match fault.kind:
            case "killed":
                self.gone.add(fault.worker)
            case "silent":
                self.workers[fault.worker].silent = True
            case "stuck":
                self.workers[fault.worker].stuck = True

    # -------------------------------------------------------------------------- training

    def _go_on(self, worker: SimulatedWorker) -> None:
        """Train the next cell, unless that would be too far ahead of the slowest worker."""
        over = worker.round > self._config.rounds
        if worker.training or over or not may_start(worker.round, worker.committed):
            return
        worker.training = True
        # Spread evenly, and the same in every run.
        pace = 1 + self._plan.spread * (worker.number * 0.618034 % 1 - 0.5)
        term = worker.term
        self._at(
            time.monotonic() + pace * self._plan.seconds, lambda: self._finish_round(worker, term)
        )

    def _finish_round(self, worker: SimulatedWorker, term: int) -> None:
        if term != worker.term or worker.number in self.gone or worker.stuck:
            return
        round, cell, settings = worker.round, worker.cell, self._config
        if checkpoint_due(round, every=settings.run.checkpoint_every, rounds=settings.rounds):
            self._save(worker, round, cell)
        report = dataclasses.replace(self._report, cell=cell, round=round)
        self._say(worker, Done(term=term, report=report))
        worker.done += 1
        worker.training = False
        if worker.round > settings.rounds:
            worker.state = State.FINISHED
            self._say(worker, Finished(term=term))
        self._go_on(worker)

    def _save(self, worker: SimulatedWorker, round: int, cell: int) -> None:
        """An empty file: the names of a checkpoint are real, and so is their removal."""
        folder = self._folder / "checkpoints" / f"round-{round:06d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / cell_file(cell)).touch()
        saved = Saved(term=worker.term, cell=cell, round=round, bytes=0, sha256="0" * 64)
        self._say(worker, saved)


def _read(content: bytes) -> Message:
    """A message; of a task all but `owners`, which these workers do not need.

    Every real worker has a processor of its own to read its task; these share the master's.
    """
    task, owners, _ = content.partition(b',"owners":')
    return decode(task + b',"owners":[]}' if owners else content)


def _report() -> RoundReport:
    """A report as long as a cellular one."""
    roles = ("generator", "discriminator")
    centre = {"from": "offspring", "replaced_worst": True, "fitness": 0.6931471805599453}
    return RoundReport(
        cell=0,
        round=0,
        losses=Losses(0.7123456789012345, 0.6812345678901234, 600, 60_000),
        seconds=dict.fromkeys(
            ("wait", "gather", "update_genomes", "mutate", "train", "assess", "mixture", "other"),
            1.234567,
        ),
        genes=Genes(0.0002123456, 0.00019876, "heuristic"),
        score=None,
        classes=None,
        duplicates=None,
        details={
            "parents": dict.fromkeys(roles, 1234),
            "mutations": {"lr_generator": [0.0002, 0.0002123456]},
            "fitness": dict.fromkeys(roles, 0.6931471805599453),
            "centre": dict.fromkeys(roles, centre),
            "mixture": {"weights": {str(1234 + step): 0.2 for step in range(5)}, "changed": False},
        },
        bytes={"gathered": 26_000_000, "published": 6_600_000, "saved": 6_600_000},
    )


class SimulatedMaster(MasterComm):
    """The master's end of the simulation. Messages are encoded and checked as on every engine."""

    def __init__(self, crew: Crew, parcel: Parcel) -> None:
        self.crew = crew
        self.notes = crew.notes
        self._parcel = parcel  # stands for every cell's
        self.notes.memory.append(_resident())
        crew.start()
        self._clock = time.pthread_getcpuclockid(crew.ident or 0)

    def workers(self) -> list[int]:
        return sorted(self.crew.workers)

    def send(self, worker: int, message: Message) -> None:
        self.crew.outbox.put((worker, message.encode()))
        self.notes.sent[type(message).__name__] += 1
        match message:
            case RunTask():
                self.notes.tasks[message.term] = self._probe()
            case Committed():
                self.notes.committed[message.term, message.round] = self._probe()
            case GetStatus() if message.number > len(self.notes.heartbeats):
                self.notes.heartbeats.append(self._probe())
                self.notes.memory.append(_resident())

    def _probe(self) -> Probe:
        """The master's CPU is all of the process but the simulation's."""
        cpu = time.process_time() - time.clock_gettime(self._clock)
        messages = self.notes.sent.total() + self.notes.taken.total()
        reports = self.notes.taken["Done"]
        return Probe(time.monotonic(), cpu, time.thread_time(), messages, reports)

    def receive(self, timeout: float) -> list[tuple[int, Message]]:
        found = []
        try:
            item = self.crew.inbox.get(timeout=timeout)
            # Bounded, as what a transport's buffers hold is.
            for _ in range(len(self.crew.workers)):
                found.append((item[0], self._take(item[1])))
                item = self.crew.inbox.get_nowait()
            found.append((item[0], self._take(item[1])))
        except queue.Empty:
            pass
        return found

    def _take(self, content: bytes) -> Message:
        message = decode(content)
        self.notes.taken[type(message).__name__] += 1
        if isinstance(message, Done):
            key, now = (message.term, message.report.round), self._probe()
            self.notes.first_report.setdefault(key, now)
            self.notes.last_report[key] = now
        return message

    def gone(self) -> set[int]:
        return self.crew.gone & self.crew.workers.keys()

    def dismiss(self, worker: int) -> None:
        self.notes.lost[worker] = self._probe()
        self.crew.workers.pop(worker)

    def replace(self) -> int | None:
        return None

    def results(
        self, wanted: Mapping[int, Sequence[int]], term: int, round: int, part: str = ""
    ) -> dict[int, Parcel]:
        found = self._parcel.only(part)
        return {
            cell: Parcel(cell, round, _copied(found.tensors), found.meta)
            for cells in wanted.values()
            for cell in cells
        }

    def forget(self, term: int, round: int) -> None:
        pass

    def close(self) -> None:
        self.crew.outbox.put(None)
        self.crew.join()


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in tensors.items()}


def simulated_config(grid: str, rounds: int, folder: Path) -> Config:
    """Networks as small as they come: the master sees only their names and parcels."""
    return validate(
        {
            "rounds": rounds,
            "network": {"family": "mlp", "latent": 2, "hidden": [2]},
            "training": {"batch_size": 2},
            "grid": {"shape": grid},
            "score": {"extractor": "none"},
            "run": {"dir": str(folder / "run"), "sheet_every": 0, "keep_last": 1},
        }
    )


def simulate(
    config: Config, plan: Plan, timeouts: Timeouts, workers: int, profile: bool = False
) -> Notes:
    """Take a run to its end with this many simulated workers."""
    dataset = dataset_from_array(np.arange(64, dtype=np.float32).reshape(4, 4, 4) / 64)
    run = Run.prepare(config, dataset)
    parcel = run.probe(0).parcel()
    with RunFolder.create(config, environment(run)) as folder:
        crew = Crew(config, plan, workers, folder.path)
        master = Master(run, folder, SimulatedMaster(crew, parcel), Observer(), timeouts)
        if profile:
            with cProfile.Profile() as profiler:
                master.run()
            pstats.Stats(profiler).sort_stats("cumulative").print_stats(45)
        else:
            master.run()
    return crew.notes


# ---------------------------------------------------------------------------- the figures


def measure(grid: str, seconds: float, profile: bool) -> dict[str, str]:
    """One run of four rounds in which one worker is killed and another falls silent."""
    timeouts = Timeouts(dead=seconds)
    plan = Plan(
        seconds,
        faults=[
            Fault(term=1, worker=3, after=1.5 * seconds, kind="killed"),
            Fault(term=2, worker=7, after=0.5 * seconds, kind="silent"),
        ],
    )
    with tempfile.TemporaryDirectory() as name:
        config = simulated_config(grid, 4, Path(name))
        cells = config.cells
        start = time.monotonic()
        notes = simulate(config, plan, timeouts, cells + SPARES, profile)
        end = time.monotonic()
        if set(notes.lost) != {fault.worker for fault in plan.faults}:
            raise SystemExit(
                f"{len(notes.lost)} workers were written off instead of 2: this machine is "
                f"too busy to simulate {cells:,} of them; try --seconds {2 * seconds:g}"
            )
        run = Path(name) / "run"
        (manifest,) = run.glob("checkpoints/*/manifest.json")
        events, listed = (run / "events.jsonl").stat().st_size, manifest.stat().st_size
    began, final = notes.tasks[1], notes.committed[3, config.rounds]
    beat, quiet = heartbeat_cpu(notes, cells)
    key = (3, config.rounds - 1)
    first, done, committed = notes.first_report[key], notes.last_report[key], notes.committed[key]
    beats = sum(first.time < probe.time <= committed.time for probe in notes.heartbeats)
    rate = (committed.messages - began.messages) / (committed.cpu - began.cpu)
    # The last round also draws pictures, with libraries of their own.
    before = notes.memory[: 1 + sum(probe.time < committed.time for probe in notes.heartbeats)]
    rows = {
        "cells, and as many workers": f"{cells:,}",
        "from start to the last run task": f"{began.time - start:.1f} s",
        "a run task": f"{notes.task_bytes / 1e3:.1f} kB",
        "all run tasks of a term": f"{notes.task_bytes * cells / 1e6:.0f} MB",
        "a heartbeat of all: messages": f"{2 * cells:,}",
        "a heartbeat of all: CPU": f"{1e3 * beat:.0f} ms (mean of {quiet})",
        "a round beside heartbeats: CPU": f"{committed.cpu - first.cpu - beats * beat:.2f} s",
        "messages per CPU second": f"{rate:,.0f}",
        "last report to last worker told": _span(done, committed),
    }
    for term, worker, what in ((2, 3, "killed"), (3, 7, "silent")):
        lost = notes.lost[worker]
        rows[f"{what}: until written off"] = f"{lost.time - notes.faults[worker]:.2f} s"
        rows[f"{what}: then until all have new tasks"] = _span(lost, notes.tasks[term])
    return {
        **rows,
        "memory of the process: growth": f"{(max(before) - notes.memory[0]) / 1e6:.0f} MB",
        "events of a round": f"{events / config.rounds / 1e6:.1f} MB",
        "manifest of a checkpoint": f"{listed / 1e6:.2f} MB",
        "last worker told to result": f"{end - final.time:.1f} s",
        "the whole run": f"{end - start:.0f} s",
    }


def heartbeat_cpu(notes: Notes, workers: int) -> tuple[float, int]:
    """CPU seconds of asking all workers once, and over how many quiet beats that was measured."""
    # After the last round but one come the pictures and the result.
    began, over = notes.tasks[1], notes.committed[sorted(notes.committed)[-2]]
    quiet = [
        (early, late)
        for early, late in itertools.pairwise(notes.heartbeats)
        if began.time < early.time and late.time < over.time and late.reports == early.reports
    ]
    # Per message, for on a busy machine the answers may come a beat later.
    spent = sum(late.cpu - early.cpu for early, late in quiet)
    messages = sum(late.messages - early.messages for early, late in quiet)
    return 2 * workers * spent / max(1, messages), len(quiet)


def _span(early: Probe, late: Probe) -> str:
    return f"{late.time - early.time:.2f} s ({late.loop - early.loop:.2f} s CPU)"


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--grids", nargs="+", default=["25x40", "100x100"])
    parser.add_argument("--seconds", type=float, default=20.0, help="of a round; also timeouts")
    parser.add_argument("--profile", action="store_true", help="where the master's loop spends")
    options = parser.parse_args()
    columns = []
    # Each in a process of its own, so that memory and CPU are its own.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        for grid in options.grids:
            column = pool.submit(measure, grid, options.seconds, options.profile).result()
            columns.append(column)
    for number, label in enumerate(columns[0]):
        print("| " + " | ".join([label, *(column[label] for column in columns)]) + " |")
        if number == 0:
            print("|---" * (len(columns) + 1) + "|")


if __name__ == "__main__":
    main()
