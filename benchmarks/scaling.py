"""Strong scaling of the process engine: cell-rounds per second of two workers over one.

Both run the article's MLP on the same grid with one thread per worker, interleaved, medians over
repetitions; start-up is left out, because the rounds' own times are compared. What the machine
itself allows is measured in the same run: processes that train alone and share nothing, one of
them against as many at once as there are workers.

    python benchmarks/scaling.py [--workers 2] [--repeat 3] [--rounds 4] [--batches 600]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch

from remuda.config import load_config
from remuda.methods import Mixture
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.parallel.observer import Observer
from remuda.runs.prepare import Run


class Rounds(Observer):
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def completed(self, round: int, mixture: Mixture, seconds: float) -> None:
        # The first round includes what each worker does once.
        if round > 1:
            self.seconds.append(seconds)


def round_seconds(workers: int, rounds: int, batches: int) -> list[float]:
    observer = Rounds()
    with tempfile.TemporaryDirectory() as folder:
        settings = ["data=digits", f"rounds={rounds}", f"training.batches_per_round={batches}"]
        settings += ["run.sheet_every=0", f"run.dir={Path(folder) / 'run'}"]
        config = load_config("cellular-mnist-paper", settings)
        training.train(config, observer, engine=Engine("process", workers))
    return observer.seconds


def train_alone(batches: int, start: Barrier, seconds: SimpleQueue[float]) -> None:
    """One GAN of the same size on the same number of batches, after everybody is ready."""
    torch.set_num_threads(1)
    settings = ["data=digits", "grid=1x1", "method=independent", "score.extractor=none"]
    config = load_config(
        "cellular-mnist-paper", [*settings, f"training.batches_per_round={batches}"]
    )
    run = Run.prepare(config)
    cell = run.probe(0)
    cell.round = 1
    cell.train(cell.gan)  # what torch does once
    start.wait()
    begun = time.perf_counter()
    cell.train(cell.gan)
    seconds.put(time.perf_counter() - begun)


def ceiling(workers: int, batches: int) -> tuple[float, float]:
    """Seconds of one process alone, and of the slowest of several at once."""
    context = multiprocessing.get_context("spawn")
    found = []
    for count in (1, workers):
        start, seconds = context.Barrier(count), context.SimpleQueue()
        crowd = [
            context.Process(target=train_alone, args=(batches, start, seconds))
            for _ in range(count)
        ]
        for process in crowd:
            process.start()
        for process in crowd:
            process.join()
        found.append(max(seconds.get() for _ in crowd))
    return found[0], found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--batches", type=int, default=600)
    options = parser.parse_args()
    workers, batches = options.workers, options.batches
    one: list[float] = []
    many: list[float] = []
    limits: list[float] = []
    for _ in range(options.repeat):
        one += round_seconds(1, options.rounds, batches)
        many += round_seconds(workers, options.rounds, batches)
        alone, crowded = ceiling(workers, 4 * batches)
        limits.append(workers * alone / crowded)
    slow, fast = statistics.median(one), statistics.median(many)
    print(
        f"cellular-mnist-paper networks, 2x2 grid, {batches} batches per cell and round, "
        "1 thread per worker"
    )
    print(f"1 worker    {4 / slow:.3f} cell-rounds/s")
    print(f"{workers} workers   {4 / fast:.3f} cell-rounds/s")
    print(f"speed-up    {slow / fast:.2f}")
    print(f"of at most  {statistics.median(limits):.2f}, which processes that share nothing reach")


if __name__ == "__main__":
    main()
