"""What the parallel system costs: exchange, heartbeat and checkpoints on the process engine.

A `cellular-mnist-paper` round is 600 batches per cell (one epoch of MNIST). Exchange and checkpoint
are the times that the cells' own events give; waiting for a slower peer counts as exchange, so this
is an upper bound. Heartbeat is all CPU time of the master and of the workers' talking threads.

    python benchmarks/overhead.py [--workers 2] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from remuda.config import load_config
from remuda.methods import Mixture
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.parallel.observer import Observer
from remuda.parallel.protocol import WorkerStatus
from remuda.runs.store import RunFolder

EXCHANGE = ("gather", "publish", "wait")


def cpu_seconds(path: Path) -> float:
    """CPU time of a process or thread from its /proc folder."""
    fields = (path / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Talk(Observer):
    """CPU time of the master and of the workers' main threads, after the first round."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._pids: list[int] = []
        self._start: float | None = None

    def workers_seen(self, workers: Sequence[WorkerStatus]) -> None:
        self._pids = [worker.pid for worker in workers]

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        used = time.process_time()
        used += sum(cpu_seconds(Path(f"/proc/{pid}/task/{pid}")) for pid in self._pids)
        if self._start is None and self._pids:
            self._start = used
        elif self._start is not None:
            self.seconds = used - self._start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    talk = Talk()
    with tempfile.TemporaryDirectory() as folder:
        words = ["data=digits", f"rounds={options.rounds}", "training.batches_per_round=600"]
        words += ["run.sheet_every=0", f"run.dir={Path(folder) / 'run'}"]
        config = load_config("cellular-mnist-paper", words)
        training.train(config, talk, engine=Engine("process", options.workers))
        events = RunFolder(Path(folder) / "run").events()
    rounds = [event for event in events if event["event"] == "round" and event["round"] > 1]
    total = sum(sum(event["seconds"].values()) for event in rounds)
    parts = {
        "exchange": sum(event["seconds"].get(name, 0.0) for event in rounds for name in EXCHANGE),
        "checkpoint": sum(event["seconds"].get("checkpoint", 0.0) for event in rounds),
        "heartbeat": talk.seconds,
    }
    print(
        f"cellular-mnist-paper, 600 batches per round, {len(rounds)} cell-rounds of {total:.1f} s"
    )
    for name, seconds in parts.items():
        print(f"{name:10} {seconds:7.3f} s  {seconds / total:6.2%}")
    print(f"{'together':10} {sum(parts.values()):7.3f} s  {sum(parts.values()) / total:6.2%}")


if __name__ == "__main__":
    main()
