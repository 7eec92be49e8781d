"""What all benchmarks of speed share: interleaved measuring, result files and tables.

A figure is a ratio inside one run: the limit, the way it was and the way it is take turns, so that
the noise of a shared machine hits all of them alike. Times are CPU seconds unless a benchmark says
otherwise; the least of several is the best estimate of the work itself, the median of what a user
meets. Every result goes to `benchmarks/results/NAME.json` with the machine and the versions behind
it.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from remuda.runs.machine import processor

RESULTS = Path(__file__).parent / "results"
Clock = Callable[[], float]
Work = Callable[[], object]


@dataclass(frozen=True)
class Times:
    """What one of several interleaved cases took, in seconds, repetition by repetition."""

    seconds: tuple[float, ...]

    @property
    def least(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def over(self, other: Times) -> dict[str, float]:
        """Both ratios of this to another case of the same run."""
        pairs = zip(self.seconds, other.seconds, strict=True)
        return {
            "least": self.least / other.least,
            "median": statistics.median(mine / theirs for mine, theirs in pairs),
        }

    def to_json(self, per: int = 1) -> dict[str, float]:
        """In milliseconds, of one of `per` equal parts."""
        return {"least_ms": 1e3 * self.least / per, "median_ms": 1e3 * self.median / per}


def interleave(
    cases: Mapping[str, Work], repeat: int, clock: Clock = time.process_time
) -> dict[str, Times]:
    """Run all cases by turns, once to warm up and then `repeat` times."""
    for work in cases.values():
        work()
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeat):
        for name, work in cases.items():
            begun = clock()
            work()
            found[name].append(clock() - begun)
    return {name: Times(tuple(seconds)) for name, seconds in found.items()}


def machine() -> dict[str, Any]:
    """Where and with what a figure was measured."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def publish(name: str, figures: Mapping[str, Any], *, quick: bool = False) -> dict[str, Any]:
    """Write a benchmark's figures to its result file; a quick run's are only printed.

    Returns what the file holds, or would hold.
    """
    command = " ".join(["python -m", f"benchmarks.{name}", *sys.argv[1:]])
    where = {"command": command, "date": time.strftime("%Y-%m-%d"), "machine": machine()}
    content = {**where, **figures}
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(f"{json.dumps(content, indent=2)}\n")
    return content


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns under their names, the first to the left and the others to the right."""
    texts = [list(head), *([_text(value) for value in row] for row in rows)]
    widths = [max(len(row[place]) for row in texts) for place in range(len(head))]
    print(f"\n{title}")
    for number, row in enumerate(texts):
        cells = [
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)
