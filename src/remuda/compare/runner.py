"""Carries out the jobs of a comparison, several at a time where cores are free."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from remuda.compare.jobs import PATIENCE_SECONDS, Job
from remuda.compare.machine import FREE, IdleCores
from remuda.parallel.launch import usable_cores
from remuda.parallel.signals import stop_if_asked, stop_is_under_way

PROGRAM = (sys.executable, "-m", "remuda.compare.jobs")
ATTEMPTS = 3  # at a job whose process dies under it
_LOOK_SECONDS = 2.0  # between two looks at whether a core is free
_TICK_SECONDS = 0.2


@dataclass
class Progress:
    """How far the jobs are, and how long the rest will take."""

    jobs: Sequence[Job]
    rounds: dict[Job, int] = field(default_factory=dict)  # complete, of jobs that have begun
    finished: set[Job] = field(default_factory=set)
    failed: dict[Job, str] = field(default_factory=dict)
    running: list[Job] = field(default_factory=list)
    _seconds: dict[str, float] = field(default_factory=dict)  # spent on an arm's rounds
    _trained: dict[str, int] = field(default_factory=dict)  # rounds they were spent on
    _since: dict[Job, float] = field(default_factory=dict)

    def advance(self, job: Job, round: int) -> None:
        """A job has completed a round; the first word from it only says where it starts."""
        now = time.monotonic()
        before = self.rounds.get(job)
        if before is not None and round > before:
            self._seconds[job.arm] = self._seconds.get(job.arm, 0.0) + now - self._since[job]
            self._trained[job.arm] = self._trained.get(job.arm, 0) + round - before
        self.rounds[job], self._since[job] = round, now

    @property
    def share(self) -> float:
        """Of the rounds of all jobs; a job that is over counts whole."""
        over = self.finished | set(self.failed)
        done = sum(job.rounds if job in over else self.rounds.get(job, 0) for job in self.jobs)
        whole = sum(job.rounds for job in self.jobs)
        return done / whole if whole else len(over) / max(1, len(self.jobs))

    def seconds_left(self) -> float | None:
        """From the pace of each arm so far; an arm that has not begun is taken for the average."""
        trained = sum(self._trained.values())
        if not trained:
            return None
        average = sum(self._seconds.values()) / trained
        left = 0.0
        for job in self.jobs:
            if job in self.finished or job in self.failed:
                continue
            pace = self._seconds.get(job.arm, 0.0) / self._trained.get(job.arm, 1)
            left += (job.rounds - self.rounds.get(job, 0)) * (pace or average)
        return left / max(1, len(self.running))


class Worker:
    """A process that carries out jobs, and the job it is at."""

    def __init__(self, log: Path, program: Sequence[str]) -> None:
        self.job: Job | None = None
        self._unread = b""
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [*program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is ours to pass on
            )
        os.set_blocking(self.output.fileno(), False)

    @property
    def output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def give(self, job: Job) -> None:
        self.job = job
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: its output will end
            self._process.stdin.write(job.to_line().encode() + b"\n")
            self._process.stdin.flush()

    def answers(self) -> Iterator[dict[str, object] | None]:
        """What it has said since the last time; None once it is dead."""
        content = self.output.read()
        if content == b"":
            yield None
            return
        *lines, self._unread = (self._unread + (content or b"")).split(b"\n")
        for line in lines:
            # Anything else that reaches the pipe, such as a library's banner, is no answer.
            with contextlib.suppress(ValueError, RecursionError):
                answer = json.loads(line)
                if isinstance(answer, dict):
                    yield answer

    def stop(self) -> None:
        """Let it save and go."""
        with contextlib.suppress(OSError):
            self._process.terminate()

    def wait(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.output.close()


class Runner:
    """Keeps as many processes busy as there are free cores, until all jobs are over."""

    def __init__(
        self,
        jobs: Sequence[Job],
        log: Path,
        *,
        at_once: int | None = None,
        program: Sequence[str] = PROGRAM,
        changed: Callable[[Progress], None] = lambda _: None,
        over: Callable[[Job], None] = lambda _: None,
    ) -> None:
        self.progress = Progress(jobs)
        self._log = log
        self._at_once = at_once
        self._program = program
        self._changed = changed
        self._over = over
        self._waiting = deque(jobs)
        self._attempts: dict[Job, int] = {}
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        self._idle = IdleCores()

    def run(self) -> None:
        """Until every job is over; when interrupted, what is running saves and stops first."""
        try:
            self._start_worker()
            looked = time.monotonic()
            while self._waiting or self.progress.running:
                self._hand_out()
                for key, _ in self._selector.select(_TICK_SECONDS):
                    self._hear(key.data)
                if time.monotonic() - looked >= _LOOK_SECONDS:
                    looked = time.monotonic()
                    self._grow()
                self._changed(self.progress)
                stop_if_asked()
        except BaseException:
            stop_is_under_way()
            for worker in self._workers:
                worker.stop()
            raise
        finally:
            for worker in self._workers:
                worker.wait()
            self._selector.close()

    def _start_worker(self) -> None:
        worker = Worker(self._log, self._program)
        self._workers.append(worker)
        self._selector.register(worker.output, selectors.EVENT_READ, worker)

    def _grow(self) -> None:
        """Start another process if a job waits for one and a core is free."""
        cores = max((job.cores for job in self._waiting), default=1)
        most = self._at_once or max(1, usable_cores() // cores)
        idle = self._idle.look()
        wanted = self._waiting and len(self._workers) < most
        if wanted and (self._at_once or idle >= FREE * cores):
            self._start_worker()

    def _hand_out(self) -> None:
        for worker in self._workers:
            if worker.job is None and self._waiting:
                job = self._waiting.popleft()
                self.progress.running.append(job)
                worker.give(job)

    def _hear(self, worker: Worker) -> None:
        for answer in worker.answers():
            if answer is None:
                self._lose(worker)
                return
            job = worker.job
            if job is None:
                continue
            if "round" in answer:
                self.progress.advance(job, int(str(answer["round"])))
                continue
            if not answer.keys() & {"done", "failed"}:
                continue
            worker.job = None
            self.progress.running.remove(job)
            if "failed" in answer:
                self.progress.failed[job] = str(answer["failed"])
            else:
                self.progress.finished.add(job)
            self._over(job)

    def _lose(self, worker: Worker) -> None:
        """Its process is dead: another takes the job up again, but not for ever."""
        self._selector.unregister(worker.output)
        self._workers.remove(worker)
        worker.wait()
        if worker.job is not None:
            job = worker.job
            self.progress.running.remove(job)
            self._attempts[job] = self._attempts.get(job, 0) + 1
            if self._attempts[job] < ATTEMPTS:
                self._waiting.appendleft(job)
            else:
                self.progress.failed[job] = f"its process died {ATTEMPTS} times; see {self._log}"
                self._over(job)
        if not self._workers:
            self._start_worker()
