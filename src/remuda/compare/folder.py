"""The folder of a comparison: its plan, its runs, and what they came to.

plan.json                  arms, seeds, budget and the score that decides, written before the runs
arms/NAME.yaml             the whole configuration of an arm: `remuda train arms/NAME.yaml seed=3`
runs/NAME-seed-3/          the run of an arm with a seed, a run folder like any other
pilots/NAME/               the short run that turned a budget of seconds into rounds
scores/NAME-seed-3.json    scores measured after a run (--metrics)
compare.json               the result so far: always whole, rewritten after every run
runs.csv, pairs.csv, compare.md, figures/
log.txt                    what the processes that trained had to say
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.compare.cautions import cautions
from remuda.compare.jobs import Job, begun_run, kept_scores
from remuda.compare.measure import Measured, check_alike, measure
from remuda.compare.plan import (
    PLAN,
    Plan,
    PlannedArm,
    now,
    read_plan,
    settings_that_differ,
    write_plan,
)
from remuda.compare.result import Result, Score, analyse, to_json
from remuda.compare.runner import Progress
from remuda.compare.words import added_seeds, markdown, pairs_csv, runs_csv, verdicts
from remuda.config import render, validate
from remuda.errors import StoreError
from remuda.files import VERSION, write_atomically, write_json
from remuda.metrics import METRICS, check_metrics
from remuda.runs.store import RunFolder

RESULT = "compare.json"


class Comparison:
    """One comparison on disk."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan
        self.last_states: list[dict[str, Any]] = []  # of all runs, when last written
        self._measured: dict[tuple[str, int], Measured] = {}

    @classmethod
    def open(cls, path: Path) -> Comparison:
        found = cls(path, read_plan(path))
        known = [score.name for score in found.scores]
        for key in ("score", "live"):
            value = getattr(found.plan, key)
            if value not in known:
                raise StoreError(
                    f"{path / PLAN}: {key}={value}: no such score; allowed: {', '.join(known)}"
                )
        check_metrics(found.plan.metrics)
        return found

    def create(self) -> None:
        """Write the plan, before any run; everything that repeats it is in the folder."""
        for arm in self.plan.arms:
            config = validate({**arm.config, "seed": self.plan.seeds[0]})
            write_atomically(self.path / "arms" / f"{arm.name}.yaml", render(config).encode())
        write_plan(self.path, self.plan)

    def add_seeds(self, seeds: tuple[int, ...]) -> None:
        """Plan more seeds, with a note of when; those of the plan stay."""
        self.plan = self.plan.with_seeds(seeds)
        write_plan(self.path, self.plan)

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    # -------------------------------------------------------------------------- runs

    def seeds_of(self, arm: PlannedArm) -> list[int]:
        return [int(seed) for seed in arm.runs] if self.plan.found else self.plan.all_seeds

    def run_path(self, arm: PlannedArm, seed: int) -> Path:
        if self.plan.found:
            return Path(arm.runs[str(seed)])
        return self.path / "runs" / f"{arm.name}-seed-{seed}"

    def scores_path(self, arm: str, seed: int) -> Path:
        return self.path / "scores" / f"{arm}-seed-{seed}.json"

    def jobs(self) -> list[Job]:
        """All runs that are to be trained or measured; arms in turn, so that seeds are complete."""
        found = []
        for seed in sorted({seed for arm in self.plan.arms for seed in self.seeds_of(arm)}):
            for arm in self.plan.arms:
                if seed in self.seeds_of(arm) and not self._is_over(arm, seed):
                    found.append(self._job(arm, seed))
        return found

    def _job(self, arm: PlannedArm, seed: int) -> Job:
        path = self.run_path(arm, seed)
        return Job(
            arm.name,
            seed,
            path,
            None if self.plan.found else arm.settings(seed, path.absolute()),
            tuple(self.plan.metrics),
            self.scores_path(arm.name, seed) if self.plan.metrics else None,
            self.plan.engine,
            self.plan.workers,
            self.plan.data_dir,
            self.plan.data,
        )

    def _is_over(self, arm: PlannedArm, seed: int) -> bool:
        if self.plan.found and not self.plan.metrics:
            return True
        return (arm.name, seed) in self._measured

    # -------------------------------------------------------------------------- results

    def measure(self, job: Job) -> None:
        """Read a run that is over."""
        again = None if job.scores is None else kept_scores(job.scores, job.path, job.metrics)
        found = measure(job.arm, job.seed, job.path, again, self.live.name)
        self._measured[job.arm, job.seed] = found

    def measure_all(self) -> None:
        """Read all runs that exist and are finished."""
        for arm in self.plan.arms:
            for seed in self.seeds_of(arm):
                job = self._job(arm, seed)
                if not (job.path / "result.json").is_file() and not self.plan.found:
                    continue
                if job.config is not None:
                    begun_run(job.config, job.path)  # refuses a run of other settings
                if job.scores is None or kept_scores(job.scores, job.path, job.metrics):
                    self.measure(job)

    @property
    def scores(self) -> list[Score]:
        """All that runs may be compared by; the one that decides comes first."""
        found = [
            Score(name, _title(metric.title, name, metric.name), higher)
            for metric in METRICS.values()
            for name, higher in metric.compared.items()
        ]
        return sorted(found, key=lambda score: score.name != self.plan.score)

    @property
    def live(self) -> Score:
        """What a run is scored by after every round."""
        live = next(score for score in self.scores if score.name == self.plan.live)
        return replace(live, title=f"{live.title} while training")

    def result(self, states: list[dict[str, Any]]) -> Result:
        """The comparison as far as it is; refuses scores that cannot be compared."""
        runs = [self._measured[key] for key in sorted(self._measured)]
        check_alike(runs)
        found = analyse(self.plan, runs, self.scores, self.live)
        return replace(found, warnings=cautions(found, states))

    def states(self, progress: Progress | None = None) -> list[dict[str, Any]]:
        """All runs of the plan, whatever became of them."""
        failed = {} if progress is None else progress.failed
        errors = {(job.arm, job.seed): error for job, error in failed.items()}
        running = {(job.arm, job.seed) for job in progress.running} if progress else set()
        added = {seed for more in self.plan.additions for seed in more.seeds}
        found = []
        for arm in self.plan.arms:
            for seed in self.seeds_of(arm):
                key = arm.name, seed
                state = (
                    "finished"
                    if key in self._measured
                    else "failed"
                    if key in errors
                    else "running"
                    if key in running
                    else "waiting"
                )
                found.append(self._state(arm, seed, state, errors.get(key), seed in added))
        return found

    def _state(
        self, arm: PlannedArm, seed: int, state: str, error: str | None, added: bool
    ) -> dict[str, Any]:
        run, path = self._measured.get((arm.name, seed)), self.run_path(arm, seed)
        inside = path.is_relative_to(self.path)
        return {
            "arm": arm.name,
            "seed": seed,
            "state": state,
            "added": added,
            "error": error,
            "path": str(path.relative_to(self.path) if inside else path),
            "scores": run.values if run else None,
            "costs": run.costs if run else None,
        }

    def at_work(self) -> list[str]:
        """How far the runs are that are being trained by another process."""
        lines = []
        for job in self.jobs():
            status = RunFolder(job.path).status()
            if status is not None:
                done = f"{status.completed} of {status.rounds} rounds"
                lines.append(f"{job.arm} seed {job.seed}: {done}")
        return [*lines, f"{len(self.jobs())} runs are left in all"]

    def write(self, state: str, progress: Progress | None = None) -> Result:
        """Everything but the figures; a reader always finds a whole compare.json."""
        states = self.last_states = self.states(progress)
        result = self.result(states)
        finished = sum(one["state"] == "finished" for one in states)
        write_json(
            self.path / RESULT,
            {
                "format": 1,
                "remuda": VERSION,
                "written": now(),
                "state": state,
                "process": os.getpid() if state == "running" else None,
                "finished_runs": finished,
                "all_runs": len(states),
                "verdicts": verdicts(result),
                "cautions": list(result.warnings),
                "added_seeds": added_seeds(result),
                "decides": self.plan.score,
                "scored": self.scored_by(),
                "settings_that_differ": settings_that_differ(self.plan.arms),
                **to_json(result),
                "runs": states,
                "pilots": [str(path) for path in self._pilots()],
                "plan": self.plan.model_dump(mode="json"),
            },
        )
        page = markdown(result, self.heading, self.facts(finished, len(states)))
        for name, text in (
            ("compare.md", page),
            ("runs.csv", runs_csv(result, states)),
            ("pairs.csv", pairs_csv(result)),
        ):
            write_atomically(self.path / name, text.encode())
        return result

    @property
    def heading(self) -> str:
        return " against ".join(arm.name for arm in self.plan.arms)

    def facts(self, finished: int, runs: int) -> list[str]:
        """What was compared, in a few lines."""
        budget = f"budget {self.plan.budget} per run" if self.plan.budget else "no common budget"
        scored = self.scored_by()
        lines = [
            f"{finished} of {runs} runs, seeds {_ranges(self.plan.all_seeds)}, {budget}",
            f"planned on {self.plan.written}; {self.plan.score} decides",
        ]
        if scored:
            by = "of "
            if scored["extractor"]:
                by = f"by {scored['extractor']}, inputs in {scored['scaling']}, "
            count = f"{int(scored['samples'] or 0):,}"
            lines.append(f"scores {by}{count} samples against {scored['real']}")
        return lines

    def scored_by(self) -> Mapping[str, str] | None:
        """What all scores depend on."""
        return next((run.depends_on for run in self._measured.values()), None)

    def _pilots(self) -> list[Path]:
        paths = sorted((self.path / "pilots").glob("*/config.yaml"))
        return [path.parent.relative_to(self.path) for path in paths]


def _title(title: str, value: str, metric: str) -> str:
    return title if value == metric else value.replace("_", " ")


def _ranges(seeds: list[int]) -> str:
    """0 to 9, or a list where there are gaps."""
    first, last = min(seeds), max(seeds)
    if 2 < len(seeds) == len(set(seeds)) == last - first + 1:
        return f"{first} to {last}"
    return ", ".join(map(str, sorted(seeds)))
