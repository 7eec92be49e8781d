"""What the user sees while a comparison is carried out: a bar, or plain lines."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from remuda.cli.tables import verbatim
from remuda.cli.view import duration
from remuda.compare import runner
from remuda.compare.folder import Comparison
from remuda.compare.jobs import Job
from remuda.compare.session import Watcher

_LINE_SECONDS = 30.0  # between two lines where there is no terminal


class CompareView(Watcher):
    """A line per finished run, and in between how far it is and how long it will take."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._count = 0
        self._over = 0
        self._started = 0.0
        self._last = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),  # the names of arms
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=1.0, left="")

    def planned(self, comparison: Comparison, jobs: Sequence[Job]) -> None:
        whole = len(comparison.states())
        self._count, self._over = whole, whole - len(jobs)
        self._started = time.monotonic()
        self._say(f"{comparison.heading}: plan in {comparison.path / 'plan.json'}")
        if self._over:
            self._say(f"{self._over} of {whole} runs are finished already")
        if jobs:
            rounds = sum(job.rounds for job in jobs)
            runs = "1 run" if len(jobs) == 1 else f"{len(jobs)} runs"
            self._say(f"{runs} to do, {rounds:,} rounds in all")
            self._bar.start()

    def said(self, message: str) -> None:
        self._say(message)

    def piloting(self, arm: str) -> None:
        self._say(f"a short run measures what a round of {arm} takes")

    def changed(self, progress: runner.Progress) -> None:
        now = ", ".join(
            f"{job.arm} seed {job.seed} {progress.rounds.get(job, 0)}/{job.rounds}"
            for job in progress.running
        )
        seconds = progress.seconds_left()
        left = "" if seconds is None else f"left {duration(seconds)}"
        over = f"{self._over} of {self._count} runs"
        if self._console.is_terminal:
            self._bar.update(
                self._task, completed=progress.share, description=f"{over}; {now}", left=left
            )
        elif time.monotonic() - self._last > _LINE_SECONDS:
            self._say(f"{over}, {progress.share:.0%}; now {now}; {left}")

    def over(self, job: Job, error: str | None) -> None:
        self._over += 1
        outcome = "finished" if error is None else f"failed: {error}"
        self._say(f"{self._over} of {self._count} runs; {job.arm} seed {job.seed} {outcome}")

    def close(self) -> None:
        self._bar.stop()

    def _say(self, line: str) -> None:
        self._last = time.monotonic()
        self._console.print(verbatim(line), soft_wrap=True)
