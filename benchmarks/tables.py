"""Tables II to IV of Perez et al. (2020) for the cores at hand, ten executions of everything.

Every turn executes the 2x2, 3x3 and 4x4 grids of the article's cells on one worker and on all, and
for weak scaling a grid with as many 3x3 cells as there are workers. Rounds are shortened, and the
first one is left out; the master's process is beside the workers'. In some turns the limit of the
machine is measured (processes that share nothing, one against as many as there are workers), and
the memory of runs with a worker per cell, as the article has them. Data are MNIST where REMUDA_DATA
has it, and else the embedded digits.

    python -m benchmarks.tables [--quick] [--workers 2] [--repeat 10] [--rounds 2] [--batches 50]
        [--resume FILE] [--page PAGE.md]
    python -m benchmarks.tables --from benchmarks/results/tables.json --page PAGE.md

`--resume` keeps finished executions in FILE and takes those that are there, `--page` writes the
tables as a page, and `--from` takes figures that were measured before. What is printed:
`benchmarks/article_tables.py`.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.article_tables import TABLE_III, all_tables, notes, page
from benchmarks.executions import SKIPPED, Case, Execution, Log, cells_of
from benchmarks.measuring import machine, print_table, publish
from benchmarks.memory import source
from benchmarks.scaling import ceiling
from remuda.parallel.launch import usable_cores

FULL_ROUND = 600  # batches: an epoch of MNIST
EXTRA_TURNS = 3  # in which limits are measured
CROWDED_BATCHES = 5  # a round's, where only memory counts
WEAK_BASE = "3x3"
Executions = dict[str, list[Execution]]  # by kind and grid


def kinds(options: argparse.Namespace, data: str) -> dict[str, Case]:
    """What every turn executes, by name."""

    def case(grid: str, workers: int) -> Case:
        return Case(grid, min(workers, cells_of(grid)), options.rounds, options.batches, data)

    found = {}
    for grid in options.grids:
        found[f"{grid} single"] = case(grid, 1)
        found[f"{grid} distributed"] = case(grid, options.workers)
    if WEAK_BASE in options.grids:
        found["weak distributed"] = case(f"3x{3 * options.workers}", options.workers)
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All executions by turns, and what follows from them."""
    data, log, load = source(), Log(options.resume), machine()["load"]
    cases = kinds(options, data)
    found: Executions = {}
    limits: list[float] = []
    extra = min(EXTRA_TURNS, options.repeat)
    for turn in range(options.repeat):
        number = f"{turn + 1} of {options.repeat}"
        for name, case in cases.items():
            found.setdefault(name, []).append(log.execution(case, f"{name} {number}"))
        if turn * extra % options.repeat < extra:  # evenly spaced
            for grid in options.grids:
                crowd = Case(grid, cells_of(grid), 2, CROWDED_BATCHES, data)
                name = f"{grid} crowded"
                found.setdefault(name, []).append(log.execution(crowd, f"{name} {number}"))
            alone, together = ceiling(options.workers, 2 * options.batches)
            limits.append(options.workers * alone / together)
        print(f"turn {number}: done after {minutes(found):.1f} minutes of executions", flush=True)
    return {
        "data": data,
        "workers": options.workers,
        "rounds": options.rounds,
        "batches_per_round": options.batches,
        "executions": options.repeat,
        "minutes": minutes(found),
        "load_before": load,
        "speed_up_of_processes_that_share_nothing": statistics.median(limits),
        "table_ii": {name: resources(many) for name, many in found.items()},
        "table_iii": {grid: speeds(grid, found) for grid in options.grids},
        "weak": weak(found),
        "table_iv": routines(options.grids[-1], found),
    }


def minutes(found: Executions) -> float:
    """Of all executions, those of an earlier command included."""
    return sum(one.whole_s for many in found.values() for one in many) / 60


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "mean": statistics.mean(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
        "median": statistics.median(values),
    }


def resources(executions: Sequence[Execution]) -> dict[str, Any]:
    """For Table II."""
    return {
        "grid": executions[0].case.grid,
        "workers": executions[0].case.workers,
        "executions": len(executions),
        "processes": max(one.processes for one in executions),
        "rss_mb": spread([one.rss_mb for one in executions]),
        "once_mb": spread([one.once_mb for one in executions]),
    }


def times(executions: Sequence[Execution]) -> dict[str, Any]:
    return {
        **spread([one.round_s for one in executions]),
        "start_and_result": statistics.mean(one.beside_s for one in executions),
        "cpu": statistics.mean(one.cpu_s for one in executions),
        "all": [round(one.round_s, 4) for one in executions],
    }


def speeds(grid: str, found: Executions) -> dict[str, Any]:
    """A row of Table III, in seconds of a round."""
    one, many = found[f"{grid} single"], found[f"{grid} distributed"]
    single, distributed = times(one), times(many)
    cells, workers = cells_of(grid), many[0].case.workers
    speed_up = single["mean"] / distributed["mean"]
    return {
        "cells": cells,
        "workers": workers,
        "single_s": single,
        "distributed_s": distributed,
        "speed_up": speed_up,
        "efficiency": speed_up / workers,
        "median_efficiency": single["median"] / distributed["median"] / workers,
        "possible_efficiency": cells / (workers * -(-cells // workers)),
        "work": distributed["cpu"] / single["cpu"],
    }


def weak(found: Executions) -> dict[str, Any] | None:
    """One worker on one grid, and all on as many grids in a row."""
    many = found.get("weak distributed")
    if many is None:
        return None
    base, large = times(found[f"{WEAK_BASE} single"]), times(many)
    return {
        "base": WEAK_BASE,
        "grid": many[0].case.grid,
        "workers": many[0].case.workers,
        "base_s": base,
        "distributed_s": large,
        "efficiency": base["mean"] / large["mean"],
        "median_efficiency": base["median"] / large["median"],
    }


def routines(grid: str, found: Executions) -> dict[str, Any]:
    """Table IV: seconds of a round, summed over cells; distributed means per worker."""
    one, many = found[f"{grid} single"], found[f"{grid} distributed"]
    workers, batches = many[0].case.workers, many[0].case.batches
    rows: dict[str, Any] = {}
    for name in many[0].routines:
        single = spread([each.routines[name] for each in one])
        distributed = spread([each.routines[name] / workers for each in many])
        # Only training has more to do where a round has more batches.
        scale = FULL_ROUND / batches if name == "train" else 1.0
        rows[name] = {
            "single_s": single,
            "distributed_s": distributed,
            "full_single_s": scale * single["mean"],
            "full_distributed_s": scale * distributed["mean"],
        }
    ordered = dict(sorted(rows.items(), key=lambda row: -row[1]["full_single_s"]))
    return {"grid": grid, "workers": workers, "full_round": FULL_ROUND, "routines": ordered}


def main() -> None:
    options = _options()
    if options.source is None:
        shown = publish("tables", measure(options), quick=options.quick)
    else:
        shown = json.loads(options.source.read_text())
    for table in all_tables(shown):
        print_table(table.title, table.head, table.rows)
    print(
        f"\nRounds of {shown['batches_per_round']} batches per cell; mean ± standard deviation of "
        f"{shown['executions']} executions.",
        *notes(shown),
        sep="\n",
    )
    if options.page is not None:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(page(shown))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="2x2, once; only printed")
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--repeat", type=int, default=10, help="executions of each kind")
    parser.add_argument("--rounds", type=int, default=2, help="of each; the first is left out")
    parser.add_argument("--batches", type=int, default=50, help="of a round")
    parser.add_argument("--grids", nargs="+", default=list(TABLE_III), choices=list(TABLE_III))
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keeps finished executions")
    parser.add_argument("--page", type=Path, metavar="PAGE.md", help="also write the tables there")
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="JSON", help="show what was measured before"
    )
    options = parser.parse_args()
    if options.rounds <= SKIPPED:
        parser.error(f"--rounds {options.rounds}: allowed: {SKIPPED + 1} or more")
    if options.repeat < 1:
        parser.error(f"--repeat {options.repeat}: allowed: 1 or more")
    if options.source is not None and not options.source.is_file():
        parser.error(f"--from {options.source}: no such file")
    if options.quick and options.page:
        parser.error("--page and --quick: a quick run is only printed")
    if options.quick:
        options.repeat, options.batches, options.grids = 1, 20, ["2x2"]
    return options


if __name__ == "__main__":
    main()
