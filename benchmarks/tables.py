"""Tables III and IV of Perez et al. (2020) for the cores at hand: one worker against all of them.

Table III: executions of 2x2, 3x3 and 4x4 grids of the article's networks, single and distributed by
turns, with shortened rounds. The first round is left out, because it holds what a worker does once;
start-up and result are shown apart. An efficiency is the speed-up over the number of workers. What
can be reached at all is less: nine cells do not divide by two, and two processes that share nothing
but the machine slow each other down (measured in the same run). "Work" is the workers' CPU time
when distributed over that of the single one, and means something on a busy machine too.

Table IV: a round of full length on the largest grid, by routine, from the workers' own clocks.
Distributed means per worker.

    python -m benchmarks.tables [--quick] [--workers 2] [--repeat 10] [--singles 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measuring import print_table, publish
from benchmarks.scaling import ceiling
from remuda.config import load_config
from remuda.methods import Mixture, RoundReport
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.parallel.launch import usable_cores
from remuda.parallel.observer import Observer
from remuda.runs.alarms import Alarm

# Minutes of a single core and of the cores given, with their number; the ± is the article's.
TABLE_III = {
    "2x2": (339.6, "39.81±0.01", 5, 8.53),
    "3x3": (999.5, "73.24±2.56", 10, 13.65),
    "4x4": (1920.0, "126.68±3.42", 17, 15.17),
}
# Minutes by routine on a 4x4 grid, single and distributed. They are 27 % and 77 % of Table III's.
TABLE_IV = {
    "gather": (19.4, 19.4),
    "train": (264.9, 43.8),
    "update_genomes": (199.8, 16.8),
    "mutate": (25.6, 17.9),
}
FULL_ROUND = 600  # batches: an epoch of MNIST


@dataclass
class Execution(Observer):
    """The rounds of one run after the first few: wall-clock seconds, and the workers' own."""

    skipped: int = 1
    seconds: list[float] = field(default_factory=list)
    before: float = 0.0  # of the rounds that were skipped
    whole: float = 0.0
    cpu: float = 0.0
    routines: Counter[str] = field(default_factory=Counter)

    def reported(self, report: RoundReport, alarms: list[Alarm]) -> None:
        if report.round > self.skipped:
            self.cpu += report.cpu_seconds
            self.routines.update(report.seconds)

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        if round > self.skipped:
            self.seconds.append(seconds)
        else:
            self.before += seconds

    @property
    def per_round(self) -> float:
        return statistics.mean(self.seconds)

    @property
    def beside(self) -> float:
        """Seconds of start-up and result."""
        return self.whole - self.before - sum(self.seconds)


def execute(grid: str, workers: int, rounds: int, batches: int, skipped: int = 1) -> Execution:
    """One run of the article's cells."""
    found = Execution(skipped)
    with tempfile.TemporaryDirectory() as folder:
        settings = ["data=digits", f"grid={grid}", f"rounds={rounds}", "run.sheet_every=0"]
        settings += [f"training.batches_per_round={batches}", f"run.dir={Path(folder) / 'run'}"]
        config = load_config("cellular-mnist-paper", settings)
        begun = time.perf_counter()
        training.train(config, found, engine=Engine("process", workers))
        found.whole = time.perf_counter() - begun
    return found


# ---------------------------------------------------------------------------- Table III

Executions = dict[str, list[Execution]]  # by grid


def times(executions: Sequence[Execution]) -> dict[str, float]:
    seconds = [one.per_round for one in executions]
    deviation = statistics.stdev(seconds) if len(seconds) > 1 else 0.0
    return {
        "mean_s": statistics.mean(seconds),
        "median_s": statistics.median(seconds),
        "deviation_s": deviation,
        "executions": len(seconds),
        "start_and_result_s": statistics.mean(one.beside for one in executions),
        "cpu_s": statistics.mean(one.cpu / len(one.seconds) for one in executions),
    }


def table_iii(options: argparse.Namespace, one: Executions, many: Executions) -> dict[str, Any]:
    """All grids by turns; the single executions are spread over the run."""
    workers, grids = options.workers, options.grids
    limits: list[float] = []
    for turn in range(options.repeat):
        # As many turns as there are single executions to do, evenly spaced, have one.
        is_single_due = turn * options.singles % options.repeat < options.singles
        for grid in grids:
            if is_single_due:
                one.setdefault(grid, []).append(execute(grid, 1, options.rounds, options.batches))
            many.setdefault(grid, []).append(
                execute(grid, workers, options.rounds, options.batches)
            )
        if is_single_due:
            alone, crowded = ceiling(workers, 2 * options.batches)
            limits.append(workers * alone / crowded)
    rows = {}
    for grid in grids:
        count = load_config("cellular-mnist-paper", [f"grid={grid}"]).cells
        single_times, many_times = times(one[grid]), times(many[grid])
        speed_up = single_times["mean_s"] / many_times["mean_s"]
        rows[grid] = {
            "single": single_times,
            "distributed": many_times,
            "speed_up": speed_up,
            "efficiency": speed_up / workers,
            "median_efficiency": single_times["median_s"] / many_times["median_s"] / workers,
            "possible_efficiency": count / (workers * -(-count // workers)),
            "work": many_times["cpu_s"] / single_times["cpu_s"],
        }
    return {
        "workers": workers,
        "batches_per_round": options.batches,
        "speed_up_of_processes_that_share_nothing": statistics.median(limits),
        "grids": rows,
    }


def print_table_iii(found: dict[str, Any]) -> None:
    workers, limit = found["workers"], found["speed_up_of_processes_that_share_nothing"]
    rows = []
    for grid, row in found["grids"].items():
        one, many = row["single"], row["distributed"]
        single, distributed, cores, speed_up = TABLE_III[grid]
        rows.append(
            [
                grid,
                f"{one['mean_s']:.2f}±{one['deviation_s']:.2f}",
                f"{many['mean_s']:.2f}±{many['deviation_s']:.2f}",
                f"{row['speed_up']:.2f}",
                f"{row['efficiency']:.2f}",
                f"{row['median_efficiency']:.2f}",
                f"{row['possible_efficiency']:.2f}",
                f"{row['speed_up'] / limit:.2f}",
                f"{row['work']:.2f}",
                f"{many['start_and_result_s']:.1f}",
                f"{single:.0f}",
                distributed,
                f"{speed_up} on {cores}",
                f"{speed_up / cores:.2f}",
            ]
        )
    executions = found["grids"][rows[0][0]]
    title = (
        f"Table III: seconds of a round of {found['batches_per_round']} batches per cell; "
        f"{executions['single']['executions']} single and "
        f"{executions['distributed']['executions']} distributed executions, {workers} workers; "
        f"processes that share nothing: speed-up {limit:.2f}"
    )
    head = ["grid", "single", "distributed", "speed-up", "efficiency", "of medians", "at most"]
    head += ["of shared-nothing", "work", "start+result"]
    head += ["article: single (min)", "distributed", "speed-up", "efficiency"]
    print_table(title, head, rows)


# ---------------------------------------------------------------------------- Table IV


def table_iv(
    grid: str, workers: int, batches: int, one: Execution, many: Execution
) -> dict[str, Any]:
    """Seconds by routine of a round, summed over cells."""
    count = len(one.seconds)
    routines = {
        name: {"single_s": one.routines[name] / count, "distributed_s": spent / workers / count}
        for name, spent in many.routines.most_common()
    }
    return {
        "grid": grid,
        "batches_per_round": batches,
        "workers": workers,
        "work": many.cpu / one.cpu,
        "routines": routines,
    }


def print_table_iv(found: dict[str, Any]) -> None:
    routines = found["routines"]
    sums = {
        kind: sum(row[kind] for row in routines.values()) for kind in ("single_s", "distributed_s")
    }
    rows: list[list[object]] = []
    for name, row in {**routines, "overall": sums}.items():
        single, distributed = row["single_s"], row["distributed_s"]
        theirs = TABLE_IV.get(name)
        rows.append(
            [
                name,
                f"{single:.3f}",
                f"{distributed:.3f}",
                f"{single / distributed:.2f}" if distributed > 0 else "",
                f"{single / sums['single_s']:.1%}",
                f"{distributed / sums['distributed_s']:.1%}",
                *((f"{part:.1f}" for part in theirs) if theirs else ("", "")),
                f"{theirs[0] / theirs[1]:.2f}" if theirs else "",
            ]
        )
    title = (
        f"Table IV: {found['grid']}, seconds of a round of {found['batches_per_round']} batches "
        f"per cell by routine; {found['workers']} workers, work {found['work']:.2f}"
    )
    head = ["routine", "single", "distributed", "speed-up", "share of single", "of distributed"]
    print_table(title, [*head, "article: single (min)", "distributed", "speed-up"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--repeat", type=int, default=10, help="distributed executions")
    parser.add_argument("--singles", type=int, default=3, help="single ones")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--grids", nargs="+", default=list(TABLE_III), choices=list(TABLE_III))
    options = parser.parse_args()
    if options.quick:
        options.repeat = options.singles = 1
        options.batches, options.grids = 40, ["2x2"]
    one: Executions = {}
    many: Executions = {}
    found = table_iii(options, one, many)
    print_table_iii(found)
    grid, workers, batches = options.grids[-1], options.workers, options.batches
    pair = one[grid][-1], many[grid][-1]
    if not options.quick:
        batches = FULL_ROUND
        pair = execute(grid, 1, 1, batches, 0), execute(grid, workers, 1, batches, 0)
    by_routine = table_iv(grid, workers, batches, *pair)
    print_table_iv(by_routine)
    publish("tables", {"table_iii": found, "table_iv": by_routine}, quick=options.quick)


if __name__ == "__main__":
    main()
