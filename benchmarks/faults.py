"""One worker SIGKILLed in the middle of training, again and again, on both parallel engines.

For every repetition: how soon the master knew, how much longer the run took than an undisturbed
one, and whether every byte of its checkpoints and ensemble is the same.

    python benchmarks/faults.py [--repeat 20] [--engines process mpi]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.config import Config, load_config
from remuda.parallel import ranks, training
from remuda.parallel.engines import Engine
from remuda.parallel.launch import Launcher, find_launcher
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import Liveness, WorkerStatus
from remuda.parallel.supervisor import find_mpiexec

PER_JOB = 10  # repetitions of one MPI job; each costs it a rank
WORKERS = 3


@dataclass
class Killer(Observer):
    """Kills one worker that trains, at a random moment after the first round."""

    rng: random.Random
    killed: float | None = None
    detected: float | None = None
    _workers: list[WorkerStatus] = field(default_factory=list)
    _armed: bool = False

    def workers_seen(self, workers: Sequence[WorkerStatus]) -> None:
        self._workers = [one for one in workers if one.liveness is not Liveness.DEAD]

    def reported(self, report: Any, alarms: Any) -> None:
        if report.round >= 2 and not self._armed and any(one.cells for one in self._workers):
            self._armed = True
            timer = threading.Timer(self.rng.uniform(0.0, 0.4), self._kill)
            timer.daemon = True
            timer.start()

    def _kill(self) -> None:
        victim = self.rng.choice([one for one in self._workers if one.cells])
        self.killed = time.monotonic()
        os.kill(victim.pid, signal.SIGKILL)

    def warned(self, message: str) -> None:
        if "was lost" in message and self.killed is not None and self.detected is None:
            self.detected = time.monotonic() - self.killed


def settings(folder: Path, name: str) -> Config:
    words = [f"run.dir={folder / name}", "rounds=12", "training.batches_per_round=60"]
    words += ["network.hidden=[64]", "score.samples=200", "score.final_samples=200"]
    return load_config("cellular-digits", [*words, "run.sheet_every=0", "data.limit=2000"])


def weights(folder: Path, name: str) -> dict[str, bytes]:
    run = folder / name
    files = [*sorted((run / "checkpoints").rglob("cell-*")), run / "ensemble/model.safetensors"]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def repeat(folder: Path, engine: Engine, numbers: Sequence[int]) -> list[dict[str, Any]]:
    found = []
    for number in numbers:
        name, killer = f"{engine.name}-{number}", Killer(random.Random(number))
        training.train(settings(folder, name), killer, engine=engine)
        same = weights(folder, name) == weights(folder, "undisturbed")
        row = {"detected": killer.detected, "same": same, "killed": killer.killed is not None}
        print(f"{engine.name} {number:>3}: {row}", file=sys.stderr, flush=True)
        found.append(row)
    return found


def master_of_a_job(launcher: Launcher, folder: Path, numbers: list[int]) -> None:
    session = ranks.join_job(launcher)
    rows = repeat(folder, Engine("mpi", session=session), numbers)
    (folder / f"mpi-{numbers[0]}.json").write_text(json.dumps(rows))


def jobs(folder: Path, count: int) -> list[dict[str, Any]]:
    found = []
    for first in range(0, count, PER_JOB):
        numbers = list(range(first, min(first + PER_JOB, count)))
        # Rank by rank is lost; at the last repetition as many workers are left as elsewhere.
        ranks = 1 + WORKERS + len(numbers)
        command = [*find_mpiexec(None, ranks), sys.executable, __file__]
        subprocess.run([*command, "--job", str(folder), *map(str, numbers)], check=False)
        found += json.loads((folder / f"mpi-{first}.json").read_text())
    return found


def show(name: str, rows: list[dict[str, Any]]) -> None:
    struck = [row for row in rows if row["killed"]]
    times = [row["detected"] for row in struck if row["detected"] is not None]
    print(
        f"{name:8} {len(struck):>3} kills in training   detected after "
        f"{statistics.median(times):.3f} s (at most {max(times):.3f})   "
        f"identical {sum(row['same'] for row in struck)} of {len(struck)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--engines", nargs="+", default=["process", "mpi"])
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    launcher = find_launcher(os.environ)
    if launcher is not None and options.job:
        where, *numbers = options.job
        master_of_a_job(launcher, Path(where), [int(number) for number in numbers])
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        training.train(settings(folder, "undisturbed"))
        if "process" in options.engines:
            show("process", repeat(folder, Engine("process", WORKERS), range(options.repeat)))
        if "mpi" in options.engines:
            show("mpi", jobs(folder, options.repeat))


if __name__ == "__main__":
    main()
