"""Weak and strong efficiency on up to 1,024 workers, predicted from what is measured here.

Measured: a cell's round of `cellular-mnist-paper` (CPU seconds, and how they vary), its parcels,
the master's CPU per report, per heartbeat and per cell of a reduction. From these the rounds are
played through, cell by cell: a cell starts when its worker is free, when its neighbours' parcels of
the round before have come, and when the round before that is complete; a round is complete when the
master, which does one thing at a time, has dealt with all reports and reduced them.

The master's part is checked against the real master with simulated workers (`simulate.py`): what a
report and a heartbeat cost is taken from 256 of them and predicted for the other numbers.

    python -m benchmarks.predict [--quick] [--bandwidth 1.25e9] [--spread 0.02]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import print_table, publish
from benchmarks.simulate import Notes, Plan, heartbeat_cpu, simulate, simulated_config
from remuda.config import load_config
from remuda.config.geometry import Grid
from remuda.methods import RoundReport, diversity
from remuda.parallel import training
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import Capacity, Timeouts, may_start, place
from remuda.runs.alarms import Alarm
from remuda.runs.prepare import Run
from remuda.runs.threads import threads

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
ROUNDS = 30
BEAT_SECONDS = Timeouts().interval
SHORT_BEAT = 0.2


@dataclass(frozen=True)
class Steps:
    """Seconds of the steps of a run."""

    cell_round: float
    spread: float  # standard deviation of a cell's rounds over their mean
    exchange: float  # of a cell's parcels, in and out
    report: float  # master's CPU: message, event, manifest entry, go-ahead
    beat: float  # master's CPU: a question and an answer of one worker
    reduction: float  # master's CPU, per cell

    @property
    def per_cell(self) -> float:
        """The master's work for a cell and round beside heartbeats."""
        return self.report + self.reduction


ASSUMPTIONS = (
    "one core per worker and one for the master; all cores are as fast as the one measured",
    "training does not slow down when all cores of a host are busy (memory, clock rate)",
    "a cell's rounds vary independently, normally, by the spread given; no worker is always slower",
    "parcels are received before a round begins, not beside it, at the bandwidth given per worker",
    "every parcel comes from another host; a message's own delay counts for nothing",
    "the file system takes all checkpoints at the speed measured here (see GB/s of checkpoints)",
    "start-up, result, and lost workers are left out",
)


# ---------------------------------------------------------------------------- measuring


class _Rounds(Observer):
    def __init__(self) -> None:
        self.reports: list[RoundReport] = []

    def reported(self, report: RoundReport, alarms: list[Alarm]) -> None:
        if report.round > 1:
            self.reports.append(report)


def measure_cells(rounds: int, batches: int) -> tuple[float, float, dict[str, float]]:
    """Mean and spread of a cell's CPU seconds per round on one worker, and its bytes."""
    found = _Rounds()
    with tempfile.TemporaryDirectory() as folder:
        settings = ["data=digits", "grid=3x3", f"rounds={rounds + 1}", "run.sheet_every=0"]
        settings += [f"training.batches_per_round={batches}", f"run.dir={Path(folder) / 'run'}"]
        training.train(load_config("cellular-mnist-paper", settings), found)
    cpu = [report.cpu_seconds for report in found.reports]
    traffic = {
        kind: statistics.mean(report.bytes[kind] for report in found.reports)
        for kind in ("gathered", "published", "saved")
    }
    # All in one process, so the master's work counts too, but no waiting does.
    return statistics.mean(cpu), statistics.stdev(cpu) / statistics.mean(cpu), traffic


def measure_reduction(shape: str, repeat: int) -> float:
    """The master's CPU seconds per cell for the mixture and diversity of a scored round."""
    settings = ["data=digits", f"grid={shape}", "training.batches_per_round=1"]
    config = load_config("cellular-mnist-paper", settings)
    with threads(config.threads):
        run = Run.prepare(config)
        parcels = {index: run.cell(index).parcel() for index in range(config.cells)}
    times = []
    with threads(run.config.threads):  # as the master does; threads that wait count as CPU time
        for _ in range(repeat):
            begun = time.process_time()
            run.method.ensemble(parcels, run.scorer)
            diversity(parcels)
            times.append(time.process_time() - begun)
    return min(times) / len(parcels)


@dataclass(frozen=True)
class Mastered:
    """What the real master did with simulated workers, one cell each."""

    workers: int
    round_seconds: float
    cpu: float  # of a round, heartbeats included
    beats: float  # per round
    beat: float  # CPU of asking all once


def measure_master(grid: str, seconds: float, rounds: int) -> Mastered:
    with tempfile.TemporaryDirectory() as folder:
        config = simulated_config(grid, rounds, Path(folder))
        plan = Plan(seconds)
        # Asked more often than in a real run, so that there are enough beats to measure.
        notes: Notes = simulate(config, plan, Timeouts(interval=SHORT_BEAT), config.cells)
    first, last = notes.committed[1, 1], notes.committed[1, rounds - 1]
    count = rounds - 2
    beats = sum(first.time < probe.time <= last.time for probe in notes.heartbeats)
    return Mastered(
        config.cells,
        (last.time - first.time) / count,
        (last.cpu - first.cpu) / count,
        beats / count,
        heartbeat_cpu(notes, config.cells)[0],
    )


# ---------------------------------------------------------------------------- predicting


@dataclass(frozen=True)
class Prediction:
    """A round in the long run, and the share of it in which the master is busy."""

    seconds: float
    busy: float


def play(steps: Steps, grid: Grid, workers: int, rounds: int = ROUNDS, seed: int = 0) -> Prediction:
    """Play rounds through: when every cell starts and ends, and when every round is complete."""
    cells = grid.cells
    placed = place(
        dict.fromkeys(range(cells), 1.0), [Capacity(number) for number in range(workers)]
    )
    rng = np.random.default_rng(seed)
    neighbours = [grid.neighbours(cell) for cell in range(cells)]
    # Heartbeats take their share of the master, so the rest takes longer.
    slowed = 1 / max(1e-6, 1 - workers * steps.beat / BEAT_SECONDS)
    free = dict.fromkeys(placed, 0.0)
    published = [0.0] * cells
    complete = {-1: 0.0, 0: 0.0}
    master = busy = 0.0
    for round in range(1, rounds + 1):
        varied = 1 + steps.spread * rng.standard_normal(cells)
        spent = steps.cell_round * np.maximum(0.1, varied) + steps.exchange
        # The latest round that must be complete before this one may start.
        latest = next(number for number in range(-1, round) if may_start(round, number))
        ended = list(published)
        for worker, own in placed.items():
            for cell in own:
                ready = max((published[other] for other in neighbours[cell]), default=0.0)
                start = max(free[worker], ready, complete[latest])
                free[worker] = ended[cell] = start + float(spent[cell])
        published = ended
        for reported in sorted(ended):
            master = max(master, reported) + steps.report * slowed
        master += cells * steps.reduction * slowed
        busy += cells * steps.per_cell * slowed
        complete[round] = master
    half = rounds // 2  # the beginning, when the master has nothing to do yet, does not count
    seconds = (complete[rounds] - complete[half]) / (rounds - half)
    share = busy / rounds / seconds + workers * steps.beat / BEAT_SECONDS
    return Prediction(seconds, min(1.0, share))


def square(cells: int) -> Grid:
    """The grid of so many cells that is nearest to a square."""
    rows = next(rows for rows in range(int(cells**0.5), 0, -1) if cells % rows == 0)
    return Grid(rows, cells // rows)


def bottleneck(steps: Steps, found: Prediction, cells: int, workers: int, ideal: float) -> str:
    """What costs most of the time that is lost."""
    if found.busy > 0.95:
        return "master"
    uneven = -(-cells // workers) * workers / cells
    lost = {
        "waiting for neighbours": found.seconds / ideal / uneven - 1,
        "uneven division": uneven - 1,
        "exchange": steps.exchange / steps.cell_round,
    }
    return max(lost, key=lambda name: lost[name])


def predict(steps: Steps, saved: float) -> list[dict[str, Any]]:
    """Strong and weak scaling; the strong one of as many cells as the most workers."""
    alone = replace(steps, exchange=0.0)  # one worker finds all parcels at hand
    most = WORKERS[-1]
    whole = play(alone, square(most), 1).seconds
    single = play(alone, square(1), 1).seconds
    rows = []
    for workers in WORKERS:
        own = alone if workers == 1 else steps
        strong, weak = play(own, square(most), workers), play(own, square(workers), workers)
        ideal = most / workers * steps.cell_round
        rows.append(
            {
                "workers": workers,
                "strong_round_s": strong.seconds,
                "strong_efficiency": whole / workers / strong.seconds,
                "strong_master_busy": strong.busy,
                "strong_limit": bottleneck(own, strong, most, workers, ideal),
                "weak_round_s": weak.seconds,
                "weak_efficiency": single / weak.seconds,
                "weak_master_busy": weak.busy,
                "weak_limit": bottleneck(own, weak, workers, workers, steps.cell_round),
                "weak_checkpoint_gb_per_s": workers * saved / weak.seconds / 1e9,
            }
        )
    return rows


def cells_the_master_keeps_up_with(steps: Steps) -> dict[str, float]:
    """At one cell per worker: where its work fills the round."""
    round_seconds = steps.cell_round + steps.exchange
    beats = steps.beat * round_seconds / BEAT_SECONDS
    return {
        "scored": round_seconds / (steps.per_cell + beats),
        "unscored": round_seconds / (steps.report + beats),
    }


# ---------------------------------------------------------------------------- checking


def check(steps: Steps, found: Mastered, seconds: float) -> dict[str, float]:
    """The real master with simulated workers beside what the model says of it."""
    # Simulated workers differ by up to 10 % either way, and wait only for the master.
    slowest = seconds * 1.1
    cpu = found.workers * (steps.report + found.beats * steps.beat)
    return {
        "workers": found.workers,
        "cpu_ms": 1e3 * found.cpu,
        "predicted_cpu_ms": 1e3 * cpu,
        "round_s": found.round_seconds,
        "predicted_round_s": max(slowest, cpu),
    }


def print_predictions(steps: Steps, rows: list[dict[str, Any]], limits: dict[str, float]) -> None:
    print_table(
        "measured here (ms)",
        ["step", "ms"],
        [[name, 1e3 * value] for name, value in asdict(steps).items() if name != "spread"]
        + [["spread of a cell's rounds (%)", 100 * steps.spread]],
    )
    for kind, what in (
        ("strong", f"{WORKERS[-1]:,} cells on more and more workers"),
        ("weak", "one cell per worker"),
    ):
        print_table(
            f"predicted {kind} scaling: {what}",
            ["workers", "round (s)", "efficiency", "master busy", "largest loss", "GB/s saved"],
            [
                [
                    row["workers"],
                    row[f"{kind}_round_s"],
                    f"{row[f'{kind}_efficiency']:.3f}",
                    f"{row[f'{kind}_master_busy']:.0%}",
                    row[f"{kind}_limit"] if row["workers"] > 1 else "",
                    row["weak_checkpoint_gb_per_s"] if kind == "weak" else "",
                ]
                for row in rows
            ],
        )
    print(
        f"\nAt one cell per worker the master sets the pace from {limits['scored']:,.0f} cells on, "
        f"without scores from {limits['unscored']:,.0f}."
    )
    print("Assumed:")
    for line in ASSUMPTIONS:
        print(f"- {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--bandwidth", type=float, default=1.25e9, help="bytes/s of a worker's link"
    )
    parser.add_argument("--spread", type=float, help="of a cell's rounds; otherwise as measured")
    options = parser.parse_args()
    quick = options.quick
    cpu, spread, traffic = measure_cells(1 if quick else 2, 20 if quick else 600)
    reduction = measure_reduction("3x3" if quick else "4x4", 2 if quick else 5)
    grids = ("4x8", "8x8") if quick else ("16x16", "8x8", "32x32")
    seconds = 1.5 if quick else 4.0
    mastered = [measure_master(grid, seconds, 4 if quick else 6) for grid in grids]
    base = mastered[0]
    steps = Steps(
        cell_round=cpu,
        spread=spread if options.spread is None else options.spread,
        exchange=(traffic["gathered"] + traffic["published"]) / options.bandwidth,
        report=max(0.0, base.cpu - base.beats * base.beat) / base.workers,
        beat=base.beat / base.workers,
        reduction=reduction,
    )
    rows, limits = predict(steps, traffic["saved"]), cells_the_master_keeps_up_with(steps)
    print_predictions(steps, rows, limits)
    checks = [check(steps, found, seconds) for found in mastered]
    print_table(
        f"the real master with simulated workers, rounds of {seconds:g} s, unscored",
        ["workers", "CPU of a round (ms)", "predicted", "round (s)", "predicted"],
        [list(row.values()) for row in checks],
    )
    publish(
        "predict",
        {
            "steps": asdict(steps),
            "bytes": traffic,
            "bandwidth": options.bandwidth,
            "assumptions": list(ASSUMPTIONS),
            "predictions": rows,
            "cells_the_master_keeps_up_with": limits,
            "checks": checks,
        },
        quick=quick,
    )


if __name__ == "__main__":
    main()
