"""How close a training batch of the article's MLP (Table I) comes to its matrix products alone.

Prints CPU time per batch of `Cell.train` over that of the bare GEMMs of the same batches, measured
in one run, interleaved, one thread, minima over repetitions: noise hits both sides alike.

    python benchmarks/step.py [--repeat 25] [--json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable

import torch

from remuda.config import Config, load_config
from remuda.data import load_dataset
from remuda.gan.game import Rivals
from remuda.methods import build_method

BATCHES = 60
Product = tuple[int, int, int]  # rows, inner, columns


def linear_sizes(config: Config, items: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    hidden = list(config.network.hidden)  # type: ignore[attr-defined]
    generator = [config.network.latent, *hidden, items]
    discriminator = [items, *reversed(hidden), 1]
    return (
        list(itertools.pairwise(generator)),
        list(itertools.pairwise(discriminator)),
    )


def forward(rows: int, layers: list[tuple[int, int]]) -> list[Product]:
    return [(rows, before, after) for before, after in layers]


def weight_gradients(rows: int, layers: list[tuple[int, int]]) -> list[Product]:
    return [(after, rows, before) for before, after in layers]


def input_gradients(rows: int, layers: list[tuple[int, int]]) -> list[Product]:
    return [(rows, after, before) for before, after in layers]


def operands(products: list[Product]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [
        (torch.randn(rows, inner), torch.randn(inner, columns)) for rows, inner, columns in products
    ]


def gemm_round(config: Config, items: int, opponents: int) -> Callable[[], None]:
    """The matrix products that a round cannot do without, and nothing else.

    The network that learns is one, its opponents are several, and each has matrices of its own, as
    in training: products of matrices that never leave the cache would be too low a floor.
    """
    rows = config.training.batch_size
    generator, discriminator = linear_sizes(config, items)
    generator_learns = operands(
        forward(rows, generator)
        + weight_gradients(rows, generator)
        + input_gradients(rows, generator[1:])
    )
    discriminator_learns = operands(
        forward(2 * rows, discriminator)
        + weight_gradients(2 * rows, discriminator)
        + input_gradients(2 * rows, discriminator[1:])
    )
    discriminators = [
        operands(forward(rows, discriminator) + input_gradients(rows, discriminator))
        for _ in range(opponents)
    ]
    generators = [operands(forward(rows, generator)) for _ in range(opponents)]
    plan = []
    for batch in range(BATCHES):
        if batch % (config.training.skip_n_disc_steps + 1) == 0:
            plan += generators[batch % opponents] + discriminator_learns
        plan += discriminators[batch % opponents] + generator_learns

    def run() -> None:
        for left, right in plan:
            torch.mm(left, right)

    return run


def training_round(config: Config, rivals: int) -> Callable[[], None]:
    """A round of real training, opponents of a neighbourhood included."""
    dataset = load_dataset(config.data)
    cell = build_method(config).cell(0, dataset, torch.arange(len(dataset)), None)
    guests = [cell.gan.clone() for _ in range(rivals)]
    against = Rivals(
        [guest.generator.network.eval() for guest in guests],
        [guest.discriminator.network.eval() for guest in guests],
    )

    def run() -> None:
        cell.round += 1
        cell.train(cell.gan, against)

    return run


def cpu_seconds(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=25)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = load_config(
        "cellular-mnist-paper", ["data=digits", f"training.batches_per_round={BATCHES}"]
    )
    items = 28 * 28
    train, gemm = training_round(config, rivals=4), gemm_round(config, items, opponents=5)
    train()
    gemm()
    times = [(cpu_seconds(train), cpu_seconds(gemm)) for _ in range(options.repeat)]
    best_train, best_gemm = (min(column) / BATCHES * 1e3 for column in zip(*times, strict=True))
    ratio = best_train / best_gemm
    if options.json:
        print(json.dumps({"train_ms": best_train, "gemm_ms": best_gemm, "ratio": ratio}))
    else:
        print("Table I MLP, batch 100, discriminator every second batch, five opponents, 1 thread")
        print(f"training    {best_train:.3f} ms CPU per batch")
        print(f"GEMM only   {best_gemm:.3f} ms CPU per batch")
        print(f"ratio       {ratio:.2f}   (target: at most 2.0)")


if __name__ == "__main__":
    main()
