"""A comparison from its words to its result: planned, carried out, continued, looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from remuda.compare.arms import Arm, parse_arms
from remuda.compare.folder import Comparison
from remuda.compare.jobs import Job
from remuda.compare.plan import PLAN, Plan, read_plan
from remuda.compare.prepare import Wish, plan_found, plan_training
from remuda.compare.result import Result
from remuda.compare.runner import Progress, Runner
from remuda.config import Config
from remuda.errors import ConfigError, RemudaError, StoreError
from remuda.files import LOCK, disk, is_locked, lock

BUSY = "another process is at work on this comparison; `remuda compare FOLDER` shows how far it is"
# What may be in a folder before its plan: pilot runs come first.
UNPLANNED = (LOCK, "pilots", "log.txt")


class Watcher:
    """Hears how a comparison goes; the terminal's view is one. This one does nothing."""

    def planned(self, comparison: Comparison, jobs: Sequence[Job]) -> None:
        """The plan is written, and these runs are left to do."""

    def said(self, message: str) -> None:
        """Something that is done before the plan, such as training an extractor."""

    def piloting(self, arm: str) -> None:
        """A short run measures what a round of this arm takes."""

    def changed(self, progress: Progress) -> None:
        """Some time has passed."""

    def over(self, job: Job, error: str | None) -> None:
        """A run is finished, or has failed for good."""


def is_comparison(path: Path) -> bool:
    return _exists(str(path / PLAN))


def _exists(name: str) -> bool:
    # Not Path.exists: an arm with many settings is longer than a file's name may be.
    return os.path.exists(name)  # noqa: PTH110


def fresh_folder() -> Path:
    """A new folder for a comparison: runs/compare-DATE-TIME."""
    return Path("runs") / f"compare-{datetime.now():%Y%m%d-%H%M%S}"


def plan(words: Sequence[str], wish: Wish, out: Path, watcher: Watcher) -> Comparison:
    """Plan a comparison in a folder, or find it planned there: the same, or with more seeds."""
    if len(words) == 1 and (_exists(words[0]) or os.sep in words[0]):
        raise StoreError(f"{words[0]}: not a comparison: it has no {PLAN}")
    arms = parse_arms(words)
    if out.exists() and not out.is_dir():
        raise StoreError(f"{out}: is not a folder")
    with _made(out), lock(out, BUSY):
        before = read_plan(out) if is_comparison(out) else None
        if before is None and any(path.name not in UNPLANNED for path in out.iterdir()):
            raise StoreError(
                f"{out}: not a comparison: it has no {PLAN}, and is not empty; allowed: a new "
                "folder, or one of a comparison"
            )
        wanted = _plan(arms, wish, out, watcher)
        if before is not None:
            before.check_same(wanted, out)
        found = Comparison(out, before or wanted)
        if before is None and wanted.found:
            found.measure_all()
            found.result(found.states())  # refuses runs that cannot be compared
        if before is None:
            found.create()
        elif wish.seeds is not None and not before.found:
            _extend(found, wish.seeds)
        return found


def add_seeds(comparison: Comparison, seeds: tuple[int, ...]) -> None:
    """Add seeds to a comparison that nobody is at work on."""
    with lock(comparison.path, BUSY):
        _extend(comparison, seeds)


def _extend(comparison: Comparison, seeds: tuple[int, ...]) -> None:
    """Add the seeds that are not planned yet; planned ones cannot be left out."""
    missing = sorted(set(comparison.plan.all_seeds) - set(seeds))
    if comparison.plan.found:
        raise ConfigError("--seeds: the runs of this comparison existed before; allowed: none")
    if missing and not set(seeds).isdisjoint(comparison.plan.all_seeds):
        raise ConfigError(
            f"--seeds: seed {missing[0]} is planned in {comparison.path}, and all runs are "
            "reported; allowed: the planned seeds and more"
        )
    comparison.add_seeds(seeds)


def carry_out(comparison: Comparison, watcher: Watcher, at_once: int | None = None) -> Result:
    """Train and measure what is left, and write the result; interrupted, nothing is lost."""
    with lock(comparison.path, BUSY):
        comparison.measure_all()
        jobs = comparison.jobs()
        watcher.planned(comparison, jobs)
        if not jobs:
            return comparison.write("finished")

        def over(job: Job) -> None:
            if job in runner.progress.finished:
                try:
                    comparison.measure(job)
                except RemudaError as error:
                    runner.progress.finished.discard(job)
                    runner.progress.failed[job] = " ".join(str(error).split())
            comparison.write("running", runner.progress)
            watcher.over(job, runner.progress.failed.get(job))

        if comparison.plan.budget and comparison.plan.budget.startswith("wall-seconds"):
            at_once = 1  # beside another run it would take longer
        runner = Runner(jobs, comparison.log, at_once=at_once, changed=watcher.changed, over=over)
        comparison.write("running", runner.progress)
        try:
            runner.run()
        except BaseException:
            runner.progress.running.clear()
            comparison.write("stopped", runner.progress)
            raise
        return comparison.write(
            "incomplete" if runner.progress.failed else "finished", runner.progress
        )


def is_at_work(path: Path) -> bool:
    """Whether a process is carrying out this comparison now."""
    return is_locked(path)


@contextmanager
def _made(out: Path) -> Iterator[None]:
    """Make a folder; if nothing is planned there after all, leave nothing behind."""
    there = out.exists()
    try:
        disk.make_folders(out)
    except OSError as error:
        raise StoreError(f"{out}: cannot make the folder: {error.strerror or error}") from None
    try:
        yield
    finally:
        left = {path.name for path in out.iterdir()}
        if not there and left <= {LOCK}:
            with suppress(OSError):
                disk.remove(out / LOCK)
                disk.remove_folder(out)


def _plan(arms: Sequence[Arm], wish: Wish, out: Path, watcher: Watcher) -> Plan:
    if arms[0].found:
        return plan_found(arms, wish)

    def pilot(name: str, config: Config) -> Path:
        path = out / "pilots" / name
        watcher.piloting(name)
        settings = config.model_dump(mode="json")
        settings["run"]["dir"] = str(path.absolute())
        job = Job(
            name,
            config.seed,
            path,
            Config.model_validate(settings),
            engine=wish.engine,
            workers=wish.workers,
        )
        runner = Runner([job], out / "log.txt", at_once=1)
        runner.run()
        for error in runner.progress.failed.values():
            raise StoreError(f"the pilot run of arm {name} failed: {error}")
        return path

    return plan_training(arms, wish, pilot, watcher.said)
