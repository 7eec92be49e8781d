"""How long a user waits for `remuda train` to train: from the command to the first batch.

The limit is what nobody can avoid: `python -c "import torch"`, and reading the same data in a
process that has torch already (of which only the reading counts).
`quickstart` (and with 16 workers the same on a 4x4 grid) is trained in rounds of one batch; a cell
has trained its first batch when the run's events say that it finished round 1. `first` is the first
cell, `all` the last one. Both need a whole run to be prepared: configuration, data, extractor, run
folder, workers, networks, first scores.

Start-up is waiting, so the times are wall clock, unlike those of other benchmarks; the CPU seconds
of all processes until the end of the command are beside them. Cases take turns in one run.

    python -m benchmarks.startup [--quick] [--before SRC]

`--before` measures another checkout's `src` folder in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.measuring import Times, print_table, publish

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "src"
IMPORT = "import torch"
READ = """
import time
from remuda.config import load_config
from remuda.data import load_dataset
settings = load_config("quickstart").data
start = time.perf_counter()
load_dataset(settings)
print(time.perf_counter() - start)
"""
WORDS = ("training.batches_per_round=1", "rounds=2", "run.sheet_every=0")
GRIDS = {1: "1x2", 2: "1x2", 16: "4x4"}
REPEAT = 3


class Case:
    """A command, how often it was run, and what it took."""

    def __init__(
        self,
        name: str,
        source: Path,
        words: list[str],
        *,
        trains: bool = False,
        tells: bool = False,
    ) -> None:
        self.name = name
        self._source = source
        self._words = words
        self._trains = trains
        self._tells = tells  # whether it prints the seconds that count
        self.seconds: dict[str, list[float]] = {}

    def run(self, keep: bool) -> None:
        variables = {**os.environ, "PYTHONPATH": f"{self._source}:{ROOT}"}
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            more = [f"run.dir={run}"] if self._trains else []
            used = _children_cpu()
            start = time.time()
            done = subprocess.run(
                [sys.executable, *self._words, *more],
                env=variables,
                check=True,
                stdout=subprocess.PIPE,
                cwd=folder,
            )
            found = {"all": time.time() - start, "cpu": _children_cpu() - used}
            if self._tells:
                found["all"] = float(done.stdout)
            if self._trains:
                found |= _first_batches(run, start)
        if keep:
            for what, seconds in found.items():
                self.seconds.setdefault(what, []).append(seconds)

    def times(self, what: str = "all") -> Times:
        return Times(tuple(self.seconds[what]))


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _first_batches(run: Path, start: float) -> dict[str, float]:
    """When the first and the last cell had trained its first batch, in seconds after the start."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    ends = [
        datetime.fromisoformat(event["time"]).timestamp() - start
        for event in events
        if event["event"] == "round" and event["round"] == 1
    ]
    return {"first": min(ends), "all": max(ends)}


def _cases(sources: dict[str, Path], quick: bool) -> dict[str, Case]:
    found = [
        Case("import torch", HERE, ["-c", IMPORT]),
        Case("reading the data", HERE, ["-c", READ], tells=True),
    ]
    for label, source in sources.items():
        found.append(Case(f"--help, {label}", source, ["-m", "remuda", "--help"]))
        found.append(Case(f"train --help, {label}", source, ["-m", "remuda", "train", "--help"]))
        for workers, grid in GRIDS.items():
            if quick and workers == 1:
                continue
            words = ["-m", "remuda", "train", "quickstart", *WORDS, f"grid={grid}"]
            words += ["--plain", "--workers", str(workers)]
            found.append(Case(f"{workers} workers, {label}", source, words, trains=True))
    return {case.name: case for case in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="once each, and nothing is kept")
    parser.add_argument("--before", type=Path, help="another checkout's src folder")
    parser.add_argument("--repeat", type=int, default=REPEAT)
    options = parser.parse_args()
    sources = {"before": options.before.resolve()} if options.before else {}
    cases = _cases({**sources, "now": HERE}, options.quick)
    for number in range(2 if options.quick else options.repeat + 1):
        for case in cases.values():
            case.run(keep=number > 0)  # the first time fills the file caches
    both = (cases[name].times().seconds for name in ("import torch", "reading the data"))
    limit = Times(tuple(torch + data for torch, data in zip(*both, strict=True)))
    rows: list[list[object]] = []
    figures: dict[str, Any] = {}
    for name, case in cases.items():
        parts = [what for what in ("first", "all") if what in case.seconds]
        entry: dict[str, Any] = {"cpu_s": case.times("cpu").least}
        for part in parts:
            times = case.times(part)
            ratio = times.over(limit)
            label = f"{name}, first cell" if part == "first" else name
            rows.append([label, times.least, times.median, ratio["least"], ratio["median"]])
            entry[part] = {**times.to_json(), "over_limit": ratio}
        rows[-1].append(entry["cpu_s"])
        figures[name] = entry
    for row in rows:
        row.extend([""] * (6 - len(row)))
    print_table(
        "seconds until every cell has trained a batch (wall clock), and over the limit",
        ["", "least", "median", "/ limit", "median", "CPU s in all"],
        rows,
    )
    publish("startup", {"clock": "wall", "cases": figures}, quick=options.quick)


if __name__ == "__main__":
    main()
