"""Tables II to IV of Perez et al. (2020) and ours beside them, for a terminal and as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs" / "results"
FREE = 0.9  # of the cores: what processes that share nothing get at least where nothing else runs
Figures = Mapping[str, Any]

# Cores, one of them the master's, and the MB of memory that were allocated.
TABLE_II = {"2x2": (5, 9216), "3x3": (10, 18432), "4x4": (17, 32768)}
# Minutes of a single core, and of the cores above (mean and deviation of ten); speed-up.
TABLE_III = {
    "2x2": (339.6, 39.81, 0.01, 8.53),
    "3x3": (999.5, 73.24, 2.56, 13.65),
    "4x4": (1920.0, 126.68, 3.42, 15.17),
}
# Minutes by routine on a 4x4 grid, single and distributed; acceleration in % and speed-up.
TABLE_IV = {
    "gather": (19.4, 19.4, 0.0, 1.00),
    "train": (264.9, 43.8, 83.5, 6.05),
    "update_genomes": (199.8, 16.8, 91.6, 11.87),
    "mutate": (25.6, 17.9, 29.9, 1.43),
    "overall": (509.6, 97.9, 80.8, 5.21),
}


@dataclass(frozen=True)
class Table:
    """Rows under a title; what has to be said about them follows on a page."""

    title: str
    head: list[str]
    rows: list[list[str]]
    remarks: str = ""

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"## {self.title}\n\n{table}\n\n{self.remarks}".rstrip() + "\n"


def all_tables(found: Figures) -> list[Table]:
    return [table_ii(found), table_iii(found), growth(found), *weak_scaling(found), table_iv(found)]


def table_ii(found: Figures) -> Table:
    cores = found["machine"]["cores"]
    rows = []
    for name, row in found["table_ii"].items():
        grid, _, kind = name.partition(" ")
        if grid not in TABLE_II:  # for weak scaling only
            continue
        rss, once = row["rss_mb"], row["once_mb"]
        ours = [_workers(row["workers"]), str(row["processes"]), str(cores)]
        ours += [f"{rss['mean']:,.0f}", _spread(once, 0)]
        theirs = ["", "", ""]
        if kind == "crowded":
            count, memory = TABLE_II[grid]
            theirs = [str(count), f"{memory:,}", f"{once['mean'] / memory:.1%}"]
        rows.append([grid, *ours, *theirs])
    rows.sort(key=lambda row: row[0])
    crowds = max(
        row["executions"] for name, row in found["table_ii"].items() if name.endswith("crowded")
    )
    head = ["grid", "run", "processes", "cores", "RSS summed (MB)", "shared once (MB)"]
    remarks = (
        "The most of all processes of a run at one time, mean ± standard deviation of all "
        f"executions (with a worker per cell: {crowds}, of shorter rounds): the master, the "
        "process that workers are forked from, and workers. *RSS summed* counts what they share "
        "once per process; *shared once* counts it once, with the data and the parcels in shared "
        "memory, and was looked at while no round was timed. The article's memory is what its jobs "
        f"were allocated, not what they used. Runs with a worker per cell have the article's "
        f"processes, but share {cores} cores: their memory can be compared, their times cannot, "
        "and are not shown."
    )
    head += ["article: cores", "allocated (MB)", "ours of it"]
    return Table("Table II: resources of an execution", head, rows, remarks)


def table_iii(found: Figures) -> Table:
    rows = []
    for grid, row in found["table_iii"].items():
        one, many = row["single_s"], row["distributed_s"]
        single, distributed, deviation, speed_up = TABLE_III[grid]
        cores = TABLE_II[grid][0]
        rows.append(
            [
                grid,
                _spread(one),
                f"{one['median']:.2f}",
                _spread(many),
                f"{many['median']:.2f}",
                f"{row['speed_up']:.2f} on {row['workers']}",
                f"{row['efficiency']:.2f}",
                f"{row['median_efficiency']:.2f}",
                f"{row['possible_efficiency']:.2f}",
                f"{row['work']:.2f}",
                f"{many['start_and_result']:.1f}",
                f"{single}",
                f"{distributed} ± {deviation}",
                f"{speed_up:.2f} on {cores - 1}",
                f"{speed_up / (cores - 1):.2f}",
            ]
        )
    head = ["grid", "single (s)", "median", "distributed (s)", "median", "speed-up"]
    head += ["per worker", "of medians", "at most", "work", "start, result (s)"]
    head += ["article: single (min)", "distributed (min)", "speed-up", "per worker"]
    per_core = ", ".join(
        f"{TABLE_III[grid][3] / TABLE_II[grid][0]:.2f}" for grid in found["table_iii"]
    )
    limit = found["speed_up_of_processes_that_share_nothing"]
    remarks = (
        f"Seconds of a round of {found['batches_per_round']} batches per cell, mean ± standard "
        f"deviation of {found['executions']} executions, single and distributed by turns. "
        "*Per worker* is the speed-up over the number of workers: strong efficiency. *At most*: "
        "what cells that do not divide by the workers allow. Processes that share nothing reach a "
        f"speed-up of {limit:.2f} on {found['workers']} workers here. *Work* is the workers' CPU "
        "time when distributed over that of the single one. The article's master has a core of its "
        f"own: per core, its speed-ups are {per_core}. What is above 1 cannot come from cores "
        "alone."
    )
    return Table("Table III: execution times", head, rows, remarks)


def growth(found: Figures) -> Table:
    """What a cell costs as the grid grows."""
    rows = []
    ours, first = found["table_iii"], next(iter(found["table_iii"]))
    for grid, row in ours.items():
        costs = [
            _per_cell(ours[each], kind)
            for kind in ("single_s", "distributed_s")
            for each in (first, grid)
        ]
        base, here = TABLE_III[first], TABLE_III[grid]
        cells, base_cells = row["cells"], ours[first]["cells"]
        rows.append(
            [
                grid,
                f"{costs[0] / costs[1]:.2f}",
                f"{costs[2] / costs[3]:.2f}",
                f"{base[0] / base_cells * cells / here[0]:.2f}",
                f"{base[1] / here[1]:.2f}",
            ]
        )
    head = ["grid", "single", "distributed", "article: single", "distributed"]
    remarks = (
        f"Time of a worker per cell on the {first} grid over that on the grid. With one cell per "
        "worker, as in the article, the distributed column is weak efficiency; here the workers "
        "stay the same, and nine cells on two of them take as long as ten."
    )
    return Table("Growth with the grid", head, rows, remarks)


def weak_scaling(found: Figures) -> list[Table]:
    """A table, unless too few grids were executed."""
    weak = found["weak"]
    if weak is None:
        return []
    efficiency = f"{weak['efficiency']:.2f} (of medians {weak['median_efficiency']:.2f})"
    rows = [
        [f"{weak['base']} on 1 worker", "9", f"{_spread(weak['base_s'])} s", "1"],
        [
            f"{weak['grid']} on {_workers(weak['workers'])}",
            "9",
            f"{_spread(weak['distributed_s'])} s",
            efficiency,
        ],
    ]
    for grid, (_, distributed, deviation, _) in TABLE_III.items():
        ratio = TABLE_III["2x2"][1] / distributed
        name = f"article: {grid} on {_workers(TABLE_II[grid][0] - 1)}"
        rows.append([name, "1", f"{distributed} ± {deviation} min", f"{ratio:.2f}"])
    head = ["run", "cells per worker", "time", "weak efficiency"]
    remarks = "Cells of all these grids but 2x2 have neighbourhoods of five; those of 2x2 of three."
    return [Table("Weak scaling", head, rows, remarks)]


def table_iv(found: Figures) -> Table:
    table = found["table_iv"]
    names = ("full_single_s", "full_distributed_s")
    parts = dict(table["routines"])
    full = [sum(row[name] for row in parts.values()) for name in names]
    rows = [_routine(name, row, full, table["grid"]) for name, row in parts.items()]
    measured = [
        sum(row[kind]["mean"] for row in parts.values()) for kind in ("single_s", "distributed_s")
    ]
    rows.append(
        [
            "overall",
            *(f"{one:.3f}" for one in measured),
            *_ratios(*full),
            *_theirs("overall", table["grid"]),
        ]
    )
    head = ["routine", "single (s)", "distributed (s)"]
    head += ["full round: single", "distributed", "acceleration", "speed-up"]
    head += ["article: single (min)", "distributed", "acceleration", "speed-up"]
    batches, of = found["batches_per_round"], table["full_round"]
    remarks = (
        f"Seconds of a round on the {table['grid']} grid by the workers' own clocks, summed over "
        f"cells and, distributed, divided by {table['workers']} workers; mean ± standard deviation "
        f"of {found['executions']} executions. Rounds have {batches} batches; for the article's "
        f"{of}, `train` is multiplied by {of / batches:g} and the other routines, which happen "
        "once per round, are not. Acceleration and speed-up are of the full round. `other` is what "
        "no routine accounts for; the article's is Table III less Table IV, whose routines are "
        "27 % and 77 % of it. `gather` reads parcels from shared memory here, and is "
        "`MPI_allgather` there."
    )
    title = f"Table IV: {table['grid']} by routine"
    return Table(title, head, rows, remarks)


def _routine(name: str, row: Figures, full: list[float], grid: str) -> list[str]:
    single, distributed = row["full_single_s"], row["full_distributed_s"]
    shares = (
        f"{single:.3f} ({single / full[0]:.1%})",
        f"{distributed:.3f} ({distributed / full[1]:.1%})",
    )
    parts = [name, _spread(row["single_s"], 3), _spread(row["distributed_s"], 3)]
    return [*parts, *shares, *_ratios(single, distributed)[2:], *_theirs(name, grid)]


def _ratios(single: float, distributed: float) -> list[str]:
    times = [f"{single:.3f}", f"{distributed:.3f}"]
    if min(single, distributed) <= 0:
        return [*times, "", ""]
    return [*times, f"{1 - distributed / single:.1%}", f"{single / distributed:.2f}"]


def _theirs(routine: str, grid: str) -> list[str]:
    """The article's figures, which it has of one grid only."""
    if grid != "4x4":
        return [""] * 4
    if routine == "other":
        left = [TABLE_III["4x4"][place] - TABLE_IV["overall"][place] for place in (0, 1)]
        return [f"{part:.1f}" for part in left] + _ratios(*left)[2:]
    if routine not in TABLE_IV:
        return [""] * 4
    single, distributed, acceleration, speed_up = TABLE_IV[routine]
    return [f"{single}", f"{distributed}", f"{acceleration}%", f"{speed_up:.2f}"]


def _per_cell(row: Figures, kind: str) -> float:
    workers = row["workers"] if kind == "distributed_s" else 1
    return float(row[kind]["mean"] * workers / row["cells"])


def _spread(figure: Figures, digits: int = 2) -> str:
    mean, deviation = figure["mean"], figure["deviation"]
    # Without a second execution there is no deviation.
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}" if deviation else f"{mean:.{digits}f}"


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


# ---------------------------------------------------------------------------- a page


def notes(found: Figures) -> list[str]:
    """What can be compared and what cannot."""
    cores, batches = found["machine"]["cores"], found["batches_per_round"]
    return [
        "Can be compared: speed-up over the number of workers, accelerations and shares of "
        "routines, growth of the cost of a cell, memory with a worker per cell.",
        f"Cannot: minutes. The article has 5, 10 and 17 cores of another processor and rounds of "
        f"600 batches; here are {cores} cores and rounds of {batches}. The efficiency of 4 to 16 "
        "workers, each on a core of its own, is not measured here.",
    ]


def page(found: Figures) -> str:
    machine = found["machine"]
    data = "MNIST" if found["data"] == "mnist" else "the embedded digits"
    lines = [
        "# The MPI article's Tables II to IV",
        "",
        "Pérez, Nesmachnow, Toutouh, Hemberg and O'Reilly, *Parallel/distributed implementation of "
        "cellular training for generative adversarial neural networks* (2020), and the same cells "
        f"here (`cellular-mnist-paper` on {data}). This page and `benchmarks/results/tables.json` "
        "come from one command:",
        "",
        "```",
        found["command"],
        "```",
        "",
        f"{found['date']}, {machine['cores']} cores ({machine['processor']}), torch "
        f"{machine['torch']}, load {found['load_before']} before it began. "
        f"{found['executions']} executions of each kind, of {found['rounds']} rounds of "
        f"{found['batches_per_round']} batches; the first round is left out. All executions "
        f"together: {found['minutes']:.0f} minutes.",
        "",
        *(f"- {note}" for note in notes(found)),
    ]
    lines.append(_freedom(found))
    parts = [*(table.markdown() for table in all_tables(found)), _quality()]
    return "\n".join(lines) + "\n\n" + "\n".join(parts)


def _freedom(found: Figures) -> str:
    """Whether anything else ran meanwhile; the load before says little about the time after."""
    limit, workers = found["speed_up_of_processes_that_share_nothing"], found["workers"]
    reached = f"processes that share nothing reached a speed-up of {limit:.2f} on {workers} workers"
    if limit < FREE * workers:
        return f"- **Other work ran beside it ({reached}): times and speed-ups mean nothing.**"
    return f"- The cores were free: meanwhile, {reached}."


def _quality() -> str:
    """What the networks of such a run are worth, by runs that were longer."""
    summary = json.loads((DOCS / "presets" / "cellular-mnist-paper.json").read_text())
    scores = sorted(run["scores"]["fid"] for run in summary["runs"])
    return (
        "## What such a run gives\n\n"
        "The executions above are far too short for their images to mean anything, and the article "
        f"scores none. Cut to `{' '.join(summary['changes'])}` (of 200), the preset on a 2x2 grid "
        f"had FID {', '.join(f'{score:,.0f}' for score in scores)} "
        "([three seeds](presets/cellular-mnist-paper.md)).\n"
    )
