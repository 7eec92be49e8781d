"""Weak scaling of class-parallel training: does a cell-round take as long when labels grow?

    python -m benchmarks.class_scaling --labels 2 10 40 100
    python -m benchmarks.class_scaling --match-workers

Relabels the images of a data set (digits, or CIFAR-10 with --data cifar10) into groups of equal
size and trains one small GAN per group, on a fixed number of workers; or, with --match-workers, as
many labels as workers, from one to the number of cores. Prints the median seconds of training per
cell-round and the wall seconds per round and label of a worker, the least of interleaved repeats,
and both as ratios to the first row.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.real_data import cifar10_overrides
from remuda.config import load_config
from remuda.data import Dataset, load_dataset
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.runs.store import RunFolder


def grouped(dataset: Dataset, labels: int, each: int) -> Dataset:
    """The first labels × each items, dealt out to so many labels."""
    count = labels * each
    if count > len(dataset):
        raise SystemExit(f"{labels} labels of {each} images are more than the {len(dataset)} here")
    return dataclasses.replace(
        dataset.first(count),
        labels=torch.arange(count) % labels,
        label_names=tuple(f"group-{label}" for label in range(labels)),
    )


def cell_round(
    dataset: Dataset, labels: int, workers: int, arguments: argparse.Namespace
) -> tuple[float, float]:
    """Median seconds of training per cell-round, and wall seconds per round and label of a worker.

    The first round warms up and does not count.
    """
    with tempfile.TemporaryDirectory() as scratch:
        config = load_config(
            "class-parallel-mnist",
            [
                f"data={arguments.data}",
                f"rounds={arguments.rounds}",
                f"run.dir={Path(scratch) / 'run'}",
                f"network.width={arguments.width}",
                "training.batch_size=20",
                "score.extractor=none",
                "run.sheet_every=0",
                "run.checkpoint_every=1000",
            ],
        )
        # One worker is a process too, so that only the number differs.
        data = grouped(dataset, labels, arguments.each)
        result = training.train(config, dataset=data, engine=Engine("process", workers))
        events = RunFolder.open(result.path).events()
    later = [event for event in events if event.get("round", 0) > 1]
    spent = [event["seconds"]["train"] for event in later if event["event"] == "round"]
    rounds = [event["seconds"] for event in later if event["event"] == "population"]
    return statistics.median(spent), statistics.median(rounds) / (labels / workers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", choices=("digits", "mnist", "cifar10"), default="digits")
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 10, 40, 100])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--match-workers", action="store_true", help="as many labels as workers")
    parser.add_argument("--each", type=int, default=100, help="images per label")
    parser.add_argument("--width", type=int, default=16, help="of the networks")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    overrides = [f"data={arguments.data}", *cifar10_overrides(arguments.data)]
    settings = load_config("class-parallel-mnist", overrides).data
    dataset = load_dataset(settings)
    if arguments.match_workers:
        sizes = [(workers, workers) for workers in range(1, arguments.workers + 1)]
    else:
        sizes = [(labels, arguments.workers) for labels in arguments.labels]
    found: dict[tuple[int, int], list[tuple[float, float]]] = {size: [] for size in sizes}
    for number in range(arguments.repeat):
        for size in sizes:
            found[size].append(cell_round(dataset, *size, arguments))
            print(
                f"\r{number + 1} of {arguments.repeat}, {size[0]} labels", end="", file=sys.stderr
            )
    print(file=sys.stderr)
    print("labels  workers  s per cell-round    ratio  s per round and label    ratio")
    least = {size: tuple(map(min, zip(*pairs, strict=True))) for size, pairs in found.items()}
    first = least[sizes[0]]
    for (labels, workers), (spent, wall) in least.items():
        print(
            f"{labels:6}  {workers:7}  {spent:16.4f}  {spent / first[0]:7.3f}"
            f"  {wall:21.4f}  {wall / first[1]:7.3f}"
        )


if __name__ == "__main__":
    main()
