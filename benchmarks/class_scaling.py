"""Weak scaling of class-parallel training: does a cell-round take as long when labels grow?

    python benchmarks/class_scaling.py --labels 2 10 40 100
    python benchmarks/class_scaling.py --match-workers

Relabels the images of a data set (digits, or CIFAR-10 with --data cifar10) into groups of equal
size and trains one small GAN per group, on a fixed number of workers; or, with --match-workers, as
many labels as workers, from one to the number of cores. Prints the median seconds of training per
cell-round, and the wall seconds per round and label of a worker.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import tempfile
from pathlib import Path

import torch

from remuda import runtime
from remuda.config import load_config
from remuda.data import Dataset, load_dataset
from remuda.runtime import Engine
from remuda.store import RunFolder


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


def measure(dataset: Dataset, labels: int, workers: int, arguments: argparse.Namespace) -> None:
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
        engine = Engine("process", workers) if workers > 1 else Engine("local")
        data = grouped(dataset, labels, arguments.each)
        result = runtime.train(config, dataset=data, engine=engine)
        events = RunFolder.open(result.path).events()
    training = [event["seconds"]["train"] for event in events if event["event"] == "round"]
    wall = result.seconds / arguments.rounds / (labels / workers)
    print(
        f"{labels:4} labels, {workers} workers: median {statistics.median(training):.3f} s per "
        f"cell-round, {wall:.3f} s per round and label of a worker",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", choices=("digits", "mnist", "cifar10"), default="digits")
    parser.add_argument("--labels", type=int, nargs="+", default=[2, 10, 40, 100])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--match-workers", action="store_true", help="as many labels as workers")
    parser.add_argument("--each", type=int, default=100, help="images per label")
    parser.add_argument("--width", type=int, default=16, help="of the networks")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    settings = load_config("class-parallel-mnist", [f"data={arguments.data}"]).data
    dataset = load_dataset(settings)
    if arguments.match_workers:
        for workers in range(1, arguments.workers + 1):
            measure(dataset, workers, workers, arguments)
    else:
        for labels in arguments.labels:
            measure(dataset, labels, arguments.workers, arguments)


if __name__ == "__main__":
    main()
