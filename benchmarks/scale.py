"""How time and memory of one run grow with its cells and its rounds.

Three runs of tiny cells (points, networks of four units, two batches of 16) on two workers:

- a grid of 32x32 cells, beside one of 8x8: what a cell and round cost on either;
- 1,000 GAP members, beside 50 of them. What a member remembers grows with everybody it meets, which
  no short run shows, so what that costs is timed by itself;
- 10,000 rounds of two cells: the last tenth beside the first.

Times are CPU milliseconds per cell and round: of the master (events, reduction, manifest,
retention) and of the workers (everything). Memory is what a process does not share with others.

    python -m benchmarks.scale [--quick]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measuring import Times, interleave, print_table, publish
from remuda.config import Config, validate
from remuda.gan.parcels import Parcel, decode_parcel
from remuda.methods import CellState, Mixture, RoundReport, diversity
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import WorkerStatus
from remuda.runs.alarms import Alarm

WORKERS = 2
PARTS = 10  # of a run: the first, which warms up, is left out


@dataclass
class Course(Observer):
    """What every round of a run took, and how large its processes were."""

    wall: list[float] = field(default_factory=list)
    workers: list[float] = field(default_factory=list)  # CPU seconds
    clock: list[float] = field(default_factory=list)  # the master's CPU seconds so far
    memory: list[tuple[int, int]] = field(default_factory=list)  # of the master, of all workers
    whole: float = 0.0
    event_bytes: int = 0
    _cpu: dict[int, float] = field(default_factory=dict)
    _pids: list[int] = field(default_factory=list)

    def workers_seen(self, workers: Any) -> None:
        seen: list[WorkerStatus] = list(workers)
        self._pids = [worker.pid for worker in seen]

    def reported(self, report: RoundReport, alarms: list[Alarm]) -> None:
        self._cpu[report.round] = self._cpu.get(report.round, 0.0) + report.cpu_seconds

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        self.wall.append(seconds)
        self.clock.append(time.process_time())
        self.workers.append(self._cpu.pop(round))
        # Not in every round: reading what the system says of a process is not free either.
        pids = self._pids if len(self.wall) % max(1, len(self.wall) // 100) == 0 else []
        if pids:
            self.memory.append((private(os.getpid()), sum(map(private, pids))))


def private(pid: int) -> int:
    """The bytes of a process that it does not share with others; 0 when it is gone."""
    try:
        resident, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
    except OSError:
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def tiny(folder: Path, shape: str, rounds: int, method: str, checkpoint_every: int) -> Config:
    return validate(
        {
            "rounds": rounds,
            "data": {"source": "mog25"},
            "network": {"family": "mlp", "latent": 2, "hidden": [4]},
            "training": {"batch_size": 16, "batches_per_round": 2},
            "grid": {"shape": shape},
            "method": {"name": method},
            "score": {"samples": 100, "final_samples": 100},
            "run": {
                "dir": str(folder / "run"),
                "sheet_every": 0,
                "checkpoint_every": checkpoint_every,
            },
        }
    )


def follow(shape: str, rounds: int, method: str = "cellular", checkpoint_every: int = 1) -> Course:
    """One run from start to result."""
    course = Course()
    with tempfile.TemporaryDirectory() as folder:
        config = tiny(Path(folder), shape, rounds, method, checkpoint_every)
        begun = time.perf_counter()
        training.train(config, course, engine=Engine("process", WORKERS))
        course.whole = time.perf_counter() - begun
        course.event_bytes = (Path(folder) / "run" / "events.jsonl").stat().st_size
    return course


def part(course: Course, cells: int, first: int, last: int) -> dict[str, float]:
    """CPU milliseconds per cell and round between two rounds, medians where there are several."""
    rounds = range(max(1, first), last)
    master = [course.clock[at] - course.clock[at - 1] for at in rounds]
    per = 1e3 / cells
    return {
        "master_ms": per * statistics.median(master),
        "master_mean_ms": per * statistics.mean(master),
        "workers_ms": per * statistics.median(course.workers[at] for at in rounds),
        "wall_ms": per * statistics.median(course.wall[at] for at in rounds),
    }


def memory(course: Course, last: bool) -> dict[str, float]:
    """Megabytes early or late in a run; early is after a tenth, when all is warm."""
    found = course.memory or [(0, 0)]
    master, workers = found[-1 if last else len(found) // PARTS]
    return {"master_mb": master / 1e6, "workers_mb": workers / 1e6}


# ---------------------------------------------------------------------------- the three questions


def against_cells(
    small: tuple[str, int], large: tuple[str, int], rounds: int, method: str, every: int
) -> dict[str, Any]:
    """The same cells in a small and in a large population; the small one before and after."""
    more = rounds * max(1, large[1] // small[1] // 8)
    first, found, again = (
        _population(shape, cells, length, method, every)
        for (shape, cells), length in ((small, more), (large, rounds), (small, more))
    )
    mean = {name: statistics.mean((value, again[name])) for name, value in first.items()}
    return {"small": mean, "large": found, "small_before": first, "small_after": again}


def _population(
    shape: str, cells: int, rounds: int, method: str, checkpoint_every: int
) -> dict[str, float]:
    course = follow(shape, rounds, method, checkpoint_every)
    return {
        "cells": cells,
        "rounds": rounds,
        # The last round draws pictures, and the first few wait for what is loaded only once.
        **part(course, cells, rounds // 3, rounds - 1),
        **memory(course, last=True),
        "event_bytes": course.event_bytes / cells / rounds,
        "whole_s": course.whole,
    }


def against_rounds(shape: str, cells: int, rounds: int, every: int) -> dict[str, Any]:
    """The second tenth of a long run, and its last."""
    course = follow(shape, rounds, checkpoint_every=every)
    tenth = max(2, rounds // PARTS)
    early = {**part(course, cells, tenth, 2 * tenth), **memory(course, last=False)}
    late = {**part(course, cells, rounds - tenth, rounds - 1), **memory(course, last=True)}
    return {
        "cells": cells,
        "rounds": rounds,
        "early": early,
        "late": late,
        "event_bytes": course.event_bytes / cells / rounds,
        "whole_s": course.whole,
    }


def against_meetings(repeat: int) -> dict[str, Any]:
    """What a member's memory of whom it met costs in a round, at both ends of the exchange."""
    known = {
        count: CellState(lineage="7", met=sorted(map(str, range(count)))) for count in (1, 1000)
    }

    def round_of(state: CellState) -> None:
        for _ in range(100):
            assert state.met is not None
            state.met = sorted({*state.met, "0"})
            content = Parcel(3, 9, {}, {"memory": state.to_json()}).encoded
            diversity({3: decode_parcel(content)})

    cases = {str(count): (lambda state=state: round_of(state)) for count, state in known.items()}
    times: dict[str, Times] = interleave(cases, repeat)
    return {f"met_{count}": found.to_json(100) for count, found in times.items()}


def show_growth(
    title: str, before: dict[str, Any], after: dict[str, Any], names: list[str]
) -> None:
    rows = [
        [name.replace("_", " "), before[name], after[name], after[name] / before[name]]
        for name in names
        if before[name]
    ]
    print_table(title, ["", "before", "after", "ratio"], rows)


TIMES = ["master_ms", "workers_ms", "wall_ms"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=10_000, help="of the long run")
    options = parser.parse_args()
    quick = options.quick
    figures: dict[str, Any] = {}
    plans = {
        "grid": (("8x8", 64), ("32x32", 1024), 6, "cellular", 1),
        "gap": (("1x50", 50), ("1x1000", 1000), 6, "gap", 1),
    }
    if quick:
        plans = {"grid": (("3x3", 9), ("6x6", 36), 8, "cellular", 1)}
    for name, plan in plans.items():
        found = figures[name] = against_cells(*plan)
        small, large = found["small"], found["large"]
        title = f"{plan[3]}: {small['cells']:.0f} cells, and {large['cells']}; per cell and round"
        show_growth(title, small, large, [*TIMES, "event_bytes"])
        more = large["cells"] - small["cells"]
        for who in ("master_mb", "workers_mb"):
            grown = 1e3 * (large[who] - small[who]) / more
            print(f"{who.removesuffix('_mb')}: {grown:.1f} kB of memory for each further cell")
    figures["meetings"] = against_meetings(3 if quick else 10)
    one, thousand = figures["meetings"]["met_1"], figures["meetings"]["met_1000"]
    show_growth("a GAP member's memory: one met, and 1,000; per round", one, thousand, list(one))
    rounds = 100 if quick else options.rounds
    long = figures["rounds"] = against_rounds("1x2", 2, rounds, 1 if quick else 10)
    title = f"{rounds:,} rounds of 2 cells: the second tenth, and the last; per cell and round"
    sizes = ["master_mb", "workers_mb"]
    show_growth(title, long["early"], long["late"], [*TIMES, "master_mean_ms", *sizes])
    publish("scale", figures, quick=quick)


if __name__ == "__main__":
    main()
