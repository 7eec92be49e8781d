"""What `portable: true` costs: training batches with and without it, and its matrix products.

    python -m benchmarks.portable [--repeat 8] [--quick]

Processes of their own, on one thread each, take turns: one with the kernels of this machine, one
with those of all machines. CPU milliseconds per batch of training a cell, and of the products of a
fully connected one alone. The products are also done in two other ways that were tried, and that
give bits of their own: by oneDNN and by numpy's OpenBLAS, both told to take AVX2.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.measuring import Times, print_table, publish
from remuda.config import load_config
from remuda.runs.machine import this_machine
from remuda.runs.portable import VARIABLES
from remuda.runs.prepare import Run

BATCHES = {
    "quickstart": 40,
    "cellular-mnist": 40,
    "cellular-mnist-paper": 40,
    "averaging-mnist": 20,
    "class-parallel-mnist": 4,
}
USUAL: dict[str, str] = {}
PINNED = {**VARIABLES, "OPENBLAS_CORETYPE": "Haswell"}
# Rows, inner, columns of a batch of the article's MLP: on the way forth, and of two gradients.
PRODUCTS = ((100, 256, 784), (100, 784, 256), (784, 100, 256), (256, 100, 784), (100, 64, 256))
TIMES = 20  # that all of them are done before the clock is looked at
WAYS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "MKL": ("mkl", USUAL),
    "MKL, portable": ("mkl", VARIABLES),
    "oneDNN, AVX2": ("onednn", VARIABLES),
    "OpenBLAS, Haswell": ("openblas", PINNED),
}


# ---------------------------------------------------------------------------- in a child


def _training(preset: str) -> Callable[[], object]:
    words = ["data=digits", f"training.batches_per_round={BATCHES[preset]}"]
    run = Run.prepare(load_config(preset, words))
    cell = run.cell(0)

    def round() -> None:
        cell.round += 1
        cell.train(cell.gan)

    return round


def _products(way: str) -> Callable[[], object]:
    rng = torch.Generator().manual_seed(1)
    pairs = [
        (torch.rand(rows, inner, generator=rng), torch.rand(inner, columns, generator=rng))
        for rows, inner, columns in PRODUCTS
    ]
    arrays = [(left.numpy(), right.numpy()) for left, right in pairs]
    layers = [(left, right.t().contiguous()) for left, right in pairs]
    linear = torch.ops.mkldnn._linear_pointwise
    once: dict[str, Callable[[], object]] = {
        "mkl": lambda: [torch.mm(left, right) for left, right in pairs],
        "openblas": lambda: [np.matmul(left, right) for left, right in arrays],
        "onednn": lambda: [linear(left, across, None, "none", [], "") for left, across in layers],
    }
    return lambda: [once[way]() for _ in range(TIMES)]


def _serve(what: str) -> None:
    """Do the work whenever a line comes, and answer with the seconds."""
    torch.set_num_threads(1)
    work = _training(what) if what in BATCHES else _products(what)
    print(this_machine().fingerprint, flush=True)
    for _ in sys.stdin:
        begun = time.process_time()
        work()
        print(time.process_time() - begun, flush=True)


# ---------------------------------------------------------------------------- in the parent


class Child:
    """A process that does some work with these variables whenever it is asked to."""

    def __init__(self, what: str, variables: Mapping[str, str]) -> None:
        told = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **variables}
        inherited = {name: value for name, value in os.environ.items() if name not in PINNED}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.portable", "--serve", what],
            env={**inherited, **told},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.fingerprint = self._line()
        self.seconds: list[float] = []

    def work(self, *, counts: bool) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        seconds = float(self._line())
        if counts:
            self.seconds.append(seconds)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> Times:
        self._process.communicate()
        return Times(tuple(self.seconds))


def take_turns(
    cases: Mapping[str, tuple[str, Mapping[str, str]]], repeat: int
) -> tuple[dict[str, Times], dict[str, str]]:
    """The times of each case, and the fingerprint of its process."""
    children = {name: Child(*case) for name, case in cases.items()}
    try:
        for number in range(repeat + 1):
            for child in children.values():
                child.work(counts=number > 0)
    finally:
        times = {name: child.end() for name, child in children.items()}
    return times, {name: child.fingerprint for name, child in children.items()}


def compared(
    cases: Mapping[str, tuple[str, Mapping[str, str]]], repeat: int, per: int
) -> dict[str, Any]:
    """Every case over the first."""
    times, fingerprints = take_turns(cases, repeat)
    first = next(iter(times.values()))
    return {
        name: {**found.to_json(per), "ratio": found.over(first), "fingerprint": fingerprints[name]}
        for name, found in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=8)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", choices=[*BATCHES, "mkl", "onednn", "openblas"])
    options = parser.parse_args()
    if options.serve:
        _serve(options.serve)
        return
    repeat = 2 if options.quick else options.repeat
    found = {
        preset: compared(
            {"usual": (preset, USUAL), "portable": (preset, VARIABLES)}, repeat, batches
        )
        for preset, batches in BATCHES.items()
    }
    products = compared(WAYS, repeat, TIMES)
    head = ("", "", "least ms", "median ms", "ratio of least", "median ratio")
    for title, parts in (
        ("A training batch, CPU time, one thread", found),
        ("The products of a batch of 100", {"products": products}),
    ):
        rows = [
            (name, case, figures["least_ms"], figures["median_ms"],
             figures["ratio"]["least"], figures["ratio"]["median"])
            for name, cases in parts.items()
            for case, figures in cases.items()
        ]  # fmt: skip
        print_table(title, head, rows)
    publish("portable", {"training": found, "products": products}, quick=options.quick)


if __name__ == "__main__":
    main()
