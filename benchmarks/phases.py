"""Where a round's time goes: CPU seconds per routine and preset, on two worker processes.

Rounds are as long as the preset's, but only a few are trained. What happens in some rounds only
(scores, checkpoints) is weighted by how often it happens in the whole run. `master` is the CPU time
of the master's process for a round, divided by the cells. Wall-clock seconds are in the result file
too: a checkpoint waits for the disk, which costs no CPU. Other presets can be named; a round of
`class-parallel-mnist` takes minutes.

    python -m benchmarks.phases [--quick] [PRESET ...]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measuring import print_table, publish
from remuda.clock import Clock
from remuda.config import Config, load_config
from remuda.methods import Mixture
from remuda.parallel import starting, training
from remuda.parallel import worker as worker_module
from remuda.parallel.engines import Engine
from remuda.parallel.messages import Configure
from remuda.parallel.observer import Observer
from remuda.parallel.transports.base import WorkerComm
from remuda.runs.retention import checkpoint_due
from remuda.runs.store import RunFolder

# Rounds to train, the first of which does not count.
PRESETS = {
    "quickstart": 4,
    "cellular-digits": 4,
    "cellular-mnist": 3,
    "cellular-mnist-paper": 2,
    "averaging-mnist": 3,
    "gap-toy-r15": 20,
}
QUICK = {"quickstart": 3, "gap-toy-r15": 8}
CPU = "cpu "  # what the names of CPU seconds start with, among the seconds of an event
WAITING = ("wait",)
EXCHANGE = ("gather", "publish", "checkpoint")
SHOWN = ("train", "assess", *EXCHANGE, "mixture", "other")
_work = starting.work_in_process


class CpuClock(Clock):
    """Also counts the CPU seconds of the trainer's thread, routine by routine."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = time.thread_time()
        self._cpu: dict[str, float] = {}

    @contextmanager
    def routine(self, name: str) -> Iterator[None]:
        begun = time.thread_time()
        with super().routine(name):
            yield
        self._cpu[name] = self._cpu.get(name, 0.0) + time.thread_time() - begun

    def seconds(self) -> dict[str, float]:
        other = time.thread_time() - self._begun - sum(self._cpu.values())
        cpu = {**self._cpu, "other": max(0.0, other)}
        return {**super().seconds(), **{f"{CPU}{name}": value for name, value in cpu.items()}}


def clocked_worker(comm: WorkerComm, configured: Configure) -> None:
    """What a worker process runs here."""
    setattr(worker_module, "Clock", CpuClock)  # noqa: B010 - in this process alone
    _work(comm, configured)


class MasterTime(Observer):
    """The master's CPU seconds at the end of every round."""

    def __init__(self) -> None:
        self.rounds: list[float] = []

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        self.rounds.append(time.process_time())

    def per_round(self, scored: float) -> float:
        """Of a mean round of which that share is scored, as the last one always is."""
        pairs = zip(self.rounds, self.rounds[1:], strict=False)
        *others, last = [after - before for before, after in pairs]
        usual = statistics.median(others) if others else last
        return scored * last + (1 - scored) * usual


def trained(config: Config, rounds: int) -> tuple[list[dict[str, Any]], float]:
    """The events of a few rounds but the first, and the master's CPU seconds per cell."""
    watch = MasterTime()
    with tempfile.TemporaryDirectory() as folder:
        where = config.run.model_copy(update={"dir": str(Path(folder) / "run")})
        few = config.score.model_copy(update={"final_samples": 100})
        short = config.model_copy(update={"rounds": rounds, "run": where, "score": few})
        training.train(short, watch, engine=Engine("process", 2))
        events = RunFolder(Path(folder) / "run").events()
    found = [one for one in events if one["event"] == "round" and one["round"] > 1]
    cells = len({one["cell"] for one in found})
    return found, watch.per_round(scored_share(config)) / cells


def scored_share(config: Config) -> float:
    """Of the rounds of a whole run, those after which cells are scored."""
    rounds = range(1, config.rounds + 1)
    return sum(config.score.due(one, config.rounds) for one in rounds) / config.rounds


def shares(config: Config, events: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """CPU and wall-clock seconds of a mean round of the whole run, by routine."""
    every = config.run.checkpoint_every
    rounds = range(1, config.rounds + 1)
    saved = sum(checkpoint_due(one, every=every, rounds=config.rounds) for one in rounds)
    often = {"assess": scored_share(config), "checkpoint": saved / config.rounds}
    means: dict[str, float] = {}
    for name in dict.fromkeys(name for one in events for name in one["seconds"]):
        routine = name.removeprefix(CPU)
        happened = {
            "assess": [one for one in events if one["score"] is not None],
            "checkpoint": [one for one in events if one["bytes"]["saved"]],
        }.get(routine, list(events))
        others = [one for one in events if one not in happened]
        share = often.get(routine, 1.0)
        means[name] = share * _mean(name, happened) + (1 - share) * _mean(name, others)
    wall = {name: value for name, value in means.items() if not name.startswith(CPU)}
    return {
        "cpu": {name: means.get(f"{CPU}{name}", 0.0) for name in wall if name not in WAITING},
        "wall": wall,
    }


def _mean(name: str, events: Sequence[Mapping[str, Any]]) -> float:
    values = [one["seconds"].get(name, 0.0) for one in events]
    return sum(values) / len(values) if values else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("presets", nargs="*")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    starting.work_in_process = clocked_worker
    wanted = QUICK if options.quick else PRESETS
    chosen = {name: PRESETS.get(name, 2) for name in options.presets} or wanted
    if "REMUDA_DATA" not in os.environ:
        chosen = {name: rounds for name, rounds in chosen.items() if "mnist" not in name}
    figures: dict[str, Any] = {}
    rows = []
    for preset, rounds in chosen.items():
        config = load_config(preset, [])
        events, master = trained(config, rounds)
        found = shares(config, events)
        cpu = found["cpu"]
        total = sum(cpu.values())
        figures[preset] = {**found, "master_cpu": master, "cell_rounds": len(events)}
        named = [cpu.get(name, 0.0) / total for name in SHOWN]
        rest = 1 - sum(named)
        exchange = sum(cpu.get(name, 0.0) for name in EXCHANGE) / total
        percent = [f"{100 * value:.2f}" for value in (*named[:-1], rest + named[-1], exchange)]
        rows.append([preset, total, *percent, f"{100 * master / total:.2f}"])
        print(*rows[-1], flush=True)
    head = ["preset", "CPU s", *SHOWN[:-1], "rest", "g+p+c", "master"]
    print_table("A cell's round on average: CPU seconds, and % of them", head, rows)
    if not options.presets:
        publish("phases", {"presets": figures}, quick=options.quick)


if __name__ == "__main__":
    main()
