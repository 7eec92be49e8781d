"""Strong scaling of the process engine: cell-rounds per second of two workers over one.

Both run the article's MLP on the same grid with one thread per worker, interleaved, medians over
repetitions; start-up is left out, because the rounds' own times are compared.

    python benchmarks/scaling.py [--workers 2] [--repeat 3] [--rounds 4]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from remuda import runtime
from remuda.config import load_config
from remuda.methods import Recipe
from remuda.runtime import Engine, Observer


class Rounds(Observer):
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def completed(self, round: int, recipe: Recipe, seconds: float) -> None:
        # The first round includes what each worker does once.
        if round > 1:
            self.seconds.append(seconds)


def round_seconds(workers: int, rounds: int) -> list[float]:
    observer = Rounds()
    with tempfile.TemporaryDirectory() as folder:
        settings = ["data=digits", f"rounds={rounds}", "training.batches_per_round=300"]
        settings += ["run.sheet_every=0", f"run.dir={Path(folder) / 'run'}"]
        config = load_config("cellular-mnist", settings)
        runtime.train(config, observer, engine=Engine("process", workers))
    return observer.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    one: list[float] = []
    many: list[float] = []
    for _ in range(options.repeat):
        one += round_seconds(1, options.rounds)
        many += round_seconds(options.workers, options.rounds)
    slow, fast = statistics.median(one), statistics.median(many)
    print("cellular-mnist networks, 2x2 grid, 300 batches per cell and round, 1 thread per worker")
    print(f"1 worker    {4 / slow:.3f} cell-rounds/s")
    print(f"{options.workers} workers   {4 / fast:.3f} cell-rounds/s")
    print(f"speed-up    {slow / fast:.2f}")


if __name__ == "__main__":
    main()
